"""A process that nobody watches, and that has what a server wants locked, for some time again and
again.

    importer.py FOLDER database|file [--briefly]

"database": it writes to an SQLite database within one transaction, and reads what it writes from
elsewhere meanwhile, which takes 150 ms; between two transactions are 30 ms. "file": it locks a file
as long by flock(2). With --briefly it has what it writes before it locks anything.
"""

import fcntl
import os
import socket
import sqlite3
import sys
import time

folder, kind = sys.argv[1:3]
briefly = "--briefly" in sys.argv


def read_feed():
    time.sleep(0.15)


def pause():
    time.sleep(0.03)


def import_into(database):
    while True:
        if briefly:
            read_feed()
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE account SET balance = balance + 1")
        if not briefly:
            read_feed()
        database.execute("COMMIT")
        pause()


def append_to(name):
    while True:
        if briefly:
            read_feed()
        with open(name, "a", encoding="utf-8") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            if not briefly:
                read_feed()
        pause()


# A peer has an address, though nobody asks this one anything.
listener = socket.create_server(("127.0.0.1", 0))
if kind == "database":
    bank = sqlite3.connect(os.path.join(folder, "bank.db"), timeout=20, isolation_level=None)
    bank.execute("PRAGMA synchronous = OFF")
    bank.execute("CREATE TABLE account (balance INTEGER)")
    bank.execute("INSERT INTO account VALUES (0)")
with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
    ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
if kind == "database":
    import_into(bank)
append_to(os.path.join(folder, "session"))
