"""Tasks that wait, each in a function of its own.

Prints a line for each: the function, its line in which it waits, and what it waits in (- : not
known). The last line is empty: by then all of them wait.
"""

import asyncio
import functools
import inspect
import threading

lock = asyncio.Lock()
mine = asyncio.Lock()
spare = asyncio.Lock()
semaphore = asyncio.Semaphore(1)
jobs = asyncio.Queue(1)
never = threading.Event()


async def under_lock():
    async with lock:  # Lock.acquire
        pass


async def has_lock():
    async with mine:
        await asyncio.sleep(1000)  # sleep


async def wants_it():
    async with spare, mine:  # Lock.acquire
        pass


async def within_slots():
    async with semaphore:  # Semaphore.acquire
        pass


async def handed_over():
    await jobs.put(1)  # Queue.put


async def taken():
    await asyncio.Queue().get()  # Queue.get


async def until_set():
    await asyncio.Event().wait()  # Event.wait


async def until_changed():
    condition = asyncio.Condition()
    async with condition:
        await condition.wait()  # Condition.wait


async def asleep():
    await asyncio.sleep(1000)  # sleep


async def until_all_are_done():
    await asyncio.gather(asyncio.sleep(1000), asyncio.sleep(1000))  # _GatheringFuture


async def what_comes_first():
    await asyncio.wait([asyncio.create_task(asyncio.sleep(1000))])  # _wait


async def in_time():
    await asyncio.wait_for(asyncio.Event().wait(), 1000)  # Event.wait


async def in_executor():
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, never.wait)  # _chain_future.<locals>._call_check_cancel


async def in_thread():
    await asyncio.to_thread(never.wait)  # _chain_future.<locals>._call_check_cancel


async def from_stream():
    reader = asyncio.StreamReader()
    await reader.readline()  # StreamReader._wait_for_data


async def for_a_task():
    await asyncio.create_task(asleep_within())  # sleep


async def asleep_within():
    await asyncio.sleep(1000)


async def bare():
    await asyncio.get_running_loop().create_future()  # -


class Own:
    def __await__(self):
        yield from asyncio.sleep(1000).__await__()


async def own():
    await Own()  # sleep


async def items():
    await asyncio.sleep(1000)
    yield 1


async def from_generator():
    async for _ in items():  # sleep
        pass


async def in_group():
    async with asyncio.TaskGroup() as group:  # TaskGroup._aexit
        group.create_task(asyncio.sleep(1000))


def wanted(function):
    """The line with the comment, and what the comment says."""
    lines, first = inspect.getsourcelines(function)
    line = next(i for i, line in enumerate(lines) if "# " in line)
    return first + line, lines[line].split("# ")[1].strip()


def decorated(function):
    @functools.wraps(function)
    async def within():
        return await function()

    return within


async def main():
    await lock.acquire()
    await semaphore.acquire()
    await jobs.put(0)
    functions = [
        under_lock,
        has_lock,
        wants_it,
        within_slots,
        handed_over,
        taken,
        until_set,
        until_changed,
        asleep,
        until_all_are_done,
        what_comes_first,
        in_time,
        in_executor,
        in_thread,
        from_stream,
        for_a_task,
        bare,
        own,
        from_generator,
        in_group,
    ]
    tasks = [asyncio.create_task(decorated(function)()) for function in functions]
    # Threads of the executor begin one after the other.
    await asyncio.sleep(0.2)
    for function in functions:
        line, waits_in = wanted(function)
        print(function.__name__, line, waits_in, flush=True)
    print(flush=True)
    await asyncio.gather(*tasks)


# Its task runs for as long as it blocks its loop.
async def blocking():
    never.wait()


threading.Thread(target=lambda: asyncio.run(blocking()), daemon=True).start()
asyncio.run(main())
