"""A consumer that hands each job from a list of redis to a multiprocessing.Pool.

    pool.py ADDRESS --processes N

A job sleeps for 40 ms. It is the moment at which it was pushed. What becomes of it is that, when it
was taken by a process, and when it was done, in milliseconds of the clock that all processes share.
"""

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
from resp import Redis  # noqa: E402  pylint: disable=wrong-import-position


def now_ms():
    return 1e3 * time.monotonic()


def resize_image(job):
    taken = now_ms()
    time.sleep(0.04)
    return f"{job} {taken} {now_ms()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--processes", type=int, required=True)
    args = parser.parse_args()
    own, other = Redis(args.address), Redis(args.address)

    def is_done(result):
        other.call("RPUSH", "done", result)

    pool = multiprocessing.Pool(args.processes)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {args.address}\n")
    while True:
        job = own.call("BLPOP", "jobs", "0")[1].decode()
        pool.apply_async(resize_image, (job,), callback=is_done)


if __name__ == "__main__":
    main()
