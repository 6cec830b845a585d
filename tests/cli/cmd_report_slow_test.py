"""cmd_report_slow_test.py - a run does not look for the mistakes of a model that takes long to
compute on this processor."""

import sys

import cmd_report_test
import runs


def test_a_run_does_not_wait_for_mistakes():
    cmd_report_test.check_no_search_for_mistakes(
        "model.name=resnet18", "data.image_size=160", "data.n_train=56", "train.batch=56")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
