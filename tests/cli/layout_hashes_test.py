"""layout_hashes_test.py - results do not change by a single bit: short runs of small models have
the hashes in tests/golden/layout_hashes.txt.  Runs every pair of model, layout, place and device;
layout_hashes_slow_test.py runs every combination."""

import sys

import layout_hashes
import runs


def test_hashes_of_every_pair():
    cases = layout_hashes.pairwise_cases()
    if runs.sanitized():  # which is slow
        cases = [case for case in cases if case[0] != "resnet18"]
    layout_hashes.check(cases)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
