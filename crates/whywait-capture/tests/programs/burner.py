"""Burns CPU. "steady": in one function that calls a small one. "turns": in two functions by turns
of 50 ms; prints the time (monotonic, ns) and the function that begins. "short": as a server does,
sleeps in one function and burns in another, for 3 ms each."""

import sys
import time


def small(n):
    return n * 7 & 0xFFFF


def burn_steadily():
    n = 1
    while True:
        n = small(n) + 1


class Server:
    def handle(self):
        burn_steadily()


def outer(key):
    Server().handle()
    return key


def burn(seconds):
    end = time.monotonic() + seconds
    n = 1
    while time.monotonic() < end:
        for _ in range(100):
            n = n * 7 & 0xFFFF


def left():
    burn(0.05)


def right():
    burn(0.05)


def turns():
    while True:
        for function in (left, right):
            print(time.monotonic_ns(), function.__name__, flush=True)
            function()


def work():
    burn(0.003)


def rest():
    time.sleep(0.003)


def short():
    while True:
        work()
        rest()


if sys.argv[1] == "steady":
    sorted([1], key=outer)
elif sys.argv[1] == "turns":
    turns()
else:
    short()
