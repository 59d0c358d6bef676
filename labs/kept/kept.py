"""Processes forked ahead; each takes a connection and keeps it until the client closes it.

    kept.py WORKERS read|poll|select [--close]

How a process waits for the next request of its connection: in recv, in poll (what a time limit of
Python's is) or in select, for a minute. --close: a connection ends with its first answer.
"""

import argparse
import json
import os
import re
import select
import signal
import socket
import time

LIMIT_S, WORK_S = 60, 0.003


def now_ms():
    return 1e3 * time.monotonic()


def read_request(connection, mode):
    """A request with its body: the fault. False: the client has gone."""
    received, wanted = b"", None
    while wanted is None or len(received) < wanted:
        if mode == "select" and not select.select([connection], [], [], LIMIT_S)[0]:
            return False
        piece = connection.recv(4096)
        if not piece:
            return False
        received += piece
        head, end, _ = received.partition(b"\r\n\r\n")
        if end and wanted is None:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            wanted = len(head) + 4 + (int(length[1]) if length else 0)
    return True


def serve(listener, args):
    while True:
        connection, _ = listener.accept()
        connection.settimeout(LIMIT_S if args.mode == "poll" else None)
        with connection:
            try:
                while read_request(connection, args.mode):
                    read = now_ms()
                    # Long enough to be recorded: so it shows who serves.
                    time.sleep(WORK_S)
                    body = json.dumps({"read": read, "begun": read, "ended": now_ms()})
                    connection.sendall(
                        f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                    )
                    if args.close:
                        break
            except OSError:
                # A client that goes away is no news.
                pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    parser.add_argument("mode", choices=["read", "poll", "select"])
    parser.add_argument("--close", action="store_true")
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    children = []
    for _ in range(args.workers):
        child = os.fork()
        if not child:
            serve(listener, args)
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    os.wait()
    raise SystemExit("kept: a worker ended")


if __name__ == "__main__":
    main()
