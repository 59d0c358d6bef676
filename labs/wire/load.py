"""Clients with a clock of their own.

    load.py ADDRESS [--clients N] [--rounds N] [--connect] [--linger S] [--expect RULE]…
            [--path PATH] [--read-after S] [--receive-buffer BYTES] [--warm-up N]
            [--overflow-another N]

Each client keeps its connection and asks again when it has its answer. With --connect all connect
at the same moment, ask once and leave; a round is over when all have been answered. It ends S
seconds after the last answer: whywait looks at accept queues every two seconds. With --read-after
it reads nothing for that long after it asked. With --warm-up each asks so often before whywait
attaches: what a JVM does for its first requests is another matter. An ADDRESS@PID is in the network
namespace of that process. With --overflow-another N connections found the queue of a listener full
that nobody watches, before anybody asks.

`load` is what the clients measured, and `wire` from when their kernel sent a request until it had
the whole answer: without the time in which a client had no CPU, which is none of the server's. It
begins when the client connects if its connection was not made at the first try.
"""

import argparse
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position
import namespace  # noqa: E402  pylint: disable=wrong-import-position


# Where `struct tcp_info` has how many packets were sent again.
TOTAL_RETRANS = 100


def keep_asking(args, rounds, latencies, wire):
    connection = client.Connection(args.address, args.receive_buffer)
    for _ in range(rounds):
        begun = client.now_ms()
        connection.send(args.path)
        time.sleep(args.read_after)
        connection.receive()
        latencies.append(client.now_ms() - begun)
        wire.append(connection.on_the_wire())
    connection.close()


def begin_to_connect(address):
    host, _, port = address.rpartition(":")
    one = socket.socket()
    client.stamp(one)
    one.setblocking(False)
    one.connect_ex((host, int(port)))
    return one


def ask_once(one, begun, latencies, wire):
    one.settimeout(client.DEADLINE_S)
    # Blocks until it is connected.
    one.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
    # At once: a stamp that nobody takes ends each poll, and who waits for the answer spins.
    asked_ms = client.sent_ms(one)
    received = b""
    while not received.endswith(b"{}"):
        piece, received_ms = client.receive_stamped(one)
        if not piece:
            raise ConnectionError("the server closed the connection")
        received += piece
    latencies.append(client.now_ms() - begun[0])
    wire.append(received_ms - (begun[1] if syns_sent_again(one) else asked_ms))
    one.close()


def syns_sent_again(one):
    """Whether its connection was made at the second try or later; nothing else is lost here."""
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANS + 4)
    return any(info[TOTAL_RETRANS:])


def overflow_another(times):
    """A listener that nobody accepts from, in the same namespace."""
    wanted = namespace.overflows() + times
    with socket.create_server(("127.0.0.1", 0), backlog=0) as another:
        address = "{}:{}".format(*another.getsockname())
        connecting = []

        def is_full():
            connecting.append(begin_to_connect(address))
            return namespace.overflows() >= wanted

        client.wait_until("a listener to be full", is_full)
        for one in connecting:
            one.close()


def run(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def keep_asking_all(args, rounds, latencies, wire):
    run([threading.Thread(target=keep_asking, args=(args, rounds, latencies, wire))
         for _ in range(args.clients)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--connect", action="store_true")
    parser.add_argument("--linger", type=float, default=0)
    parser.add_argument("--path", default="/")
    parser.add_argument("--read-after", type=float, default=0)
    parser.add_argument("--receive-buffer", type=int, default=0)
    parser.add_argument("--warm-up", type=int, default=0)
    parser.add_argument("--overflow-another", type=int, default=0)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    args.address = namespace.follow(args.address)
    if args.warm_up:
        keep_asking_all(args, args.warm_up, [], [])
        client.attach()
    latencies, wire, before = [], [], namespace.overflows()
    if args.overflow_another:
        overflow_another(args.overflow_another)
    if args.connect:
        for _ in range(args.rounds):
            begun = client.now_ms(), client.wall_clock_ms()
            connecting = [begin_to_connect(args.address) for _ in range(args.clients)]
            run([threading.Thread(target=ask_once, args=(one, begun, latencies, wire))
                 for one in connecting])
    else:
        keep_asking_all(args, args.rounds, latencies, wire)
    if len(latencies) < args.clients * args.rounds:
        sys.exit("load: not all clients have been answered")
    time.sleep(args.linger)
    truth = {"load": client.summary(latencies), "wire": client.summary(wire),
             "overflows": namespace.overflows() - before}
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
