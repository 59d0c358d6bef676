"""A server with its database, for a lab that watches what is before them: its `peer`.

    chain.py CLUSTER FOLDER SERVER [ARGUMENT]…

The database is kit/postgres.py's. The server is started with its address as the last argument.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent / "kit"
sys.path.insert(0, str(KIT))
from client import wait_until  # noqa: E402


def start(command, ready):
    """The process, and the address at which it says that it serves."""
    process = subprocess.Popen(command, env={**os.environ, "READY_FILE": str(ready)})

    def address():
        if process.poll() is not None:
            sys.exit(f"chain.py: {command[0]} did not start")
        said = ready.read_text(encoding="utf-8") if ready.exists() else ""
        return said.split()[1] if said.endswith("\n") else None

    return process, wait_until(f"{command[0]} to serve", address)


def main():
    cluster, folder, *server = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    processes = []
    try:
        database = [sys.executable, KIT / "postgres.py", cluster, folder]
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
