"""A server with a loop of its own, over Python's selectors and a heap of timers. Requests pass one
by one: each takes 20 ms when its turn has come. With --spread each waits for its own 20 ms only.
With --unequal it is 5 to 35 ms."""

import heapq
import itertools
import os
import random
import selectors
import socket
import sys
import time
from collections import deque

STEP_S = 0.02
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbooked"
spread = "--spread" in sys.argv
lengths = random.Random(1)


def length_s():
    return lengths.randint(1, 7) * 0.005 if "--unequal" in sys.argv else STEP_S


class Loop:
    def __init__(self):
        self.polled = selectors.DefaultSelector()
        self.timers = []
        self.number = itertools.count()
        # Connections whose request waits for its turn. The first one has it.
        self.turns = deque()

    def later(self, connection):
        heapq.heappush(self.timers, (time.monotonic() + length_s(), next(self.number), connection))

    def accept(self, listener):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.polled.register(connection, selectors.EVENT_READ, self.read)

    def read(self, connection):
        if not connection.recv(4096):
            self.polled.unregister(connection)
            connection.close()
            return
        self.turns.append(connection)
        if spread or len(self.turns) == 1:
            self.later(connection)

    def answer(self, connection):
        self.turns.remove(connection)
        connection.sendall(ANSWER)
        if self.turns and not spread:
            self.later(self.turns[0])

    def run(self):
        while True:
            until = self.timers[0][0] - time.monotonic() if self.timers else None
            for key, _ in self.polled.select(None if until is None else max(until, 0)):
                key.data(key.fileobj)
            while self.timers and self.timers[0][0] <= time.monotonic():
                self.answer(heapq.heappop(self.timers)[2])


def main():
    loop = Loop()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    loop.polled.register(listener, selectors.EVENT_READ, loop.accept)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    loop.run()


if __name__ == "__main__":
    main()
