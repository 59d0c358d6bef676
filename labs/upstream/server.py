"""A server that asks another service for each request and answers with what became of it when.

    server.py threads|asyncio UPSTREAM

threads   a thread for each connection, with a connection to the other service of its own
asyncio   the same with tasks, on one loop
"""

import asyncio
import json
import os
import socket
import sys
import threading
import time

CALL = b"GET /report HTTP/1.1\r\nHost: upstream\r\n\r\n"


def now_ms():
    return 1e3 * time.monotonic()


def answer(read, begun, ended):
    body = json.dumps({"read": read, "begun": begun, "ended": ended})
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def announce(address):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {address[0]}:{address[1]}\n")


def receive_head(connection):
    """All that comes up to an empty line; nothing when the connection ends."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        piece = connection.recv(4096)
        if not piece:
            return b""
        received += piece
    return received


def fetch_report(upstream):
    """The call, as a client library without async makes it."""
    begun = now_ms()
    upstream.sendall(CALL)
    if not upstream.recv(4096):
        os._exit(1)
    return begun, now_ms()


def serve_connection(connection, upstream_address):
    upstream = socket.create_connection(upstream_address)
    for each in (connection, upstream):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while receive_head(connection):
        read = now_ms()
        begun, ended = fetch_report(upstream)
        connection.sendall(answer(read, begun, ended))
    upstream.close()
    connection.close()


def serve_with_threads(upstream_address):
    listener = socket.create_server(("127.0.0.1", 0))
    announce(listener.getsockname())
    while True:
        connection, _ = listener.accept()
        arguments = (connection, upstream_address)
        threading.Thread(target=serve_connection, args=arguments, daemon=True).start()


async def fetch_report_in_task(reader, writer):
    begun = now_ms()
    writer.write(CALL)
    if not await reader.read(4096):
        os._exit(1)
    return begun, now_ms()


async def serve_with_tasks(upstream_address):
    async def converse(reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection(*upstream_address)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                read = now_ms()
                begun, ended = await fetch_report_in_task(upstream_reader, upstream_writer)
                writer.write(answer(read, begun, ended))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            upstream_writer.close()
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    announce(server.sockets[0].getsockname())
    await server.serve_forever()


def main():
    how, upstream = sys.argv[1:]
    host, _, port = upstream.rpartition(":")
    if how == "threads":
        serve_with_threads((host, int(port)))
    else:
        asyncio.run(serve_with_tasks((host, int(port))))


if __name__ == "__main__":
    main()
