"""corruption_test.py - parallel.verify_every changes no bit, with threads, processes, one worker,
ZeRO-1 and several kinds of models; a bit that is flipped in the result of a layer is found, with
rank and layer; an elastic run goes on without the worker, to the same bits."""

import os
import re
import sys

import runs

PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")
EACH = "parallel.verify_every=1"
PLACES = "parallel.place=threads", "parallel.place=processes"


def hash_of(ended):
    return re.findall(r"params_hash ([0-9a-f]{16})", ended.expect(0).out + ended.err)[-1]


def test_no_bit_changes():
    expected = hash_of(runs.tutti(*runs.small("plain", "-n", "2")))
    for place in PLACES:
        for n in "1", "3":
            run = place[-7:] + n
            assert hash_of(runs.tutti(*runs.small(run, "-n", n, place, EACH))) == expected, run
    assert hash_of(runs.tutti(*runs.small("zero", "-n", "2", "parallel.zero=1", EACH))) == expected


def test_models():
    for name in ("lenet",), ("vit", "model.layers=1", "model.width=32", "model.heads=2",
                             "model.patch=7"):
        job = ["train", "model.name=" + name[0], *name[1:], "train.steps=2", "train.batch=8",
               "parallel.shards=4", "train.eval_every=0", "data.n_train=64",
               "data.n_test=16", "-n", "2"]
        plain = hash_of(runs.tutti(*job, "run.dir=plain-" + name[0]))
        assert hash_of(runs.tutti(*job, EACH, "run.dir=" + name[0])) == plain, name


def flip(run, rank, *options):
    """The result of layer 3 is wrong by one bit on a rank in its 4th verified shard."""
    env = dict(os.environ, TUTTI_FAULT="exec.flip:fail@rank=%d,step=3,4" % rank)
    return runs.tutti(*runs.small(run, EACH, *options), program=PROGRAM, env=env)


def test_a_flipped_bit_is_found():
    for place in PLACES:
        flip("three-" + place[-7:], 1, "-n", "3", place).expect(
            9, "silent data corruption in step ", "rank 1 computed ", "of shard ", "wrongly")
    for n in "1", "2":  # a third computation decides
        flip("of-" + n, int(n) - 1, "-n", n).expect(9, "rank %d computed " % (int(n) - 1))
    both = dict(os.environ, TUTTI_FAULT="exec.flip:fail@rank=1,step=3")  # each time
    runs.tutti(*runs.small("two", EACH, "-n", "2"), program=PROGRAM, env=both).expect(
        9, "rank 0 or rank 1 computed ")


def test_a_worker_is_excluded():
    expected = hash_of(runs.tutti(*runs.small("undisturbed", "-n", "3")))
    elastic = ["-n", "3", "parallel.place=processes", "parallel.on_corruption=exclude"]
    ended = flip("excluded", 2, *elastic, "parallel.min_workers=2", "run.restarts=3")
    assert hash_of(ended) == expected
    ended.expect(0, "rank 2 is excluded: silent data corruption", "the run goes on with 2 workers")
    assert (ended.out + ended.err).count("joins") == 0  # it is not started again
    flip("too-few", 2, *elastic, "parallel.min_workers=3").expect(9, "rank 2 computed ")


def test_refused():
    for options, words in ((["parallel.mode=fast"], "parallel.mode=exact"),
                           (["parallel.zero=2", "-n", "2"], "parallel.zero=0 or 1"),
                           (["parallel.on_corruption=exclude"], "parallel.min_workers")):
        runs.tutti(*runs.small("refused", EACH, *options)).expect(2, words)
    runs.tutti(*runs.small("refused", "parallel.on_corruption=exclude")).expect(
        2, "give parallel.verify_every too")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
