"""Clients that ask again when they have their answer, until after whywait has ended.

    load.py ADDRESS [--connections N] [--rounds N] [--expect RULE]…

whywait attaches in the middle: the loop's poll never waits while anybody looks, neither before the
first request nor after the last. The rounds are counted from the moment on that whywait watches.
"""

import argparse
import json
import os
import re
import selectors
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

REQUEST = b"GET /rate HTTP/1.1\r\nHost: lab\r\n\r\n"


class Clients:
    """All of them in one thread, so that a fork is the same clients again."""

    def __init__(self, address, connections):
        self.selector = selectors.DefaultSelector()
        self.asked, self.sent, self.received = {}, {}, {}
        # By this program's clock, and by the kernel's: this program waits for a CPU, too.
        self.latencies, self.wire = [], []
        for _ in range(connections):
            one = client.Connection(address).socket
            self.selector.register(one, selectors.EVENT_READ)
            self.ask(one)

    def ask(self, one):
        self.received[one] = b""
        self.asked[one] = client.now_ms()
        one.sendall(REQUEST)
        # At once: a time that nobody takes looks like something to read.
        self.sent[one] = client.sent_ms(one)

    def turn(self):
        """Takes what has come, and asks again where that was an answer."""
        for key, _ in self.selector.select(client.DEADLINE_S):
            one = key.fileobj
            piece, received_ms = client.receive_stamped(one)
            if not piece:
                raise ConnectionError("the server closed the connection")
            self.received[one] += piece
            head, end, body = self.received[one].partition(b"\r\n\r\n")
            if end and len(body) >= int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1]):
                self.latencies.append(client.now_ms() - self.asked[one])
                self.wire.append(received_ms - self.sent[one])
                self.ask(one)

    def go_on_until_the_end(self):
        """In a process of its own, until the server has gone."""
        if os.fork():
            return
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        try:
            while True:
                self.turn()
        except OSError:
            os._exit(0)


def attach(clients):
    """As client.attach(), but the clients go on meanwhile."""
    file = Path(os.environ["ATTACH_FILE"])
    file.touch()
    while file.exists():
        clients.turn()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    clients = Clients(args.address, args.connections)
    while len(clients.latencies) < 2 * args.connections:
        clients.turn()
    attach(clients)
    clients.latencies.clear()
    clients.wire.clear()
    begun = client.now_ms()
    while len(clients.latencies) < args.rounds * args.connections:
        clients.turn()
    total_ms = client.now_ms() - begun
    clients.go_on_until_the_end()
    truth = {"load": client.summary(clients.latencies), "wire": client.summary(clients.wire),
             "total_ms": total_ms,
             "server": json.loads(client.ask(args.address, "/about"))}
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
