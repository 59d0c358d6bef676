"""A service on a unix socket: one thread that accepts, and works for 10 ms for each connection. It
is the `peer` of a lab: nobody watches it.

    helper.py DIR [--backlog N] [--threads]

--backlog  so many connections wait to be accepted at most (1)
--threads  each connection has a thread of its own
"""

import argparse
import os
import socket
import sys
import threading
import time

WORK_SECONDS = 0.01


def work(connection):
    with connection:
        connection.recv(64)
        time.sleep(WORK_SECONDS)
        connection.sendall(b"helped")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--backlog", type=int, default=1)
    parser.add_argument("--threads", action="store_true")
    args = parser.parse_args()
    path = os.path.join(args.dir, "helper")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(args.backlog)
        with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
            print(os.getpid(), path, file=ready)
        while True:
            connection, _ = listener.accept()
            if args.threads:
                threading.Thread(target=work, args=(connection,), daemon=True).start()
            else:
                work(connection)


if __name__ == "__main__":
    sys.exit(main())
