"""Takes jobs from a topic of Kafka, with a lock that another thread has for 120 ms, each 130 ms.

    consumer.py python|librdkafka ADDRESS DONE [--locked]

With kafka-python, or with confluent-kafka (librdkafka). In both a thread of the library fetches.
Without --locked the other thread has the lock for a moment only.

A job is the moment at which it was sent. A line of DONE is that, when it was taken, and when it was
done, in milliseconds of the clock that all processes share.
"""

import argparse
import os
import threading
import time

STOCK = threading.Lock()


def now_ms():
    return 1e3 * time.monotonic()


def count_stock(locked):
    while True:
        with STOCK:
            if locked:
                time.sleep(0.12)
        time.sleep(0.01)


def reserve():
    with STOCK:
        time.sleep(0.002)


def is_ready(address):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {address}\n")


def messages_of_python(address):
    from kafka import KafkaConsumer  # pylint: disable=import-outside-toplevel

    consumer = KafkaConsumer("jobs", bootstrap_servers=address, group_id="stock",
                             auto_offset_reset="earliest")
    while not consumer.assignment():
        consumer.poll(200)
    is_ready(address)
    while True:
        for records in consumer.poll(200).values():
            yield from (record.value for record in records)


def messages_of_librdkafka(address):
    from confluent_kafka import Consumer  # pylint: disable=import-outside-toplevel

    consumer = Consumer({"bootstrap.servers": address, "group.id": "stock",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["jobs"])
    while not consumer.assignment():
        consumer.poll(0.2)
    is_ready(address)
    while True:
        message = consumer.poll(0.2)
        if message and not message.error():
            yield message.value()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["python", "librdkafka"])
    parser.add_argument("address")
    parser.add_argument("done")
    parser.add_argument("--locked", action="store_true")
    args = parser.parse_args()
    threading.Thread(target=count_stock, args=(args.locked,), name="counter", daemon=True).start()
    messages = messages_of_python if args.library == "python" else messages_of_librdkafka
    with open(args.done, "w", encoding="utf-8") as done:
        for job in messages(args.address):
            taken = now_ms()
            reserve()
            print(f"{job.decode()} {taken} {now_ms()}", file=done, flush=True)


if __name__ == "__main__":
    main()
