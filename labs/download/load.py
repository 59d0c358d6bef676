"""Downloads that began before whywait attaches, and go on after it has gone.

    load.py ADDRESS [--downloads N] [--slowly] [--quick]

--slowly  the clients read 100 kB a second each; else whatever comes
--quick   no downloads but small ones, again and again
"""

import argparse
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, BEFORE_S, PIECE, PIECES_A_SECOND = 3, 1, 10_000, 10


class Download(threading.Thread):
    """One that is not over before the server ends."""

    def __init__(self, connection, slowly):
        super().__init__(daemon=True)
        self.connection, self.slowly, self.received = connection, slowly, 0

    def run(self):
        try:
            while piece := self.connection.socket.recv(PIECE if self.slowly else 65536):
                self.received += len(piece)
                if self.slowly:
                    time.sleep(1 / PIECES_A_SECOND)
        except OSError:
            # The server has ended.
            pass


def go_on_until_the_end(address, downloads):
    """Reads on, in a process of its own, until the server has gone: this may end."""
    if os.fork():
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for download in downloads:
        Download(download.connection, download.slowly).start()
    end = time.monotonic() + client.DEADLINE_S
    while client.receive_queues(address, "0A") and time.monotonic() < end:
        time.sleep(0.05)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--downloads", type=int, default=3)
    parser.add_argument("--slowly", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    downloads = []
    for _ in range(0 if args.quick else args.downloads):
        downloads.append(Download(client.Connection(args.address, 65536), args.slowly))
        downloads[-1].connection.send("/large")
        downloads[-1].start()
    time.sleep(BEFORE_S)
    client.attach()
    before = sum(download.received for download in downloads)
    end, small = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        if args.quick:
            client.ask(args.address, "/small")
            small += 1
        time.sleep(0.05)
    received = sum(download.received for download in downloads) - before
    go_on_until_the_end(args.address, downloads)
    truth = {"downloads": len(downloads), "small": small, "received": received}
    return client.tell(truth, ["small>=20"] if args.quick else ["received>=500000"])


if __name__ == "__main__":
    sys.exit(main())
