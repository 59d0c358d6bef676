"""A small HTTP server on asyncio whose handler calls something synchronous.

While a thumbnail is rendered in the handler, the loop serves nobody. See lab.toml for the variants.
"""

import argparse
import asyncio
import os
import selectors
import time


def render_thumbnail(seconds):
    """Waits synchronously, as a client library without async support does."""
    time.sleep(seconds)


def render_thumbnail_on_cpu(seconds):
    """Burns CPU until a fixed wall time is over: the promise shall not depend on the machine's
    speed."""
    end = time.monotonic() + seconds
    pixel = 1
    while time.monotonic() < end:
        for _ in range(1000):
            pixel = (pixel * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFF


async def answer(path, options):
    if path != "/thumbnail":
        return "healthy"
    render = render_thumbnail_on_cpu if options.cpu else render_thumbnail
    if options.to_thread:
        await asyncio.to_thread(render, options.ms / 1000)
    else:
        render(options.ms / 1000)
    return "thumbnail"


async def serve_connection(reader, writer, options):
    """Keep-alive, GET only: what the labs' clients speak."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await answer(head.split(b" ", 2)[1].decode(), options)
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(options):
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(reader, writer, options), "127.0.0.1", 0
    )
    host, port = server.sockets[0].getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {host}:{port}\n")
    async with server:
        await server.serve_forever()


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="burn CPU instead of sleeping")
    parser.add_argument("--to-thread", action="store_true", help="render outside of the loop")
    parser.add_argument("--select", action="store_true", help="poll by select instead of epoll")
    parser.add_argument("--ms", type=int, default=300, help="how long a thumbnail takes")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    selector = selectors.SelectSelector if args.select else selectors.DefaultSelector
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector())) as runner:
        runner.run(main(args))
