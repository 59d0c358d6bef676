"""Clients that each ask one question at a time in a datagram, and what the server says became of
it.

    questions.py ADDRESS [--clients N] [--rounds N] [--pause-ms N] [--names] [--expect RULE]…

ADDRESS  HOST:PORT, or the path of a unix socket
--names  asks a DNS server for slow-….lab, each name once; such a server says nothing more

The ground truth is like timeline.py's: of all questions the time until the server had read them
(unread), until the work on them began (queued), until it ended (work), and until the client's
kernel had the answer (load).
"""

import argparse
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402


class Client(threading.Thread):
    def __init__(self, number, args):
        super().__init__(daemon=True)
        self.number, self.args = number, args
        self.questions, self.failed = [], None

    def run(self):
        try:
            self.converse()
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error

    def converse(self):
        if self.args.address.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.bind(f"{self.args.folder}/{self.number}")
            self.socket.connect(self.args.address)
        else:
            host, _, port = self.args.address.rpartition(":")
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect((host, int(port)))
        self.socket.settimeout(client.DEADLINE_S)
        for done in range(self.args.rounds):
            if done:
                time.sleep(self.args.pause_ms / 1e3)
            self.questions.append(self.ask(1000 * self.number + done))

    def ask(self, number):
        question = struct.pack("!H", number % 65536)
        if self.args.names:
            name = f"slow-{number}".encode()
            question += b"\x01\x00\x00\x01" + bytes(6)
            question += bytes([len(name)]) + name + b"\x03lab\x00\x00\x01\x00\x01"
        else:
            question += str(number).encode()
        sent = client.now_ms()
        self.socket.send(question)
        answer = self.socket.recv(65536)
        received = client.now_ms()
        if answer[:2] != question[:2]:
            raise ValueError("that answers another question")
        if self.args.names:
            return [sent, sent, sent, received, received]
        said = json.loads(answer[2:])
        return [sent, said["read"], said["begun"], said["ended"], received]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--pause-ms", type=float, default=0)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as args.folder:
        clients = [Client(number, args) for number in range(args.clients)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
            if one.failed:
                sys.exit(f"questions: client {one.number}: {one.failed!r}")
    questions = [question for one in clients for question in one.questions]

    def series(until, since):
        return client.summary([question[until] - question[since] for question in questions])

    truth = {
        "load": series(4, 0), "unread": series(1, 0), "queued": series(2, 1), "work": series(3, 2),
        "served": series(3, 0), "clients": args.clients,
    }
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
