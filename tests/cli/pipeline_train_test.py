"""pipeline_train_test.py - models whose layers lie on several workers: the bits of one worker where
a cut changes no sum, what the stages waited for each other, chunks, a worker that dies, and what is
refused.  Layouts against each other: layouts_test.py."""

import os
import re
import sys

import layouts
import runs

FEW = ["train.steps=8", "parallel.shards=8", "run.log_every=1", "parallel.devices=cpu",
       "train.batch=32", "data.n_train=96", "data.n_test=32"]
LENET = [*runs.lenet(), "optimizer.name=adamw"]


def train(run, n, *arguments):
    return runs.tutti("train", "run.dir=" + run, "-n", str(n), *FEW, *arguments).expect(0)


def losses(run):
    return [(r["event"], r["step"], r["loss"]) for r in runs.records(run)
            if r["event"] in ("step", "eval")]


def hashes(run):
    return [r["params_hash"] for r in runs.records(run) if r["event"] in ("step", "end")]


def record(run, event):
    return next(r for r in runs.records(run) if r["event"] == event)


def test_losses_are_those_of_one_worker():
    """LeNet shares no parameter between layers: the same bits, and the same checkpoint."""
    train("one", 1, *LENET)
    for name, n, more in (("two", 2, ["parallel.pipeline=2"]),
                          ("four", 4, ["parallel.pipeline=4"]),
                          ("chunks", 2, ["parallel.pipeline=2", "parallel.pipeline_chunks=2"]),
                          ("replicas", 4, ["parallel.pipeline=2", "parallel.zero=1"]),
                          ("processes", 4, ["parallel.pipeline=2", "parallel.place=processes",
                                            "parallel.zero=3"]),
                          ("again", 2, ["parallel.pipeline=2", "train.recompute=block"])):
        train(name, n, *LENET, *more)
        if losses(name) != losses("one"):
            raise AssertionError("%s: %s instead of %s" % (name, losses(name), losses("one")))
        if hashes(name) != hashes("one"):
            raise AssertionError("%s: %s instead of %s" % (name, hashes(name), hashes("one")))
        runs.same_checkpoint("one", name)


def test_tied_head_has_the_bits_of_one_worker():
    """Its gradient is added for each shard; clipping would add the squares in another order."""
    layouts.write_text()
    few = [*FEW, "train.steps=2", "train.batch=16", "train.clip_norm=0", "model.name=gpt2",
           "model.layers=2", "model.heads=2", "model.width=16", "data.format=text",
           "data.dir=text.txt", "data.tokenizer=chars", "data.context=16", "data.n_train=0",
           "data.n_test=0"]
    runs.tutti("train", "run.dir=tied-one", *few).expect(0)
    for name, n, *more in (("two", 2, "parallel.pipeline=2"),
                           ("chunks", 2, "parallel.pipeline=2", "parallel.pipeline_chunks=2"),
                           ("three", 3, "parallel.pipeline=3"),
                           ("zero", 4, "parallel.pipeline=2", "parallel.zero=3"),
                           ("server", 4, "parallel.pipeline=2",
                            "parallel.sync=parameter-server")):
        runs.tutti("train", "run.dir=tied-" + name, "-n", str(n), *few, *more).expect(0)
        if hashes("tied-" + name) != hashes("tied-one"):
            raise AssertionError("%s: %s instead of %s" % (name, hashes("tied-" + name),
                                                           hashes("tied-one")))
        runs.same_checkpoint("tied-one", "tied-" + name)


def test_what_stages_wait_is_reported():
    ended = train("shown", 2, *LENET, "parallel.pipeline=2", "parallel.pipeline_chunks=2")
    ended.expect(0, "pipeline: stages waited", "expected")
    shown = record("shown", "pipeline")
    if (shown["stages"], shown["chunks"], shown["shards"]) != (2, 2, 8) or \
            len(shown["stage_costs"]) != 4:
        raise AssertionError(shown)
    if abs(sum(shown["stage_costs"]) - 1) > 1e-5 or not 0 < shown["bubble_expected"] < 1:
        raise AssertionError(shown)
    for event in ("step", "end"):
        if not 0 < record("shown", event)["bubble"] < 1:
            raise AssertionError(record("shown", event))
    ended = train("few", 4, *LENET, "parallel.pipeline=4", "parallel.shards=2")
    ended.expect(0, "with 2 shards the stages wait for each other")


def test_the_drawing_holds_the_whole_step():
    """Every part of every micro-batch group, within the drawing's width.  On two cores a group is
    one shard."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    for n_shards in (8, 64):
        runs.tutti("inspect", *LENET, *FEW, "train.batch=64", "parallel.shards=%d" % n_shards,
                   "parallel.pipeline=2", "parallel.pipeline_chunks=2", "-n", "2", "--svg",
                   "a.svg").expect(0)
        with open("a.svg") as file:
            svg = file.read()
        width = float(re.search('<svg [^>]*width="([0-9.]+)"', svg).group(1))
        parts = re.findall('<rect x="([0-9.]+)" y="[0-9]+" width="([0-9.]+)" height="[0-9]+" '
                           'fill="#(?:bfdbfe|93c5fd|bbf7d0|86efac)" [^>]*stroke-width="0.5"', svg)
        if len(parts) != n_shards * 2 * 2 * 2:
            raise AssertionError("%d parts are drawn" % len(parts))
        if max(float(x) + float(w) for x, w in parts) > width:
            raise AssertionError("a part is beyond the edge")


def test_a_worker_that_dies_ends_the_others():
    """In the middle of a step or between two; a restart goes on from the last checkpoint.  A run
    that has come to its end before is tried again with more steps."""
    divided = ["-n", "2", "parallel.pipeline=2", "parallel.place=processes"]
    for n_steps in (400, 4000, 40000):
        long = ["train.steps=%d" % n_steps, "run.checkpoint_every=20"]
        dies, lives = "dies-%d" % n_steps, "lives-%d" % n_steps
        process = runs.start(*runs.small(dies, *divided, *long, "--restarts", "1"))
        runs.wait_until(lambda: runs.checkpoints(dies) or process.poll() is not None)
        runs.kill_child(process, 1)
        ended = runs.finish(process).expect(0)
        if "starting again" in ended.out + ended.err:
            break
    ended.expect(0, "rank 1", "was killed by signal 9")
    runs.tutti(*runs.small(lives, *long, "-n", "1")).expect(0)
    if losses(lives)[-1] != losses(dies)[-1]:
        raise AssertionError("%s instead of %s" % (losses(dies)[-1], losses(lives)[-1]))


def test_refusals():
    few = ["train", "run.dir=refused", *FEW]
    runs.tutti(*few, *LENET, "parallel.pipeline_chunks=2").expect(2, "give parallel.pipeline too")
    runs.tutti(*few, *LENET, "-n", "3", "parallel.pipeline=3",
               "parallel.pipeline_chunks=2").expect(2, "in groups of 3, but a worker has 8")
    for six in (["-n", "6"], ["parallel.data=3"]):
        runs.tutti(*few, *LENET, *six, "parallel.pipeline=2", "parallel.pipeline_chunks=2").expect(
            2, "with several chunks, shards pass the 2 stages in groups of 2",
            "but a worker has 3")
    runs.tutti(*few, "model.name=mlp", "model.hidden=[16]", "-n", "4",
               "parallel.pipeline=4").expect(2, "the model can be divided into at most 2 stages")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
