"""Publishes jobs to NATS JetStream, and holds what became of them.

    produce.py ADDRESS DONE [--jobs N] [--alone N] [--at-once N] [--every-ms N] [--expect RULE]…

The first --alone of them come one by one, each after the one before was acknowledged. The ground
truth has the workers' own: from when a job was sent until the library had it (sent), until a worker
took it (queued), until it was acknowledged (work), and the last two (load).
"""

import argparse
import random
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
import done  # noqa: E402  pylint: disable=wrong-import-position


def publish(broker, jobs):
    now = f"{client.now_ms():.3f}".encode()
    broker.sendall(b"PUB jobs.image %d\r\n%s\r\n" % (len(now), now) * jobs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("done")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--alone", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--every-ms", type=float, default=50)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    host, _, port = args.address.rpartition(":")
    broker = socket.create_connection((host, int(port)))
    broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    broker.recv(65536)
    broker.sendall(b'CONNECT {"verbose":false}\r\n')
    for job in range(args.alone):
        publish(broker, 1)
        done.wait_for(args.done, job + 1)
    pause = random.Random(7)
    for _ in range(args.alone, args.jobs, args.at_once):
        publish(broker, args.at_once)
        time.sleep(args.every_ms * pause.uniform(0.3, 1.7) / 1e3)
    truth = done.truth(done.wait_for(args.done, args.jobs))
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
