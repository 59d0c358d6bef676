"""Clients that take their time.

clients.py ADDRESS upload         sends a body of 400 kB within a second, on each of four
                                  connections
clients.py ADDRESS idle [--tls]   has a few answers on each of nine connections, and keeps them
                                  until the server closes them. Over TLS a third of them sends
                                  nothing then, a third sends its close_notify too before it closes,
                                  and a third closes without having read it, which resets the
                                  connection
clients.py ADDRESS ask            has two answers on each of four connections
"""

import argparse
import json
import re
import select
import socket
import ssl
import sys
import threading
import time

BODY, PIECES, SECONDS = 400_000, 20, 1.0
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer(connection):
    received = b""
    while not complete(received):
        piece = connection.recv(4096)
        if not piece:
            raise RuntimeError(f"cut short after {received!r}")
        received += piece


def complete(received):
    head, end, body = received.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1])


def upload(connection, _):
    connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % BODY)
    for _ in range(PIECES):
        time.sleep(SECONDS / PIECES)
        connection.sendall(bytes(BODY // PIECES))
    answer(connection)


def idle(connection, number):
    for _ in range(5):
        connection.sendall(GET)
        answer(connection)
        time.sleep(0.02)
    secure = isinstance(connection, ssl.SSLSocket)
    if secure and number % 3 == 2:
        select.select([connection], [], [])
        return
    if connection.recv(4096):
        raise RuntimeError("more than was asked for")
    if secure and number % 3 == 1:
        try:
            # The server closes when it has read this.
            while connection.unwrap().recv(4096):
                pass
        except OSError:
            # It has not waited for it.
            pass


def ask(connection, _):
    for _ in range(2):
        connection.sendall(GET)
        answer(connection)


def client(args, number, took):
    host, _, port = args.address.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    if args.tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = tls.wrap_socket(connection)
    begun = time.monotonic()
    with connection:
        {"upload": upload, "idle": idle, "ask": ask}[args.what](connection, number)
    took.append(time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("what", choices=["upload", "idle", "ask"])
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    took, count = [], 9 if args.what == "idle" else 4
    threads = [
        threading.Thread(target=client, args=(args, number, took)) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) != count or min(took) < SECONDS:
        sys.exit(f"clients: {count} were to take {SECONDS} s or longer each: {took}")
    print(
        "ground-truth: " + json.dumps({"connections": count, "longest_s": max(took)}),
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
