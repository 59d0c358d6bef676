"""A real OpenTelemetry Collector, between a sender and what it sends on to: see otelcol/main.go."""

import http.server
import json
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

SECONDS = 30
CONFIG = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{inward}
exporters:
  otlphttp:
    endpoint: http://127.0.0.1:{outward}
    encoding: json
    compression: none
    # It says that it has taken something when that has been passed on.
    sending_queue:
      enabled: false
    retry_on_failure:
      enabled: false
service:
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [otlphttp]
"""


class Collector:
    """A context manager: it ends the collector."""

    def __init__(self, program):
        self.program = program

    def __enter__(self):
        self.came = []
        came = self.came

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                came.append((self.path, json.loads(body)))
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.inward = free.getsockname()[1]
        self.config = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        self.config.write(CONFIG.format(inward=self.inward, outward=self.server.server_port))
        self.config.flush()
        self.process = subprocess.Popen(
            [Path(self.program).absolute(), "--config", self.config.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.inward), timeout=1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    raise RuntimeError("the collector does not listen") from None
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.server.shutdown()
        self.server.server_close()
        self.config.close()

    def pass_on(self, document):
        """Sends what `--format otlp` wrote. Gives what came out, or says what the collector had
        against it."""
        self.came.clear()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.inward}/v1/traces",
            document,
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                said = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise ValueError(f"{error.code}: {error.read().decode(errors='replace')}") from None
        if refused := said.get("partialSuccess"):
            raise ValueError(f"it did not take all: {refused}")
        return [body for path, body in self.came if path == "/v1/traces"]


def spans(documents):
    """The spans of documents, in an order of their own, without what is nothing."""

    def plain(value):
        if isinstance(value, dict):
            kept = {key: plain(inner) for key, inner in value.items()}
            return {key: inner for key, inner in kept.items() if inner not in ("", [], {}, 0)}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return value

    found = [
        (resource["resource"]["attributes"], scope["scope"], plain(span))
        for document in documents
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    return sorted(found, key=lambda one: (one[2]["traceId"], one[2]["spanId"]))
