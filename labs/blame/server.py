"""A small HTTP server on asyncio whose handler computes for 60 ms."""

import asyncio
import os
import time

RENDER_SECONDS = 0.06


def render_thumbnail():
    """For a fixed time: the promise shall not depend on the machine's speed."""
    end = time.monotonic() + RENDER_SECONDS
    pixels = 0
    while time.monotonic() < end:
        for pixel in range(1000):
            pixels = (pixels * 31 + pixel) & 0xFFFFFFFF
    return f"thumbnail {pixels & 1}"


async def serve_connection(reader, writer):
    """Keep-alive, GET only: what the labs' clients speak."""
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            body = render_thumbnail()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {host}:{port}\n")
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
