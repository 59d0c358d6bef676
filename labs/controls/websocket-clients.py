"""Clients on websockets: four say something every 30 ms and get it back, four only listen.

    websocket-clients.py ADDRESS
"""

import base64
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, TALKING, LISTENING, EVERY_S = 3.0, 4, 4, 0.03


class Websocket:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        head = ["GET / HTTP/1.1", "Host: lab", "Upgrade: websocket", "Connection: Upgrade",
                "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""]
        self.socket.sendall("\r\n".join(head).encode())
        self.file = self.socket.makefile("rb")
        while self.file.readline() != b"\r\n":
            pass

    def send(self, text):
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text))
        self.socket.sendall(bytes([0x81, 0x80 | len(text)]) + mask + masked)

    def receive(self):
        head = self.file.read(2)
        return self.file.read(head[1])


def talk(own, latency):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        asked, text = client.now_ms(), os.urandom(8).hex().encode()
        own.send(text)
        while own.receive() != text:
            pass
        latency.append(client.now_ms() - asked)
        time.sleep(EVERY_S)


def listen(own, ticks):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        own.receive()
        ticks.append(0)


def main():
    latency, ticks = [], []
    threads = [
        threading.Thread(target=what, args=(Websocket(sys.argv[1]), series))
        for what, series in [(talk, latency)] * TALKING + [(listen, ticks)] * LISTENING
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    truth = {"load": client.summary(latency), "ticks": len(ticks)}
    return client.tell(truth, ["load.count>=200", "load.p50_ms<=20", "ticks>=80"])


if __name__ == "__main__":
    sys.exit(main())
