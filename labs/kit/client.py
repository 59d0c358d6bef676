"""What the labs' loads in Python have in common: an HTTP client, series, rules, attaching.

The servers answer with a line of JSON, the moments of a request in milliseconds of CLOCK_MONOTONIC,
which all processes of a machine share: `read`, when it was read from the socket; `begun` and
`ended`, when the work on it did so.
"""

import json
import os
import re
import socket
import struct
import sys
import time
from pathlib import Path

NOT_REPRODUCED = 75
# Of include/uapi/asm-generic/socket.h, linux/net_tstamp.h and linux/socket.h: when a packet is sent
# and when it is received, by software, and without the packet's data.
SO_TIMESTAMPING = 37
STAMPS = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 11
MSG_ERRQUEUE = 0x2000
STAMP = struct.Struct("qq")
# Three times, and of what is sent the origin.
TOLD_SIZE = 256
DEADLINE_S = 20


def now_ms():
    return 1e3 * time.monotonic()


def wall_clock_ms():
    """That of `received_ms`."""
    return 1e-6 * time.time_ns()


def stamp(connection):
    """From now on the kernel says when it sent, and when it had what is received: a client without
    a CPU has it later."""
    connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, STAMPS)


def stamp_in(told):
    """The time that came with what was received, in milliseconds of the wall clock."""
    for _, kind, data in told:
        if kind == SO_TIMESTAMPING:
            seconds, ns = STAMP.unpack_from(data)
            return 1e3 * seconds + 1e-6 * ns
    return 0


def receive_stamped(connection):
    """What is received, and when the kernel had the last of it."""
    piece, told, _, _ = connection.recvmsg(65536, TOLD_SIZE)
    # What arrived before the kernel had begun to stamp comes without: it was there by now.
    return piece, stamp_in(told) or wall_clock_ms()


def sent_ms(connection):
    """When the kernel sent the first packet of what was sent since this was asked last; by now."""
    first, patience = 0, connection.gettimeout()
    # Python would wait for data before it looks.
    connection.setblocking(False)
    try:
        while True:
            told = connection.recvmsg(1, TOLD_SIZE, MSG_ERRQUEUE)[1]
            first = first or stamp_in(told)
    except BlockingIOError:
        return first or wall_clock_ms()
    finally:
        connection.settimeout(patience)


class Connection:
    """A connection that is kept, to a unix socket if the address is a path. A server that hangs is
    an error, after a time. `sent_ms`: when the kernel sent the first packet of the last request;
    `received_ms`: when it had the last of what was received."""

    def __init__(self, address, receive_buffer=0):
        self.sent_ms = self.received_ms = 0
        if address.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE_S)
            self.socket.connect(address)
            return
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(DEADLINE_S)
        if receive_buffer:
            # Before it connects: the window is told then.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect((host, int(port)))
        stamp(self.socket)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, path):
        request = f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode()
        if self.socket.family == socket.AF_UNIX:
            self.socket.sendall(request)
            return
        # What was sent again of the request before has stamps of its own.
        sent_ms(self.socket)
        self.socket.sendall(request)
        # At once: a stamp that nobody takes ends each poll, and who waits for the answer spins.
        self.sent_ms = sent_ms(self.socket)

    def receive(self):
        received = b""
        while True:
            head, end, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if end and len(body) >= int(length[1]):
                break
            piece, self.received_ms = receive_stamped(self.socket)
            if not piece:
                raise ConnectionError("the server closed the connection")
            received += piece
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"the server answered {head.splitlines()[0]}")
        return body

    def get(self, path):
        self.send(path)
        return self.receive()

    def on_the_wire(self):
        """What the last request took from its first packet until its response was there, in
        milliseconds."""
        return self.received_ms - self.sent_ms

    def close(self):
        self.socket.close()


def ask(address, path):
    """One request on a connection of its own."""
    connection = Connection(address)
    body = connection.get(path)
    connection.close()
    return body


def summary(series):
    """Nearest ranks, as lab-load has them."""
    if not series:
        return {"count": 0}
    ordered = sorted(series)

    def at(percent):
        return round(ordered[max(-(-len(ordered) * percent // 100), 1) - 1], 3)

    return {"count": len(ordered), "p50_ms": at(50), "p99_ms": at(99), "max_ms": at(100),
            "sum_ms": round(sum(ordered), 3)}


def wait_until(what, look):
    """Looks again and again until there is something, for a while."""
    end = time.monotonic() + DEADLINE_S
    while not (found := look()):
        if time.monotonic() > end:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.005)
    return found


def attach():
    """Asks the lab's driver to let whywait attach to the server; returns when it watches."""
    file = Path(os.environ["ATTACH_FILE"])
    file.touch()
    wait_until("whywait to attach", lambda: not file.exists())


def receive_queues(address, state):
    """The receive queues of the sockets with this local address that are in this state."""
    port = int(address.rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] == state]
    return [int(row[4].split(":")[1], 16) for row in found]


def accept_queue(address):
    """How many connections wait to be accepted there."""
    return receive_queues(address, "0A")[0]


def unread(address):
    """How many connections have something to be read there, accepted or not."""
    return sum(size > 0 for size in receive_queues(address, "01"))


def idle_cpus():
    """The time that all CPUs were idle, and the time that there was, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def keep_until_the_end(sockets):
    """Keeps the sockets open until the server has gone, by a process of its own: this may end."""
    if os.fork():
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for held in sockets:
        held.settimeout(60)
        try:
            while held.recv(4096):
                pass
        except OSError:
            pass
    os._exit(0)


def broken_rules(rules, truth):
    """Rules as those of lab-load: NAME<=NUMBER or NAME>=NUMBER."""
    broken = []
    for rule in rules:
        name, at_most, bound = re.fullmatch(r"([\w.]+)([<>])=([\d.]+)", rule).groups()
        value = truth
        for key in name.split("."):
            value = value[key]
        if value > float(bound) if at_most == "<" else value < float(bound):
            broken.append(f"{name} was {value}, promised is {rule}")
    return broken


def tell(truth, rules):
    """Prints the ground truth; returns the exit code: 75 when a rule is broken."""
    print("ground-truth: " + json.dumps(truth), file=sys.stderr)
    broken = broken_rules(rules, truth)
    if broken:
        print("not reproduced: " + "; ".join(broken), file=sys.stderr)
    return NOT_REPRODUCED if broken else 0
