"""wire_hashes_slow_test.py - the same check as wire_hashes_test.py, for every combination of model,
layout, place and device."""

import sys

import layout_hashes
import runs
import wire_hashes


def test_hashes_of_every_combination():
    layout_hashes.check(wire_hashes.table.all_cases())


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
