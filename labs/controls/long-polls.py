"""Eight clients poll for events, one every 300 ms, and one client asks for something quick.

    long-polls.py ADDRESS
"""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))
import client  # noqa: E402  pylint: disable=wrong-import-position

SECONDS, POLLING, EVERY_S = 3.6, 8, 0.3


def poll(address, polls, done):
    connection = client.Connection(address)
    while not done.is_set():
        asked = client.now_ms()
        connection.get("/poll")
        polls.append(client.now_ms() - asked)


def main():
    address = sys.argv[1]
    polls, latency, done = [], [], threading.Event()
    pollers = [threading.Thread(target=poll, args=(address, polls, done)) for _ in range(POLLING)]
    for one in pollers:
        one.start()
    source, quick = client.Connection(address), client.Connection(address)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        again = time.monotonic() + EVERY_S
        while time.monotonic() < again:
            asked = client.now_ms()
            quick.get("/")
            latency.append(client.now_ms() - asked)
            time.sleep(0.02)
        source.get("/event")
    done.set()
    # Whoever has asked once more is answered once more.
    while any(one.is_alive() for one in pollers):
        source.get("/event")
        time.sleep(0.05)
    truth = {"load": client.summary(latency), "polls": client.summary(polls)}
    return client.tell(truth, ["polls.count>=60", "polls.p50_ms>=200", "load.p50_ms<=20"])


if __name__ == "__main__":
    sys.exit(main())
