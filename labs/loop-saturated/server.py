"""A small HTTP server on asyncio whose handler calls something synchronous, for 40 ms.

With four clients and more there is always a next request when the loop asks: its poll never waits.
"""

import argparse
import asyncio
import json
import os
import selectors
import time
from concurrent.futures import ThreadPoolExecutor

LOOKUP_SECONDS = 0.04


class Polls(selectors.DefaultSelector):
    """The selector, which counts its polls and how long they waited since the first request."""

    def __init__(self):
        super().__init__()
        self.since = None
        self.polls, self.waited_ns = 0, 0

    def select(self, timeout=None):
        begun = time.monotonic_ns()
        ready = super().select(timeout)
        if self.since is not None:
            self.polls += 1
            self.waited_ns += time.monotonic_ns() - begun
        return ready

    def about(self):
        total_ns = time.monotonic_ns() - self.since
        share = self.waited_ns / total_ns
        return {"polls": self.polls, "waited_ms": self.waited_ns / 1e6, "waited_share": share}


def look_up_rate():
    """Waits synchronously, as a client library without async support does."""
    time.sleep(LOOKUP_SECONDS)


async def answer(path, polls, to_thread):
    if path == "/about":
        return json.dumps(polls.about())
    polls.since = polls.since or time.monotonic_ns()
    if to_thread:
        await asyncio.to_thread(look_up_rate)
    else:
        look_up_rate()
    return "rate"


async def serve_connection(reader, writer, polls, to_thread):
    """Keep-alive, GET only: what the labs' clients speak."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await answer(head.split(b" ", 2)[1].decode(), polls, to_thread)
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(polls, to_thread):
    # As many threads as there are clients, whatever the machine.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(reader, writer, polls, to_thread), "127.0.0.1", 0
    )
    host, port = server.sockets[0].getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {host}:{port}\n")
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to-thread", action="store_true", help="look up outside of the loop")
    options = parser.parse_args()
    selector = Polls()
    loop = asyncio.SelectorEventLoop(selector)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main(selector, options.to_thread))
