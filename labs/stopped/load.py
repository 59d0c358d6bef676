"""Stops the server for two seconds while four requests are sent to it, among quick ones.

    load.py ADDRESS PID [--how signal|debugger] [--attach] [--to-the-end|--not-at-all]

--how         by SIGSTOP and SIGCONT, or by ptrace as a debugger does
--attach      whywait attaches when the server has been stopped for a second
--to-the-end  it is stopped when the load ends, and the requests are open
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

CLIENTS, ORDINARY_S, STOPPED_S, AGE_S = 4, 0.8, 2, 1
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def tasks(pid):
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def states(pid):
    """The state of each of its threads, as ps shows it."""
    stats = [Path(f"/proc/{pid}/task/{tid}/stat").read_text() for tid in tasks(pid)]
    return {stat.rpartition(") ")[2][0] for stat in stats}


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(tid), None, None):
        sys.exit(f"load: ptrace: {os.strerror(ctypes.get_errno())}")


def stop(pid, how):
    if how == "signal":
        os.kill(pid, signal.SIGSTOP)
    else:
        for tid in tasks(pid):
            ptrace(PTRACE_SEIZE, tid)
            ptrace(PTRACE_INTERRUPT, tid)
    client.wait_until("the server to be stopped", lambda: states(pid) <= {"T", "t"})


def go_on(pid, how):
    if how == "signal":
        os.kill(pid, signal.SIGCONT)
    else:
        for tid in tasks(pid):
            ptrace(PTRACE_DETACH, tid)


def ordinary(clients):
    latency, end = [], time.monotonic() + ORDINARY_S
    while time.monotonic() < end:
        for one in clients:
            asked = client.now_ms()
            one.get("/")
            latency.append(client.now_ms() - asked)
        time.sleep(0.02)
    return client.summary(latency)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    parser.add_argument("--how", choices=["signal", "debugger"], default="signal")
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--to-the-end", action="store_true")
    parser.add_argument("--not-at-all", action="store_true")
    args = parser.parse_args()
    clients = [client.Connection(args.address) for _ in range(CLIENTS)]
    truth = {"before": ordinary(clients)}
    if args.not_at_all:
        return client.tell(truth, ["before.p50_ms<=20"])
    stop(args.pid, args.how)
    begun = client.now_ms()
    for one in clients:
        one.send("/")
    client.wait_until("four requests to lie there", lambda: client.unread(args.address) == CLIENTS)
    truth["unread"] = CLIENTS
    if args.attach:
        time.sleep(max(AGE_S - (client.now_ms() - begun) / 1e3, 0))
        client.attach()
        truth["stopped_before_attach_ms"] = round(client.now_ms() - begun, 1)
    time.sleep(STOPPED_S)
    truth["stopped_ms"] = round(client.now_ms() - begun, 1)
    if args.to_the_end:
        client.keep_until_the_end([one.socket for one in clients])
        return client.tell(truth | {"open": CLIENTS}, ["stopped_ms>=2000"])
    go_on(args.pid, args.how)
    said = [json.loads(one.receive()) for one in clients]
    truth["latency_ms"] = round(client.now_ms() - begun, 1)
    truth["read_after_ms"] = sorted(round(one["read"] - begun, 1) for one in said)
    truth["after"] = ordinary(clients)
    return client.tell(truth, ["latency_ms>=2000", "after.p50_ms<=20"])


if __name__ == "__main__":
    sys.exit(main())
