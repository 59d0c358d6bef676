"""Runs pgbench, and prints what it met.

pgbench.py ADDRESS [--clients N] [--seconds N] [--expect-mean-ms MS]
           --script select|tpcb|hot|own|table
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# A row is kept for 2 ms: everybody wants the same one, or has one of its own.
UPDATE = """BEGIN;
UPDATE hot SET n = n + 1 WHERE id = {row};
SELECT pg_sleep(0.002);
COMMIT;
"""

# The whole table is.
LOCK = """BEGIN;
LOCK TABLE hot;
SELECT pg_sleep(0.002);
COMMIT;
"""


def wait_until_started(pg_isready, host, port):
    """It listens before it is ready."""
    end = time.monotonic() + 30
    while subprocess.run([pg_isready, "-q", "-h", host, "-p", port, "-U", "postgres"]).returncode:
        if time.monotonic() > end:
            sys.exit("pgbench: the server did not start")
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=2)
    scripts = ["select", "tpcb", "hot", "own", "table"]
    parser.add_argument("--script", choices=scripts, required=True)
    parser.add_argument(
        "--expect-mean-ms", type=float, default=0, help="a transaction takes at least so long"
    )
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as update:
        of_row = UPDATE.format(row=1 if args.script == "hot" else ":client_id + 1")
        update.write(LOCK if args.script == "table" else of_row)
        update.flush()
        what = {"select": ["-S"], "tpcb": ["-b", "tpcb-like"]}.get(args.script, ["-f", update.name])
        pgbench = max(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
        wait_until_started(pgbench.with_name("pg_isready"), host, port)
        command = [
            pgbench,
            "-n",
            "-h",
            host,
            "-p",
            port,
            "-U",
            "postgres",
            "-c",
            str(args.clients),
            "-j",
            "1",
            "-T",
            str(args.seconds),
            *what,
            "postgres",
        ]
        said = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def number(pattern):
        return float(re.search(pattern, said)[1])

    truth = {
        "transactions": int(number(r"transactions actually processed: (\d+)")),
        "failed": int(number(r"failed transactions: (\d+)")),
        "mean_ms": number(r"latency average = ([\d.]+) ms"),
        "per_s": number(r"tps = ([\d.]+)"),
    }
    truth["load"] = {
        "count": truth["transactions"],
        "sum_ms": truth["transactions"] * truth["mean_ms"],
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    if truth["failed"] or truth["transactions"] < 100:
        sys.exit(f"pgbench: that is no ordinary load:\n{said}")
    if truth["mean_ms"] < args.expect_mean_ms:
        sys.exit(f"pgbench: a transaction took less than {args.expect_mean_ms} ms:\n{said}")


if __name__ == "__main__":
    main()
