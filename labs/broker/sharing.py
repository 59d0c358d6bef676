#!/usr/bin/env python3
"""An HTTP server that asks redis for something in each request, and waits for messages besides.

  sharing.py REDIS [--own]

It waits for messages with BLPOP, for 60 ms each time, on the connection on which requests ask:
redis answers them after that. With --own it has a connection of its own for it.
"""

import asyncio
import os
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def command(*words):
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded)


class Redis:
    """A connection; replies come in the order of the commands."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.waiting = []
        self.reading = asyncio.create_task(self.read())

    @classmethod
    async def connect(cls, address):
        host, port = address.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def read(self):
        while line := await self.reader.readline():
            if line[:1] == b"$" and line != b"$-1\r\n":
                await self.reader.readexactly(int(line[1:]) + 2)
            self.waiting.pop(0).set_result(line)

    async def ask(self, *words):
        reply = asyncio.get_running_loop().create_future()
        self.waiting.append(reply)
        self.writer.write(command(*words))
        return await reply


async def look_up_session(redis):
    await redis.ask("GET", "session")


async def wait_for_messages(redis):
    # There is none.
    while True:
        await redis.ask("BLPOP", "orders", "0.06")


async def main():
    address, *how = sys.argv[1:]
    redis = await Redis.connect(address)
    other = await Redis.connect(address) if "--own" in how else redis
    consumer = asyncio.create_task(wait_for_messages(other))

    async def serve(reader, writer):
        try:
            while await reader.readline():
                while await reader.readline() != b"\r\n":
                    pass
                await look_up_session(redis)
                writer.write(ANSWER)
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with open(os.environ["READY_FILE"], "w") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{port}\n")
    await consumer


asyncio.run(main())
