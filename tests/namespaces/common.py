"""What tests of namespaces and of packages share: a server, and what its report must say."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What a container gets: all that watching needs.
CAPABILITIES = ("bpf", "perfmon", "sys_ptrace")
FUNCTION = "look_it_up"
NOBODY = 65534


def unused_port():
    """A port on which nobody listens. Servers in networks of their own take the same one."""
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


PORT = unused_port()


class Wrong(Exception):
    """Something is not as it must be, in words."""


def check(holds, message):
    if not holds:
        raise Wrong(message)


def run(*command, **more):
    """The outcome of a command; its output is text."""
    more = {"timeout": 60, **more}
    return subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        **more,
    )


def said(outcome):
    return f"exit code {outcome.returncode}\n{outcome.stdout}{outcome.stderr}"


def build_server(folder):
    """The server, linked statically: it has to run in roots that hold nothing else."""
    server = Path(folder, "server")
    command = ["gcc", "-O1", "-Wall", "-Werror", "-static", "-o", server, HERE / "server.c"]
    subprocess.run(command, check=True)
    return server


def quoted(*words):
    return " ".join(shlex.quote(str(word)) for word in words)


@contextlib.contextmanager
def started(*command, cwd=None):
    """A process that says when it is ready, and is ended in the end."""
    words = [str(word) for word in command]
    process = subprocess.Popen(
        words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        check(process.stdout.readline() == "ready\n", f"{quoted(*words)} did not start")
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def loaded(pid, server, port=PORT):
    """Load for a server, from its own network namespace."""
    command = ["nsenter", "--target", pid, "--net", "--", server, "load", port]
    process = subprocess.Popen([str(word) for word in command])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def process_of(pid):
    """The last descendant of a process: what `unshare` and shells started in the end."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return process_of(int(children[0])) if children else pid


def inner_number(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


def names_the_function(outcome, pid, inner=None):
    """Holds a report against what is known of the server."""
    check(outcome.returncode == 0, f"whywait failed: {said(outcome)}")
    text = " ".join(outcome.stdout.split())
    who = f"server (pid {pid}, {inner} in its PID namespace)" if inner else f"server (pid {pid})"
    check(who in text, f"the report does not name {who}: {said(outcome)}")
    check(
        f"in {FUNCTION} (clock_nanosleep" in text,
        f"the report does not say that requests sleep in {FUNCTION}: {said(outcome)}",
    )
    check(
        "[kernel]" not in text or "CAP_SYSLOG" in text,
        f"the kernel has no names, and the report does not say why: {said(outcome)}",
    )


def recorded(whywait, folder, *target):
    """A report as JSON, of a recording that is kept in a folder."""
    recording = Path(tempfile.mkdtemp(dir=folder), "recording")
    outcome = run(whywait, "record", "-d", "2s", "-o", recording, *target)
    check(outcome.returncode == 0, f"whywait did not record: {said(outcome)}")
    return json.loads(run(whywait, "report", recording, "--format", "json").stdout)


def main(tests, arguments):
    """Runs tests, each by its name; the last line is the sum."""
    if os.geteuid() != 0:
        sys.exit("this needs root: BPF is loaded, and namespaces are made")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for test in tests:
            name = test.__name__.replace("_", " ")
            try:
                test(*arguments(Path(folder)))
            except (Wrong, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED {name}: {error}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {name}:\n{traceback.format_exc()}", flush=True)
            else:
                print(f"ok     {name}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
