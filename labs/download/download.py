"""An event loop that sends large bodies.

    download.py at-once|bit-by-bit

GET /large gets 64 MB, /small 1 kB. at-once: written as fast as the client reads. bit-by-bit: a
piece of 20 kB each 50 ms.
"""

import argparse
import asyncio
import os

PIECE, LARGE, SMALL, PAUSE_S = bytes(20_000), 64 << 20, 1000, 0.05


async def converse(reader, writer, slow):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            left = LARGE if head.startswith(b"GET /large") else SMALL
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
            while left:
                if slow and left > SMALL:
                    await asyncio.sleep(PAUSE_S)
                piece = PIECE[:left]
                writer.write(piece)
                await writer.drain()
                left -= len(piece)
    except (OSError, asyncio.IncompleteReadError):
        # A client that goes away is no news.
        pass
    finally:
        writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["at-once", "bit-by-bit"])
    slow = parser.parse_args().how == "bit-by-bit"
    server = await asyncio.start_server(
        lambda reader, writer: converse(reader, writer, slow), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{port}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
