"""The tools that are compared. Each is attached before the load starts and taken off after it
ended."""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

from .process import Failed, cpu_seconds, end, last_words, start, wait_for

HERE = Path(__file__).resolve().parent.parent


class Watcher:
    name = ""
    # How it is called, for the page.
    shown = ""
    # It costs so much that a few pairs say how much.
    few_pairs = False

    def __init__(self, pid, tmp, tools):
        self.pid = pid
        self.tools = tools
        self.dir = Path(tempfile.mkdtemp(prefix="watch-", dir=tmp))
        self.log = self.dir / "log"
        self.process = None
        self.started_cpu_s = 0.0

    def __enter__(self):
        command = self.command()
        if command:
            self.process = start(command, self.log)
            try:
                wait_for(f"{self.name} attached", self.attached_or_gone)
            except BaseException:
                end(self.process, signal.SIGKILL)
                raise
            self.started_cpu_s = cpu_seconds(self.process.pid)
        return self

    def attached_or_gone(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended before it was attached: {last_words(self.log)}")
        return self.attached()

    def cpu_s(self):
        """CPU seconds that the tool took since it was attached, outside of what it runs in the
        kernel's hooks."""
        return cpu_seconds(self.process.pid) - self.started_cpu_s if self.process else 0.0

    def stop(self):
        if self.process:
            end(self.process, signal.SIGINT)

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)

    def says(self, text):
        return text in self.log.read_text(errors="replace")

    def bytes_written(self):
        return sum(file.stat().st_size for file in self.dir.rglob("*") if file.is_file())


class Nothing(Watcher):
    """The control: whatever this shows is noise."""

    name = "nothing (control)"
    shown = "–"

    def command(self):
        return None


class Whywait(Watcher):
    name = "whywait"
    shown = "whywait record -p PID"
    options = []

    def command(self):
        self.recording = self.dir / "recording"
        return [
            self.tools["whywait"],
            "record",
            "-p",
            self.pid,
            "-o",
            self.recording,
            *self.options,
        ]

    def attached(self):
        return self.says("watching process")


class Bpftrace(Watcher):
    name = "bpftrace"
    shown = "bpftrace bench/offcpu.bt PID"

    def command(self):
        return ["bpftrace", "-B", "line", HERE / "offcpu.bt", self.pid]

    def attached(self):
        return self.says("attached\n")


class Empty(Bpftrace):
    """Programs that do nothing: what the statistics themselves count."""

    name = "empty programs"
    shown = "bpftrace bench/empty.bt"

    def command(self):
        return ["bpftrace", "-B", "line", HERE / "empty.bt"]


class PerfSched(Watcher):
    name = "perf sched record"
    shown = "perf sched record -o FILE"

    def command(self):
        # Its child is started once everything is attached. It lasts until perf ends it.
        self.ready = self.dir / "ready"
        child = f": > '{self.ready}'; exec sleep 600"
        return [
            self.tools["perf"],
            "sched",
            "record",
            "-o",
            self.dir / "perf.data",
            "--",
            "sh",
            "-c",
            child,
        ]

    def attached(self):
        return self.ready.exists()


class PerfTrace(Watcher):
    name = "perf trace -s"
    few_pairs = True
    shown = "perf trace -s -p PID"

    def command(self):
        return [self.tools["perf"], "trace", "-s", "-o", self.dir / "summary", "-p", self.pid]

    def attached(self):
        # Its buffers are mapped and it waits for them to fill.
        proc = Path(f"/proc/{self.process.pid}")
        try:
            return (
                "[perf_event]" in (proc / "maps").read_text()
                and (proc / "syscall").read_text().split()[0] == "7"
            )
        except OSError:
            return False


class Strace(Watcher):
    name = "strace -c -f"
    few_pairs = True
    shown = "strace -c -f -p PID"

    def command(self):
        return ["strace", "-c", "-f", "-o", self.dir / "summary", "-p", self.pid]

    def attached(self):
        tracer = f"TracerPid:\t{self.process.pid}\n"
        try:
            return all(
                tracer in status.read_text()
                for status in Path(f"/proc/{self.pid}/task").glob("*/status")
            )
        except OSError:
            return False


WATCHERS = [Nothing, Whywait, Bpftrace, PerfSched, PerfTrace, Strace]


def find_perf():
    """Ubuntu's `perf` fails when there is none of this very kernel's; any other one does."""
    found = sorted(Path("/usr/lib").glob("linux-tools*/*/perf"))
    perf = shutil.which("perf")
    if perf and os.system("perf --version >/dev/null 2>&1") == 0:
        return perf
    return str(found[-1]) if found else "perf"


def iterators():
    """Names of whywait's programs that are no hooks: they run when whywait reads them."""
    names = set()
    for source in (HERE.parent / "crates/whywait-capture/src").rglob("*.bpf.h"):
        names.update(
            re.findall(r'SEC\("iter[^"]*"\)\s*int (?:BPF_PROG\()?(\w+)', source.read_text())
        )
    return names
