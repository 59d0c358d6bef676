"""Clients of a database that each wait for their answer, over PostgreSQL's protocol.

    queries.py ADDRESS [--clients N] [--rounds N] [--ms N] [--peer ADDRESS] [--expect RULE]…

Each query takes so many milliseconds in the database. The ground truth is as that of timeline.py;
what the database did when is not known, so a call takes what was asked for.
"""

import argparse
import socket
import struct
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402

VERSION_3 = 3 << 16


class Connection:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=client.DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        who = b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!II", len(who) + 8, VERSION_3) + who)
        self.read_until_ready()

    def take(self, size):
        while len(self.received) < size:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("the server closed the connection")
            self.received += piece
        taken, self.received = self.received[:size], self.received[size:]
        return taken

    def read_until_ready(self):
        kind = b""
        while kind != b"Z":
            kind, size = struct.unpack("!cI", self.take(5))
            message = self.take(size - 4)
            if kind == b"E":
                sys.exit(f"queries: the database said {message}")

    def query(self, text):
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body)
        self.read_until_ready()


class Client(threading.Thread):
    def __init__(self, args, start):
        super().__init__(daemon=True)
        self.args, self.start_line = args, start
        self.latencies, self.thinks, self.failed = [], [], None
        self.connection = Connection(args.address)

    def run(self):
        try:
            self.start_line.wait()
            answered = None
            for _ in range(self.args.rounds):
                sent = client.now_ms()
                if answered:
                    self.thinks.append(sent - answered)
                self.connection.query(f"SELECT pg_sleep({self.args.ms / 1e3})")
                answered = client.now_ms()
                self.latencies.append(answered - sent)
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--ms", type=float, default=50)
    parser.add_argument("--peer")
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    start = threading.Barrier(args.clients + 1)
    clients = [Client(args, start) for _ in range(args.clients)]
    for one in clients:
        one.start()
    start.wait()
    for one in clients:
        one.join()
        if one.failed:
            sys.exit(f"queries: {one.failed!r}")
    latencies = [latency for one in clients for latency in one.latencies]
    thinks = [think for one in clients for think in one.thinks]
    calls = [args.ms] * len(latencies)
    truth = {
        "load": client.summary(latencies), "calls": client.summary(calls),
        "thinks": client.summary(thinks or [0]), "clients": args.clients, "peer": args.peer,
    }
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
