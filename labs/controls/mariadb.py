"""The clients of MariaDB's locks; prints what they met, and what the server counted.

    mariadb.py ADDRESS hot|own|metadata

hot: eight clients update one row, and keep it for 4 ms of their own. own: each updates a row of
its own. metadata: a transaction has read a table and stays open, an ALTER of the table waits for
it, and six clients that read the table wait behind the ALTER.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

import pymysql

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client as kit  # noqa: E402  pylint: disable=wrong-import-position

CLIENTS = 8
SECONDS = 2
THINK_SECONDS = 0.004
READERS = 6
OPEN_SECONDS = 1.3
TIMES = 2
DEADLINE_SECONDS = 20


class Server:
    """Where it is."""

    def __init__(self, address):
        self.host, _, port = address.partition(":")
        self.port = int(port)

    def connect(self):
        """It listens before it is ready."""
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return pymysql.connect(host=self.host, port=self.port, user="root", database="lab",
                                       autocommit=True, read_timeout=DEADLINE_SECONDS)
            except pymysql.err.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


def ask(connection, statement):
    """Returns the rows, and how many milliseconds it took."""
    begun = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall()
    return rows, 1e3 * (time.monotonic() - begun)


def counters(connection):
    """InnoDB's own count of waits for rows, and their sum."""
    rows, _ = ask(connection, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_%'")
    named = {name: int(value) for name, value in rows}
    return {
        "row_lock_waits": named["Innodb_row_lock_waits"],
        "row_lock_ms": named["Innodb_row_lock_time"],
    }


def in_threads(work, items):
    """Runs the work for each in a thread of its own; an error is the caller's."""
    failed = []

    def one(item):
        try:
            work(item)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=one, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def rows(server, one_row):
    """Transactions on rows. Returns the ground truth."""
    connections = [server.connect() for _ in range(CLIENTS)]
    before = counters(connections[0])
    end = time.monotonic() + SECONDS
    updates, transactions = [], []

    def client(number):
        connection = connections[number]
        row = 1 if one_row else number + 1
        while time.monotonic() < end:
            begun = time.monotonic()
            ask(connection, "BEGIN")
            updates.append(ask(connection, f"UPDATE hot SET n = n + 1 WHERE id = {row}")[1])
            time.sleep(THINK_SECONDS)
            ask(connection, "COMMIT")
            transactions.append(1e3 * (time.monotonic() - begun))

    in_threads(client, range(CLIENTS))
    after = counters(connections[0])
    return {"load": kit.summary(updates), "transactions": kit.summary(transactions),
            "server": {name: after[name] - before[name] for name in after}}


def wait_for_metadata(connection, count):
    """Until so many threads wait for a lock of metadata, by the server's own word."""
    end = time.monotonic() + DEADLINE_SECONDS
    query = ("SELECT COUNT(*) FROM information_schema.processlist"
             " WHERE state = 'Waiting for table metadata lock'")
    while ask(connection, query)[0][0][0] < count:
        if time.monotonic() > end:
            sys.exit(f"mariadb: less than {count} threads wait for a lock of metadata")
        time.sleep(0.01)


def metadata(server):
    """A table that is altered beside an open transaction. Returns the ground truth."""
    watcher, opener, alterer = server.connect(), server.connect(), server.connect()
    readers = [server.connect() for _ in range(READERS)]
    reads, alters = [], []
    for time_number in range(TIMES):
        ask(opener, "BEGIN")
        ask(opener, "SELECT n FROM hot WHERE id = 1")
        alter = threading.Thread(target=lambda number=time_number: alters.append(
            ask(alterer, f"ALTER TABLE hot ADD COLUMN more{number} INT NULL")[1]))
        alter.start()
        wait_for_metadata(watcher, 1)
        behind = threading.Thread(target=in_threads, args=(
            lambda reader: reads.append(ask(reader, "SELECT n FROM hot WHERE id = 2")[1]), readers))
        behind.start()
        wait_for_metadata(watcher, 1 + READERS)
        time.sleep(OPEN_SECONDS)
        ask(opener, "COMMIT")
        behind.join()
        alter.join()
    return {"load": kit.summary(reads), "alter": kit.summary(alters), "server": counters(watcher)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("what", choices=["hot", "own", "metadata"])
    args = parser.parse_args()
    server = Server(args.address)
    truth = metadata(server) if args.what == "metadata" else rows(server, args.what == "hot")
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    load, waits = truth["load"], truth["server"]["row_lock_waits"]
    kept = {
        "hot": load["p50_ms"] >= 15 and waits >= 0.5 * load["count"],
        "own": load["p50_ms"] <= 5 and waits == 0,
        "metadata": load["count"] == READERS * TIMES and load["p50_ms"] >= 1e3 * OPEN_SECONDS,
    }
    if not kept[args.what]:
        print(f"mariadb: not reproduced: {load}, {waits} waits for rows", file=sys.stderr)
        return kit.NOT_REPRODUCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
