"""An asyncio server whose requests each have a transaction, and ask another service.

    sessions.py transaction|session|limit|mixed|apart DATABASE --pool N

transaction  BEGIN, 20 ms of thought, UPDATE, COMMIT on a connection of the pool; then the call
session      a query, the call, and a query, all with the same connection in its hands
limit        no pool: so many requests at a time may call, each on a connection of its client's own
mixed        each second client's requests have such a session, the others' a query and no call
apart        the same, and a session gives its connection back before the call
"""

import argparse
import asyncio
import json
import os
import time

CALL = b"GET /call HTTP/1.1\r\nHost: peer\r\n\r\n"
THOUGHT_S = 0.02


def now_ms():
    return 1e3 * time.monotonic()


async def connect(host, port):
    return await asyncio.open_connection(host, port)


async def ask(connection):
    reader, writer = connection
    writer.write(CALL)
    await reader.readuntil(b"ok")


async def call_service(service, calls):
    begun = now_ms()
    await ask(service)
    calls.append([begun, now_ms()])


async def transaction(database, service, calls, free):
    begun = now_ms()
    await ask(database)
    await asyncio.sleep(THOUGHT_S)
    await ask(database)
    await ask(database)
    free()
    await call_service(service, calls)
    return begun


async def session(database, service, calls, free):
    begun = now_ms()
    await ask(database)
    await call_service(service, calls)
    await ask(database)
    free()
    return begun


async def query(database, service, calls, free):
    begun = now_ms()
    await ask(database)
    free()
    return begun


def client_of(head):
    """The path is 1000 * client + round."""
    return int(head.split(b" ")[1].strip(b"/")) // 1000


class Server:
    def __init__(self, args):
        self.args = args
        self.pool = asyncio.Queue()
        self.turns = asyncio.Semaphore(args.pool)

    async def fill(self, host, port):
        if self.args.what != "limit":
            for _ in range(self.args.pool):
                self.pool.put_nowait(await connect(host, port))

    async def from_pool(self, work, service, calls):
        database = await self.pool.get()
        return await work(database, service, calls, lambda: self.pool.put_nowait(database))

    async def apart(self, service, calls):
        begun = await self.from_pool(query, service, calls)
        await call_service(service, calls)
        await self.from_pool(query, service, calls)
        return begun

    async def of_client(self, client, service, calls):
        if client % 2:
            return await self.from_pool(query, service, calls)
        if self.args.what == "apart":
            return await self.apart(service, calls)
        return await self.from_pool(session, service, calls)

    async def limited(self, service, calls):
        async with self.turns:
            begun = now_ms()
            await call_service(service, calls)
        return begun

    async def converse(self, reader, writer, peer):
        service = await connect("127.0.0.2", peer[1])
        work = {"transaction": transaction, "session": session}.get(self.args.what)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                read, calls = now_ms(), []
                if self.args.what in ("mixed", "apart"):
                    begun = await self.of_client(client_of(head), service, calls)
                elif work:
                    begun = await self.from_pool(work, service, calls)
                else:
                    begun = await self.limited(service, calls)
                said = {"read": read, "begun": begun, "ended": now_ms(), "calls": calls}
                body = json.dumps(said)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write((head + body).encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            service[1].close()
            writer.close()


async def main():
    parser = argparse.ArgumentParser()
    what = ["transaction", "session", "limit", "mixed", "apart"]
    parser.add_argument("what", choices=what)
    parser.add_argument("database")
    parser.add_argument("--pool", type=int, required=True)
    args = parser.parse_args()
    host, _, port = args.database.rpartition(":")
    server = Server(args)
    await server.fill(host, port)
    listener = await asyncio.start_server(
        lambda reader, writer: server.converse(reader, writer, (host, port)), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.sockets[0].getsockname()[1]}\n")
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
