"""Clients that keep all workers, and clients that wait for one of them.

    load.py ADDRESS --kept N [--waiting N] [--free]

N clients have an answer each, and keep their connections. Then others ask, and for three seconds
nothing else happens: they are not accepted.

--free   the server keeps no worker: the others have their answers, again and again
"""

import argparse
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 3


def ask_again_and_again(address, end, latency):
    while time.monotonic() < end:
        asked = client.now_ms()
        client.ask(address, "/")
        latency.append(client.now_ms() - asked)
        time.sleep(0.02)


def keep(args):
    kept = [client.Connection(args.address) for _ in range(args.kept)]
    for connection in kept:
        connection.get("/")
    client.wait_until("these to be accepted", lambda: client.accept_queue(args.address) == 0)
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--kept", type=int, required=True)
    parser.add_argument("--waiting", type=int, default=8)
    parser.add_argument("--free", action="store_true")
    args = parser.parse_args()
    kept = keep(args)
    if args.free:
        latency, end = [], time.monotonic() + SECONDS
        askers = [
            threading.Thread(target=ask_again_and_again, args=(args.address, end, latency))
            for _ in range(args.waiting)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        return client.tell({"latency": client.summary(latency)}, ["latency.count>=100"])
    begun = client.now_ms()
    waiting = [client.Connection(args.address) for _ in range(args.waiting)]
    for one in waiting:
        one.send("/")
    client.wait_until("the others to lie in the accept queue",
                      lambda: client.accept_queue(args.address) == args.waiting)
    time.sleep(SECONDS)
    truth = {
        "kept": args.kept, "accept_queue": client.accept_queue(args.address),
        "oldest_ms": round(client.now_ms() - begun, 1),
    }
    client.keep_until_the_end([one.socket for one in kept + waiting])
    return client.tell(truth, [f"oldest_ms>={1e3 * SECONDS}", f"accept_queue>={args.waiting}"])


if __name__ == "__main__":
    sys.exit(main())
