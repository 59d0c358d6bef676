"""An asyncio server whose loop has honest work: 4 ms of CPU time a request, most of it in one
function. With --cheap that function takes a tenth of it."""

import asyncio
import os
import sys
import time

VERIFY_S, RENDER_S = 0.0032, 0.0008
CHEAP = "--cheap" in sys.argv


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        for _ in range(100):
            pass


def verify_signature():
    burn(VERIFY_S / 10 if CHEAP else VERIFY_S)


def render_page():
    burn(RENDER_S / 10 if CHEAP else RENDER_S)


async def serve_connection(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            verify_signature()
            render_page()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0, backlog=256)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
