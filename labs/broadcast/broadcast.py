"""Sends a message to all subscribers, one after another, every 100 ms.

    broadcast.py [--wait] [--events] [--threads]

--wait      waits for each subscriber until it has room again, before the next one has the message
--events    subscribers get a stream of events (SSE), else they are websockets
--threads   one thread writes to all of them, and blocks

Subscribers are let in until there are as many as the one that asks first says: GET /NUMBER.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import threading
import time

# A client that reads 64 kB every 100 ms needs four times as long.
MESSAGE = 1 << 18
BUFFER = 1 << 16
EVERY_S = 0.1
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def message(events):
    body = bytes(MESSAGE)
    if events:
        return b"data: " + body.replace(b"\0", b"x")[:-8] + b"\n\n"
    return b"\x82\x7f" + (MESSAGE - 10).to_bytes(8, "big") + body[:-10]


def listener():
    server = socket.create_server(("127.0.0.1", 0))
    # Connections have it, too.
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return server


def ready(server):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} 127.0.0.1:{server.getsockname()[1]}\n")


def wanted(head):
    return int(head.split(b" ", 2)[1].lstrip(b"/"))


class Broadcast:
    def __init__(self, args):
        self.args = args
        self.subscribers = []
        self.all_there = asyncio.Event()

    async def subscribe(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(EVENTS if self.args.events else UPGRADE)
        await writer.drain()
        self.subscribers.append(writer)
        if len(self.subscribers) == wanted(head):
            self.all_there.set()

    async def send_to_all(self, text):
        for writer in self.subscribers:
            writer.write(text)
            if self.args.wait:
                # In the end they go.
                with contextlib.suppress(ConnectionError):
                    await writer.drain()

    async def run(self):
        server = listener()
        await asyncio.start_server(self.subscribe, sock=server)
        ready(server)
        await self.all_there.wait()
        text = message(self.args.events)
        while True:
            await self.send_to_all(text)
            await asyncio.sleep(EVERY_S)


def send_to_all(subscribers, text):
    for connection in subscribers:
        with contextlib.suppress(ConnectionError):
            connection.sendall(text)


def run_threads(args):
    server = listener()
    ready(server)
    subscribers, many = [], 1
    while len(subscribers) < many:
        connection = server.accept()[0]
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(4096)
        many = wanted(head)
        connection.sendall(EVENTS if args.events else UPGRADE)
        subscribers.append(connection)
    text = message(args.events)
    # In a thread of its own, as the one that accepts is busy with that.
    thread = threading.Thread(target=feed, args=(subscribers, text), name="feed")
    thread.start()
    thread.join()


def feed(subscribers, text):
    while True:
        send_to_all(subscribers, text)
        time.sleep(EVERY_S)


def main():
    parser = argparse.ArgumentParser()
    for kind in ("wait", "events", "threads"):
        parser.add_argument(f"--{kind}", action="store_true")
    args = parser.parse_args()
    if args.threads:
        run_threads(args)
    else:
        asyncio.run(Broadcast(args).run())


if __name__ == "__main__":
    main()
