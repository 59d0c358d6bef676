"""An asyncio server that hands each request's job to others: threads, or helper processes.

    jobs.py pool UPSTREAM --threads N     to an executor
    jobs.py ordered UPSTREAM --threads N  to an executor, behind one queue that keeps the order
    jobs.py helper UPSTREAM --helpers N   to processes, over socket pairs
    jobs.py names                         to the loop's default executor, which looks up names
    jobs.py threads UPSTREAM --threads N  to an executor, from a thread for each client
    jobs.py compute --threads N           to an executor, whose jobs compute for some 20 ms

Of four clients three ask for a report, which is a call to the other service, or for a slow name.
The fourth one asks for a thumbnail, or for a quick name: that takes a moment, and no call. Where
jobs compute, all do the same.
"""

import argparse
import asyncio
import collections
import json
import os
import socket
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

LOCAL = threading.local()
# zlib lets the interpreter's lock go.
ARCHIVE = b"".join(b"%d," % (number * number % 99991) for number in range(20000))


def now_ms():
    return 1e3 * time.monotonic()


def is_quick(number):
    """The number is 1000 * C + R, for round R of client C."""
    return number // 1000 % 4 == 3


def connect(address):
    """Each thread, and each helper, has a connection of its own."""
    host, _, port = address.rpartition(":")
    LOCAL.upstream = socket.create_connection((host, int(port)))
    LOCAL.upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def fetch_report():
    LOCAL.upstream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    if not LOCAL.upstream.recv(4096):
        os._exit(1)


def make_thumbnail():
    return sum(range(1000))


def look_up(name):
    found = socket.getaddrinfo(name, 5432, socket.AF_INET, socket.SOCK_STREAM)
    assert found[0][4][0] == "127.0.0.1"


def do_job(number):
    begun = now_ms()
    if is_quick(number):
        make_thumbnail()
    else:
        fetch_report()
    return begun, now_ms()


def compress_archive(text):
    return zlib.compress(text, 9)


def compute(_number):
    begun = now_ms()
    compress_archive(ARCHIVE)
    return begun, now_ms()


def do_look_up(number):
    begun = now_ms()
    look_up(f"{'quick' if is_quick(number) else 'slow'}-{number}.lab")
    return begun, now_ms()


class Ordered:
    """Jobs in the order in which they came, one after another, each on whichever thread is free."""

    def __init__(self, pool):
        self.pool, self.lock = pool, threading.Lock()
        self.jobs, self.busy = collections.deque(), False

    def submit(self, number):
        done, loop = asyncio.get_running_loop().create_future(), asyncio.get_running_loop()
        with self.lock:
            self.jobs.append((number, done, loop))
            if self.busy:
                return done
            self.busy = True
        self.pool.submit(self.run_next)
        return done

    def run_next(self):
        with self.lock:
            number, done, loop = self.jobs.popleft()
        loop.call_soon_threadsafe(done.set_result, do_job(number))
        with self.lock:
            self.busy = bool(self.jobs)
            if not self.busy:
                return
        self.pool.submit(self.run_next)


class Helpers:
    """Processes that each do one job at a time, the first free one the next."""

    def __init__(self, count, upstream):
        self.sockets = []
        for _ in range(count):
            ours, theirs = socket.socketpair()
            if os.fork() == 0:
                ours.close()
                serve_jobs(theirs, upstream)
            theirs.close()
            self.sockets.append(ours)
        self.free = asyncio.Queue()

    async def start(self):
        for one in self.sockets:
            self.free.put_nowait(await asyncio.open_connection(sock=one))

    async def submit(self, number):
        helper = await self.free.get()
        reader, writer = helper
        writer.write(b"%d\n" % number)
        begun, ended = json.loads(await reader.readline())
        self.free.put_nowait(helper)
        return begun, ended


def serve_jobs(jobs, upstream):
    """The helper."""
    connect(upstream)
    while number := jobs.recv(64):
        jobs.sendall(json.dumps(do_job(int(number))).encode() + b"\n")
    sys.exit(0)


async def converse(reader, writer, submit):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            read = now_ms()
            begun, ended = await submit(number_of(head))
            writer.write(answer(read, begun, ended))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def answer(read, begun, ended):
    body = json.dumps({"read": read, "begun": begun, "ended": ended})
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def number_of(head):
    return int(head.split()[1].rpartition(b"/")[2])


def converse_in_thread(connection, pool):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    while received := connection.recv(4096):
        head += received
        if head.endswith(b"\r\n\r\n"):
            read = now_ms()
            begun, ended = pool.submit(do_job, number_of(head)).result()
            connection.sendall(answer(read, begun, ended))
            head = b""


def tell_where(address):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{address[1]}\n")


def serve_in_threads(args):
    pool = ThreadPoolExecutor(args.threads, "executor", connect, (args.upstream,))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    tell_where(listener.getsockname())
    while True:
        connection, _ = listener.accept()
        thread = threading.Thread(target=converse_in_thread, args=(connection, pool), daemon=True)
        thread.start()


async def serve(args, helpers):
    loop = asyncio.get_running_loop()
    if helpers:
        await helpers.start()
        submit = helpers.submit
    elif args.what == "names":
        def submit(number):
            return loop.run_in_executor(None, do_look_up, number)
    elif args.what == "compute":
        pool = ThreadPoolExecutor(args.threads, "executor")

        def submit(number):
            return loop.run_in_executor(pool, compute, number)
    else:
        pool = ThreadPoolExecutor(args.threads, "executor", connect, (args.upstream,))
        ordered = Ordered(pool)

        def submit(number):
            if args.what == "ordered":
                return ordered.submit(number)
            return loop.run_in_executor(pool, do_job, number)
    server = await asyncio.start_server(
        lambda reader, writer: converse(reader, writer, submit), "127.0.0.1", 0
    )
    tell_where(server.sockets[0].getsockname())
    await server.serve_forever()


def main():
    parser = argparse.ArgumentParser()
    kinds = ["pool", "ordered", "helper", "names", "threads", "compute"]
    parser.add_argument("what", choices=kinds)
    parser.add_argument("upstream", nargs="?")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--helpers", type=int, default=0)
    args = parser.parse_args()
    if args.what == "threads":
        serve_in_threads(args)
    # Forked before the loop is there.
    helpers = Helpers(args.helpers, args.upstream) if args.helpers else None
    asyncio.run(serve(args, helpers))


if __name__ == "__main__":
    main()
