"""A slow file server: whoever opens one of its files for writing sleeps for 200 ms in that.

    leases.py FOLDER --clients N --rounds N [--ms N]

It has a lease on each file: the kernel signals that somebody else wants to open it, and lets that
one go on when the lease is given back. When the opener came is the file's time of modification, in
nanoseconds of CLOCK_MONOTONIC. Each file serves once; the one for round R of client C is called
1000 * C + R.
"""

import argparse
import fcntl
import os
import signal
import time
from pathlib import Path

TICK_S = 0.001


def lease(path):
    path.touch()
    file = os.open(path, os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--ms", type=float, default=200)
    args = parser.parse_args()
    # A lease that somebody wants is announced by SIGIO; which one it is, is looked up.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    args.folder.mkdir()
    numbers = [1000 * one + each for one in range(args.clients) for each in range(args.rounds)]
    leased = {args.folder / str(number): lease(args.folder / str(number)) for number in numbers}
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} {args.folder}\n")
    wanted = {}
    while True:
        signal.sigtimedwait([signal.SIGIO], TICK_S if wanted else 1)
        now = time.monotonic_ns()
        for path, file in leased.items():
            if path not in wanted and fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_UNLCK:
                os.utime(path, ns=(now, now))
                wanted[path] = now
        for path in [path for path, since in wanted.items() if since + args.ms * 1e6 <= now]:
            fcntl.fcntl(leased[path], fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(leased.pop(path))
            del wanted[path]


if __name__ == "__main__":
    main()
