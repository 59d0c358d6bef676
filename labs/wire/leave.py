"""Clients of which some leave as soon as they have asked, and others wait for their answer.

    leave.py ADDRESS [--leave N] [--stay N] [--half-close] [--expect RULE]…

Of those that leave every other one resets its connection, the rest close it. When all have left the
others ask, one after the other. With --half-close they say that they send no more, and read.
"""

import argparse
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position


def connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=client.DEADLINE_S)


def ask(connection):
    connection.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")


def leave(address, with_reset):
    connection = connect(address)
    ask(connection)
    if with_reset:
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()


def stay(address, half_close):
    """How long it waited, in milliseconds; and how long from when its kernel had sent the request
    until it had the answer."""
    begun = client.now_ms()
    connection = client.Connection(address)
    connection.send("/")
    if half_close:
        connection.socket.shutdown(socket.SHUT_WR)
    connection.receive()
    waited = client.now_ms() - begun
    on_the_wire = connection.on_the_wire()
    connection.close()
    return waited, on_the_wire


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--leave", type=int, default=20)
    parser.add_argument("--stay", type=int, default=5)
    parser.add_argument("--half-close", action="store_true")
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    for n in range(args.leave):
        leave(args.address, with_reset=n % 2 == 0)
    waited = [stay(args.address, args.half_close) for _ in range(args.stay)]
    latencies, wire = zip(*waited, strict=True)
    truth = {"load": client.summary(latencies), "wire": client.summary(wire), "left": args.leave}
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
