"""Clients of a server that stands behind nginx: kit/timeline.py's, with nginx before ADDRESS.

    through.py FOLDER ADDRESS [timeline.py's arguments]…
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

LABS = Path(__file__).resolve().parent.parent
DEADLINE_S = 20


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main():
    folder, address, *more = sys.argv[1:]
    port, folder = free_port(), Path(folder, "nginx")
    folder.mkdir()
    nginx = subprocess.Popen(
        [LABS / "proxies/nginx.sh", folder, str(port), folder / "pid", address])
    try:
        end = time.monotonic() + DEADLINE_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if nginx.poll() is not None or time.monotonic() > end:
                sys.exit("through.py: nginx did not start")
            time.sleep(0.02)
        load = [sys.executable, LABS / "kit/timeline.py", f"127.0.0.1:{port}", *more]
        return subprocess.run(load, check=False).returncode
    finally:
        nginx.terminate()
        nginx.wait()


if __name__ == "__main__":
    sys.exit(main())
