"""sum_table_test.py - doctor measures ways to add between devices and keeps the table, and training
goes by it, to the same bits; on devices of tests/backend/modules/device_module.c, whose clock is
moved by sums alone."""

import os
import sys

import runs

CLOCK = "peers=1,clock=1,free=8000000"
JOB = ["model.name=lenet", "data.n_train=128", "data.n_test=20", "train.batch=32", "train.steps=3",
       "parallel.shards=4", "run.log_every=1", "optimizer.name=sgd", "train.precision=f32",
       "parallel.bucket_mb=0.05", "parallel.devices=gpu", "-n", "2"]


def tutti(*arguments, says, cache):
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says, TUTTI_CACHE=os.path.abspath(cache))
    return runs.tutti(*arguments, env=environment)


def train(run, *arguments, says="peers=1", cache="cache"):
    """How sums are made, as the start line has it."""
    tutti("train", *JOB, "run.dir=" + run, *arguments, says=says, cache=cache).expect(0)
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    return start["backend"].partition(", sums ")[2]


def expect(reported, want):
    if reported != want:
        raise AssertionError("'%s', not '%s'" % (reported, want))


def test_measured_kept_and_taken():
    tutti("doctor", says=CLOCK, cache="cache").expect(
        0, "matrix product f32 1024x1024x1024", # in what is free
        "sums between 2 devices, us, by parallel.algorithm:",
        "4096        5.1      113.0       13.0\n", "262144      263.1      242.1      142.1\n",
        "exact mode: direct, from 262144 bytes on tree\n",
        "fast mode: direct, from 65536 bytes on ring\n",
        "stored in %s/sums-of-2-devices; parallel.algorithm=auto uses" % os.path.abspath("cache"))
    table = ", by the table of tutti doctor"
    expect(train("plain", cache="none"), "2 at once")
    reported = runs.story("plain")
    expect(train("exact"), "2 at once, 1 of 3 buckets by library of 2 1" + table)
    runs.same_story(reported, "exact")
    expect(train("fast", "parallel.mode=fast", says="peers=1,late=1"),
           "2 at once, 2 of 3 buckets by library of 2 1" + table)
    runs.same_story(reported, "fast") # whose library adds two numbers, in any order
    expect(train("other", "parallel.mode=fast", says="peers=1,kind=1"),
           "2 at once (the table of tutti doctor is of other devices or libraries: run it again)")
    with open("cache/sums-of-2-devices", "r+b") as file:
        file.truncate(100)
    expect(train("damaged"), "2 at once (the table of tutti doctor is damaged: run it again)")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
