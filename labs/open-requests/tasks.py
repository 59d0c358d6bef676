"""An asyncio server whose handlers await another service: an open request is on no thread.

    tasks.py UPSTREAM
"""

import asyncio
import json
import os
import sys
import time


def now_ms():
    return 1e3 * time.monotonic()


async def fetch_report(upstream, path):
    host, _, port = upstream.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    await reader.read(4096)
    writer.close()


async def serve_connection(reader, writer, upstream):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            read = now_ms()
            await fetch_report(upstream, head.split(b" ", 2)[1].decode())
            body = json.dumps({"read": read, "begun": read, "ended": now_ms()})
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(reader, writer, sys.argv[1]), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
