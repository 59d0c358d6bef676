"""Opens one connection after the other, with a request on each, while all workers wait.

load.py ADDRESS [--connections N] [--pause-ms N] --expect herd|one
"""

import argparse
import json
import socket
import sys
import time

NOT_REPRODUCED = 75


def ask(host, port, path):
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"herd: no answer to {path}")
        return body


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--pause-ms", type=float, default=1.5)
    parser.add_argument("--expect", choices=["herd", "one"], required=True)
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    # The workers' start is none of the load.
    before = json.loads(ask(host, int(port), "/about"))
    begun, latency = time.monotonic(), []
    for _ in range(args.connections):
        asked = time.monotonic()
        ask(host, int(port), "/")
        latency.append(1e3 * (time.monotonic() - asked))
        # Until all of them wait again.
        time.sleep(args.pause_ms / 1e3)
    total = time.monotonic() - begun
    server = json.loads(ask(host, int(port), "/about"))
    for counter in ("taken", "empty", "wakes", "wasted"):
        server[counter] -= before[counter]
    per_accept = server["wasted_per_accept"] = server["wasted"] / server["taken"]
    server["wasted_per_s"] = server["wasted"] / total
    truth = {
        "total_s": total,
        "requests": len(latency),
        "p50_ms": sorted(latency)[len(latency) // 2],
        "server": server,
    }
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    # Nobody shall be woken but the one who takes the connection; now and then another looks first.
    if args.expect == "herd" and per_accept < 0.6 * (server["workers"] - 1):
        print(
            f"herd: not reproduced: {per_accept:.2f} wakes wasted for each connection",
            file=sys.stderr,
        )
        return NOT_REPRODUCED
    if args.expect == "one" and per_accept > 0.3:
        sys.exit(f"herd: {per_accept:.2f} wakes wasted for each connection")
    return 0


if __name__ == "__main__":
    sys.exit(main())
