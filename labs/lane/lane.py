"""An asyncio server whose requests pass a single task one by one: it takes a message from its
queue, and waits 20 ms for each. With --spread there is a task for each message."""

import asyncio
import os
import sys

STEP_S = 0.02
spread = "--spread" in sys.argv


async def throttle():
    await asyncio.sleep(STEP_S)


async def keep_account(inbox):
    while True:
        done = await inbox.get()
        await throttle()
        done.set_result("booked")


async def book(inbox):
    if spread:
        await throttle()
        return "booked"
    done = asyncio.get_running_loop().create_future()
    inbox.put_nowait(done)
    return await done


async def main():
    inbox = asyncio.Queue()

    async def serve_connection(reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                body = (await book(inbox)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    keeper = asyncio.create_task(keep_account(inbox))
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await asyncio.gather(server.serve_forever(), keeper)


if __name__ == "__main__":
    asyncio.run(main())
