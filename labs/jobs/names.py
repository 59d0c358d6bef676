"""A DNS server that answers slow-….lab after so long, and all other names at once.

    names.py [--ms N]

It is the `peer` of a lab: nobody watches it. Its address is the host's own, and another one for
each process, so that several may run.
"""

import argparse
import asyncio
import os
import signal

A_RECORD = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x7f\x00\x00\x01"


class Names(asyncio.DatagramProtocol):
    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        # The name, the type and the class: one question, and one answer.
        question = data[12 : data.index(b"\0", 12) + 5]
        answer = data[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question + A_RECORD
        delay = self.milliseconds / 1e3 if question[1:].startswith(b"slow-") else 0
        asyncio.get_running_loop().call_later(delay, self.transport.sendto, answer, addr)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ms", type=float, default=100)
    args = parser.parse_args()
    pid = os.getpid()
    address = f"127.53.{pid // 250 % 250}.{pid % 250 + 1}"
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Names(args.ms), local_addr=(address, 53)
    )
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{pid} {address}:53\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(main())
