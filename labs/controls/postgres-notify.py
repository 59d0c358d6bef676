"""Four clients LISTEN to what a fifth NOTIFYs of every 50 ms, and a sixth asks for something quick.

    postgres-notify.py ADDRESS
"""

import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, LISTENERS = 3.0, 4


class Postgres:
    """As much of version 3 of the protocol as is needed, with a server that trusts everybody."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        words = b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!II", len(words) + 8, 196608) + words)
        self.until(b"Z")

    def message(self):
        head = self.file.read(5)
        if len(head) < 5:
            raise ConnectionError("the server closed the connection")
        return head[:1], self.file.read(struct.unpack("!I", head[1:])[0] - 4)

    def until(self, wanted):
        while True:
            kind, text = self.message()
            if kind == b"E":
                raise ConnectionError(text)
            if kind == wanted:
                return text

    def query(self, text):
        words = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", len(words) + 4) + words)
        self.until(b"Z")


def connect(address):
    """It listens before it is ready."""
    try:
        return Postgres(address)
    except ConnectionError:
        return None


def listener(own, late):
    while b"end" not in (text := own.until(b"A")):
        late.append(client.now_ms() - float(text[4:].split(b"\0")[1]))


def main():
    address = sys.argv[1]
    client.wait_until("the server to start", lambda: connect(address))
    notifier, late, latency = Postgres(address), [], []
    listeners = []
    for _ in range(LISTENERS):
        own = Postgres(address)
        own.query("LISTEN news")
        listeners.append(threading.Thread(target=listener, args=(own, late)))
        listeners[-1].start()
    quick, end = Postgres(address), time.monotonic() + SECONDS
    while time.monotonic() < end:
        notifier.query(f"NOTIFY news, '{client.now_ms()}'")
        for _ in range(5):
            asked = client.now_ms()
            quick.query("SELECT n FROM hot WHERE id = 7")
            latency.append(client.now_ms() - asked)
            time.sleep(0.01)
    notifier.query("NOTIFY news, 'end'")
    for one in listeners:
        one.join()
    truth = {"load": client.summary(latency), "late": client.summary(late)}
    return client.tell(truth, ["late.count>=40", "late.p50_ms<=20", "load.p50_ms<=20"])


if __name__ == "__main__":
    sys.exit(main())
