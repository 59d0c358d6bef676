"""Clients of threads.py that take their time.

    clients.py ADDRESS upload         sends a body of 400 kB within a second, on each of four connections
    clients.py ADDRESS idle [--tls]   has a few answers on each of eight connections, and keeps them until the server says goodbye
    clients.py ADDRESS ask            has two answers on each of four connections
"""

import argparse
import json
import socket
import ssl
import sys
import threading
import time

BODY, PIECES, SECONDS = 400_000, 20, 1.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\nabcdefghijklmnopqrstuvwx"


def answer(connection):
    received = b""
    while len(received) < len(ANSWER):
        piece = connection.recv(4096)
        if not piece:
            raise RuntimeError(f"cut short after {received!r}")
        received += piece


def upload(connection):
    connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % BODY)
    for _ in range(PIECES):
        time.sleep(SECONDS / PIECES)
        connection.sendall(bytes(BODY // PIECES))
    answer(connection)


def idle(connection):
    for _ in range(5):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer(connection)
        time.sleep(0.02)
    if connection.recv(4096):
        raise RuntimeError("more than was asked for")


def ask(connection):
    for _ in range(2):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer(connection)


def client(args, took):
    host, _, port = args.address.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    if args.tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = tls.wrap_socket(connection)
    begun = time.monotonic()
    with connection:
        {"upload": upload, "idle": idle, "ask": ask}[args.what](connection)
    took.append(time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("what", choices=["upload", "idle", "ask"])
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    took, count = [], 8 if args.what == "idle" else 4
    threads = [threading.Thread(target=client, args=(args, took)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) != count or min(took) < SECONDS:
        sys.exit(f"clients: {count} were to take {SECONDS} s or longer each: {took}")
    print("ground-truth: " + json.dumps({"connections": count, "longest_s": max(took)}), file=sys.stderr)


if __name__ == "__main__":
    main()
