"""crowded_test.py - 128 workers that are threads of one process train as one worker does, and
when one fails the run names it and ends.  crowded_slow_test.py has 4,096, and processes."""

import sys

import crowded
import runs

N = 128


def test_threads_train_as_one():
    crowded.same_as_one("computes", N, crowded.THREADS, N)


def test_threads_that_compute_nothing():
    crowded.same_as_one("nothing", N, crowded.THREADS, N, *crowded.nothing())
    last = runs.records("nothing")[-1]
    assert last["event"] == "end" and last["loss"] == 1, last


def test_a_thread_fails():
    crowded.lose_thread("lost", N, N, *crowded.nothing())


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
