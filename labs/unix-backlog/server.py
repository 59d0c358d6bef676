"""An HTTP server that connects to a helper's unix socket for each request, with a thread for each
client, and says how long it took to connect.

    server.py HELPER
"""

import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELPER = sys.argv[1]
LOCK = threading.Lock()
CONNECTS = []


def ask_helper():
    with socket.socket(socket.AF_UNIX) as helper:
        begun = time.monotonic()
        helper.connect(HELPER)
        took_ms = 1e3 * (time.monotonic() - begun)
        helper.sendall(b"help")
        helper.recv(64)
    with LOCK:
        CONNECTS.append(took_ms)
    return "asked"


def about():
    connects = sorted(CONNECTS) or [0]

    def nth(share):
        return connects[min(len(connects) - 1, int(share * len(connects)))]

    said = {"count": len(CONNECTS), "sum_ms": sum(connects)}
    return json.dumps({"connect": {**said, "p50_ms": nth(0.5), "p99_ms": nth(0.99)}})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = (about() if self.path == "/about" else ask_helper()).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *_):
        pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        print(os.getpid(), f"127.0.0.1:{server.server_port}", file=ready)
    server.serve_forever()


if __name__ == "__main__":
    main()
