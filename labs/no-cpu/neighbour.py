"""Runs a load while another program wants the server's CPU.

    neighbour.py CPU LOAD [ARG]…

Three processes named batch-job compute on that CPU, each in a session of its own, so that the
scheduler gives each of them as much as the server (sched_autogroup).
"""

import os
import signal
import subprocess
import sys


def batch_job(cpu, parent):
    os.setsid()
    os.sched_setaffinity(0, {cpu})
    with open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write("batch-job")
    # It goes with whoever has begun it, whatever becomes of that.
    while os.getppid() == parent:
        for _ in range(100_000):
            pass


def main():
    cpu, load, parent = int(sys.argv[1]), sys.argv[2:], os.getpid()
    jobs = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            batch_job(cpu, parent)
            os._exit(0)
        jobs.append(pid)
    try:
        return subprocess.call(load)
    finally:
        for pid in jobs:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
