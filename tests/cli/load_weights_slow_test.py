"""load_weights_slow_test.py - the whole grid of load_weights_test.py: load weights, threads and
processes, partitions; and a network whose batch norm is joined over all shards."""

import random
import sys

import load_weights_test
import runs


def test_lenet():
    load_weights_test.grid("lenet", load_weights_test.every_cell((0, 1, 2, 3)) +
                           load_weights_test.served_cells())


def test_gpt_with_dropout():
    load_weights_test.grid("gpt2", load_weights_test.every_cell((0, 1, 2, 3)))


def test_gpt_of_a_server():
    load_weights_test.grid("gpt2", load_weights_test.served_cells())


def test_resnet_with_joined_statistics():
    load_weights_test.grid("resnet18", load_weights_test.every_cell((0, 1)) +
                           load_weights_test.served_cells())


if __name__ == "__main__":
    random.seed(runs.SEED)
    runs.main(sys.modules[__name__])
