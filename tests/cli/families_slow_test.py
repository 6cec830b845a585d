"""families_slow_test.py - vit, convnext, swin and unet: one story for every layout, of which
families_test.py and nets_exact_test.py have some for each; so of convolutional networks."""

import sys

import families_test
import nets_exact_test
import runs


def test_every_layout():
    families_test.one_story(lambda number: families_test.LAYOUTS)


def test_every_layout_of_convolutional_networks():
    nets_exact_test.one_story(lambda number: nets_exact_test.LAYOUTS)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
