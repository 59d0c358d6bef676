"""Connections that are begun and never made, from addresses that nobody has, while one client asks.

    flood.py ADDRESS@PID [--seconds S] [--expect RULE]…

All of it is in the network namespace of that process. Some 5,000 SYNs a second.
"""

import argparse
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
import namespace  # noqa: E402  pylint: disable=wrong-import-position

AT_ONCE = 50
PAUSE_S = 0.01


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return ~total & 0xFFFF


def syn(number, port):
    """A packet of IP and TCP from an address of 10.0.0.0/8, which the kernel completes."""
    source = socket.inet_aton(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
    target = socket.inet_aton("127.0.0.1")
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, 0) + source + target
    tcp = struct.pack("!HHLLBBHHH", 1024 + number % 60000, port, number, 0, 5 << 4, 2, 65535, 0, 0)
    pseudo = source + target + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp))
    return ip + tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]


def flood(port, until, sent):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    while time.monotonic() < until:
        for _ in range(AT_ONCE):
            raw.sendto(syn(sent[0], port), ("127.0.0.1", port))
            sent[0] += 1
        time.sleep(PAUSE_S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    address = namespace.follow(args.address)
    until, sent, latencies, wire = time.monotonic() + args.seconds, [1], [], []
    flooding = threading.Thread(target=flood, args=(int(address.split(":")[1]), until, sent))
    flooding.start()
    while time.monotonic() < until:
        begun = client.now_ms()
        connection = client.Connection(address)
        connection.get("/")
        latencies.append(client.now_ms() - begun)
        wire.append(connection.on_the_wire())
        connection.close()
        time.sleep(0.01)
    flooding.join()
    cookies = counter("SyncookiesSent")
    truth = {"load": client.summary(latencies), "wire": client.summary(wire), "syns": sent[0],
             "cookies": cookies}
    return client.tell(truth, args.expect)


def counter(name):
    """Of the network namespace that this is in."""
    lines = Path("/proc/thread-self/net/netstat").read_text(encoding="ascii").splitlines()
    names, values = [line.split() for line in lines if line.startswith("TcpExt:")]
    return int(values[names.index(name)])


if __name__ == "__main__":
    sys.exit(main())
