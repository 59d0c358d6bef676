# Blocks two threads, in time.sleep and in a lock, below functions, a method and a C callback.
import functools
import threading
import time


class Server:
    def handle(self, n):
        time.sleep(n)  # line 9


def compare(a, b):
    Server().handle(1000)  # line 13
    return 0


def request():
    # sorted calls back from C: a second call of the interpreter's loop.
    sorted([1, 2], key=functools.cmp_to_key(compare))  # line 19


def wait_for(lock):
    lock.acquire()  # line 23


lock = threading.Lock()
lock.acquire()
threading.Thread(target=wait_for, args=(lock,), daemon=True).start()
request()  # line 29
