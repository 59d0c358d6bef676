"""What is watched: servers that their load saturates."""

import csv
import json
import os
import socket
from pathlib import Path

from .process import Failed, end, run, start, wait_for

CONNECTIONS = 50


class Redis:
    """redis-server asked for one small key by redis-benchmark: 50 connections, no pipelining."""

    name = "redis GET"
    about = f"redis-server, `redis-benchmark -t get -c {CONNECTIONS}`, no pipelining"

    def __init__(self, tmp, _programs):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = Path(tmp, "redis.log")
        self.process = start(
            [
                "redis-server",
                "--bind",
                "127.0.0.1",
                "--port",
                self.port,
                "--dir",
                tmp,
                "--save",
                "",
                "--appendonly",
                "no",
            ],
            self.log,
        )
        self.pid = self.process.pid
        wait_for("redis-server", lambda: "Ready to accept" in self.log.read_text(errors="replace"))
        self.benchmark("set", 1000)

    def benchmark(self, test, requests):
        out = run(
            [
                "redis-benchmark",
                "-p",
                self.port,
                "-t",
                test,
                "-n",
                requests,
                "-c",
                CONNECTIONS,
                "--csv",
            ]
        )
        row = next(csv.DictReader(out.splitlines()), None)
        if not row:
            raise Failed("redis-benchmark printed nothing")
        return {
            "requests": requests,
            "rps": float(row["rps"]),
            "p50_us": float(row["p50_latency_ms"]) * 1e3,
            "p99_us": float(row["p99_latency_ms"]) * 1e3,
        }

    def endless_load(self):
        """A load that goes on until it is ended, with a new log."""
        return start(
            [
                "redis-benchmark",
                "-p",
                self.port,
                "-t",
                "get",
                "-n",
                1_000_000_000,
                "-c",
                CONNECTIONS,
                "-q",
            ],
            self.log.with_name("load.log"),
        )

    def load(self, seconds, rate):
        # It counts requests rather than seconds: as many as fit at the rate that was seen last.
        return self.benchmark("get", max(2000, int(rate * seconds)))

    def end(self):
        end(self.process)


def pinned(cpu, command):
    """The command, to run on the first (0) or the last (-1) CPU that there is for us; None:
    wherever the scheduler likes."""
    return (
        command
        if cpu is None
        else ["taskset", "-c", sorted(os.sched_getaffinity(0))[cpu], *command]
    )


class Echo:
    """A tokio server with two workers that sends 64 bytes back, and a load of one thread."""

    name = "tokio echo"
    about = (
        f"bench/echo: 2 workers, 64 bytes there and back, {CONNECTIONS} connections, closed loop"
    )
    program = "echo-server"
    server_cpu = load_cpu = None

    def __init__(self, tmp, programs):
        self.programs = programs
        self.log = Path(tmp, f"{self.program}.log")
        self.process = start(pinned(self.server_cpu, [programs / self.program]), self.log)
        self.pid = self.process.pid
        self.address = wait_for(self.program, lambda: self.log.read_text().partition("\n")[0])

    def endless_load(self):
        return start(self.load_for(3600), self.log.with_name("load.log"))

    def load(self, seconds, _rate):
        return json.loads(run(self.load_for(seconds)))

    def load_for(self, seconds):
        return pinned(
            self.load_cpu, [self.programs / "echo-load", self.address, CONNECTIONS, seconds]
        )

    def end(self):
        end(self.process)


class Threads(Echo):
    """Thread-per-connection. Each request takes a shared lock, is done by one of four workers, and
    sleeps meanwhile.

    Server and load have a CPU each. Where they have not, the scheduler puts them now on one and now
    on all, for seconds at a time, and the server is half as fast in one case as in the other,
    watched or not.
    """

    name = "threads"
    about = (
        "bench/threads: thread-per-connection; each request takes a lock that all share, hands a "
        "job to one of 4 workers\n"
        "and sleeps until it is done: switches and futex calls. 64 bytes there and back, "
        f"{CONNECTIONS} connections, closed loop. The server\n"
        "has the first CPU, the load the last one"
    )
    program = "bench-threads"
    server_cpu, load_cpu = 0, -1


SERVERS = [Redis, Echo, Threads]
