"""The server of prefork-disk.c in Python: see there.

    prefork.py DIR --workers N [--no-sync]
"""

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path

REQUEST_MS, ENTRIES_WITHOUT_SYNC = 40, 1
ENTRY = b"Z" * (4 << 20)


def now_ms():
    return 1e3 * time.monotonic()


def append_entries(file, sync):
    """How fast a disk syncs differs by the moment: a request syncs until a time is over. Its log
    begins anew, and each entry has blocks to allocate."""
    os.ftruncate(file, 0)
    end, count = now_ms() + REQUEST_MS, 0
    while now_ms() < end if sync else count < ENTRIES_WITHOUT_SYNC:
        os.pwrite(file, ENTRY, count * len(ENTRY))
        if sync:
            os.fsync(file)
        count += 1
    return count


def converse(connection, file, sync):
    received = b""
    while piece := connection.recv(4096):
        received += piece
        if not received.endswith(b"\r\n\r\n"):
            continue
        received, read = b"", now_ms()
        entries = append_entries(file, sync)
        moments = {"read": read, "begun": read, "ended": now_ms()}
        body = json.dumps({"worker": os.getpid(), "entries": entries} | moments)
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


def serve(listener, file, sync):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                converse(connection, file, sync)
            except OSError:
                # A client that goes away is no news.
                pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--no-sync", action="store_true")
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    paths = [args.dir / f"log-{number}" for number in range(args.workers)]
    files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in paths]
    children = []
    for file in files:
        child = os.fork()
        if not child:
            serve(listener, file, not args.no_sync)
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    os.wait()
    raise SystemExit("prefork: a worker ended")


if __name__ == "__main__":
    main()
