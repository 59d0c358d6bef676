"""A network namespace of a lab's own, and packets that are lost in it.

The server goes into a new one and says so in its address: ADDRESS@PID. The load follows it there.
"""

import ctypes
import os
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
# Debian keeps them where only root's PATH looks.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def call(done):
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*words, script=None):
    subprocess.run(words, input=script, text=True, check=True, env={**os.environ, "PATH": PATH})


def enter_new():
    """All threads that this one starts from now on are in it, too."""
    call(LIBC.unshare(CLONE_NEWNET))
    run("ip", "link", "set", "lo", "up")
    # Where to an answer to an address that nobody has goes.
    run("ip", "route", "add", "10.0.0.0/8", "dev", "lo")


def follow(address):
    """Goes where the server of this address is. Returns the address alone."""
    address, _, pid = address.partition("@")
    if pid:
        with Path(f"/proc/{pid}/ns/net").open("rb") as there:
            call(LIBC.setns(there.fileno(), CLONE_NEWNET))
    return address


def overflows():
    """How often a connection found an accept queue full, in this network namespace."""
    lines = Path("/proc/net/netstat").read_text(encoding="ascii").splitlines()
    names, values = [line.split() for line in lines if line.startswith("TcpExt:")]
    return int(values[names.index("ListenOverflows")])


def lose(match, every):
    """Loses one of so many packets that match, on arrival: a sender notices nothing."""
    rule = f"{match} numgen inc mod {every} == {every - 1} counter drop"
    run("nft", "-f", "-", script="\n".join([
        "table inet lab {", "chain lossy {", "type filter hook input priority 0; policy accept;",
        rule, "}", "}", ""]))
