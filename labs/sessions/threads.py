"""A server with a thread for each client, whose requests keep their database connection.

    threads.py kept|apart DATABASE --pool N

kept   a request gives its connection back when it has been answered: across the call to the other
       service, after which it has no query
apart  it gives it back after its query, before the call

As many requests as there are connections get as far as the call, so that no more are open to the
other service: its pool has room for all.
"""

import argparse
import itertools
import json
import os
import socket
import threading
import time

QUERY = b"GET /call HTTP/1.1\r\nHost: peer\r\n\r\n"
ROOM_ENOUGH = 100


def now_ms():
    return 1e3 * time.monotonic()


def receive_until(connection, end):
    """What is received up to this; nothing when the other side has closed the connection."""
    received = b""
    while not received.endswith(end):
        piece = connection.recv(4096)
        if not piece:
            return b""
        received += piece
    return received


def ask(connection):
    connection.sendall(QUERY)
    if not receive_until(connection, b"ok"):
        raise ConnectionError("the peer closed the connection")


class Pool:
    """Connections to a peer, of which so many may be in use. Who asks first gets one first."""

    def __init__(self, address, most):
        self.address = address
        self.free = []
        self.freed = threading.Condition()
        self.turns = itertools.count()
        # Turns below that have a connection, or find one.
        self.allowed = most

    def take(self):
        with self.freed:
            turn = next(self.turns)
            self.freed.wait_for(lambda: turn < self.allowed)
            if self.free:
                return self.free.pop()
        return self.open()

    def open(self):
        connection = socket.create_connection(self.address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def give(self, connection):
        with self.freed:
            self.free.append(connection)
            self.allowed += 1
            self.freed.notify()

    def fill(self):
        self.free = [self.open() for _ in range(self.allowed)]


class Session:
    """What a request has to do with the database. It takes a connection when it first needs one."""

    def __init__(self, pool):
        self.pool = pool
        self.connection = self.begun = None

    def find_product(self):
        self.connection = self.pool.take()
        self.begun = now_ms()
        ask(self.connection)

    def close(self):
        if self.connection:
            self.pool.give(self.connection)
            self.connection = None


class Server:
    def __init__(self, what, database, most):
        host, _, port = database.rpartition(":")
        self.what = what
        self.database = Pool((host, int(port)), most)
        self.database.fill()
        self.service = Pool(("127.0.0.2", int(port)), ROOM_ENOUGH)

    def find_price(self):
        connection = self.service.take()
        begun = now_ms()
        ask(connection)
        ended = now_ms()
        self.service.give(connection)
        return [begun, ended]

    def answer(self, session):
        read = now_ms()
        session.find_product()
        if self.what == "apart":
            session.close()
        call = self.find_price()
        said = {"read": read, "begun": session.begun, "ended": now_ms(), "calls": [call]}
        body = json.dumps(said)
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    def converse(self, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while receive_until(client, b"\r\n\r\n"):
            session = Session(self.database)
            client.sendall(self.answer(session))
            session.close()
        client.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["kept", "apart"])
    parser.add_argument("database")
    parser.add_argument("--pool", type=int, required=True)
    args = parser.parse_args()
    server = Server(args.what, args.database, args.pool)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        client, _ = listener.accept()
        threading.Thread(target=server.converse, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
