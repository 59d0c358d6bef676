"""Asks for a job and goes away without waiting for it, while others have requests that are answered
at once.

leave.py ADDRESS --leave reset|close|stay --expect spins|quiet
"""

import argparse
import json
import re
import socket
import struct
import sys
import time

CONNECTIONS, SECONDS = 4, 3.2
NOT_REPRODUCED = 75


def connect(host, port):
    connection = socket.create_connection((host, port), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(connection, path):
    connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())


def ask(connection, path):
    send(connection, path)
    answer = b""
    while not complete(answer):
        received = connection.recv(65536)
        if not received:
            break
        answer += received
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"leave: no answer to {path}")
    return body


def complete(answer):
    """Whether all of an answer is there: it may come in pieces."""
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(end) and (length is None or len(body) >= int(length[1]))


def since(before, server, field):
    """How much the server has counted since it was asked before."""
    return server[field] - before[field]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--leave", choices=["reset", "close", "stay"], default="reset")
    parser.add_argument("--expect", choices=["spins", "quiet"], required=True)
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    connections = [connect(host, int(port)) for _ in range(CONNECTIONS)]
    for connection in connections:
        ask(connection, "/")
    # What the server needed to begin is none of the loop's: a JVM loads and interprets what it runs
    # for the first time.
    before = json.loads(ask(connections[0], "/about"))
    leaver = connect(host, int(port))
    send(leaver, "/job")
    time.sleep(0.05)
    if args.leave == "reset":
        # Closed like this, a connection is reset instead of ended.
        leaver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if args.leave != "stay":
        leaver.close()
    begun, requests, latency = time.monotonic(), 0, []
    while time.monotonic() < begun + SECONDS:
        asked = time.monotonic()
        ask(connections[requests % CONNECTIONS], "/")
        latency.append(1e3 * (time.monotonic() - asked))
        requests += 1
        time.sleep(0.02)
    total = time.monotonic() - begun
    server = json.loads(ask(connections[0], "/about"))
    truth = {
        "total_s": total,
        "requests": requests,
        "p50_ms": sorted(latency)[requests // 2],
        "server": server,
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    if args.expect == "spins" and (
        since(before, server, "cpu_s") < 0.05 * total or server["futile_per_s"] < 10_000
    ):
        print(f"leave: not reproduced: {server['futile']} futile turns", file=sys.stderr)
        return NOT_REPRODUCED
    # A JVM that has just begun compiles, in threads of its own.
    loop_cpu_s = since(before, server, "loop_cpu_s" if "loop_cpu_s" in server else "cpu_s")
    if args.expect == "quiet" and (loop_cpu_s > 0.1 * total or server["futile"] > 500):
        sys.exit(f"leave: {server['futile']} futile turns, {loop_cpu_s} s of CPU in the loop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
