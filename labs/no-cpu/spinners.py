"""An asyncio server whose other threads rebuild an index all the time: they have the interpreter.

    server.py N
"""

import asyncio
import os
import sys
import threading


def rebuild_index():
    total = 0
    while True:
        for n in range(1000):
            total += n * n


def render_page():
    return sum(range(10000))


async def converse(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            render_page()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    for _ in range(int(sys.argv[1])):
        threading.Thread(target=rebuild_index, name="indexer", daemon=True).start()
    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
