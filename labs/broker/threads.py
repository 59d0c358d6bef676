"""A consumer that hands each job from a list of redis to threads, through a queue.

    threads.py ADDRESS --threads N [--ahead N]

A job sleeps for 40 ms. It is the moment at which it was pushed. What becomes of it is that, when it
was taken by a thread, and when it was done, in milliseconds. With --ahead so many jobs, which
nobody pushed, are in the queue before it is ready: what becomes of them is not said.
"""

import argparse
import os
import queue
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
from resp import Redis  # noqa: E402  pylint: disable=wrong-import-position


def now_ms():
    return 1e3 * time.monotonic()


def resize_image():
    time.sleep(0.04)


def work(jobs, address):
    own = Redis(address)
    while True:
        job, taken = jobs.get(), now_ms()
        resize_image()
        if job:
            own.call("RPUSH", "done", f"{job} {taken} {now_ms()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--ahead", type=int, default=0)
    args = parser.parse_args()
    own = Redis(args.address)
    jobs = queue.SimpleQueue()
    for _ in range(args.ahead):
        jobs.put(None)
    for _ in range(args.threads):
        threading.Thread(target=work, args=(jobs, args.address), daemon=True).start()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {args.address}\n")
    while True:
        jobs.put(own.call("BLPOP", "jobs", "0")[1].decode())


if __name__ == "__main__":
    main()
