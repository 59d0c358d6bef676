"""Keeps one worker busy, and has short requests on new connections meanwhile.

    load.py ADDRESS [--rounds N] [--all WORKERS] --expect stranded|served

With --all it is all workers that are busy: then nobody could have served a request that waits.

Where a connection ends up, the kernel decides by its port: in each round there are enough of them
that some go to the busy worker. Each worker says who it is in its answer.
"""

import argparse
import json
import socket
import sys
import threading
import time

SHORT = 8
NOT_REPRODUCED = 75


def connect(host, port):
    connection = socket.create_connection((host, port), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(connection, path):
    connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())


def receive(connection):
    head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit("reuseport: no answer")
    return body.decode()


def ask(connection, path):
    send(connection, path)
    return receive(connection)


class Short(threading.Thread):
    """A request on a connection of its own, and who answered it when."""

    def __init__(self, host, port):
        super().__init__()
        self.address = host, port
        self.start()

    def run(self):
        asked = time.monotonic()
        with connect(*self.address) as connection:
            self.worker = ask(connection, "/")
        self.ms = 1e3 * (time.monotonic() - asked)


def occupy(host, port, count):
    """Keeps so many workers busy: their names, and the connections that they will answer on."""
    found = {}
    while len(found) < count:
        connection = connect(host, port)
        if found.setdefault(ask(connection, "/"), connection) is not connection:
            connection.close()
    for connection in found.values():
        send(connection, "/work")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--all", type=int, default=0, metavar="WORKERS")
    parser.add_argument("--expect", choices=["stranded", "served"], required=True)
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    port = int(port)
    begun, served, stranded = time.monotonic(), [], []
    for _ in range(args.rounds):
        busy = occupy(host, port, args.all or 1)
        time.sleep(0.01)
        shorts = []
        for _ in range(SHORT):
            shorts.append(Short(host, port))
            time.sleep(0.002)
        for short in shorts:
            short.join()
            if short.ms > 100:
                stranded.append(short.ms)
                if short.worker not in busy:
                    sys.exit("reuseport: a request waited for a worker that was idle")
            else:
                served.append(short.ms)
        for connection in busy.values():
            receive(connection)
            connection.close()
        time.sleep(0.05)
    total = time.monotonic() - begun
    with connect(host, port) as connection:
        server = json.loads(ask(connection, "/about"))
    truth = {
        "total_s": total,
        "served": len(served),
        "served_max_ms": max(served, default=0),
        "stranded": len(stranded),
        "stranded_ms": sum(stranded),
        "stranded_max_ms": max(stranded, default=0),
        "server": server,
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    if args.expect == "stranded" and len(stranded) < args.rounds:
        print(
            f"reuseport: not reproduced: {len(stranded)} requests went to a busy worker",
            file=sys.stderr,
        )
        return NOT_REPRODUCED
    if args.expect == "served" and stranded:
        print(f"reuseport: not reproduced: {len(stranded)} requests waited", file=sys.stderr)
        return NOT_REPRODUCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
