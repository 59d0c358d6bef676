"""A server whose tasks wait, each kind of wait in a function of its own.

    tasks.py KIND [PEER] [--task-per-request]

No thread shows any of it: the loop's thread goes on with other tasks. Each answer has the moments
of its request: when it was read, when its wait was over, and when its work was.

--task-per-request   each request has a task of its own; otherwise each connection has
"""

import argparse
import asyncio
import contextlib
import json
import os
import time

# What takes its time, in seconds, while others wait for it or not.
LONG = 0.020


def now_ms():
    return time.monotonic() * 1e3


class ReadWriteLock:
    """One writes, or several read."""

    def __init__(self):
        self.changed = asyncio.Condition()
        self.writes = False

    async def until_nobody_writes(self):
        async with self.changed:
            while self.writes:
                await self.changed.wait()

    async def write(self, writes):
        async with self.changed:
            self.writes = writes
            self.changed.notify_all()


class Server:
    """Its functions each return when their wait was over."""

    def __init__(self, kind, peer):
        self.peer = peer
        self.lock = asyncio.Lock()
        self.shared = ReadWriteLock()
        # So many at a time.
        self.slots = asyncio.Semaphore(2)
        # What works off one job after the other.
        self.jobs = asyncio.Queue(1)
        # Things of which there are two.
        self.things = asyncio.Queue()
        self.things.put_nowait(1)
        self.things.put_nowait(2)
        self.serve, self.meanwhile = {
            "mutex-cpu": (self.under_lock_computing, None),
            "mutex-sleep": (self.under_lock_sleeping, None),
            "mutex-call": (self.under_lock_calling, None),
            "rwmutex": (self.reading_under_lock, self.write_all_the_time),
            "channel": (self.handed_over, self.work_off_jobs),
            "semaphore": (self.within_slots, None),
            "pool": (self.with_thing, None),
            "select-timer": (self.what_comes_first, None),
            "waitgroup": (self.until_all_are_done, None),
            "executor": (self.by_another_thread, None),
            "healthy": (self.at_once, None),
        }[kind]

    async def under_lock_computing(self):
        async with self.lock:
            begun = now_ms()
            # In pieces, as who does not want to block the loop does it.
            for _ in range(4):
                end = now_ms() + 2
                while now_ms() < end:
                    pass
                await asyncio.sleep(0)
        return begun

    async def under_lock_sleeping(self):
        async with self.lock:
            begun = now_ms()
            await asyncio.sleep(LONG)
        return begun

    async def under_lock_calling(self):
        async with self.lock:
            begun = now_ms()
            host, port = self.peer.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        return begun

    async def reading_under_lock(self):
        await self.shared.until_nobody_writes()
        return now_ms()

    async def write_all_the_time(self):
        while True:
            await self.shared.write(True)
            await asyncio.sleep(LONG)
            await self.shared.write(False)
            await asyncio.sleep(0.001)

    async def handed_over(self):
        done = asyncio.get_running_loop().create_future()
        await self.jobs.put(done)
        begun = now_ms()
        await done
        return begun

    async def work_off_jobs(self):
        while True:
            done = await self.jobs.get()
            await asyncio.sleep(LONG)
            done.set_result(None)

    async def within_slots(self):
        async with self.slots:
            begun = now_ms()
            await asyncio.sleep(LONG)
        return begun

    async def with_thing(self):
        thing = await self.things.get()
        begun = now_ms()
        await asyncio.sleep(LONG)
        self.things.put_nowait(thing)
        return begun

    async def what_comes_first(self):
        never = asyncio.get_running_loop().create_future()
        await asyncio.wait([never], timeout=2 * LONG)
        return now_ms()

    async def until_all_are_done(self):
        await asyncio.gather(*(asyncio.sleep(LONG) for _ in range(4)))
        return now_ms()

    async def by_another_thread(self):
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG)
        return now_ms()

    async def at_once(self):
        return now_ms()

    async def answer(self, write):
        read = now_ms()
        begun = await self.serve()
        times = {"read": read, "begun": begun, "ended": now_ms()}
        body = json.dumps(times).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
        write(head.encode() + body)

    async def converse(self, reader, writer):
        # The client has gone.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await self.answer(writer.write)
        writer.close()


class TaskPerRequest(asyncio.Protocol):
    def __init__(self, server):
        self.server = server
        self.transport = None
        self.read = b""
        self.tasks = set()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.read += data
        while b"\r\n\r\n" in self.read:
            _, self.read = self.read.split(b"\r\n\r\n", 1)
            task = asyncio.create_task(self.server.answer(self.transport.write))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("peer", nargs="?")
    parser.add_argument("--task-per-request", action="store_true")
    args = parser.parse_args()
    server = Server(args.kind, args.peer)
    if args.task_per_request:
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: TaskPerRequest(server), "127.0.0.1", 0)
    else:
        listening = await asyncio.start_server(server.converse, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    with open(os.environ["READY_FILE"], "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {host}:{port}\n")
    tasks = [listening.serve_forever()]
    if server.meanwhile:
        tasks.append(server.meanwhile())
    await asyncio.gather(*tasks)


asyncio.run(main())
