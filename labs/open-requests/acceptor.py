"""A server of threads whose acceptor reads what it accepts, to see for which of them it is.

    acceptor.py UPSTREAM
"""

import json
import os
import queue
import socket
import threading
import time

WORKERS = 4


def now_ms():
    return 1e3 * time.monotonic()


def read_request(connection):
    """The fault: nobody is accepted while a client that was has nothing to say."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(4096)
        if not piece:
            return None
        head += piece
    return head


def work(requests):
    while True:
        connection, read = requests.get()
        begun = now_ms()
        body = json.dumps({"read": read, "begun": begun, "ended": now_ms()})
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        with connection:
            connection.sendall(answer.encode())


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    requests = queue.SimpleQueue()
    for _ in range(WORKERS):
        threading.Thread(target=work, args=(requests,), daemon=True).start()
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        connection, _ = listener.accept()
        if read_request(connection):
            requests.put((connection, now_ms()))
        else:
            connection.close()


if __name__ == "__main__":
    main()
