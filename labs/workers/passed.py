#!/usr/bin/env python3
"""A process accepts connections and hands each to another one, which serves it in a thread.

  passed.py [--unlocked]

A request is 20 ms of waiting, with a lock that all threads share, or with --unlocked without one.
"""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import nullcontext

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def print_label(lock):
    with lock:
        time.sleep(0.02)


def serve_connection(connection, lock):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as lines:
        while lines.readline():
            while lines.readline() != b"\r\n":
                pass
            print_label(lock)
            connection.sendall(ANSWER)


def serve(handed, lock):
    while True:
        data, fds, _, _ = socket.recv_fds(handed, 1, 1)
        if not data:
            return
        connection = socket.socket(fileno=fds[0])
        threading.Thread(target=serve_connection, args=(connection, lock), daemon=True).start()


def main():
    lock = nullcontext() if "--unlocked" in sys.argv else threading.Lock()
    ours, theirs = socket.socketpair()
    worker = os.fork()
    if not worker:
        ours.close()
        serve(theirs, lock)
        return
    theirs.close()
    # It ends with the one that serves, which has no listener.
    signal.signal(signal.SIGCHLD, lambda *_: os._exit(0))
    listener = socket.create_server(("127.0.0.1", 0))
    with open(os.environ["READY_FILE"], "w") as ready:
        ready.write(f"{worker} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        connection, _ = listener.accept()
        socket.send_fds(ours, [b"c"], [connection.fileno()])
        connection.close()


main()
