"""A server of two processes: the child serves, and its parent looks up names for it, one by one.

    parent.py

So a server works whose child has given up its rights, or sees no resolver. The child has a socket
to its parent on which it asks. Of four clients three ask for a slow name, the fourth one for a
quick one: that waits behind the others.
"""

import asyncio
import json
import os
import socket
import time


def now_ms():
    return 1e3 * time.monotonic()


def look_up(name):
    found = socket.getaddrinfo(name, 5432, socket.AF_INET, socket.SOCK_STREAM)
    return found[0][4][0]


def serve_names(asked):
    """The parent."""
    with asked.makefile("rb") as names:
        for line in names:
            begun = now_ms()
            address = look_up(line.decode().strip())
            asked.sendall(f"{begun} {now_ms()} {address}\n".encode())


class Names:
    """What the child asks its parent. Answers come in the order of questions."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.asked = asyncio.Queue()

    async def look_up(self, name):
        done = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(done)
        self.writer.write(f"{name}\n".encode())
        return await done

    async def take_answers(self):
        while True:
            line = await self.reader.readline()
            if not line:
                os._exit(0)
            begun, ended, _ = line.split()
            done = self.asked.get_nowait()
            done.set_result((float(begun), float(ended)))


async def converse(reader, writer, names):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            read = now_ms()
            # The number is 1000 * C + R, for round R of client C.
            number = int(head.split()[1].rpartition(b"/")[2])
            kind = "quick" if number // 1000 % 4 == 3 else "slow"
            begun, ended = await names.look_up(f"{kind}-{number}.lab")
            body = json.dumps({"read": read, "begun": begun, "ended": ended})
            answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            writer.write(answer.encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(parent):
    names = Names(*await asyncio.open_connection(sock=parent))
    server = await asyncio.start_server(
        lambda reader, writer: converse(reader, writer, names), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getppid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await names.take_answers()


def main():
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        asyncio.run(serve(theirs))
        os._exit(0)
    theirs.close()
    serve_names(ours)


if __name__ == "__main__":
    main()
