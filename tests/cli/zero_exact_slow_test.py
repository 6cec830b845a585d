"""zero_exact_slow_test.py - all of the grid of zero_exact_test.py: ZeRO levels,
workers and places; and every optimizer at every level."""

import itertools
import sys

import runs
import zero_exact_test


def whole_grid(model):
    zero_exact_test.grid(model, list(itertools.product(zero_exact_test.WORKERS[1:],
                                                       zero_exact_test.PLACES, (1, 2, 3))))


def test_lenet():
    whole_grid("lenet")


def test_resnet():
    whole_grid("resnet18")


def test_gpt_with_dropout():
    whole_grid("gpt2")


def test_every_optimizer():
    zero_exact_test.optimizers(lambda i: (1, 2, 3))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
