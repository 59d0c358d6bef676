"""A server with its database, for a lab that watches what is before them: its `peer`.

    chain.py CLUSTER FOLDER SERVER [ARGUMENT]…

The database is kit/postgres.py's. The server is started with its address as the last argument.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POSTGRES = Path(__file__).resolve().parent.parent / "kit/postgres.py"
DEADLINE_S = 30


def start(command, ready):
    """The process, and the address at which it says that it serves."""
    process = subprocess.Popen(command, env={**os.environ, "READY_FILE": str(ready)})
    end = time.monotonic() + DEADLINE_S
    while not (ready.exists() and (said := ready.read_text(encoding="utf-8")).endswith("\n")):
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"chain.py: {command[0]} did not start")
        time.sleep(0.02)
    return process, said.split()[1]


def main():
    cluster, folder, *server = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    processes = []
    try:
        database = [sys.executable, POSTGRES, cluster, folder]
        process, address = start(database, Path(folder, "database.ready"))
        processes.append(process)
        process, address = start([*server, address], Path(folder, "server.ready"))
        processes.append(process)
        with open(os.environ["READY_FILE"], "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {address}\n")
        process.wait()
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
