"""Threads that share one epoll instance: each connection is armed for one event at a time.

    oneshot.py UPSTREAM --workers N

The thread that gets the event reads the request, asks the other service, answers, and only then
arms the connection again.
"""

import argparse
import json
import os
import select
import signal
import socket
import threading
import time

ONCE = select.EPOLLIN | select.EPOLLONESHOT


def now_ms():
    return 1e3 * time.monotonic()


class Server:
    def __init__(self, args):
        host, _, port = args.upstream.rpartition(":")
        self.upstream = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.epoll = select.epoll()
        self.epoll.register(self.listener, ONCE)
        self.connections = {}

    def work(self):
        upstream = socket.create_connection(self.upstream)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            for fd, _ in self.epoll.poll(maxevents=1):
                if fd == self.listener.fileno():
                    self.take_connection()
                else:
                    self.serve(fd, upstream)

    def take_connection(self):
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[connection.fileno()] = connection
        self.epoll.register(connection, ONCE)
        self.epoll.modify(self.listener, ONCE)

    def serve(self, fd, upstream):
        connection = self.connections[fd]
        if not connection.recv(4096):
            self.connections.pop(fd).close()
            return
        read = now_ms()
        fetch_report(upstream)
        said = {"worker": threading.get_native_id(), "read": read, "begun": read, "ended": now_ms()}
        body = json.dumps(said)
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.epoll.modify(connection, ONCE)


def fetch_report(upstream):
    """Asks the other service and waits for its answer."""
    upstream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    if not upstream.recv(4096):
        raise SystemExit("oneshot: the upstream has gone")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    parser.add_argument("--workers", type=int, required=True)
    args = parser.parse_args()
    server = Server(args)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for _ in range(args.workers):
        threading.Thread(target=server.work, daemon=True).start()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write("{} 127.0.0.1:{}\n".format(os.getpid(), server.listener.getsockname()[1]))
    threading.Event().wait()


if __name__ == "__main__":
    main()
