"""Takes jobs from a queue of SQS, ten at a time, and works on them one after the other.

    worker.py ADDRESS DONE [--threads N]

A job takes 40 ms. It is the moment at which it was sent. A line of DONE is that, when it was
received, when it was taken, and when it was done, in milliseconds of the clock that all processes
share. Each thread has a client of its own, and asks for as many as give each of them something to
do.
"""

import argparse
import os
import threading
import time

import boto3


def now_ms():
    return 1e3 * time.monotonic()


def client_of(address):
    return boto3.client("sqs", endpoint_url=f"http://{address}", region_name="elasticmq",
                        aws_access_key_id="x", aws_secret_access_key="x")


def resize_image():
    time.sleep(0.04)


def work(address, at_once, done):
    sqs = client_of(address)
    queue = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    while True:
        got = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=2, MaxNumberOfMessages=at_once)
        received = now_ms()
        for message in got.get("Messages", []):
            taken = now_ms()
            resize_image()
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            print(f"{message['Body']} {received} {taken} {now_ms()}", file=done, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("done")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    at_once = 10 if args.threads == 1 else 1
    with open(args.done, "w", encoding="utf-8") as done:
        workers = [threading.Thread(target=work, args=(args.address, at_once, done))
                   for _ in range(args.threads)]
        for one in workers:
            one.start()
        with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
            ready.write(f"{os.getpid()} {args.address}\n")
        for one in workers:
            one.join()


if __name__ == "__main__":
    main()
