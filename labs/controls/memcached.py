"""Sets and gets on a few connections, each of which waits for its answers.

    memcached.py ADDRESS [--connections N] [--seconds N]

A batch of commands goes out on each connection in turns, so that the server has several of them to
look after at once.
"""

import argparse
import json
import socket
import sys
import time

BATCH = 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    connections = []
    for _ in range(args.connections):
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append((connection, connection.makefile("rb")))
    value, batches, begun = b"v" * 200, 0, time.monotonic()
    while time.monotonic() < begun + args.seconds:
        for number, (connection, _) in enumerate(connections):
            if batches % 10 == 0:
                connection.sendall(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
            else:
                connection.sendall(b"get" + b" key%d" % number * BATCH + b"\r\n")
        for _, answer in connections:
            line = answer.readline()
            while line.startswith(b"VALUE "):
                answer.readline()
                line = answer.readline()
            if line not in (b"STORED\r\n", b"END\r\n"):
                sys.exit(f"memcached: {line!r}")
        batches += 1
    total = time.monotonic() - begun
    truth = {"requests": batches * args.connections, "per_s": batches * args.connections / total}
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)


if __name__ == "__main__":
    main()
