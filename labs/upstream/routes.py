"""An asyncio server with two routes: a list makes many calls in a row, an item makes one.

    routes.py UPSTREAM --calls N [--together]

Of ten clients one asks for lists: /NUMBER is 1000 * C + R, for round R of client C. Each connection
has one to the other service. With --together a list asks for all in one call.
"""

import argparse
import asyncio
import json
import os
import time


def now_ms():
    return 1e3 * time.monotonic()


def render(milliseconds):
    until = now_ms() + milliseconds
    while now_ms() < until:
        pass


class Service:
    def __init__(self, address):
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    async def connect(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def fetch(self, calls):
        begun = now_ms()
        self.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await self.reader.readuntil(b"\r\n\r\n")
        await self.reader.readexactly(len("upstream"))
        calls.append([begun, now_ms()])

    async def load_item(self, calls):
        await self.fetch(calls)

    async def load_list(self, calls, count):
        for _ in range(count):
            await self.fetch(calls)


async def converse(reader, writer, args):
    service = Service(args.upstream)
    await service.connect()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            read, calls = now_ms(), []
            client = int(head.split()[1].rpartition(b"/")[2]) // 1000
            if client % 10 == 0 and not args.together:
                await service.load_list(calls, args.calls)
            else:
                await service.load_item(calls)
            render(1)
            said = {"read": read, "begun": calls[0][0], "ended": now_ms(), "calls": calls}
            body = json.dumps(said)
            answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            writer.write(answer.encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--together", action="store_true")
    args = parser.parse_args()
    server = await asyncio.start_server(
        lambda reader, writer: converse(reader, writer, args), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
