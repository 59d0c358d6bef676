"""An asyncio server with a cache, whose lock is held while a value is fetched.

    cache.py UPSTREAM [--each]

Without --each there is one lock: who would find its value waits for others' fetches as well. With
it each user has a lock: only those who want the same one wait for its fetch.

Each client asks for its own user: /NUMBER is 1000 * C + R, for round R of client C. A value is good
for two requests, so that each second one finds it and makes no call. Every other user is there from
the beginning: in each round some find theirs, and others do not.
"""

import argparse
import asyncio
import collections
import json
import os
import time


def now_ms():
    return 1e3 * time.monotonic()


class Service:
    """Connections that are kept and used again. Another one is opened where all are in use."""

    def __init__(self, address):
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.free = []

    async def fetch_user(self, user, calls):
        connection = self.free.pop() if self.free else None
        reader, writer = connection or await asyncio.open_connection(self.host, self.port)
        begun = now_ms()
        writer.write(b"GET /%d HTTP/1.1\r\nHost: upstream\r\n\r\n" % user)
        await reader.readuntil(b"\r\n\r\n")
        found = await reader.readexactly(len("upstream"))
        calls.append([begun, now_ms()])
        self.free.append((reader, writer))
        return found


class Cache:
    def __init__(self, service, each):
        self.service = service
        self.locks = collections.defaultdict(asyncio.Lock)
        self.each = each
        self.kept = {user: b"upstream" for user in range(1, 16, 2)}

    async def get_user(self, user, calls):
        async with self.locks[user if self.each else None]:
            if user in self.kept:
                return self.kept.pop(user)
            self.kept[user] = await self.service.fetch_user(user, calls)
            return self.kept[user]


async def converse(cache, reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            read, calls = now_ms(), []
            await cache.get_user(int(head.split()[1].removeprefix(b"/")) // 1000, calls)
            ended = now_ms()
            begun = calls[0][0] if calls else ended
            body = json.dumps({"read": read, "begun": begun, "ended": ended, "calls": calls})
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
    parser.add_argument("--each", action="store_true")
    args = parser.parse_args()
    cache = Cache(Service(args.upstream), args.each)
    server = await asyncio.start_server(
        lambda reader, writer: converse(cache, reader, writer), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
