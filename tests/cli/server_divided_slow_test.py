"""server_divided_slow_test.py - asynchronous runs of divided models are replayed in threads and in
processes, wherever they were recorded."""

import sys

import runs
from server_divided_test import replay_what_is_recorded

LAYOUTS = (("lenet", (3, 1, 2)), ("gpt2", (2, 2, 1)), ("gpt2", (2, 2, 2)))


def recorded_in(place):
    replay_what_is_recorded(*[(model, layout, place, ["threads", "processes"])
                              for model, layout in LAYOUTS])


def test_what_threads_recorded():
    recorded_in("threads")


def test_what_processes_recorded():
    recorded_in("processes")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
