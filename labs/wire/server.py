"""A server with a thread for each connection that writes each response in two pieces.

    server.py pieces|one|nodelay   head and body with two writes, with one, or with TCP_NODELAY
    server.py accept --backlog N   one thread, a connection at a time, a listener of that limit
    server.py asks --peer ADDRESS  asks another one for each request, on a new connection

With `asks` and --give-up-ms it answers without the other one when that takes so long to connect.

With `accept` each connection has one request; a lookup of 1 ms comes before it is read.

    --breaker           it asks no more once it gave up
    --lookup-ms N       how long the lookup takes
    --full N            nothing is accepted until N connections found no room; then there is room
    --filled            … and there is none from the beginning
    --defer             connections are taken with their first data only (TCP_DEFER_ACCEPT)
    --body BYTES        the length of a body
    --send-buffer BYTES the size of the send buffer; 0: the kernel's
    --namespace         in a network namespace of its own
    --lose N            … where each Nth packet with a response is lost
"""

import argparse
import os
import socket
import threading
import time

import namespace

PORT = 8080


class Response:
    """What is answered, always the same."""

    def __init__(self, body):
        self.body = b"{}" * (body // 2)
        self.head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.body)
        self.whole = self.head + self.body


def requests(connection):
    """One at a time, as they come."""
    received = b""
    while piece := connection.recv(4096):
        received += piece
        if received.endswith(b"\r\n\r\n"):
            yield received
            received = b""


def send_in_pieces(connection, response):
    connection.sendall(response.head)
    connection.sendall(response.body)


def ask(address, give_up_s=None):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=give_up_s) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while not peer.recv(4096).endswith(b"{}"):
            pass


def ask_or_give_up(args):
    try:
        ask(args.peer, args.give_up_ms / 1000)
    except TimeoutError:
        args.down = args.breaker


def converse(connection, args, response):
    if args.how == "nodelay":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if args.send_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, args.send_buffer)
    for _ in requests(connection):
        if args.how == "asks" and not args.give_up_ms:
            ask(args.peer)
        elif args.how == "asks" and not args.down:
            ask_or_give_up(args)
        if args.how in ("one", "asks"):
            connection.sendall(response.whole)
        else:
            send_in_pieces(connection, response)
    connection.close()


def fill(listener, backlog):
    """As many connections as find room, of nobody who asks for anything."""
    address = listener.getsockname()
    return [socket.create_connection(address) for _ in range(backlog + 1)]


def accept_one_by_one(listener, response, lookup_s, full_until, fillers):
    if full_until:
        while namespace.overflows() < full_until:
            time.sleep(0.005)
        for filler in fillers:
            filler.close()
        # Those who come again are not to find it full once more.
        listener.listen(128)
    while True:
        connection, _ = listener.accept()
        time.sleep(lookup_s)
        for _ in requests(connection):
            connection.sendall(response.whole)
        connection.close()


def listen(args):
    """The listener, and its address for the load."""
    if not args.namespace and not args.lose:
        listener = socket.create_server(("127.0.0.1", 0), backlog=args.backlog)
        return listener, f"127.0.0.1:{listener.getsockname()[1]}"
    namespace.enter_new()
    if args.lose:
        # Packets with data, not those that only acknowledge.
        namespace.lose(f"tcp sport {PORT} meta length > 100", args.lose)
    listener = socket.create_server(("127.0.0.1", PORT), backlog=args.backlog)
    return listener, f"127.0.0.1:{PORT}@{os.getpid()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["pieces", "one", "nodelay", "accept", "asks"])
    parser.add_argument("--peer")
    parser.add_argument("--give-up-ms", type=float)
    parser.add_argument("--breaker", action="store_true")
    parser.set_defaults(down=False)
    parser.add_argument("--lookup-ms", type=float, default=1)
    parser.add_argument("--backlog", type=int, default=128)
    parser.add_argument("--full", type=int, default=0)
    parser.add_argument("--filled", action="store_true")
    parser.add_argument("--defer", action="store_true")
    parser.add_argument("--body", type=int, default=64)
    parser.add_argument("--send-buffer", type=int, default=0)
    parser.add_argument("--namespace", action="store_true")
    parser.add_argument("--lose", type=int, default=0)
    args = parser.parse_args()
    response = Response(args.body)
    listener, address = listen(args)
    if args.defer:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
    fillers = fill(listener, args.backlog) if args.filled else []
    full_until = args.full and namespace.overflows() + args.full
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {address}\n")
    if args.how == "accept":
        accept_one_by_one(listener, response, args.lookup_ms / 1000, full_until, fillers)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=converse, args=(connection, args, response), daemon=True).start()


if __name__ == "__main__":
    main()
