"""An asyncio server that leaves what would block its loop, a call, to an executor's threads.

    executor.py UPSTREAM --threads N
"""

import argparse
import asyncio
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

LOCAL = threading.local()


def now_ms():
    return 1e3 * time.monotonic()


def connect(upstream):
    """Each thread has a connection of its own."""
    host, _, port = upstream.rpartition(":")
    LOCAL.upstream = socket.create_connection((host, int(port)))
    LOCAL.upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def fetch_report():
    """Asks the other service and waits for its answer, as a client library without async does."""
    begun = now_ms()
    LOCAL.upstream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    if not LOCAL.upstream.recv(4096):
        os._exit(1)
    return begun, now_ms()


async def serve_connection(reader, writer, pool):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            read = now_ms()
            begun, ended = await asyncio.get_running_loop().run_in_executor(pool, fetch_report)
            body = json.dumps({"read": read, "begun": begun, "ended": ended})
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    pool = ThreadPoolExecutor(args.threads, "executor", connect, (args.upstream,))
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(reader, writer, pool), "127.0.0.1", 0
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
