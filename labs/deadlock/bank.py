"""A bank with an asyncio.Lock for each of two accounts; transfers go both ways.

    bank.py [--fixed]

/ab and /ba transfer; with /together behind it a transfer has its first lock until another one has
its own, or for half a second. With --fixed both take the locks in the same order.
"""

import asyncio
import contextlib
import os
import sys


class Bank:
    def __init__(self, fixed):
        self.fixed = fixed
        self.a, self.b = asyncio.Lock(), asyncio.Lock()
        self.met = asyncio.Barrier(2)
        self.transfers = 0

    async def meet(self, together):
        if together:
            with contextlib.suppress(asyncio.TimeoutError, asyncio.BrokenBarrierError):
                await asyncio.wait_for(self.met.wait(), 0.5)

    async def transfer(self, first, second, together):
        async with first:
            await self.meet(together)
            async with second:
                self.transfers += 1

    async def transfer_ab(self, together):
        await self.transfer(self.a, self.b, together)

    async def transfer_ba(self, together):
        if self.fixed:
            await self.transfer(self.a, self.b, together)
        else:
            await self.transfer(self.b, self.a, together)

    async def answer(self, path):
        together = path.endswith("/together")
        if path.startswith("/ab") and path != "/about":
            await self.transfer_ab(together)
        elif path.startswith("/ba"):
            await self.transfer_ba(together)
        return '{"transfers": %d}' % self.transfers

    async def converse(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await self.answer(head.split(b" ", 2)[1].decode())
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write((head + body).encode())
        writer.close()


async def main():
    bank = Bank("--fixed" in sys.argv)
    server = await asyncio.start_server(bank.converse, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {host}:{port}\n")
    await server.serve_forever()


asyncio.run(main())
