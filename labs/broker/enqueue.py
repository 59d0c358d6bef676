"""Pushes jobs to a list of redis, and holds what became of them.

    enqueue.py ADDRESS [--jobs N] [--at-once N] [--every-ms N] [--not-done] [--expect RULE]…

The ground truth has the workers' own: from when a job was pushed until it was taken (queued), until
it was done (work), and both (load).
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
from resp import Redis  # noqa: E402  pylint: disable=wrong-import-position


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--every-ms", type=float, default=60)
    parser.add_argument("--not-done", action="store_true")
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    own = Redis(args.address)
    for number in range(args.jobs):
        own.call("RPUSH", "jobs", str(client.now_ms()))
        if (number + 1) % args.at_once == 0:
            time.sleep(args.every_ms / 1e3)
    if args.not_done:
        return client.tell({"pushed": {"count": args.jobs}}, args.expect)
    became = [own.call("BLPOP", "done", "20") for _ in range(args.jobs)]
    jobs = [[float(moment) for moment in one[1].split()] for one in became]
    truth = {
        "load": client.summary([done - pushed for pushed, _, done in jobs]),
        "queued": client.summary([taken - pushed for pushed, taken, _ in jobs]),
        "work": client.summary([done - taken for _, taken, done in jobs]),
    }
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
