"""Workers that take jobs from a list of redis, one at a time each, and push what became of them.

    worker.py ADDRESS [--threads N] [--locked|--polled|--calls|--quick|--forks] [--each] [--tick]

Without one of these a job sleeps for 40 ms.

--locked   … with a lock that all threads share
--polled   it takes a lock in redis for 15 ms; who finds it taken sleeps for 20 ms and tries again
--each     … a lock for each customer; each job is another one's
--calls    … in redis, which is asked for something that takes as long
--quick    a job takes a moment
--forks    a job sleeps in a process of its own, which its worker waits for
--tick     besides, a thread looks at the clock every second

A job is the moment at which it was pushed. What becomes of it is that, when it was taken, and when
it was done, in milliseconds of the clock that all processes share.
"""

import argparse
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
from resp import Redis  # noqa: E402  pylint: disable=wrong-import-position

LOCK = threading.Lock()
# Of redis: it is busy for so long, in seconds.
SLOW = "local t = redis.call('TIME'); t = t[1] * 1e6 + t[2]; local n = t; while n < t + 40000 do " \
    "n = redis.call('TIME'); n = n[1] * 1e6 + n[2] end return 1"


def now_ms():
    return 1e3 * time.monotonic()


def resize_image():
    time.sleep(0.04)


def resize_under_lock():
    with LOCK:
        time.sleep(0.04)


def ask_catalogue(own):
    own.call("EVAL", SLOW, "0")


def acquire(own, lock):
    while not own.call("SET", lock, "1", "NX", "PX", "10000"):
        time.sleep(0.02)


def charge_customer():
    time.sleep(0.015)


def charge_under_lock(own, lock):
    acquire(own, lock)
    charge_customer()
    own.call("DEL", lock)


def resize_in_child():
    child = os.fork()
    if not child:
        resize_image()
        os._exit(0)
    os.waitpid(child, 0)


def work(args, own, job):
    if args.locked:
        resize_under_lock()
    elif args.polled:
        charge_under_lock(own, f"lock:{job}" if args.each else "lock")
    elif args.calls:
        ask_catalogue(own)
    elif args.forks:
        resize_in_child()
    elif not args.quick:
        resize_image()


def tick():
    while True:
        now_ms()
        time.sleep(1)


def worker(args):
    own = Redis(args.address)
    other = Redis(args.address)
    while True:
        job = own.call("BLPOP", "jobs", "0")[1]
        taken = now_ms()
        work(args, other, job.decode())
        other.call("RPUSH", "done", f"{job.decode()} {taken} {now_ms()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--threads", type=int, default=1)
    for kind in ("locked", "polled", "each", "calls", "quick", "forks", "tick"):
        parser.add_argument(f"--{kind}", action="store_true")
    args = parser.parse_args()
    workers = [threading.Thread(target=worker, args=(args,)) for _ in range(args.threads)]
    for one in workers:
        one.start()
    if args.tick:
        threading.Thread(target=tick, daemon=True).start()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {args.address}\n")
    for one in workers:
        one.join()


if __name__ == "__main__":
    main()
