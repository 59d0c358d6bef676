"""A server that looks up a name for each request, and the DNS server that it asks.

    names.py lost|answered   whether the first query for each name is lost

Both are in a network namespace of their own, with a resolv.conf of their own that has the C library
wait for a second. A thread for each connection; each request has a name of its own.
"""

import ctypes
import itertools
import os
import signal
import socket
import sys
import tempfile
import threading

import namespace

CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
PORT = 8080
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
A_RECORD = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x7f\x00\x00\x01"


def own_resolver():
    """Whose /etc/resolv.conf is another one, for this process and its children alone."""
    namespace.call(namespace.LIBC.unshare(CLONE_NEWNS))
    namespace.call(namespace.LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("nameserver 127.0.0.1\noptions timeout:1 attempts:3\n")
        file.flush()
        where = os.path.realpath("/etc/resolv.conf").encode()
        namespace.call(namespace.LIBC.mount(file.name.encode(), where, None, MS_BIND, None))


def question(query):
    """The name that is asked for, with what comes behind it: the type and the class."""
    end = query.index(b"\0", 12) + 5
    return query[12:end]


def answer_queries(asked, lose):
    seen = set()
    while True:
        query, client = asked.recvfrom(512)
        name = question(query)
        if lose and name not in seen:
            seen.add(name)
            continue
        # A response without an error, to one question, with one answer.
        head = query[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00"
        asked.sendto(head + name + A_RECORD, client)


def serve_names(lose):
    """In a process of its own, which ends with this one."""
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asked.bind(("127.0.0.1", 53))
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        answer_queries(asked, lose)
    asked.close()


def look_up(number):
    found = socket.getaddrinfo(f"shard-{number}.lab", 5432, socket.AF_INET, socket.SOCK_STREAM)
    assert found[0][4][0] == "127.0.0.1"


def converse(connection, numbers):
    received = b""
    while piece := connection.recv(4096):
        received += piece
        if received.endswith(b"\r\n\r\n"):
            received = b""
            look_up(next(numbers))
            connection.sendall(RESPONSE)
    connection.close()


def main():
    if sys.argv[1:] not in (["lost"], ["answered"]):
        sys.exit(__doc__)
    namespace.enter_new()
    own_resolver()
    serve_names(sys.argv[1] == "lost")
    listener = socket.create_server(("127.0.0.1", PORT))
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{PORT}@{os.getpid()}\n")
    numbers = itertools.count()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=converse, args=(connection, numbers), daemon=True).start()


if __name__ == "__main__":
    main()
