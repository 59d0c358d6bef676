"""Clients of redis that wait for long, as they mean to, and one that asks for something quick.

    redis-waits.py ADDRESS blpop|pubsub|monitor

blpop     four wait for jobs, one of which comes every 50 ms
pubsub    four are subscribed to what is published every 20 ms
monitor   one is told of all commands, and reads hardly any of it
"""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
from resp import Redis  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, WAITING = 3.0, 4


def quick(address, latency, done):
    """A bystander."""
    own = Redis(address)
    while not done.is_set():
        asked = client.now_ms()
        own.call("SET", "key", "v" * 8192)
        own.call("GET", "key")
        latency.append((client.now_ms() - asked) / 2)
        time.sleep(0.002)


def worker(address, late):
    """Takes jobs, each of which says when it was pushed."""
    own = Redis(address)
    while (job := own.call("BLPOP", "jobs", "0")[1]) != b"end":
        late.append(client.now_ms() - float(job))


def subscriber(own, late):
    while (message := own.receive()[2]) != b"end":
        late.append(client.now_ms() - float(message))


def feed(address, command, where, every_s, ends):
    own, end = Redis(address), time.monotonic() + SECONDS
    while time.monotonic() < end:
        own.call(command, where, str(client.now_ms()))
        time.sleep(every_s)
    for _ in range(ends):
        own.call(command, where, "end")


def blpop(address, late):
    workers = [threading.Thread(target=worker, args=(address, late)) for _ in range(WAITING)]
    for one in workers:
        one.start()
    feed(address, "RPUSH", "jobs", 0.05, WAITING)
    for one in workers:
        one.join()


def pubsub(address, late):
    subscribers = []
    for _ in range(WAITING):
        own = Redis(address)
        own.call("SUBSCRIBE", "news")
        subscribers.append(threading.Thread(target=subscriber, args=(own, late)))
        subscribers[-1].start()
    feed(address, "PUBLISH", "news", 0.02, 1)
    for one in subscribers:
        one.join()


def monitor(address, late):
    slow = Redis(address, 4096)
    slow.call("MONITOR")
    asked = time.monotonic()
    while time.monotonic() < asked + SECONDS:
        begun = client.now_ms()
        slow.socket.recv(512)
        late.append(client.now_ms() - begun)
        time.sleep(0.05)


def main():
    address, what = sys.argv[1:]
    latency, late, done = [], [], threading.Event()
    bystander = threading.Thread(target=quick, args=(address, latency, done))
    bystander.start()
    {"blpop": blpop, "pubsub": pubsub, "monitor": monitor}[what](address, late)
    done.set()
    bystander.join()
    truth = {"load": client.summary(latency), "late": client.summary(late)}
    return client.tell(truth, ["late.count>=40", "late.p50_ms<=20", "load.p50_ms<=20"])


if __name__ == "__main__":
    sys.exit(main())
