"""Starting, waiting for and ending processes."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# The scheduler's weight of a session against all others.
NICEST = -20


class Failed(Exception):
    """Something could not be measured, and why."""


def wait_for(what, condition, deadline_s=30.0, pause_s=0.02):
    end = time.monotonic() + deadline_s
    while True:
        if found := condition():
            return found
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(pause_s)


def autogroup(pid):
    """The file with the nice value of a process' session.

    Where the scheduler groups by session, each has the same share of a CPU, whatever the nice
    values of its processes: what else the machine does would have as much as a saturated server.
    """
    return Path(f"/proc/{pid}/autogroup")


def come_first(pid):
    """Gives a process' session the CPUs before all others."""
    group = autogroup(pid)
    # A kernel that does not group by session has no such file.
    if group.exists():
        group.write_text(str(NICEST))


@contextlib.contextmanager
def first():
    """Gives the session of this program, and what it runs in it, the CPUs before all others."""
    group = autogroup("self")
    before = group.read_text().rpartition(" ")[2] if group.exists() else ""
    come_first("self")
    try:
        yield
    finally:
        # It is the user's session, too.
        if before:
            group.write_text(before)


def start(command, log, **options):
    """Starts it in a session of its own, so that Ctrl-C is ours to pass on; both outputs go to the
    file `log`."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )
    come_first(process.pid)
    return process


def end(process, how=signal.SIGTERM, deadline_s=60.0):
    """Ends a process of ours and gives its exit code."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Failed(f"{process.args[0]} did not end when asked to") from None


def last_words(log):
    lines = Path(log).read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "silence"


def cpu_seconds(pid):
    """User and system time of a process, all its threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(command, **options):
    """Runs it and gives its stdout."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        **options,
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["silence"]
        raise Failed(
            f"{' '.join(map(str, command))}: exit code {done.returncode}: {words[-1][:200]}"
        )
    return done.stdout


def timed(command, cpu=None, deadline_s=60):
    """Runs it, on one CPU if asked to: wall and CPU seconds, and the most memory that it had, in
    KiB."""
    begun = time.monotonic()
    pin = (lambda: os.sched_setaffinity(0, {cpu})) if cpu is not None else None
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=pin,
    )
    # wait4, which reports the memory, has no deadline of its own.
    timer = threading.Timer(deadline_s, process.kill)
    timer.start()
    said = process.stderr.read().decode(errors="replace").strip().splitlines() or ["silence"]
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == -signal.SIGKILL:
        raise Failed(
            f"{' '.join(map(str, command))}: killed, by its deadline of {deadline_s} s if not for "
            "memory"
        )
    if process.returncode != 0:
        raise Failed(
            f"{' '.join(map(str, command))}: exit code {process.returncode}: {said[-1][:200]}"
        )
    return {
        "wall_s": time.monotonic() - begun,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "rss_kib": usage.ru_maxrss,
    }
