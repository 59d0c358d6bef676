"""asyncio: /poll is answered at the next event, which somebody tells by /event; / at once."""

import asyncio
import os


async def answer(path, events):
    if path == "/poll":
        await events[0].wait()
    elif path == "/event":
        events[0].set()
        events[0] = asyncio.Event()
    return "ok"


async def serve_connection(reader, writer, events):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await answer(head.split(b" ", 2)[1].decode(), events)
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    events = [asyncio.Event()]
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(reader, writer, events), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
