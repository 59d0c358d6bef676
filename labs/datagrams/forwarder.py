"""Runs dnsmasq or unbound, which asks the DNS server at that address, and keeps no answers.

    forwarder.py dnsmasq|unbound FOLDER ADDRESS
"""

import os
import socket
import sys
import time
from pathlib import Path

UNBOUND = """\
server:
  interface: 127.0.0.1@{port}
  port: {port}
  do-daemonize: no
  use-syslog: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: ""
  num-threads: 1
  do-ip6: no
  do-not-query-localhost: no
  module-config: "iterator"
  outbound-msg-retry: 1
  cache-max-ttl: 0
  msg-cache-size: 4k
  rrset-cache-size: 4k
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: {upstream}
"""


def free_port():
    """Of both protocols: these servers answer over TCP as well."""
    while True:
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            stream.bind(("127.0.0.1", 0))
            try:
                datagram.bind(stream.getsockname())
            except OSError:
                continue
            return stream.getsockname()[1]


def tell_when_bound(port, pid):
    """In a process of its own, as the server takes this one's place."""
    if os.fork():
        return
    while f":{port:04X} " not in Path("/proc/net/udp").read_text(encoding="utf-8"):
        if not Path(f"/proc/{pid}").exists():
            os._exit(1)
        time.sleep(0.01)
    Path(os.environ["READY_FILE"]).write_text(f"{pid} 127.0.0.1:{port}\n", encoding="utf-8")
    os._exit(0)


def main():
    name, folder, upstream = sys.argv[1:]
    host, _, port = upstream.rpartition(":")
    upstream, port = f"{host}@{port}", free_port()
    os.environ["PATH"] += ":/usr/sbin"
    tell_when_bound(port, os.getpid())
    if name == "dnsmasq":
        os.execlp(
            name, name, "--keep-in-foreground", f"--port={port}", "--no-resolv", "--no-hosts",
            f"--server={upstream.replace('@', '#')}", "--cache-size=0", "--bind-interfaces",
            "--listen-address=127.0.0.1", "--user=root", "--pid-file=", "--conf-file=/dev/null",
            "--log-facility=/dev/null",
        )
    config = Path(folder) / "unbound.conf"
    config.write_text(UNBOUND.format(port=port, folder=folder, upstream=upstream), encoding="utf-8")
    os.execlp(name, name, "-d", "-c", str(config))


if __name__ == "__main__":
    main()
