"""A catalogue behind a read-write lock that lets writers pass new readers; a thread for a client.

    readers.py [--copied]

Of eight clients one asks for an export, which reads all of the catalogue and takes 60 ms, one
changes a price, and the others read one. Who reads waits for the writer, and that one for the
export. With --copied the export copies what it needs, for which it has the lock for a moment.
"""

import argparse
import json
import os
import socket
import threading
import time


class ReadWriteLock:
    """Who waits to write holds up those who come to read."""

    def __init__(self):
        self.changed = threading.Condition()
        self.readers, self.writes, self.writers = 0, False, 0

    def begin_read(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.writes and not self.writers)
            self.readers += 1

    def end_read(self):
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()

    def begin_write(self):
        with self.changed:
            self.writers += 1
            self.changed.wait_for(lambda: not self.writes and not self.readers)
            self.writers, self.writes = self.writers - 1, True

    def end_write(self):
        with self.changed:
            self.writes = False
            self.changed.notify_all()


CATALOGUE = ReadWriteLock()


def now_ms():
    return 1e3 * time.monotonic()


def write_export():
    time.sleep(0.06)


def export_all(copied):
    CATALOGUE.begin_read()
    begun = now_ms()
    if not copied:
        write_export()
    CATALOGUE.end_read()
    if copied:
        write_export()
    return begun


def change_price():
    CATALOGUE.begin_write()
    begun = now_ms()
    CATALOGUE.end_write()
    return begun


def read_price():
    CATALOGUE.begin_read()
    begun = now_ms()
    CATALOGUE.end_read()
    return begun


def converse(connection, copied):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    while received := connection.recv(4096):
        head += received
        if not head.endswith(b"\r\n\r\n"):
            continue
        read = now_ms()
        # The number is 1000 * C + R, for round R of client C.
        client = int(head.split()[1].rpartition(b"/")[2]) // 1000
        if client == 0:
            begun = export_all(copied)
        elif client == 1:
            begun = change_price()
        else:
            begun = read_price()
        body = json.dumps({"read": read, "begun": begun, "ended": now_ms()})
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        connection.sendall(answer.encode())
        head = b""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--copied", action="store_true")
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=converse, args=(connection, args.copied), daemon=True).start()


if __name__ == "__main__":
    main()
