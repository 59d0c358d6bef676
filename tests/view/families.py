"""Records labs: a variant of each family, the first that has a fault to show, and as many more as
it takes until each finding that a lab promises is there. --corpus: takes what is kept of them.

families.py WHYWAIT FOLDER
families.py --corpus FOLDER
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "tests/corpus"
# The first of a lab is built before.
DEADLINE_S = 900
# The lab did not come about: it is run once more.
FAILED = 10


def chosen(labs):
    """The variants to run, of all: names of labs and variants."""
    first = {}
    for lab in labs:
        before = first.get(lab["lab"])
        if before is None or lab["must"] and not before["must"]:
            first[lab["lab"]] = lab
    found = list(first.values())
    promised = {code for lab in found for code in lab["must"]}
    for lab in labs:
        if not promised.issuperset(lab["must"]):
            promised.update(lab["must"])
            found.append(lab)
    return [(lab["lab"], lab["variant"]) for lab in found]


def kept(folder):
    """Unpacks the recordings that are kept."""
    for lab, variant in chosen(json.loads((CORPUS / "labels.json").read_text())):
        packed = CORPUS / lab / f"{variant}.tar.zst"
        unpack = ["zstd", "-q", "-d", "-c", "-D", CORPUS / "dictionary", packed]
        archive = subprocess.run(unpack, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder / f"{lab}-{variant}", filter="data")


def main():
    whywait, folder = sys.argv[1:]
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if whywait == "--corpus":
        kept(folder)
        return 0
    environment = {**os.environ, "WHYWAIT": str(Path(whywait).absolute())}
    command = [ROOT / "labs/run", "--list", "--format", "json"]
    labs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    labs = [{"lab": lab["name"], **lab} for lab in labs]
    failed = []
    for lab, variant in chosen(labs):
        for attempt in (1, 2):
            keep = folder / f"{lab}-{variant}-{attempt}"
            command = [ROOT / "labs/run", "--keep", keep, lab, variant]
            print(f"recording {lab} {variant}", flush=True)
            status = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=DEADLINE_S,
            ).returncode
            if status != FAILED:
                break
        if not (keep / "meta.json").exists():
            failed.append(f"{lab} {variant}")
            print(f"FAILED {lab} {variant}: no recording", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
