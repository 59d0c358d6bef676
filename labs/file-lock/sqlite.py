"""A booking in SQLite, a thread for each connection: who finds the database locked sleeps, and
tries again, by SQLite's own busy handler.

    sqlite.py FOLDER [--ask-first]

A booking asks a bank, which takes 25 ms, within its transaction; with --ask-first before it. The
database may be there already, and somebody else may write to it, too.
"""

import json
import os
import socketserver
import sqlite3
import sys
import threading
import time

BANK_S = 0.025
ask_first = "--ask-first" in sys.argv
waits = []
lock = threading.Lock()


def ask_bank():
    time.sleep(BANK_S)


def book(database):
    if ask_first:
        ask_bank()
    begun = time.monotonic()
    database.execute("BEGIN IMMEDIATE")
    waited = time.monotonic() - begun
    if not ask_first:
        ask_bank()
    database.execute("UPDATE account SET balance = balance + 1")
    database.execute("COMMIT")
    with lock:
        waits.append(1e3 * waited)


def about():
    with lock:
        times = sorted(waits)
    at = {f"p{n}_ms": times[(len(times) * n + 99) // 100 - 1] for n in (50, 99)}
    return json.dumps({"lock_wait": {"count": len(times), "sum_ms": sum(times), **at}})


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        database = sqlite3.connect(path, timeout=20, isolation_level=None)
        database.execute("PRAGMA synchronous = OFF")
        while request := self.rfile.readline():
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            if request.split()[1] == b"/about":
                body = about().encode()
            else:
                book(database)
                body = b"booked"
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


path = os.path.join(sys.argv[1], "bank.db")
if not os.path.exists(path):
    made = sqlite3.connect(path, isolation_level=None)
    made.execute("CREATE TABLE account (balance INTEGER)")
    made.execute("INSERT INTO account VALUES (0)")
with Server(("127.0.0.1", 0), Handler) as server:
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.server_address[1]}\n")
    server.serve_forever()
