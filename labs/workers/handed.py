"""A server whose loop reads requests, and whose threads call another service and answer.

    handed.py UPSTREAM --threads N [--lock]

With --lock each thread asks with a lock in its hands: then they are one worker, however many.
"""

import argparse
import contextlib
import json
import os
import queue
import selectors
import socket
import threading
import time

REQUESTS = queue.SimpleQueue()


def now_ms():
    return 1e3 * time.monotonic()


def fetch_report(upstream):
    begun = now_ms()
    upstream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    if not upstream.recv(4096):
        os._exit(1)
    return begun


def fetch_one_at_a_time(upstream, lock):
    """The fault of --lock: it is held while the other service works."""
    with lock:
        return fetch_report(upstream)


def work(address, lock):
    host, _, port = address.rpartition(":")
    upstream = socket.create_connection((host, int(port)))
    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        connection, read = REQUESTS.get()
        begun = fetch_one_at_a_time(upstream, lock) if lock else fetch_report(upstream)
        body = json.dumps({"read": read, "begun": begun, "ended": now_ms()})
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        with contextlib.suppress(OSError):
            connection.sendall(answer.encode())


def serve(listener):
    """Reads whole requests of all connections, and hands each to a thread."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    heads = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ)
                heads[connection] = b""
                continue
            connection = key.fileobj
            piece = connection.recv(4096)
            heads[connection] += piece
            if not piece:
                selector.unregister(connection)
                del heads[connection]
                connection.close()
            elif heads[connection].endswith(b"\r\n\r\n"):
                heads[connection] = b""
                REQUESTS.put((connection, now_ms()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--lock", action="store_true")
    args = parser.parse_args()
    lock = threading.Lock() if args.lock else None
    for _ in range(args.threads):
        threading.Thread(target=work, args=(args.upstream, lock), daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    serve(listener)


if __name__ == "__main__":
    main()
