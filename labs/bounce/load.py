"""Asks for a document, leaves the answer unread for a while, and then reads it: on the plain and on
the TLS listener in turns.

    load.py ADDRESS:PLAIN,TLS --requests N [--unread-ms N] --expect broken|fixed

A small receive buffer keeps the answer in the server's send queue meanwhile. There is one
connection at a time, so that the server can tell what each listener cost.
"""

import argparse
import json
import socket
import ssl
import sys
import time

RCVBUF = 4096
NOT_REPRODUCED = 75


def ask(host, port, line, unread_s, context=None):
    """Returns the answer's bytes."""
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF)
        plain.settimeout(20)
        plain.connect((host, port))
        # Or the line would wait until the server has acknowledged the end of the handshake, which
        # takes it 40 ms.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = context.wrap_socket(plain) if context else plain
        connection.sendall(line.encode() + b"\r\n")
        time.sleep(unread_s)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--requests", type=int, required=True, help="on each listener")
    parser.add_argument("--unread-ms", type=float, default=50)
    parser.add_argument("--expect", choices=["broken", "fixed"], required=True)
    args = parser.parse_args()
    host, _, ports = args.address.partition(":")
    plain, tls = map(int, ports.split(","))
    context = ssl.create_default_context()
    # The server's certificate is of its own making.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    begun = time.monotonic()
    latency = {"plain": [], "tls": []}
    for _ in range(args.requests):
        for name, port, with_tls in (("plain", plain, None), ("tls", tls, context)):
            asked = time.monotonic()
            answer = ask(host, port, "/document", args.unread_ms / 1e3, with_tls)
            latency[name].append(1e3 * (time.monotonic() - asked))
            if len(answer) != 60000:
                sys.exit(f"bounce: {len(answer)} bytes of 60000 on the {name} listener")
    total = time.monotonic() - begun
    server = json.loads(ask(host, plain, "/about", 0))
    for name, series in latency.items():
        server[name]["p50_ms"] = sorted(series)[len(series) // 2]
        server[name]["cpu_ms_per_request"] = (
            1e3 * server[name]["cpu_s"] / max(1, server[name]["requests"])
        )
    server["plain"]["port"], server["tls"]["port"] = plain, tls
    # On a busy machine the loop does not have its CPU all the time: then the second is more than
    # the first.
    server["bounces_per_s"] = server["bounces"] / server["drain_s"] if server["drain_s"] else 0
    server["bounces_per_cpu_s"] = server["bounces"] / server["plain"]["cpu_s"]
    print("ground-truth: " + json.dumps({"total_s": total, "server": server}), file=sys.stderr)
    ratio = server["plain"]["cpu_s"] / server["tls"]["cpu_s"]
    if args.expect == "broken" and (ratio < 2 or server["bounces_per_s"] < 10_000):
        print(
            f"bounce: not reproduced: the plain listener cost {ratio:.2f} of the TLS one",
            file=sys.stderr,
        )
        return NOT_REPRODUCED
    if args.expect == "fixed" and (ratio > 1 or server["bounces"] > 0):
        sys.exit(
            f"bounce: the fixed plain listener cost {ratio:.2f} of the TLS one, "
            f"{server['bounces']} bounces"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
