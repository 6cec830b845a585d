"""chaos_test.py - tutti chaos: runs that are disturbed for 2 seconds end with the hash of one
that is not; wrong arguments are refused."""

import sys

import runs

JOB = [*runs.SMALL, "train.steps=800", "run.checkpoint_every=100", "data.n_train=512"]


def test_disturbed_runs():
    ended = runs.tutti("chaos", *JOB, "-n", "3", "--for", "2s", "--seed", "7")
    ended.expect(0, "faults in ", "all have hash ")


def test_refused():
    for arguments in [], ["--for", "5x"], [*JOB, "-n", "0"], [*JOB, "--what"]:
        runs.tutti("chaos", *arguments).expect(2, "usage: tutti chaos")
    runs.tutti("chaos", "model.name=none", "--out", "none").expect(2)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
