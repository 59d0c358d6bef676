"""The recordings that are kept of all labs, in tests/corpus: packing and unpacking them, and what
is derived from them and the labs."""

import datetime
import functools
import importlib.machinery
import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/corpus"
# What recordings have in common, for zstd: each is a fifth smaller with it.
DICTIONARY = FOLDER / "dictionary"
LABELS = FOLDER / "labels.json"
PAGE = FOLDER / "README.md"
BEGIN, END = "<!-- origins: generated -->\n", "<!-- origins: end -->\n"
MS = 1_000_000
# Of what was saved. One run a side does not tell how far runs are apart; nearly all of those in
# docs/accuracy.md are less than that.
NOISE_OF_ONE_RUN = 0.1


def load_accuracy():
    """labs/accuracy, which knows what fixes saved, and has the page."""
    loader = importlib.machinery.SourceFileLoader("accuracy", str(ROOT / "labs/accuracy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    # Dataclasses look up the module that they are in.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def archive(lab, variant):
    return FOLDER / lab / f"{variant}.tar.zst"


def revision():
    """The newest revision of this checkout that is in main. Others are no names to keep: a branch
    is based anew before it gets there."""
    git = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True)
    base = git(["git", "merge-base", "HEAD", "main"])
    if base.returncode != 0:
        # A clone of one revision, which has no main.
        base = git(["git", "rev-parse", "HEAD"], check=True)
    base = base.stdout.strip()
    # But for what this writes.
    changed = git(["git", "diff", "--quiet", base, "--", ".", ":!tests/corpus"]).returncode != 0
    return base[:8] + (", with changes that were not in main yet" if changed else "")


def recording_bytes(recording):
    return sum(file.stat().st_size for file in recording.rglob("*") if file.is_file())


def keep(folder, lab, variant, revision):
    """Keeps the recording of a folder, with its ground truth and where it is from."""
    recording = folder / "recording"
    truth = json.loads((folder / "truth.json").read_text())
    truth["recording_bytes"] = recording_bytes(recording)
    origin = {"revision": revision, "processor": processor()}
    compress(archived(recording, truth, origin), lab, variant)


def archived(recording, truth, origin):
    """The archive of a recording, as bytes. The same input gives the same bytes. The recording is
    written anew for it, as one segment that is laid out to be compressed as a whole: it reads the
    same, and compresses to two thirds of what it would take as it is."""
    packed = io.BytesIO()
    with (
        tempfile.TemporaryDirectory(prefix="whywait-corpus-") as scratch,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        folder = Path(scratch)
        cargo = ["cargo", "run", "--quiet", "--locked", "-p", "whywait-events"]
        subprocess.run(
            [*cargo, "--example", "one_segment", recording, folder / "recording"],
            cwd=ROOT,
            check=True,
        )
        for name, content in (("truth.json", truth), ("origin.json", origin)):
            add(tar, name, json.dumps(content, sort_keys=True).encode())
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            add(tar, str(file.relative_to(folder)), file.read_bytes())
    return packed.getvalue()


def compress(content, lab, variant):
    path = archive(lab, variant)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstd("--ultra", "-22", content=content))


def repack(names):
    """Packs all that are kept anew, with a dictionary of all of them."""
    with tempfile.TemporaryDirectory(prefix="whywait-repack-") as scratch:
        contents = {}
        kept = [name for name in names if archive(*name).exists()]
        for number, (lab, variant) in enumerate(kept):
            folder = Path(scratch, str(number))
            unpack(lab, variant, folder)
            said = [json.loads((folder / of).read_text()) for of in ("truth.json", "origin.json")]
            contents[lab, variant] = folder / "content"
            contents[lab, variant].write_bytes(archived(folder / "recording", *said))
        train = ["zstd", "--train-fastcover=k=2000,d=8,f=24,accel=1", "--maxdict=1048576"]
        command = [*train, *contents.values(), "-o", DICTIONARY, "--force", "--quiet"]
        subprocess.run(command, check=True)
        for name, content in contents.items():
            compress(content.read_bytes(), *name)


def zstd(*how, content):
    command = ["zstd", "-D", DICTIONARY, *how, "--quiet", "--stdout"]
    return subprocess.run(command, input=content, stdout=subprocess.PIPE, check=True).stdout


def add(tar, name, content):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def unpacked(lab, variant):
    packed = zstd("--decompress", content=archive(lab, variant).read_bytes())
    return tarfile.open(fileobj=io.BytesIO(packed))


def unpack(lab, variant, folder):
    """Puts `recording`, `truth.json` and `origin.json` into the folder."""
    with unpacked(lab, variant) as tar:
        tar.extractall(folder)


def read(lab, variant, *names):
    """Files of an archive, as JSON."""
    with unpacked(lab, variant) as tar:
        return [json.load(tar.extractfile(name)) for name in names]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def labels(listed, kept, accuracy):
    """The text of labels.json: what the labs say of those variants that are kept, and what fixed
    twins saved."""
    lines = []
    for lab in listed:
        name = (lab["name"], lab["variant"])
        if name not in kept:
            continue
        line = {
            "lab": lab["name"],
            "variant": lab["variant"],
            "must": lab["must"],
            "must_not": lab["must_not"],
            "max_severity": lab["max_severity"],
            "justified": sorted(lab["justified"]),
            "savings": savings(name, kept, accuracy),
        }
        lines.append(json.dumps(line))
    return "[\n" + ",\n".join(lines) + "\n]\n"


# Fixed twins that have another name than the broken one.
TWINS = {
    ("database", "go-pool-3"): "go-pool-fixed",
    ("database", "go-pool-4"): "go-pool-fixed",
    ("java-locks", "monitor-latest"): "fixed",
    ("java-locks", "reentrant-latest"): "fixed",
    ("jobs", "helper"): "pool-fixed",
    ("jobs", "ordered"): "pool-fixed",
    ("loop-saturated", "asyncio"): "fixed",
    ("prefork-disk", "sixteen"): "fixed",
    ("prefork-disk", "sixteen-python"): "fixed-python",
    ("proxies", "haproxy-pool-3"): "haproxy-pool-fixed",
    ("proxies", "haproxy-pool-4"): "haproxy-pool-fixed",
    ("sessions", "limit"): "transaction-fixed",
    ("sessions", "session"): "transaction-fixed",
    ("upstream", "asyncio-pool-3"): "asyncio-pool-fixed",
    ("upstream", "asyncio-pool-4"): "asyncio-pool-fixed",
    ("upstream", "tokio-pool-3"): "tokio-pool-fixed",
    ("upstream", "tokio-pool-4"): "tokio-pool-fixed",
    ("workers", "prefork-unix"): "prefork-fixed",
}


def savings(name, kept, accuracy):
    """What the fixed twins of a variant saved, by the clocks of their clients and servers."""
    found = []
    for pair in pairs(name, kept, accuracy):
        fixed = (pair.lab, pair.fixed)
        if pair.fixed and fixed not in kept:
            continue
        twins = [kept[fixed].truth] if pair.fixed else []
        truth = kept[name].truth
        measured, requests = accuracy.Measured.of(pair, [truth], twins), pair.count(truth)
        noise = max(measured.noise, NOISE_OF_ONE_RUN * measured.saved)
        saving = {
            "code": pair.code,
            "against": pair.fixed or "its own time",
            "saved_ns": round(measured.saved * requests * MS),
            "noise_ns": round(noise * requests * MS),
        }
        found.append(saving)
    return found


def pairs(name, kept, accuracy):
    """The pairs of a variant: those that labs/accuracy measures, or else its twin by name, where
    the fix took most of the requests' time away."""
    of = [pair for pair in accuracy.PAIRS if (pair.lab, pair.broken) == name]
    of = [pair for pair in of if not pair.server_args and pair.bound]
    if of:
        return of
    code, fixed = kept[name].must, fixed_twin(name, kept)
    if not code or not fixed:
        return []
    truths = accuracy.on_the_wire([kept[one].truth for one in (name, fixed)])
    kinds = [accuracy.series(truth) for truth in truths]
    if not kinds[0] or kinds[0].keys() != kinds[1].keys():
        return []
    before, after = map(accuracy.mean, truths)
    return [accuracy.Pair(*name, fixed[1], code)] if after < before / 2 else []


def fixed_twin(name, kept):
    """The kept variant that has the fault of this one mended and nothing else; `None`: none."""
    lab, variant = name
    twins = [f"{variant}-fixed", TWINS.get(name)]
    if variant.startswith("broken"):
        twins += [variant.replace("broken", "fixed"), "fixed"]
    return next(((lab, twin) for twin in twins if (lab, twin) in kept), None)


class Kept:
    """What is known of a kept recording."""

    def __init__(self, lab, variant, must):
        # What is found first, if something must be found.
        self.must = must
        self.truth, origin, meta = read(
            lab, variant, "truth.json", "origin.json", "recording/meta.json"
        )
        host = meta["host"]
        began = meta["started_wall_unix_ns"] / 1e9
        self.origin = (
            datetime.datetime.fromtimestamp(began, datetime.timezone.utc).strftime("%Y-%m-%d"),
            origin["revision"],
            f"Linux {host['kernel']}, {host['cpus']} CPUs ({origin['processor']})",
        )


def all_kept(listed):
    """Those of the listed variants that are kept, by lab and variant."""
    must = {(lab["name"], lab["variant"]): (lab["must"] or [None])[0] for lab in listed}
    return {name: Kept(*name, code) for name, code in must.items() if archive(*name).exists()}


def page(kept):
    """The text of README.md: the part about where recordings are from."""
    by_origin = {}
    for (lab, variant), one in kept.items():
        by_origin.setdefault(one.origin, {}).setdefault(lab, []).append(variant)
    rows = ["| when | revision | where | of |", "|---|---|---|---|"]
    most = max(by_origin, key=lambda origin: sum(map(len, by_origin[origin].values())))
    for origin, labs in sorted(by_origin.items()):
        names = (
            "all others"
            if origin == most and len(by_origin) > 1
            else "all"
            if origin == most
            else "; ".join(f"{lab}: {', '.join(names)}" for lab, names in labs.items())
        )
        count = sum(map(len, labs.values()))
        rows.append(f"| {' | '.join(origin)} | {names} ({count}) |")
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + "\n".join(rows) + "\n" + END + rest.split(END)[1]


def derived(listed):
    """What is derived of the kept recordings and the labs: texts by file."""
    kept = all_kept(listed)
    return {LABELS: labels(listed, kept, load_accuracy()), PAGE: page(kept)}


def stale(listed):
    """What is wrong with tests/corpus, in words."""
    wrong = []
    names = {(lab["name"], lab["variant"]) for lab in listed}
    kept = {(path.parent.name, path.name.removesuffix(".tar.zst")) for path in archives()}
    wrong += [f"{lab} {variant}: no recording is kept" for lab, variant in sorted(names - kept)]
    wrong += [f"{lab} {variant}: there is no such lab" for lab, variant in sorted(kept - names)]
    for file, text in derived(listed).items():
        if file.read_text() != text:
            wrong.append(f"{file.relative_to(ROOT)} is stale: `labs/record-all --labels` writes it")
    return wrong


def archives():
    return FOLDER.glob("*/*.tar.zst")
