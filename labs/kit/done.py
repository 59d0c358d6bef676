"""What became of jobs: a file of which each line has one's moments, in milliseconds."""

import time
from pathlib import Path


def wait_for(done, count, seconds=20):
    """The moments of so many jobs, or of those that are done by then."""
    until = time.monotonic() + seconds
    while True:
        path = Path(done)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if len(lines) >= count or time.monotonic() > until:
            return [[float(moment) for moment in line.split()] for line in lines]
        time.sleep(0.02)
