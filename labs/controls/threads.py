"""A blocking thread-per-connection server, on a port of the system's choice.

    threads.py [--timeout SECONDS] [--tls FOLDER] [--late SECONDS]

--timeout   sockets have it: Python then waits for them in poll. A connection that is idle for so
            long is closed.
--tls       over TLS, with a certificate that is made in this folder.
--late      the last bytes of each answer come so much later, after a look for what the client sends
            meanwhile.
"""

import argparse
import os
import re
import socket
import ssl
import subprocess
import threading
import time

# As many bytes as TLS's close_notify has.
BODY = b"abcdefghijklmnopqrstuvwx"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def serve(connection, tls, late):
    try:
        if tls:
            connection = tls.wrap_socket(connection, server_side=True)
        with connection:
            while request(connection):
                if late:
                    answer_late(connection, late)
                else:
                    connection.sendall(ANSWER)
            if tls:
                # Sends its close_notify, and waits a moment for the client's.
                connection.settimeout(0.1)
                connection.unwrap().close()
    except OSError:
        # A client that goes away is no news.
        pass


def answer_late(connection, late):
    connection.sendall(ANSWER[: -len(BODY)])
    timeout = connection.gettimeout()
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        pass
    connection.settimeout(timeout)
    time.sleep(late)
    connection.sendall(BODY)


def request(connection):
    """Reads a request with its body; False: no more came."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            return True
        try:
            piece = connection.recv(65536)
        except TimeoutError:
            return False
        if not piece:
            return False
        received += piece


def context(folder):
    subprocess.run([os.path.join(os.path.dirname(__file__), "certificate.sh"), folder], check=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem"))
    return tls


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--tls")
    parser.add_argument("--late", type=float)
    args = parser.parse_args()
    tls = context(args.tls) if args.tls else None
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with open(os.environ["READY_FILE"], "w") as ready:
        ready.write(f"{os.getpid()} 127.0.0.1:{listener.getsockname()[1]}\n")
    while True:
        connection, _ = listener.accept()
        connection.settimeout(args.timeout)
        threading.Thread(target=serve, args=(connection, tls, args.late), daemon=True).start()


if __name__ == "__main__":
    main()
