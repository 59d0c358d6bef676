"""Requests that are not answered before the recording ends, or that were asked before it began.

    load.py ADDRESS --upstream ADDRESS --held N [--silent|--fill N] [--attach] [--release]
            [--seconds N]

Some ordinary requests; then four clients ask for what the other service does not give. It goes on
when N of them are held there, and the others lie unread. With --silent a client that connects and
says nothing keeps the acceptor, and with --fill N clients keep their connections: the four are then
not accepted.

--attach    no ordinary requests; whywait attaches when the four have waited for a second
--release   after --seconds the other service answers, and so are the four; else they hang
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

CLIENTS, ROUNDS, AGE_S = 4, 10, 1.0


def ordinary(address, rounds=ROUNDS):
    latency = []
    for _ in range(rounds * CLIENTS):
        asked = client.now_ms()
        client.ask(address, "/")
        latency.append(client.now_ms() - asked)
    return latency


def keep_the_acceptor(args):
    """Connections that stay: the silent one, or those that take all descriptors."""
    kept = [client.Connection(args.address) for _ in range(args.fill or 1)]
    for connection in kept[:args.fill]:
        connection.get("/")
    client.wait_until("these to be accepted", lambda: client.accept_queue(args.address) == 0)
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--held", type=int, required=True)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--fill", type=int, default=0)
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--release", action="store_true")
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    latency = [] if args.attach else ordinary(args.address)
    kept = keep_the_acceptor(args) if args.silent or args.fill else []
    begun = client.now_ms()
    clients = [client.Connection(args.address) for _ in range(CLIENTS)]
    for one in clients:
        one.send("/hold")
    # From here on nothing moves until somebody makes it.
    client.wait_until(f"{args.held} requests to be held by the other service",
                      lambda: int(client.ask(args.upstream, "/holding")) == args.held)
    client.wait_until("the others to lie unread",
                      lambda: client.unread(args.address) >= CLIENTS - args.held)
    truth = {
        "ordinary": client.summary(latency), "held": args.held,
        "accept_queue": client.accept_queue(args.address), "unread": client.unread(args.address),
    }
    if args.attach:
        time.sleep(max(AGE_S - (client.now_ms() - begun) / 1e3, 0))
        truth["age_at_attach_ms"] = round(client.now_ms() - begun, 1)
        client.attach()
        truth["age_attached_ms"] = round(client.now_ms() - begun, 1)
    time.sleep(args.seconds)
    if args.release:
        client.ask(args.upstream, "/release")
        said = [json.loads(one.receive()) for one in clients]
        truth["latency_ms"] = round(client.now_ms() - begun, 1)
        truth["read_after_ms"] = sorted(round(one["read"] - begun, 1) for one in said)
        truth["ordinary"] = client.summary(ordinary(args.address, 5))
        return client.tell(truth, [f"latency_ms>={1e3 * args.seconds}"])
    truth["open"] = CLIENTS
    truth["oldest_ms"] = round(client.now_ms() - begun, 1)
    for one in clients:
        one.socket.setblocking(False)
        try:
            sys.exit(f"load: an answer came: {one.socket.recv(100)}")
        except BlockingIOError:
            one.socket.setblocking(True)
    client.keep_until_the_end([one.socket for one in clients + kept])
    return client.tell(truth, [f"oldest_ms>={1e3 * args.seconds}"])


if __name__ == "__main__":
    sys.exit(main())
