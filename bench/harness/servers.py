"""What is watched: servers that their load saturates."""

import csv
import json
import os
import re
import socket
import time
from pathlib import Path

from .process import Failed, end, last_words, run, start, wait_for

CONNECTIONS = 50
# Until a program that cannot begin has said so.
SETTLE_S = 0.2


class Redis:
    """redis-server asked for one small key by redis-benchmark: 50 connections, no pipelining."""

    name = "redis GET"
    about = f"redis-server, `redis-benchmark -t get -c {CONNECTIONS}`, no pipelining"

    def __init__(self, tmp, _programs):
        (self.port,) = free_ports(1)
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


# One process each, in the foreground. Of keep-alive connections none is ever closed.
NGINX = """\
daemon off; master_process off; error_log stderr; pid {tmp}/{name}.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {tmp}/{name}; proxy_temp_path {tmp}/{name};
  fastcgi_temp_path {tmp}/{name}; uwsgi_temp_path {tmp}/{name}; scgi_temp_path {tmp}/{name};
  {more}
}}
"""
UPSTREAM = 'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{answer}"; }} }}'
PROXY = """\
upstream behind {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}"""


class Proxy:
    """nginx in front of nginx, both with one process; the one in front is watched. It has a CPU to
    itself, the one behind and wrk share the other: each does less for a request than the proxy."""

    name = "nginx proxy"
    about = (
        f"nginx with one process before another one that answers 64 bytes, `wrk -t1 -c{CONNECTIONS}"
        "`, all connections kept. The proxy has the\nfirst CPU, the rest the last one"
    )

    def __init__(self, tmp, _programs):
        self.tmp, self.processes = Path(tmp), []
        behind, self.port = free_ports(2)
        self.nginx("behind", -1, UPSTREAM.format(port=behind, answer="x" * 64), behind)
        self.nginx("proxy", 0, PROXY.format(port=self.port, behind=behind), self.port)
        self.process = self.processes[-1]
        self.pid = self.process.pid

    def nginx(self, name, cpu, more, port):
        settings = self.tmp / f"{name}.conf"
        (self.tmp / name).mkdir(exist_ok=True)
        settings.write_text(NGINX.format(tmp=self.tmp, name=name, more=more))
        log = self.tmp / f"{name}.log"
        command = ["nginx", "-p", self.tmp, "-e", "stderr", "-c", settings]
        process = start(pinned(cpu, command), log)
        self.processes.append(process)

        def answers():
            if process.poll() is not None:
                raise Failed(f"nginx: {last_words(log)}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for("nginx", answers)

    def wrk(self, seconds):
        url = f"http://127.0.0.1:{self.port}/"
        return pinned(-1, ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", url])

    def endless_load(self):
        return start(self.wrk(3600), self.tmp / "load.log")

    def load(self, seconds, _rate):
        # It takes whole seconds only.
        printed = run(self.wrk(max(1, round(seconds))))
        if "Non-2xx" in printed or "Socket errors" in printed:
            raise Failed(f"wrk: {printed.strip().splitlines()[-1]}")

        def figure(pattern):
            found = re.search(pattern, printed)
            if not found:
                raise Failed("wrk printed something else than it used to")
            return found

        def us(percentile):
            number, unit = figure(rf"\b{percentile}%\s+([\d.]+)(us|ms|s)\b").groups()
            return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]

        return {
            "requests": int(figure(r"(\d+) requests in")[1]),
            "rps": float(figure(r"Requests/sec:\s+([\d.]+)")[1]),
            "p50_us": us(50),
            "p99_us": us(99),
        }

    def end(self):
        for process in reversed(self.processes):
            end(process)


def free_ports(count):
    """Ports of loopback that nobody had a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Datagrams:
    """A program that sends datagrams, a few bytes each, and waits for the answer: what it pays for
    hooks that look for queries of DNS. Each call names the address, of which the hook reads the
    port. On a loopback address that nobody else has."""

    name = "datagrams"
    host = "127.0.0.77"
    how = "unconnected"

    def __init__(self, tmp, programs):
        self.program = programs / "datagrams"
        self.log = Path(tmp, "datagrams.log")
        self.address = f"{self.host}:{self.port()}"
        self.process = start([self.program, "ask", self.how, self.address], self.log)
        self.pid = self.process.pid

    def port(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((self.host, 0))
            return probe.getsockname()[1]

    def endless_load(self):
        """Whoever answers, until it is ended."""
        load = start([self.program, "answer", self.address], self.log.with_name("load.log"))
        time.sleep(SETTLE_S)
        if load.poll() is not None:
            self.end()
            raise Failed(f"{self.address}: {last_words(self.log.with_name('load.log'))}")
        return load

    def end(self):
        end(self.process)


class Names(Datagrams):
    """The same to DNS's port, through a connected socket, as the C library asks: each one is
    followed as a query that may get lost."""

    name = "dns"
    how = "connected"

    def port(self):
        return 53


SERVERS = [Redis, Echo, Threads, Proxy]
# Those of README, and of bench/elsewhere.json.
FRONT = [Redis, Echo, Threads]
