"""Processes forked ahead; each takes a connection and keeps it until the client closes it.

    kept.py WORKERS read|poll|select|stream [--close]
    kept.py WORKERS oneshot|pollers|mixed

How a process waits for the next request of its connection: in recv, in poll (what a time limit of
Python's is) or in select, for a minute. stream: the answer to /stream never ends. --close: a
connection ends with its first answer.

oneshot: threads that share an epoll instance, in which each connection is armed for one event at a
time. Who gets it reads a whole request. pollers: threads that share an epoll instance that has the
listener alone, and each keeps what it accepts. mixed: processes of two kinds, one in recv and one
in poll. The answer to /slow takes 200 ms.
"""

import argparse
import json
import os
import re
import select
import signal
import socket
import threading
import time

LIMIT_S, WORK_S, SLOW_S, PAUSE_S, EVENT = 60, 0.003, 0.2, 0.1, bytes(20_000)
MODES = ["read", "poll", "select", "stream", "oneshot", "pollers", "mixed"]
ONCE = select.EPOLLIN | select.EPOLLONESHOT


def now_ms():
    return 1e3 * time.monotonic()


def read_request(connection, mode):
    """A request with its body: the fault. Nothing: the client has gone."""
    received, wanted = b"", None
    while wanted is None or len(received) < wanted:
        if mode == "select" and not select.select([connection], [], [], LIMIT_S)[0]:
            return None
        piece = connection.recv(4096)
        if not piece:
            return None
        received += piece
        head, end, _ = received.partition(b"\r\n\r\n")
        if end and wanted is None:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            wanted = len(head) + 4 + (int(length[1]) if length else 0)
    return received


def send_events(connection):
    """Until the client does not want any more."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(EVENT)
        time.sleep(PAUSE_S)


def serve(connection, mode):
    """A request and its answer. False: the connection is over."""
    try:
        request = read_request(connection, mode)
        if not request:
            return False
        if request.startswith(b"GET /stream "):
            send_events(connection)
        read = now_ms()
        # Long enough to be recorded: so it shows who serves.
        time.sleep(SLOW_S if request.startswith(b"GET /slow ") else WORK_S)
        body = json.dumps({"read": read, "begun": read, "ended": now_ms()})
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    except OSError:
        # A client that goes away is no news.
        return False
    return True


def keep(connection, args, polls):
    connection.settimeout(LIMIT_S if polls else None)
    with connection:
        while serve(connection, args.mode) and not args.close:
            pass


def work(listener, args, polls):
    while True:
        connection, _ = listener.accept()
        keep(connection, args, polls)


def poll(epoll, listener, args):
    while True:
        epoll.poll(maxevents=1)
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        keep(connection, args, False)


def pollers(listener, args):
    """Threads that share an epoll instance, as `poll` has it."""
    listener.setblocking(False)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    return [
        threading.Thread(target=poll, args=(epoll, listener, args)) for _ in range(args.workers)
    ]


class Shared:
    """The epoll instance that threads share."""

    def __init__(self, listener):
        self.listener, self.epoll, self.connections = listener, select.epoll(), {}
        self.epoll.register(listener, ONCE)

    def work(self):
        while True:
            for fd, _ in self.epoll.poll(maxevents=1):
                if fd == self.listener.fileno():
                    connection, _ = self.listener.accept()
                    self.connections[connection.fileno()] = connection
                    self.epoll.register(connection, ONCE)
                    self.epoll.modify(self.listener, ONCE)
                elif serve(self.connections[fd], "oneshot"):
                    self.epoll.modify(fd, ONCE)
                else:
                    self.connections.pop(fd).close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--close", action="store_true")
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    children = []
    for number in range(args.workers):
        if args.mode in ("oneshot", "pollers"):
            break
        child = os.fork()
        if not child:
            work(listener, args, args.mode == "poll" or args.mode == "mixed" and number % 2)
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    threads = []
    if args.mode == "oneshot":
        shared = Shared(listener)
        threads = [threading.Thread(target=shared.work) for _ in range(args.workers)]
    elif args.mode == "pollers":
        threads = pollers(listener, args)
    if threads:
        for thread in threads:
            thread.start()
        threads[0].join()
    else:
        os.wait()
    raise SystemExit("kept: a worker ended")


if __name__ == "__main__":
    main()
