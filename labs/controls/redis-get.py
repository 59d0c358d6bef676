"""Eight clients of redis, each of which asks when it has its answer, with their kernel's clock.

    redis-get.py ADDRESS [--clients N] [--rounds N] [--expect RULE]…

`load` is what the clients measured, and `wire` from when their kernel sent a command until it had
the answer: without the time in which a client had no CPU.
"""

import argparse
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

VALUE = b"v" * 1000
SET = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1000\r\n%s\r\n" % VALUE
GET = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"


def keep_asking(address, rounds, latencies, wire):
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=client.DEADLINE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.stamp(connection)
    for number in range(rounds):
        command, expected = (GET, b"$1000\r\n%s\r\n" % VALUE) if number else (SET, b"+OK\r\n")
        begun = client.now_ms()
        connection.sendall(command)
        # At once: a stamp that nobody takes ends each poll, and who waits for the answer spins.
        sent_ms = client.sent_ms(connection)
        received = b""
        while len(received) < len(expected):
            piece, received_ms = client.receive_stamped(connection)
            if not piece:
                raise ConnectionError("redis closed the connection")
            received += piece
        latencies.append(client.now_ms() - begun)
        wire.append(received_ms - sent_ms)
        assert received == expected, received[:80]
    connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--expect", action="append", default=[])
    args = parser.parse_args()
    latencies, wire = [], []
    threads = [
        threading.Thread(target=keep_asking, args=(args.address, args.rounds, latencies, wire))
        for _ in range(args.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(latencies) < args.clients * args.rounds:
        sys.exit("load: not all clients have been answered")
    truth = {"load": client.summary(latencies), "wire": client.summary(wire)}
    return client.tell(truth, args.expect)


if __name__ == "__main__":
    sys.exit(main())
