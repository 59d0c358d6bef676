"""A database that answers at once, and another service that takes its time.

    peers.py [--ms N] [--tenth-ms N]

The database is at 127.0.0.1, the other service, which answers after so long, at 127.0.0.2, at the
same port. It is the `peer` of a lab: nobody watches it.

--tenth-ms  the database answers each tenth query after so long: stacks are recorded of waits from
            1 ms on, and a reply that is there at once shows no place where queries are made
"""

import argparse
import asyncio
import itertools
import os
import signal
import socket

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def converse(reader, writer, delays):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            if seconds := next(delays):
                await asyncio.sleep(seconds)
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def listen(address, port, delays):
    """`delays`: of the calls, in the order in which they come, over and over."""
    delays = itertools.cycle(delays)
    return await asyncio.start_server(
        lambda reader, writer: converse(reader, writer, delays), address, port, backlog=1024
    )


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ms", type=float, default=30)
    parser.add_argument("--tenth-ms", type=float, default=0)
    args = parser.parse_args()
    database = await listen("127.0.0.1", 0, [0] * 9 + [args.tenth_ms / 1e3])
    port = database.sockets[0].getsockname()[1]
    await listen("127.0.0.2", port, [args.ms / 1e3])
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{port}\n")
    await database.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(main())
