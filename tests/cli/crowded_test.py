"""crowded_test.py - 128 workers that are threads of one process train as one worker does, and
when one fails the run names it and ends; a pipeline of 72 stages.  crowded_slow_test.py has 4,096
workers, and processes."""

import sys

import crowded
import runs

N = 128


def test_threads_train_as_one():
    crowded.same_as_one("computes", N, crowded.THREADS, N)


def test_threads_that_compute_nothing():
    crowded.same_as_one("nothing", N, crowded.THREADS, N, *crowded.nothing())
    last = runs.records("nothing")[-1]
    assert last["event"] == "end" and last["loss"] == 1, last


def test_stages():
    """Pipelines of more stages and chunks than a machine word has bits; the first and the last
    stage have the embedding."""
    deep = ["model.name=gpt2", "model.layers=20", "model.heads=1", "model.width=8",
            "model.size=none", "data.format=random_tokens", "data.vocabulary=8",
            "data.context=4", "data.n_train=80", "data.n_test=8", "train.batch=8",
            "train.steps=10", "parallel.shards=8", "run.log_every=1", "run.checkpoint_every=-1"]
    for run, n, *more in (("one", 1), ("stages", 72, "parallel.pipeline=72"),
                          ("chunks", 8, "parallel.pipeline=8", "parallel.pipeline_chunks=9")):
        runs.tutti("train", *deep, "run.dir=" + run, crowded.THREADS, "-n", str(n),
                   *more).expect(0)
        runs.same_story(runs.story("one"), run)


def test_a_thread_fails():
    crowded.lose_thread("lost", N, N, *crowded.nothing())


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
