"""What became of jobs: a file of which each line has one's moments, in milliseconds."""

import time
from pathlib import Path

import client


def wait_for(done, count, seconds=20):
    """The moments of so many jobs, or of those that are done by then."""
    until = time.monotonic() + seconds
    while True:
        path = Path(done)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if len(lines) >= count or time.monotonic() > until:
            return [[float(moment) for moment in line.split()] for line in lines]
        time.sleep(0.02)


def truth(jobs):
    """The ground truth of jobs that have four moments: sent, received, taken, and done."""
    return {
        "load": client.summary([end - received for _, received, _, end in jobs]),
        "sent": client.summary([received - sent for sent, received, _, _ in jobs]),
        "queued": client.summary([taken - received for _, received, taken, _ in jobs]),
        "work": client.summary([end - taken for _, _, taken, end in jobs]),
    }
