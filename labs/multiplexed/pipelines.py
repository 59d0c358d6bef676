"""Clients of redis that send several commands before they have the answers.

    pipelines.py ADDRESS batches|ahead

batches   a client sends 20 commands in one piece, has all answers, and sends the next
ahead     a client sends a command every 0.1 ms, whatever it has been answered; one in 50 takes as
          long as several of these, so that the next ones come before its answer

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
SCRIPT = b"local i = 0 while i < 50000 do i = i + 1 end return 0"
LONG_COMMAND = b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(SCRIPT), SCRIPT)
LONG_EVERY = 50


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
                is_long = self.sent % LONG_EVERY == 0
                self.send(1, LONG_COMMAND if is_long else COMMAND)
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

    def send(self, commands, command=COMMAND):
        self.socket.sendall(command * commands)
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
