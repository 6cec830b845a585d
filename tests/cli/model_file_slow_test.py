"""model_file_slow_test.py - one hash for every layout of every imported model, of which
model_file_test.py has one for each."""

import sys

import model_file_test
import runs


def test_one_hash_for_every_layout():
    model_file_test.one_hash(lambda number: model_file_test.LAYOUTS)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
