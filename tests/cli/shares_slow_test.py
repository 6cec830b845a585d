"""shares_slow_test.py - all of the grid of shares_test.py: shares, places and parts; and a network
whose batch norm is joined over all shards."""

import random
import sys

import runs
import shares_test


def test_lenet():
    shares_test.grid("lenet", shares_test.every_cell((0, 1, 2, 3)) + shares_test.served_cells())


def test_gpt_with_dropout():
    shares_test.grid("gpt2", shares_test.every_cell((0, 1, 2, 3)))


def test_gpt_of_a_server():
    shares_test.grid("gpt2", shares_test.served_cells())


def test_resnet_with_joined_statistics():
    shares_test.grid("resnet18", shares_test.every_cell((0, 1)) +
                     shares_test.served_cells())


if __name__ == "__main__":
    random.seed(runs.SEED)
    runs.main(sys.modules[__name__])
