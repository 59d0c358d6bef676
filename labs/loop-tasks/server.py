"""An asyncio server with 1 ms of CPU time for each request, and another task in the same loop.

    server.py [--alone]

The other task computes 5 ms at a time and lets the loop go on. With --alone there is none.
"""

import asyncio
import os
import sys
import time

ANSWER_S, TASK_S = 0.001, 0.005


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        for _ in range(50):
            pass


class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        if self.received.endswith(b"\r\n\r\n"):
            self.received = b""
            burn(ANSWER_S)
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")


async def rebuild_index():
    while True:
        burn(TASK_S)
        await asyncio.sleep(0)


async def main():
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    tasks = [server.serve_forever()]
    if "--alone" not in sys.argv:
        tasks.append(rebuild_index())
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main())
