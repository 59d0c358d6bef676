"""Clients of HTTP/2 that say how much they have room for.

    reader.py ADDRESS PATH READS_MS [--expect RULE]…

Two connections with two streams at once ask for a long answer at PATH. They have room for 65,535
bytes of each, as the standard has it, and READS_MS milliseconds after each 16 KiB they make that
much more. The truth is their own clock: from the sending of a request to the end of its answer, and
for how much of that they had no room.
"""

import argparse
import selectors
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import streams  # noqa: E402  pylint: disable=wrong-import-position
from streams import client  # noqa: E402  pylint: disable=wrong-import-position

CONNECTIONS, AT_ONCE, ROUNDS = 2, 2, 4
ROOM, PIECE = 65535, 16384


class Reader(streams.Connection):
    """A connection whose streams have as much room as the standard gives them."""

    def __init__(self, address, reads_s):
        super().__init__(address, "http", ROOM)
        self.reads_s = reads_s
        # Of each stream: when it was asked for, what is unread, since when it has no room, and for
        # how long it had none.
        self.states = {}
        self.due = []

    def ask_for(self, path):
        self.ask(path)
        self.states[self.last] = [time.monotonic(), 0, None, 0.0]

    def came(self, stream, size):
        state = self.states[stream]
        state[1] += size
        if state[1] >= ROOM and state[2] is None:
            state[2] = time.monotonic()
        if state[1] >= PIECE and not any(stream == due for _, due in self.due):
            self.due.append((time.monotonic() + self.reads_s, stream))

    def read(self):
        """Makes room where it is time to."""
        now = time.monotonic()
        for at, stream in [one for one in self.due if one[0] <= now]:
            self.due.remove((at, stream))
            if stream not in self.states:
                continue
            state = self.states[stream]
            if state[2] is not None:
                state[3] += now - state[2]
                state[2] = None
            state[1] -= PIECE
            more = struct.pack("!I", PIECE)
            self.socket.sendall(streams.frame(streams.WINDOW_UPDATE, 0, stream, more))
            if state[1] >= PIECE:
                self.due.append((now + self.reads_s, stream))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("path")
    parser.add_argument("reads_ms", type=float)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    readers = [Reader(args.address, args.reads_ms / 1e3) for _ in range(CONNECTIONS)]
    selector = selectors.DefaultSelector()
    for one in readers:
        selector.register(one.socket, selectors.EVENT_READ, one)
        for _ in range(AT_ONCE):
            one.ask_for(args.path.encode())
    took, without_room, left = [], [], CONNECTIONS * AT_ONCE * (ROUNDS - 1)
    while any(one.states for one in readers):
        due = [at for one in readers for at, _ in one.due]
        wait = max(0, min(due) - time.monotonic()) if due else client.DEADLINE_S
        for key, _ in selector.select(wait):
            key.data.take()
            for stream in [stream for stream in key.data.states if stream not in key.data.open]:
                asked, _, _, without = key.data.states.pop(stream)
                took.append(1e3 * (time.monotonic() - asked))
                without_room.append(1e3 * without)
                if left > 0:
                    left -= 1
                    key.data.ask_for(args.path.encode())
        for one in readers:
            one.read()
    took.sort()
    without_room.sort()
    truth = {
        "count": len(took),
        "p50_ms": round(took[len(took) // 2], 3),
        "max_ms": round(took[-1], 3),
        "without_room_p50_ms": round(without_room[len(without_room) // 2], 3),
    }
    return client.tell({"readers": truth}, args.expect)


if __name__ == "__main__":
    sys.exit(main())
