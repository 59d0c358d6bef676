"""Writes records, each of which it has on the disk before the next, and for how long it waited for
that without computing: writer.py FILE."""

import os
import sys
import time


def main():
    file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
    spans = []
    for _ in range(12):
        os.write(file, b"r" * 2_097_152)
        begun, used = time.monotonic(), time.thread_time()
        os.fsync(file)
        waited = time.monotonic() - begun - (time.thread_time() - used)
        spans.append((begun, begun + waited))
    with open(os.environ["LOG"], "a", encoding="ascii") as log:
        for begun, ended in spans:
            log.write(f"sync {begun * 1e3:.3f} {ended * 1e3:.3f}\n")


if __name__ == "__main__":
    main()
