"""Answers questions in datagrams: asyncio, or a thread or more that each take one at a time.

    server.py loop [--await]               one question in seven takes 150 ms, in the loop or beside
    server.py threads N [--ms N] [--unix]  each question sleeps for so long

A question is two bytes, which the answer repeats, and a number. An answer has the moments of the
question as those of kit/client.py.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402

SLOW_S, EVERY = 0.15, 7


def ready(address):
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {address}\n")


def answer(question, read, begun):
    said = {"read": read, "begun": begun, "ended": client.now_ms()}
    return question[:2] + json.dumps(said).encode()


class Loop(asyncio.DatagramProtocol):
    def __init__(self, args):
        self.args = args

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        asyncio.get_running_loop().create_task(self.serve(data, addr, client.now_ms()))

    async def serve(self, question, who, read):
        begun = client.now_ms()
        if int(question[2:]) % EVERY == 0:
            if self.args.awaits:
                await asyncio.sleep(SLOW_S)
            else:
                time.sleep(SLOW_S)
        self.transport.sendto(answer(question, read, begun), who)


async def loop(args):
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Loop(args), local_addr=("127.0.0.1", 0)
    )
    host, port = transport.get_extra_info("sockname")
    ready(f"{host}:{port}")
    await asyncio.Event().wait()


def serve(bound, args):
    while True:
        question, who = bound.recvfrom(2048)
        read = client.now_ms()
        time.sleep(args.ms / 1e3)
        bound.sendto(answer(question, read, read), who)


def threads(args):
    if args.unix:
        path = str(Path(os.environ["READY_FILE"]).parent / "datagrams")
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.bind(path)
        address = path
    else:
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bound.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*bound.getsockname())
    for _ in range(args.threads):
        threading.Thread(target=serve, args=(bound, args), daemon=True).start()
    # They wait for questions by now, or are about to.
    time.sleep(0.2)
    ready(address)
    signal.pause()


def main():
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("loop")
    one.add_argument("--await", dest="awaits", action="store_true")
    one = kinds.add_parser("threads")
    one.add_argument("threads", type=int)
    one.add_argument("--ms", type=float, default=25)
    one.add_argument("--unix", action="store_true")
    args = parser.parse_args()
    if args.kind == "loop":
        asyncio.run(loop(args))
    else:
        threads(args)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main()
