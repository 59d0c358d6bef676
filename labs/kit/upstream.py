"""A service that the labs' servers call: it answers each request after the same time, on one loop.

    upstream.py [--ms N] [--limit N] [--moments|--answered] [--pipelined]

--ms        the time until the answer (200)
--limit     it works on so many requests at a time; the others wait for their turn
--moments   the answer is what became of the request when, as the servers say it (client.py): for
            those behind a proxy, which says nothing itself
--answered  the answer is when it was given, in milliseconds of CLOCK_MONOTONIC

--pipelined it takes all requests that have come on a connection, works on one after the other, and
            then writes all answers, as Redis does

A path with `ms=N` in it is answered after that time.

A path that ends in `hold` is answered when somebody asks for /release, or never; /holding says how
many wait for that. It is the `peer` of a lab: nobody watches it.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import time


class Upstream:
    def __init__(self, args):
        self.milliseconds = args.ms
        self.moments, self.answered = args.moments, args.answered
        self.pipelined = args.pipelined
        self.turns = asyncio.Semaphore(args.limit or 1_000_000)
        self.released = asyncio.Event()
        self.holding = 0

    async def answer(self, path):
        if path == "/holding":
            return str(self.holding)
        if path == "/release":
            self.released.set()
            return "released"
        if path.endswith("hold"):
            self.holding += 1
            await self.released.wait()
            self.holding -= 1
            return "held"
        asked = re.search(r"ms=(\d+)", path)
        read = 1e3 * time.monotonic()
        async with self.turns:
            begun = 1e3 * time.monotonic()
            await asyncio.sleep((int(asked[1]) if asked else self.milliseconds) / 1e3)
        ended = 1e3 * time.monotonic()
        if self.answered:
            return f"{ended:.3f}"
        said = {"read": read, "begun": begun, "ended": ended, "calls": [[read, ended]]}
        return json.dumps(said) if self.moments else "upstream"

    async def heads(self, reader):
        """What has come: one request, or all there are."""
        if not self.pipelined:
            return [await reader.readuntil(b"\r\n\r\n")]
        received = await reader.read(1 << 16)
        while not received.endswith(b"\r\n\r\n"):
            received += await reader.readexactly(1)
        return received.split(b"\r\n\r\n")[:-1]

    async def converse(self, reader, writer):
        try:
            while True:
                answers = []
                for head in await self.heads(reader):
                    body = await self.answer(head.split(b" ", 2)[1].decode())
                    answers.append(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}")
                writer.write("".join(answers).encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ms", type=float, default=200)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--moments", action="store_true")
    parser.add_argument("--answered", action="store_true")
    parser.add_argument("--pipelined", action="store_true")
    upstream = Upstream(parser.parse_args())
    server = await asyncio.start_server(upstream.converse, "127.0.0.1", 0, backlog=1024)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(main())
