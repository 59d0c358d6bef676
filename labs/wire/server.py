"""A server with a thread for each connection that writes each response in two pieces.

    server.py pieces|one|nodelay   head and body with two writes, with one, or with TCP_NODELAY
    server.py accept --backlog N   one thread, a connection at a time, a listener of that limit

With `accept` each connection has one request; a lookup of 1 ms comes before it is read.
"""

import argparse
import os
import socket
import threading
import time

LOOKUP_S = 0.001
BODY = b"{}" * 32
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)


def requests(connection):
    """One at a time, as they come."""
    received = b""
    while piece := connection.recv(4096):
        received += piece
        if received.endswith(b"\r\n\r\n"):
            yield received
            received = b""


def send_in_pieces(connection):
    connection.sendall(HEAD)
    connection.sendall(BODY)


def converse(connection, how):
    if how == "nodelay":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in requests(connection):
        if how == "one":
            connection.sendall(HEAD + BODY)
        else:
            send_in_pieces(connection)
    connection.close()


def accept_one_by_one(listener):
    while True:
        connection, _ = listener.accept()
        time.sleep(LOOKUP_S)
        for _ in requests(connection):
            connection.sendall(HEAD + BODY)
        connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["pieces", "one", "nodelay", "accept"])
    parser.add_argument("--backlog", type=int, default=128)
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=args.backlog)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    if args.how == "accept":
        accept_one_by_one(listener)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=converse, args=(connection, args.how), daemon=True).start()


if __name__ == "__main__":
    main()
