"""elastic_parts_test.py - elastic runs with ZeRO: the partition of a lost worker comes from memory,
with the bits of an undisturbed run, also if the worker is lost while it copies the partition; with
parallel.mirror=false all continue from the last checkpoint without being started again."""

import os
import signal
import sys

import elastic_test
import runs

ADAM = ["optimizer.name=adam", "parallel.min_workers=1"]
FAULTS = os.path.join(runs.BUILD, "tests/tutti_faults")


def undisturbed():
    """Without ZeRO, from one worker."""
    return elastic_test.undisturbed("optimizer.name=adam")


def test_partitions_come_from_memory():
    expected = undisturbed()
    for zero in 1, 2, 3:
        run = elastic_test.Run("zero%d" % zero, *ADAM, "parallel.zero=%d" % zero, "run.restarts=1")
        run.wait_for(50)
        run.signal(0)
        run.wait_for(70)
        run.signal(2, signal.SIGSTOP if zero == 1 else signal.SIGKILL)
        runs.tutti("scale", run.folder, "2")  # unless it has ended
        n_left = run.end()[1].count(" leaves;")
        elastic_test.check(run, expected, 2 + n_left)


def test_synchronous_servers():
    """The first two workers have the optimizer state; both are lost, and one of two is left."""
    expected = undisturbed()
    run = elastic_test.Run("servers", *ADAM, "parallel.sync=parameter-server", "parallel.servers=2")
    for rank, step in ((0, 40), (1, 90), (2, 140)):
        run.wait_for(step)
        run.signal(rank)
    elastic_test.check(run, expected, 3)


def test_lost_while_it_copies():
    """Rank 3 dies in step 61, after it has copied its partition and before it says so: the others
    compute this step again.  Rank 2 of the next group, and so on, until one worker is left."""
    expected = undisturbed()
    fault = ";".join("mirror.put:kill@rank=%d,step=%d" % (r, s) for r, s in ((3, 61), (2, 62),
                                                                             (1, 95)))
    run = elastic_test.Run("copies", *ADAM, "parallel.zero=1", program=FAULTS,
                           env=dict(os.environ, TUTTI_FAULT=fault))
    elastic_test.check(run, expected, 3)


def test_without_a_mirror():
    expected = undisturbed()
    run = elastic_test.Run("disk", *ADAM, "parallel.zero=1", "parallel.mirror=false",
                           "train.steps=500", "run.checkpoint_every=90")
    run.wait_for(120)
    run.signal(1)
    code, text = run.end()
    assert code == 0 and "goes on with 3 workers" in text, text
    starts = [r["step"] for r in runs.records("disk") if r["event"] == "start"]
    assert len(starts) == 2 and starts[1] >= 90 and starts[1] % 90 == 0, starts
    steps = elastic_test.steps_of("disk")
    assert steps == list(range(1, 501)), steps
    whole = runs.tutti(*runs.small("longer", *elastic_test.LONG, "optimizer.name=adam",
                                   "train.steps=500", "-n", "2"))
    assert elastic_test.hash_of(text) == elastic_test.hash_of(whole.out + whole.err) != expected


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
