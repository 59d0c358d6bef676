# A process that C has forked, as a server does whose workers run Python: the interpreter was not
# told, and takes the thread for that of the process which it was forked from.
import ctypes
import os
import signal
import sys
import threading
import time


def work(n):
    time.sleep(n)  # line 12


ended = ctypes.CDLL(None).prctl
if ctypes.PyDLL(None).fork() == 0:
    ended(1, signal.SIGKILL)  # with the one that the test ends (PR_SET_PDEATHSIG)
    work(1000)  # line 18
time.sleep(1000)
