"""Runs a server in a cgroup that may use so many percent of a CPU.

    limited.py PERCENT SERVER [ARG]…

The group stays until the server has ended, and is taken away by who runs this next.
"""

import os
import sys
from pathlib import Path

PREFIX = "whywait-lab-"


def groups():
    """The hierarchy that distributes CPU time, with the file that limits it."""
    for root, file in (
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"),
        ("/sys/fs/cgroup", "cpu.max"),
    ):
        if Path(root, "cgroup.procs").exists():
            return Path(root), file
    sys.exit("limited.py: there is no cgroup hierarchy with a CPU controller")


def main():
    percent, server = int(sys.argv[1]), sys.argv[2:]
    root, file = groups()
    for left in root.glob(PREFIX + "*"):
        try:
            left.rmdir()
        except OSError:
            pass
    group = root / f"{PREFIX}{os.getpid()}"
    group.mkdir()
    quota = percent * 1000
    limit = f"{quota} 100000" if file == "cpu.max" else str(quota)
    Path(group, file).write_text(limit, encoding="ascii")
    Path(group, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    os.execvp(server[0], server)


if __name__ == "__main__":
    main()
