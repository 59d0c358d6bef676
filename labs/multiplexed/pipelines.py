"""Clients of redis that send several commands before they have the answers.

    pipelines.py ADDRESS batches|ahead

batches   a client sends 20 commands in one piece, has all answers, and sends the next
ahead     a client sends a command every 0.1 ms, whatever it has been answered

Four clients each.
"""

import json
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

CLIENTS, SECONDS, BATCH, PAUSE_S = 4, 3.0, 20, 1e-4
COMMAND = b"*2\r\n$4\r\nLLEN\r\n$4\r\nlist\r\n"


class Client(threading.Thread):
    def __init__(self, address, ahead):
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ahead = ahead
        self.sent, self.answered, self.took = 0, 0, []

    def run(self):
        end = time.monotonic() + SECONDS
        if self.ahead:
            reader = threading.Thread(target=self.receive_all, daemon=True)
            reader.start()
            while time.monotonic() < end:
                self.send(1)
                time.sleep(PAUSE_S)
            self.socket.shutdown(socket.SHUT_WR)
            reader.join()
            return
        while time.monotonic() < end:
            begun = client.now_ms()
            self.send(BATCH)
            while self.answered < self.sent:
                self.receive()
            self.took.append(client.now_ms() - begun)

    def send(self, commands):
        self.socket.sendall(COMMAND * commands)
        self.sent += commands

    def receive(self):
        received = self.socket.recv(65536)
        # All answers are alike.
        self.answered += received.count(b"\n")
        return received

    def receive_all(self):
        while self.receive():
            pass


def main():
    address, how = sys.argv[1:]
    clients = [Client(address, how == "ahead") for _ in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    truth = {
        "commands": sum(one.sent for one in clients),
        "answered": sum(one.answered for one in clients),
        "batches": sum(len(one.took) for one in clients),
    }
    print(f"ground-truth: {json.dumps(truth)}", file=sys.stderr)
    if truth["answered"] != truth["commands"]:
        sys.exit("pipelines: not all commands were answered")


if __name__ == "__main__":
    main()
