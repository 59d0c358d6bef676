"""Sends jobs to a topic of Kafka, and holds what became of them.

    produce.py ADDRESS DONE [--jobs N] [--every-ms N] [--expect RULE]…

The ground truth has the consumer's own: from when a job was sent until it was taken (queued), until
it was done (work), and both (load).
"""

import argparse
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
import done  # noqa: E402  pylint: disable=wrong-import-position


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("done")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--every-ms", type=float, default=60)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    producer = Producer({"bootstrap.servers": args.address, "linger.ms": 0})
    for _ in range(args.jobs):
        producer.produce("jobs", value=str(client.now_ms()))
        producer.flush()
        time.sleep(args.every_ms / 1e3)
    jobs = done.wait_for(args.done, args.jobs)
    truth = {
        "load": client.summary([end - sent for sent, _, end in jobs]),
        "queued": client.summary([taken - sent for sent, taken, _ in jobs]),
        "work": client.summary([end - taken for _, taken, end in jobs]),
    }
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
