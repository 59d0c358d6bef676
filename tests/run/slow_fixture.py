"""Three tests, whose set-up waits for 150 ms and says so."""

import os
import time
import unittest


class SlowFixture(unittest.TestCase):
    """The tests."""

    def setUp(self):
        begun = time.monotonic()
        time.sleep(0.15)
        with open(os.environ["LOG"], "a", encoding="ascii") as log:
            log.write(f"set-up {begun * 1e3:.3f} {time.monotonic() * 1e3:.3f}\n")

    def test_one(self):
        self.assertEqual(sum(range(10)), 45)

    def test_another(self):
        self.assertEqual(max(range(10)), 9)

    def test_a_third(self):
        self.assertEqual(min(range(10)), 0)
