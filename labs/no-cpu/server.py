"""An asyncio server whose handler computes for 8 ms of CPU time."""

import asyncio
import os
import time

RENDER_S = 0.008


def render_page():
    until = time.thread_time() + RENDER_S
    while time.thread_time() < until:
        for _ in range(1000):
            pass


async def serve_connection(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            render_page()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
