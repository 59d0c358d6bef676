"""Clients that keep all workers, and clients that wait for one of them.

    load.py ADDRESS --kept N [--upload | --stream [--stuck]] [--attach] [--waiting N]
                    [--accepted] [--slow] [--free]

N clients have an answer each, and keep their connections. With --upload they send a body instead,
bit by bit, and are not done before the end. With --stream they have an answer that never ends;
--stuck: and stop reading it. Then others ask, and for three seconds nothing else happens: they are
not accepted, or lie unread.

--attach    whywait attaches when all of them are there
--accepted  the others are accepted
--slow      what the others ask for takes 200 ms, and they ask again and again: as some workers are
            kept, they wait for the rest of them
--free      the server keeps no worker: the others have their answers, again and again
"""

import argparse
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, PIECE, PAUSE_S, BODY = 3, 1000, 0.1, 10_000_000


def upload(connection):
    """Never done: the load ends before."""
    try:
        while True:
            connection.socket.sendall(bytes(PIECE))
            time.sleep(PAUSE_S)
    except OSError:
        # The server has ended.
        pass


def drain(connection):
    try:
        while connection.socket.recv(65536):
            pass
    except OSError:
        # The server has ended.
        pass


def ask_again_and_again(args, end, latency):
    while time.monotonic() < end:
        asked = client.now_ms()
        client.ask(args.address, "/slow" if args.slow else "/")
        latency.append(client.now_ms() - asked)
        time.sleep(0.1)


def keep(args):
    kept = [client.Connection(args.address) for _ in range(args.kept)]
    for connection in kept:
        if args.upload:
            head = f"POST / HTTP/1.1\r\nHost: lab\r\nContent-Length: {BODY}\r\n\r\n"
            connection.socket.sendall(head.encode())
            threading.Thread(target=upload, args=(connection,), daemon=True).start()
        elif args.stream:
            connection.send("/stream")
            connection.socket.recv(1)
            if not args.stuck:
                threading.Thread(target=drain, args=(connection,), daemon=True).start()
        else:
            connection.get("/")
    client.wait_until("these to be accepted", lambda: client.accept_queue(args.address) == 0)
    client.wait_until("these to be read", lambda: client.unread(args.address) == 0)
    return kept


def ask_for_a_while(args):
    latency, end = [], time.monotonic() + SECONDS
    askers = [
        threading.Thread(target=ask_again_and_again, args=(args, end, latency))
        for _ in range(args.waiting)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    if not args.slow:
        expected = ["latency.count>=100"]
    elif args.free:
        expected = ["latency.p50_ms<=300", "latency.count>=40"]
    else:
        expected = ["latency.p50_ms>=500", "latency.count>=20"]
    return client.tell({"latency": client.summary(latency)}, expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--kept", type=int, required=True)
    parser.add_argument("--upload", action="store_true")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--stuck", action="store_true")
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--waiting", type=int, default=8)
    parser.add_argument("--accepted", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--free", action="store_true")
    args = parser.parse_args()
    kept = keep(args)
    if args.free or args.slow:
        if args.attach:
            client.attach()
        return ask_for_a_while(args)
    begun = client.now_ms()
    waiting = [client.Connection(args.address) for _ in range(args.waiting)]
    for one in waiting:
        one.send("/")
    if args.accepted:
        client.wait_until(
            "the others to lie unread", lambda: client.unread(args.address) >= args.waiting
        )
    else:
        client.wait_until(
            "the others to lie in the accept queue",
            lambda: client.accept_queue(args.address) == args.waiting,
        )
    if args.attach:
        client.attach()
    time.sleep(SECONDS)
    truth = {
        "kept": args.kept,
        "accept_queue": client.accept_queue(args.address),
        "oldest_ms": round(client.now_ms() - begun, 1),
    }
    client.keep_until_the_end([one.socket for one in kept + waiting])
    queued = [] if args.accepted else [f"accept_queue>={args.waiting}"]
    return client.tell(truth, [f"oldest_ms>={1e3 * SECONDS}", *queued])


if __name__ == "__main__":
    sys.exit(main())
