"""Clients of HTTP/2 that measure by their kernel's clock when each stream was sent and answered.

    streams.py ADDRESS http|grpc [WARM-UP]

WARM-UP: they ask for so many seconds before whywait attaches, and no one measures that.

Three connections, with 1, 10 and 100 streams at once. Each stream asks for something quick, one in
ten for something slow, and another one follows it after a pause. They speak as much of HTTP/2 as is
needed.
"""

import heapq
import json
import selectors
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

STREAMS, SECONDS, PAUSE_S = (1, 10, 100), 2.0, 0.6
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INITIAL_WINDOW_SIZE, MOST = 4, 2**31 - 1
HEAD = 9


def frame(kind, flags, stream, payload=b""):
    head = struct.pack("!IBBI", len(payload), kind, flags, stream)
    return head[1:] + payload


def field(name, value):
    """A literal that no table has (RFC 7541, 6.2.2)."""
    return bytes([0, len(name), *name, len(value), *value])


def request(protocol, stream, path):
    post = protocol == "grpc"
    head = field(b":method", b"POST" if post else b"GET") + field(b":scheme", b"http")
    head += field(b":path", path) + field(b":authority", b"lab")
    if not post:
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, head)
    head += field(b"te", b"trailers") + field(b"content-type", b"application/grpc")
    message = struct.pack("!BI", 0, 1) + b"?"
    return frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, message)


class Connection:
    def __init__(self, address, protocol, room=MOST):
        """`room`: for so much of each stream."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=client.DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.stamp(self.socket)
        # A stamp of what was sent looks like something to read.
        self.socket.setblocking(False)
        self.protocol = protocol
        self.last, self.open, self.received = -1, {}, b""
        window = struct.pack("!HI", INITIAL_WINDOW_SIZE, room)
        room = struct.pack("!I", MOST - 65535)
        self.socket.sendall(
            PREFACE + frame(SETTINGS, 0, 0, window) + frame(WINDOW_UPDATE, 0, 0, room)
        )

    def ask(self, path):
        self.last += 2
        client.sent_ms(self.socket)
        self.socket.sendall(request(self.protocol, self.last, path))
        self.open[self.last] = client.sent_ms(self.socket)

    def came(self, stream, size):
        """So much of an answer has come."""

    def take(self):
        """What the streams took that ended with what has come."""
        client.sent_ms(self.socket)
        try:
            piece, received_ms = client.receive_stamped(self.socket)
        except BlockingIOError:
            return []
        if not piece:
            sys.exit("streams: the server closed the connection")
        self.received += piece
        took = []
        while len(self.received) >= HEAD:
            length = int.from_bytes(self.received[:3], "big")
            if len(self.received) < HEAD + length:
                break
            kind, flags, stream = struct.unpack("!BBI", self.received[3:HEAD])
            payload = self.received[HEAD : HEAD + length]
            self.received = self.received[HEAD + length :]
            if kind in (RST_STREAM, GOAWAY):
                sys.exit(f"streams: the server sent a frame of type {kind}: {payload}")
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA:
                self.came(stream, length)
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                took.append(received_ms - self.open.pop(stream))
        return took


class Clients:
    def __init__(self, address, protocol):
        self.prefix = b"/lab" if protocol == "grpc" else b""
        self.selector = selectors.DefaultSelector()
        self.connections = [Connection(address, protocol) for _ in STREAMS]
        for one in self.connections:
            self.selector.register(one.socket, selectors.EVENT_READ, one)

    def ask_for(self, seconds):
        """What the streams took."""
        begun = time.monotonic()
        # When each asks next; the streams of a connection are spread over a pause.
        due = [
            (begun + PAUSE_S * number / streams, place, number)
            for place, streams in enumerate(STREAMS)
            for number in range(streams)
        ]
        heapq.heapify(due)
        asked, took = 0, []
        while due or any(one.open for one in self.connections):
            now = time.monotonic()
            while due and due[0][0] <= now:
                _, place, _ = heapq.heappop(due)
                path = self.prefix + (b"/slow" if asked % 10 == 9 else b"/quick")
                self.connections[place].ask(path)
                asked += 1
            wait = max(0, due[0][0] - time.monotonic()) if due else client.DEADLINE_S
            for key, _ in self.selector.select(wait):
                ended = key.data.take()
                took += ended
                again = time.monotonic() + PAUSE_S
                if again < begun + seconds:
                    place = self.connections.index(key.data)
                    for _ in ended:
                        heapq.heappush(due, (again, place, 0))
        return took


def main():
    address, protocol, *warm_up = sys.argv[1:]
    clients = Clients(address, protocol)
    if warm_up:
        clients.ask_for(float(warm_up[0]))
        client.attach()
    took = clients.ask_for(SECONDS)
    took.sort()
    truth = {
        "count": len(took),
        "sum_ms": round(sum(took), 3),
        "p50_ms": round(took[len(took) // 2], 3),
        "p99_ms": round(took[len(took) * 99 // 100], 3),
        "max_ms": round(took[-1], 3),
    }
    print(f"ground-truth: {json.dumps({'wire': truth})}", file=sys.stderr)


if __name__ == "__main__":
    main()
