"""A server with a thread for each connection, in four functions by the client's number: it
computes, sleeps, waits for a lock, calls another service. Each answer says which function the
thread was in, and from when until when.

    server.py PEER
"""

import json
import os
import socket
import sys
import threading
import time

# What each takes, in seconds.
LONG_S = 0.020
LOCK = threading.Lock()
# The client is a thousandth of its request's number.
REQUESTS_PER_CLIENT = 1000
PEER = sys.argv[1].split(":")


# Each says from when until when it was in itself.
def computing(seconds):
    begun = time.monotonic_ns()
    end = begun + seconds * 1e9
    mixed = 1
    while time.monotonic_ns() < end:
        for round_ in range(200):
            mixed = (mixed * 31 + round_) & 0xFFFFFFFF
    return begun, time.monotonic_ns()


def sleeping(seconds):
    begun = time.monotonic_ns()
    time.sleep(seconds)
    return begun, time.monotonic_ns()


def locking(seconds):
    begun = time.monotonic_ns()
    with LOCK:
        time.sleep(seconds / 2)
    return begun, time.monotonic_ns()


def calling(seconds):
    begun = time.monotonic_ns()
    peer = socket.create_connection((PEER[0], int(PEER[1])))
    peer.sendall(b"GET /ms=%d HTTP/1.1\r\n\r\n" % round(seconds * 1e3))
    peer.recv(4096)
    peer.close()
    return begun, time.monotonic_ns()


FUNCTIONS = [computing, sleeping, locking, calling]


def body(function, read):
    begun, ended = function(LONG_S)
    ran = [threading.get_native_id(), function.__name__, begun, ended]
    said = {"read": read / 1e6, "begun": begun / 1e6, "ended": ended / 1e6, "ran": [ran]}
    return json.dumps(said).encode()


def converse(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client, client.makefile("rb") as requests:
        while request := requests.readline():
            while requests.readline() != b"\r\n":
                pass
            read = time.monotonic_ns()
            number = int(request.split()[1][1:])
            answer = body(FUNCTIONS[number // REQUESTS_PER_CLIENT % len(FUNCTIONS)], read)
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer)
            client.sendall(head + answer)


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with open(os.environ["READY_FILE"], "w", encoding="ascii") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


main()
