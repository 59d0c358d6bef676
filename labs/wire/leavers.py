"""A server of which clients leave before they are answered: one thread, a connection at a time.

    leavers.py            computes for 50 ms for each request, whoever is still there
    leavers.py --look     looks every 5 ms whether its client has gone
"""

import argparse
import os
import select
import socket
import time

WORK_S = 0.05
SLICE_S = 0.005
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def has_gone(connection):
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def compute_report(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def serve(connection, look):
    """False: the client has gone."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        piece = connection.recv(4096)
        if not piece:
            return False
        received += piece
    if look:
        for _ in range(round(WORK_S / SLICE_S)):
            if has_gone(connection):
                return False
            compute_report(SLICE_S)
    else:
        compute_report(WORK_S)
    connection.sendall(RESPONSE)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--look", action="store_true")
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        connection, _ = listener.accept()
        try:
            serve(connection, args.look)
        except OSError:
            # It has gone; the next one waits.
            pass
        connection.close()


if __name__ == "__main__":
    main()
