"""Subscribers that read at once, and one that reads slowly: it is the second to come.

    subscribers.py ADDRESS [--many N] [--seconds N] [--slow-ms N] [--expect RULE]…

The ground truth has what passed between two messages of those that read at once (between).
"""

import argparse
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

MESSAGE = 1 << 18
PIECE = 1 << 16


class Subscriber(threading.Thread):
    def __init__(self, args, slow):
        super().__init__(daemon=True)
        self.slow_s = args.slow_ms / 1e3 if slow else 0
        self.between, self.end = [], None
        host, _, port = args.address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self.socket.connect((host, int(port)))
        self.socket.sendall(
            f"GET /{args.many} HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)

    def run(self):
        came = None
        while time.monotonic() < self.end:
            self.read_message()
            now = client.now_ms()
            if came:
                self.between.append(now - came)
            came = now

    def read_message(self):
        left = MESSAGE
        while left:
            read = len(self.socket.recv(min(left, PIECE)))
            if not read:
                raise ConnectionError("the server has closed the connection")
            left -= read
            if self.slow_s and left % PIECE < read:
                time.sleep(self.slow_s)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--many", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--slow-ms", type=float, default=100)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    subscribers = [Subscriber(args, number == 1) for number in range(args.many)]
    for one in subscribers:
        # The slow one reads until the others are done: they may wait for it.
        one.end = time.monotonic() + (3600 if one.slow_s else args.seconds)
        one.start()
    for number, one in enumerate(subscribers):
        if number != 1:
            one.join()
    between = [ms for number, one in enumerate(subscribers) if number != 1 for ms in one.between]
    truth = {"between": client.summary(between)}
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
