"""Sleeps 1,400 functions deep, ever new ones, each with a table of lines of 100 kB of its own: one
stack has more than whywait keeps. Or, given `huge`, 400 functions deep with tables of 1 MB."""

import sys
import time
import types

AT_ONCE = 400 if "huge" in sys.argv else 1400
ENTRIES = 500_000 if "huge" in sys.argv else 50_000
# Long form, a line delta of 0.
TABLE = bytes([0x80 | 13 << 3, 0]) * ENTRIES


def call(functions, at):
    if at + 1 < len(functions):
        functions[at + 1](functions, at + 1)
    else:
        # A stack is read while it sleeps, of which a busy machine's reader hears late.
        time.sleep(0.2)


def made(number):
    table = TABLE + bytes([0x80 | 13 << 3, number & 0x3F])
    code = call.__code__.replace(co_name=f"f{number}", co_linetable=table)
    return types.FunctionType(code, globals())


sys.setrecursionlimit(5000)
print("ready", flush=True)
kept = []
number = 0
while True:
    functions = [made(number + i) for i in range(AT_ONCE)]
    # So that their addresses differ.
    kept = kept[-1:] + [functions]
    number += AT_ONCE
    functions[0](functions, 0)
