"""exact_slow_test.py - the whole grid of exact_test.py, 90 runs of each model and their resumes."""

import sys

import exact_test
import runs


def test_whole_grid():
    exact_test.grid("mlp", exact_test.every_cell())


def test_whole_grid_with_convolutions():
    exact_test.grid("lenet", exact_test.every_cell())


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
