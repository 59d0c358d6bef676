"""An asyncio server. Of seven requests one is slow, by the number in its path, and all that come
meanwhile wait behind it, and then behind each other.

    loop.py [--to-thread]
"""

import asyncio
import json
import os
import sys
import time

SLOW_OF, SLOW_S, QUICK_S = 7, 0.15, 0.006


def now_ms():
    return 1e3 * time.monotonic()


def resize_image():
    time.sleep(SLOW_S)


def render_page():
    until = time.thread_time() + QUICK_S
    while time.thread_time() < until:
        pass


async def serve_connection(reader, writer):
    try:
        while True:
            line = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            read = now_ms()
            if int(line[1:]) % SLOW_OF == 0:
                if "--to-thread" in sys.argv:
                    await asyncio.to_thread(resize_image)
                else:
                    resize_image()
            render_page()
            body = json.dumps({"read": read, "begun": read, "ended": now_ms()})
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
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
