"""A server that asks another service for each request and answers with what became of it when.

    server.py threads|asyncio UPSTREAM [--pool N [--keep-ms N]|--shared] [--held] [--calls N]
              [--work-ms N] [--forward]

threads   a thread for each connection, with a connection to the other service of its own
asyncio   the same with tasks, on one loop

--pool     all share so many connections to the other service: who finds none waits for one
--keep-ms  a request keeps its connection for all of its calls, and does something else for so long
           between two of them
--shared   all calls go over one connection, each without waiting for the reply to the one before
           (asyncio only)
--held     a lock is held across each call
--calls    so many calls for each request, one after another
--work-ms  it computes for so long before it answers
--forward  its calls have the path of the request for which they are made; besides the moments of a
           call it says what the other service answered, and when it began to work and to answer
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import queue
import signal
import socket
import threading
import time

CALL = b"GET /report HTTP/1.1\r\nHost: upstream\r\n\r\n"


def now_ms():
    return 1e3 * time.monotonic()


def call_for(head):
    """The call with the path of a request."""
    return CALL.replace(b"/report", head.split(b" ", 2)[1])


def answer(read, calls, work=None):
    said = {"read": read, "begun": calls[0][0], "ended": calls[-1][1], "calls": calls}
    if work is not None:
        said |= {"work": work, "answered": now_ms()}
    body = json.dumps(said)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def announce(address):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {address[0]}:{address[1]}\n")


def compute_answer(milliseconds):
    end = now_ms() + milliseconds
    while now_ms() < end:
        pass


def receive_head(connection):
    """All that comes up to an empty line; nothing when the connection ends."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        piece = connection.recv(4096)
        if not piece:
            return b""
        received += piece
    return received


def ended(begun, reply, forwards):
    """The moments of a call."""
    if not reply:
        os._exit(1)
    return (begun, now_ms(), float(reply.split()[-1])) if forwards else (begun, now_ms())


def fetch_report(upstream, call=CALL):
    """The call, as a client library without async makes it."""
    begun = now_ms()
    upstream.sendall(call)
    return ended(begun, upstream.recv(4096), call is not CALL)


def connect(address):
    upstream = socket.create_connection(address)
    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return upstream


class Threads:
    def __init__(self, args):
        self.args = args
        self.lock = threading.Lock() if args.held else contextlib.nullcontext()
        self.pool = queue.Queue()
        for _ in range(args.pool):
            self.pool.put(connect(args.upstream))

    def fetch_with_lock(self, call, upstream):
        with self.lock:
            return fetch_report(upstream, call)

    def fetch_from_pool(self, call):
        upstream = self.pool.get()
        try:
            return fetch_report(upstream, call)
        finally:
            self.pool.put(upstream)

    def keep_connection(self, call):
        """All calls of a request, as in a transaction."""
        upstream = self.pool.get()
        calls = [fetch_report(upstream, call)]
        while len(calls) < self.args.calls:
            time.sleep(self.args.keep_ms / 1e3)
            calls.append(fetch_report(upstream, call))
        self.pool.put(upstream)
        return calls

    def converse(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream = None if self.args.pool else connect(self.args.upstream)
        while head := receive_head(connection):
            read = now_ms()
            call = call_for(head) if self.args.forward else CALL
            fetch = self.fetch_with_lock if upstream else self.fetch_from_pool
            arguments = (call, upstream) if upstream else (call,)
            if self.args.keep_ms:
                calls = self.keep_connection(call)
            else:
                calls = [fetch(*arguments) for _ in range(self.args.calls)]
            work = now_ms() if self.args.forward else None
            compute_answer(self.args.work_ms)
            connection.sendall(answer(read, calls, work))
        if upstream:
            upstream.close()
        connection.close()

    def serve(self):
        listener = socket.create_server(("127.0.0.1", 0))
        announce(listener.getsockname())
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.converse, args=(connection,), daemon=True).start()


async def fetch_report_in_task(reader, writer, call=CALL):
    begun = now_ms()
    writer.write(call)
    return ended(begun, await reader.read(4096), call is not CALL)


class Shared:
    """A connection for several calls at a time: replies come in the order of the calls."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.waiting = collections.deque()
        self.task = asyncio.create_task(self.read())

    async def read(self):
        while True:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await self.reader.readexactly(length)
            self.waiting.popleft().set_result(head + body)

    async def fetch_report(self, call):
        reply = asyncio.get_running_loop().create_future()
        self.waiting.append(reply)
        begun = now_ms()
        self.writer.write(call)
        return ended(begun, await reply, call is not CALL)


class Tasks:
    def __init__(self, args):
        self.args = args
        self.shared = None
        self.lock = asyncio.Lock()
        self.pool = asyncio.Queue()

    async def fetch_with_lock(self, call, upstream):
        if not self.args.held:
            return await fetch_report_in_task(*upstream, call)
        async with self.lock:
            return await fetch_report_in_task(*upstream, call)

    async def fetch_from_pool(self, call):
        upstream = await self.pool.get()
        try:
            return await fetch_report_in_task(*upstream, call)
        finally:
            self.pool.put_nowait(upstream)

    async def keep_connection(self, call):
        """All calls of a request, as in a transaction."""
        upstream = await self.pool.get()
        calls = [await fetch_report_in_task(*upstream, call)]
        while len(calls) < self.args.calls:
            await asyncio.sleep(self.args.keep_ms / 1e3)
            calls.append(await fetch_report_in_task(*upstream, call))
        self.pool.put_nowait(upstream)
        return calls

    async def make_calls(self, call, own):
        if self.args.keep_ms:
            return await self.keep_connection(call)
        calls = []
        for _ in range(self.args.calls):
            if self.shared:
                fetch = self.shared.fetch_report(call)
            else:
                fetch = self.fetch_with_lock(call, own) if own else self.fetch_from_pool(call)
            calls.append(await fetch)
        return calls

    async def converse(self, reader, writer):
        own = None
        if not self.args.pool and not self.shared:
            own = await asyncio.open_connection(*self.args.upstream)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                read = now_ms()
                call = call_for(head) if self.args.forward else CALL
                calls = await self.make_calls(call, own)
                work = now_ms() if self.args.forward else None
                compute_answer(self.args.work_ms)
                writer.write(answer(read, calls, work))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if own:
                own[1].close()
            writer.close()

    async def serve(self, listener, is_first):
        for _ in range(self.args.pool):
            self.pool.put_nowait(await asyncio.open_connection(*self.args.upstream))
        if self.args.shared:
            self.shared = Shared(*await asyncio.open_connection(*self.args.upstream))
        server = await asyncio.start_server(self.converse, sock=listener)
        if is_first:
            announce(listener.getsockname())
        await server.serve_forever()


async def serve_with_tasks(args, listener, is_first):
    await Tasks(args).serve(listener, is_first)


def with_workers(args):
    """Each worker is a process with a loop, and has a listener of its own at the same port: the
    kernel shares the connections out. The first one ends the others."""
    port, listeners = 0, []
    for _ in range(args.workers):
        listeners.append(socket.create_server(("127.0.0.1", port), reuse_port=args.workers > 1))
        port = listeners[0].getsockname()[1]
    children = []
    for listener in listeners[1:]:
        child = os.fork()
        if not child:
            asyncio.run(serve_with_tasks(args, listener, False))
            os._exit(0)
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    if children:
        signal.signal(signal.SIGTERM, end)
    asyncio.run(serve_with_tasks(args, listeners[0], True))


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["threads", "asyncio"])
    parser.add_argument("upstream", type=address)
    parser.add_argument("--pool", type=int, default=0)
    parser.add_argument("--keep-ms", type=float, default=0)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--held", action="store_true")
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--work-ms", type=float, default=0)
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if args.how == "threads":
        Threads(args).serve()
    else:
        with_workers(args)


if __name__ == "__main__":
    main()
