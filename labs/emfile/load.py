"""Opens more connections than the server can take, and has requests on some of those that it took.

    load.py ADDRESS --expect spins|quiet

At last those hang up: what had to wait for them must be served then, in the fixed server as well.
"""

import argparse
import json
import socket
import sys
import time

CONNECTIONS, SERVED, SECONDS = 200, 20, 3
NOT_REPRODUCED = 75


def ask(connection, path):
    connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"emfile: no answer to {path}")
    return body


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--expect", choices=["spins", "quiet"], required=True)
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(connection)
    begun, requests, latency = time.monotonic(), 0, []
    while time.monotonic() < begun + SECONDS:
        asked = time.monotonic()
        ask(connections[requests % SERVED], "/")
        latency.append(1e3 * (time.monotonic() - asked))
        requests += 1
        time.sleep(0.02)
    total = time.monotonic() - begun
    server = json.loads(ask(connections[0], "/about"))
    for connection in connections[:SERVED]:
        connection.close()
    if ask(connections[66], "/") != b"done":
        sys.exit("emfile: who waited for a descriptor was not served")
    truth = {
        "total_s": total,
        "requests": requests,
        "p50_ms": sorted(latency)[requests // 2],
        "server": server,
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    if args.expect == "spins" and (
        server["cpu_s"] < 0.05 * total or server["futile_per_s"] < 10_000
    ):
        print(f"emfile: not reproduced: {server['futile']} futile turns", file=sys.stderr)
        return NOT_REPRODUCED
    if args.expect == "quiet" and (server["cpu_s"] > 0.1 * total or server["futile"] > 500):
        sys.exit(f"emfile: {server['futile']} futile turns, {server['cpu_s']} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
