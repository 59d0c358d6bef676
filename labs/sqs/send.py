"""Sends jobs to a queue of SQS, several at a time, and holds what became of them.

    send.py ADDRESS DONE [--jobs N] [--at-once N] [--every-ms N] [--expect RULE]…

The ground truth has the workers' own: from when a job was sent until it was received (sent), until
it was taken (queued), until it was done (work), and the last two (load): whywait watches the
worker, and cannot know what a message waited at the broker.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
import done  # noqa: E402  pylint: disable=wrong-import-position
from worker import client_of  # noqa: E402  pylint: disable=wrong-import-position


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("done")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--every-ms", type=float, default=500)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    sqs = client_of(args.address)
    queue = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    for _ in range(0, args.jobs, args.at_once):
        sqs.send_message_batch(QueueUrl=queue, Entries=[
            {"Id": str(number), "MessageBody": str(client.now_ms())}
            for number in range(args.at_once)])
        time.sleep(args.every_ms / 1e3)
    truth = done.truth(done.wait_for(args.done, args.jobs))
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
