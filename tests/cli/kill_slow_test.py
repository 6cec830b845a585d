"""kill_slow_test.py - kill_test.py, often enough to meet rare moments."""

import sys

import kill_test
import runs

kill_test.NOTICED_MS, kill_test.GONE_S = 50, 2


def test_killed_workers():
    kill_test.kill_workers(100)


def test_killed_while_saving():
    kill_test.kill_while_saving(200)


def test_killed_supervisors():
    kill_test.kill_supervisors(1000)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
