"""A prefork HTTP server whose workers lock a session's file while they work for it.

    server.py DIR [--fcntl] [--own-files]

The work takes 40 ms, and PHP's sessions are locked like this. All clients have the same session,
and wait for each other: for flock(2), or with --fcntl for a record lock. With --own-files each has
one of its own. Each worker keeps how long it waited and held the lock in memory that all share.
"""

import argparse
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

WORKERS = 8
WORK_SECONDS = 0.04
# A worker's part of the shared memory: how many requests there were, and for each the waiting and
# the holding, in ns.
MOST = 4096
REQUEST = struct.Struct("=QQ")
COUNT = struct.Struct("=Q")
PART = COUNT.size + MOST * REQUEST.size


class Truth:
    """What all workers met."""

    def __init__(self):
        self.shared = mmap.mmap(-1, WORKERS * PART)

    def add(self, worker, waited_ns, held_ns):
        (count,) = COUNT.unpack_from(self.shared, worker * PART)
        if count < MOST:
            offset = worker * PART + COUNT.size + count * REQUEST.size
            REQUEST.pack_into(self.shared, offset, waited_ns, held_ns)
            COUNT.pack_into(self.shared, worker * PART, count + 1)

    def about(self):
        waits, holds = [], []
        for worker in range(WORKERS):
            (count,) = COUNT.unpack_from(self.shared, worker * PART)
            for number in range(count):
                offset = worker * PART + COUNT.size + number * REQUEST.size
                waited, held = REQUEST.unpack_from(self.shared, offset)
                waits.append(waited / 1e6)
                holds.append(held / 1e6)
        return {"lock_wait": client.summary(waits), "held": client.summary(holds)}


def render_page():
    """A call of something synchronous."""
    time.sleep(WORK_SECONDS)


def with_session(path, kind):
    """Renders with the session's file locked. Returns how long it waited for it and had it."""
    with open(path, "a", encoding="utf-8") as session:
        wanted = time.monotonic_ns()
        if kind == "fcntl":
            fcntl.lockf(session, fcntl.LOCK_EX)
        else:
            fcntl.flock(session, fcntl.LOCK_EX)
        locked = time.monotonic_ns()
        render_page()
        held = time.monotonic_ns() - locked
        # Closing it unlocks it.
    return locked - wanted, held


def serve(listener, worker, options, truth):
    """One connection at a time; keep-alive, GET only: what the labs' clients speak."""
    session = os.path.join(options.dir, f"session-{worker}" if options.own_files else "session")
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as lines:
            while request := lines.readline():
                while lines.readline() != b"\r\n":
                    pass
                if request.split()[1] == b"/about":
                    body = json.dumps(truth.about())
                else:
                    truth.add(worker, *with_session(session, "fcntl" if options.fcntl else "flock"))
                    body = "page"
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall((head + body).encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--fcntl", action="store_true")
    parser.add_argument("--own-files", action="store_true")
    options = parser.parse_args()
    truth = Truth()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    workers = []
    for worker in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            serve(listener, worker, options, truth)
        workers.append(pid)

    def stop(*_):
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    host, port = listener.getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {host}:{port}\n")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
