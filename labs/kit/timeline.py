"""Clients that each wait for their answer, and what the server says became of each request.

    timeline.py ADDRESS [--clients N] [--rounds N|--seconds N] [--path PATH] [--reconnect]
                [--pause-ms N] [--peer ADDRESS] [--warm-up N] [--midst SECONDS] [--moments]
                [--expect RULE]…

--reconnect   each request has a connection of its own
--peer        whom the server asks, for the ground truth
--warm-up     each client asks so often before whywait attaches
--midst       whywait attaches while they ask, and they stop so long after: most of what it sees of
              a queue began before. What was answered before that, it did not see, and it is not
              counted
--moments     the ground truth has all of each client's requests: when it was sent, read, begun,
              ended and answered, in milliseconds of CLOCK_MONOTONIC
--path        NUMBER in it is 1000 * C + R, for round R of client C, both counted from 0

The ground truth has, of all requests, the time until the server had read them (unread), until the
work on them began (queued) and until it ended (work), what they took by the clock of the clients'
kernel (wire; not over unix sockets), how long each call to the peer took (calls; without those that
the server lists, the work is one), what passed from an answer to the client's next request
(thinks), and the moments of the first requests. Of a server that says in which functions its
threads were, it has all of them (ran). A rule is like unread.p50_ms>=500.
"""

import argparse
import json
import sys
import threading
import time

import client


class Client(threading.Thread):
    def __init__(self, number, args, start):
        super().__init__(daemon=True)
        self.number, self.args, self.start_line = number, args, start
        self.requests, self.calls, self.ran, self.failed = [], [], [], None
        # What each request took by the kernel's clock.
        self.wire = []
        self.connection = None

    def run(self):
        try:
            self.converse()
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error

    def converse(self):
        for done in range(self.args.warm_up):
            self.ask(done)
        self.calls, self.ran = [], []
        if self.args.warm_up:
            # The others, and then whywait.
            self.start_line.wait()
        self.start_line.wait()
        end = time.monotonic() + self.args.seconds if self.args.seconds else None
        done = 0
        while not self.args.stop.is_set() and (
            time.monotonic() < end if end else done < self.args.rounds
        ):
            if done:
                time.sleep(self.args.pause_ms / 1e3)
            self.requests.append(self.ask(done))
            self.wire.append(self.connection.on_the_wire())
            done += 1

    def ask(self, done):
        path = self.args.path.replace("NUMBER", str(self.number * 1000 + done))
        sent = client.now_ms()
        if not self.connection or self.args.reconnect:
            self.connection = client.Connection(self.args.address)
        try:
            body = self.connection.get(path)
        except ConnectionError:
            # The server has closed a connection that was idle, as any may: the request goes out
            # again.
            self.connection = client.Connection(self.args.address)
            body = self.connection.get(path)
        received = client.now_ms()
        if self.args.reconnect:
            self.connection.close()
        said = json.loads(body)
        self.calls += said.get("calls", [[said["begun"], said["ended"]]])
        self.ran += said.get("ran", [])
        return [sent, said["read"], said["begun"], said["ended"], received]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--path", default="/")
    parser.add_argument("--reconnect", action="store_true")
    parser.add_argument("--pause-ms", type=float, default=0)
    parser.add_argument("--peer")
    parser.add_argument("--warm-up", type=int, default=0)
    parser.add_argument("--midst", type=float)
    parser.add_argument("--moments", action="store_true")
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    args.stop = threading.Event()
    start = threading.Barrier(args.clients + 1, timeout=client.DEADLINE_S)
    clients = [Client(number, args, start) for number in range(args.clients)]
    for one in clients:
        one.start()
    if args.warm_up:
        start.wait()
        client.attach()
    idle, ticks = client.idle_cpus()
    start.wait()
    begun = client.now_ms()
    if args.midst:
        # The queue is as long as it gets by then.
        time.sleep(1)
        client.attach()
        attached = client.now_ms()
        time.sleep(args.midst)
        args.stop.set()
    for one in clients:
        one.join()
        if one.failed:
            sys.exit(f"timeline: client {one.number}: {one.failed!r}")
    idle, ticks = (after - before for after, before in zip(client.idle_cpus(), (idle, ticks)))
    since = attached if args.midst else begun
    requests, wire = [], []
    for one in clients:
        for request, ms in zip(one.requests, one.wire):
            if request[-1] > since:
                requests.append(request)
                wire.append(ms)
    requests.sort()

    def series(until, since):
        return client.summary([request[until] - request[since] for request in requests])

    calls = [ended - begun for one in clients for begun, ended in one.calls]
    thinks = [
        after[0] - before[-1]
        for one in clients for before, after in zip(one.requests, one.requests[1:])
    ]
    truth = {
        "load": series(4, 0), "unread": series(1, 0), "queued": series(2, 1), "work": series(3, 2),
        "calls": client.summary(calls), "thinks": client.summary(thinks or [0]),
        "total_ms": round(client.now_ms() - begun, 1), "cpus_idle": round(idle / max(ticks, 1), 3),
        "clients": args.clients, "peer": args.peer,
        "wire": client.summary(wire),
        "first_requests": [[round(moment - begun, 1) for moment in one] for one in requests[:24]],
    }
    if args.address.startswith("/"):
        del truth["wire"]
    if ran := sorted(one_ran for one in clients for one_ran in one.ran):
        truth["ran"] = ran
    if args.moments:
        truth["moments"] = [
            [[round(moment, 2) for moment in request] for request in one.requests]
            for one in clients
        ]
    if args.midst:
        # How old the oldest was that was under way by then.
        ages = [attached - sent for sent, *_, received in requests if sent < attached < received]
        truth["age_attached_ms"] = round(max(ages, default=0), 1)
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
