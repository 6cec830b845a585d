"""chaos_slow_test.py - tutti chaos: runs that are disturbed for 5 minutes end with the hash of one
that is not."""

import sys

import runs

JOB = [*runs.SMALL, "train.steps=20000", "run.checkpoint_every=100", "data.n_train=512"]


def test_disturbed_runs():
    ended = runs.tutti("chaos", *JOB, "-n", "3", "--for", "5m", "--seed", "7", timeout_s=900)
    ended.expect(0, "faults in ", "all have hash ")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
