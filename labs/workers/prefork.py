"""Processes forked ahead; each takes a connection at a time and calls another service for it.

    prefork.py UPSTREAM --workers N [--calls N] [--work-ms N] [--unix PATH]

--calls    so many for each connection, one after another (1)
--work-ms  it computes for so long besides, some of that after each call; where there are several,
           the second process, and the others for a quarter less, or more, each
--unix     they listen there, and not at a port
"""

import argparse
import json
import os
import signal
import socket
import time


def now_ms():
    return 1e3 * time.monotonic()


class Worker:
    def __init__(self, listener, args, number):
        self.listener, self.calls, self.work_ms = listener, args.calls, args.work_ms
        if self.calls > 1:
            # Else they may go in step, and sleep together.
            self.work_ms *= 0.75 + 0.25 * number
        host, _, port = args.upstream.rpartition(":")
        self.upstream = socket.create_connection((host, int(port)))
        self.upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fetch_report(self):
        """Asks the other service and waits for its answer."""
        self.upstream.sendall(b"GET / HTTP/1.1\r\n\r\n")
        if not self.upstream.recv(4096):
            raise SystemExit("prefork: the upstream has gone")

    def compute_answer(self):
        # By its own time on a CPU: what it waits for one is no work.
        end = time.thread_time() + 1e-3 * self.work_ms / self.calls
        while time.thread_time() < end:
            pass

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                try:
                    self.answer(connection)
                except OSError:
                    # A client that goes away is no news.
                    pass

    def answer(self, connection):
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            piece = connection.recv(4096)
            if not piece:
                return
            received += piece
        read = now_ms()
        for _ in range(self.calls):
            self.fetch_report()
            self.compute_answer()
        body = json.dumps({"worker": os.getpid(), "read": read, "begun": read, "ended": now_ms()})
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--work-ms", type=float, default=0)
    parser.add_argument("--unix")
    args = parser.parse_args()
    if args.unix:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(args.unix)
        listener.listen(128)
    else:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    children = []
    for number in range(args.workers):
        child = os.fork()
        if not child:
            Worker(listener, args, number).serve()
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        address = args.unix or "127.0.0.1:{}".format(listener.getsockname()[1])
        ready.write(f"{os.getpid()} {address}\n")
    os.wait()
    raise SystemExit("prefork: a worker ended")


if __name__ == "__main__":
    main()
