"""A connection to redis."""

import socket
import sys


class Redis:
    """A connection that speaks RESP, as far as it is needed."""

    def __init__(self, address, receive_buffer=None):
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        text = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.socket.sendall(text.encode())

    def receive(self):
        line = self.file.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.receive() for _ in range(int(rest))]
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2] if rest != b"-1" else None
        if kind not in (b"+", b":"):
            sys.exit(f"redis said {line}")
        return rest

    def call(self, *words):
        self.send(*words)
        return self.receive()
