"""Clients whose requests each have a path of another length, which tells them apart in a recording.

    unequal.py ADDRESS --clients N --rounds N [--ms FROM-TO] [--pause-ms N]

--ms        the path asks the other service for an answer after a time between these, drawn anew for
            each request
--pause-ms  each client waits for up to so long between its requests

The first request is alone. Prints, for each request, a line of JSON: the length of its path, when
it was sent, what the server said, and when that was received.
"""

import argparse
import asyncio
import json
import random
import re

import client

SHORTEST = 24


def path_of(number, between, draw):
    wanted = f"/ms={draw.randint(*between)}/" if between else "/"
    return wanted + "x" * (SHORTEST + number - len(wanted))


async def ask(reader, writer, path):
    sent = client.now_ms()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(re.search(rb"(?i)content-length: *(\d+)", head)[1]))
    print(json.dumps([len(path), sent, json.loads(body), client.now_ms()]))


async def converse(number, args, reader, writer):
    draw = random.Random(number)
    for done in range(args.rounds):
        await asyncio.sleep(draw.uniform(0, args.pause_ms) / 1e3)
        path = path_of(1 + done * args.clients + number, args.ms, draw)
        await ask(reader, writer, path)
    writer.close()


async def main(args):
    host, _, port = args.address.rpartition(":")
    alone = await asyncio.open_connection(host, int(port))
    await ask(*alone, path_of(0, args.ms, random.Random(0)))
    alone[1].close()
    # One after another: a server need not have room for all in its accept queue.
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(args.clients)]
    clients = [converse(number, args, *stream) for number, stream in enumerate(streams)]
    await asyncio.gather(*clients)


def between(text):
    low, _, high = text.partition("-")
    return int(low), int(high)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--ms", type=between)
    parser.add_argument("--pause-ms", type=float, default=0)
    asyncio.run(main(parser.parse_args()))
