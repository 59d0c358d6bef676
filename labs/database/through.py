"""Clients of a server that stands behind nginx: kit/timeline.py's, with nginx before ADDRESS.

    through.py FOLDER ADDRESS [timeline.py's arguments]…
"""

import socket
import subprocess
import sys
from pathlib import Path

LABS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(LABS / "kit"))
from client import wait_until  # noqa: E402
from postgres import free_port  # noqa: E402


def main():
    folder, address, *more = sys.argv[1:]
    port, folder = free_port(), Path(folder, "nginx")
    folder.mkdir()
    nginx = subprocess.Popen(
        [LABS / "proxies/nginx.sh", folder, str(port), folder / "pid", address])

    def serves():
        if nginx.poll() is not None:
            sys.exit("through.py: nginx did not start")
        return not socket.socket().connect_ex(("127.0.0.1", port))

    try:
        wait_until("nginx", serves)
        load = [sys.executable, LABS / "kit/timeline.py", f"127.0.0.1:{port}", *more]
        return subprocess.run(load, check=False).returncode
    finally:
        nginx.terminate()
        nginx.wait()


if __name__ == "__main__":
    sys.exit(main())
