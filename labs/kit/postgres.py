"""A database that the labs' servers ask: it is the `peer` of a lab, and nobody watches it.

    postgres.py CLUSTER FOLDER

It serves a copy of the cluster in the folder, on a port that is free, for the user `postgres`.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

CONTROLS = Path(__file__).resolve().parent.parent / "controls"
DEADLINE_S = 20


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main():
    cluster, folder, port = sys.argv[1], Path(sys.argv[2]) / "postgres", str(free_port())
    folder.mkdir()
    pidfile = folder / "pid"
    server = subprocess.Popen([CONTROLS / "postgres.sh", cluster, folder, port, pidfile])
    end = time.monotonic() + DEADLINE_S
    ready = [
        max(Path("/usr/lib/postgresql").glob("*/bin/pg_isready")),
        *("-q", "-h", "127.0.0.1", "-p", port, "-U", "postgres"),
    ]
    while subprocess.run(ready).returncode:
        if server.poll() is not None or time.monotonic() > end:
            sys.exit("postgres.py: PostgreSQL did not start")
        time.sleep(0.05)
    with open(os.environ["READY_FILE"], "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} 127.0.0.1:{port}\n")
    sys.exit(server.wait())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main()
