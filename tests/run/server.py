"""Waits for questions that nobody asks: server.py datagrams|listens READY."""

import socket
import sys
from pathlib import Path


def main():
    kind, ready = sys.argv[1:]
    stream = kind == "listens"
    own = socket.socket(type=socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    if stream:
        own.listen()
    Path(ready).touch()
    if stream:
        own.accept()
    else:
        own.recv(100)


if __name__ == "__main__":
    main()
