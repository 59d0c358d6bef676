"""Runs wrk against a server, and prints what it met.

wrk.py ADDRESS [--path PATH] [--connections N] [--seconds N]
"""

import argparse
import json
import re
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--path", default="/")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=3)
    args = parser.parse_args()
    command = [
        "wrk",
        "-t1",
        f"-c{args.connections}",
        f"-d{args.seconds}s",
        "--latency",
        f"http://{args.address}{args.path}",
    ]
    said = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    def number(pattern):
        found = re.search(pattern, said, re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    truth = {
        "requests": int(number(r"^\s*(\d+) requests in")),
        "per_s": number(r"Requests/sec:\s*([\d.]+)"),
        "not_2xx": int(number(r"Non-2xx or 3xx responses: (\d+)")),
        "errors": sum(int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", said)),
        "p50": (re.search(r"50%\s+(\S+)", said) or [None, None])[1],
        "p99": (re.search(r"99%\s+(\S+)", said) or [None, None])[1],
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    if truth["requests"] < 100 or truth["not_2xx"] or truth["errors"]:
        sys.exit(f"wrk: that is no ordinary load:\n{said}")


if __name__ == "__main__":
    main()
