"""numerics_train_test.py - train.precision, train.loss_scale and train.recompute through the
program: runs in 16 bits that learn, that are the same for any number of workers and after a
resume, and runs that recompute activations and have the same story as those that keep them."""

import json
import math
import os
import random
import re
import struct
import sys

import exact_test
import runs

DEEP = ["model.hidden=[32,32,32,32,32,32,32,32]", "model.dropout=0.1"]


def reported(run, *arguments):
    runs.tutti(*runs.small(run, *DEEP, *arguments)).expect(0)
    return runs.story(run)


def test_recomputation_changes_no_bit():
    story = reported("none", "-n", "1")
    reported("block", "-n", "2", "train.recompute=block")
    reported("budget", "-n", "1", "train.recompute=24KiB")
    for run in ("block", "budget"):
        runs.same_story(story, run)


def test_a_budget_too_small_is_refused_with_the_least():
    ended = runs.tutti(*runs.small("run", *DEEP, "train.recompute=64"))
    ended.expect(2, "train.recompute: the activations of a shard cannot be reduced to 64 byte",
                 "give at least")


def losses(run):
    return [r["loss"] for r in runs.records(run) if r["event"] == "step"]


def test_sixteen_bits_are_exact_too():
    full = reported("f32", "-n", "1", "train.steps=12")
    for precision in ("bf16", "f16"):
        arguments = ["train.steps=12", "train.precision=" + precision]
        story = reported(precision, "-n", "1", *arguments)
        reported(precision + "-2", "-n", "2", *arguments, "train.recompute=block",
             "parallel.place=processes")
        runs.same_story(story, precision + "-2")
        if story == full:
            raise AssertionError("%s computes as f32 does" % precision)
        last = losses(precision)[-1]
        if not abs(last - losses("f32")[-1]) < 0.05 * last:
            raise AssertionError("%s: the last loss is %s" % (precision, last))


def test_the_dynamic_scale_goes_on_after_a_resume():
    arguments = ["train.precision=f16", "train.steps=24", "run.checkpoint_every=3"]
    story = reported("expected", "-n", "1", *arguments)
    in_time = exact_test.disturb(
        "stopped", runs.small("run", *DEEP, "-n", "2", *arguments), "run", 24)
    if in_time:
        exact_test.resume("run", 1, "threads").expect(0)
    runs.same_story(story, "run")


def test_a_shard_without_samples_counts_nothing():
    """The last batch of an epoch has one sample for two shards: batch norms have none in one, and
    what they make of it must not grow from layer to layer."""
    net = ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
           "data.image_size=8", "data.n_train=5", "data.n_test=1", "train.batch=4",
           "parallel.shards=2", "train.steps=4", "optimizer.lr=1e-2", "train.eval_every=0",
           "run.checkpoint_every=-1"]
    runs.tutti("train", *net, "run.dir=run", "-n", "1", "train.clip_norm=1e9").expect(0)


def write_array(path, shape, code, values):
    """A .npy file; code: f4 or i8."""
    head = "{'descr': '<%s', 'fortran_order': False, 'shape': %s, }" % (code, shape)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack("<%d%s" % (len(values), {"f4": "f", "i8": "q"}[code]), *values))


def write_set(folder, shape, n_train, n_test, nan_at, nan_in="train"):
    """Random samples, the element nan_at of a split NaN."""
    draw = random.Random(1)
    size = math.prod(shape)
    os.makedirs(folder)
    for split, n in (("train", n_train), ("test", n_test)):
        x = [draw.gauss(0, 1) for _ in range(n * size)]
        if split == nan_in:
            x[nan_at] = math.nan
        write_array("%s/x_%s.npy" % (folder, split), (n, *shape), "f4", x)
        write_array("%s/y_%s.npy" % (folder, split), (n,), "i8", [i % 3 for i in range(n)])


def test_one_nan_ends_the_run_where_it_appears():
    """ReLU and pooling must pass it on, in whichever library and on whichever number of workers:
    what hides it trains on with NaN weights and finite losses."""
    write_set("table", (6,), 40, 10, 7 * 6 + 3)
    write_set("images", (1, 28, 28), 12, 2, 5 * 784 + 400)
    ways = (["parallel.backend=reference"], [], ["-n", "1"], ["-n", "2"],
            ["-n", "2", "parallel.place=processes"])
    for data, model in (("table", ["model.name=mlp", "model.hidden=[8]"]),
                        ("images", ["model.name=lenet"])):
        ends = set()
        for i, way in enumerate(ways):
            run = "%s-%d" % (data, i)
            ended = runs.tutti("train", *model, "data.format=npy", "data.dir=" + data,
                               "train.batch=6", "train.epochs=2", "run.dir=" + run,
                               "run.checkpoint_every=-1", "run.log_every=1", *way)
            ended.expect(7, "first in the samples: one has a value that is not finite")
            ends.add(re.search(r"step (\d+): the loss is not finite", ended.err).group(1))
            if not all(math.isfinite(loss) for loss in losses(run)):
                raise AssertionError("%s: a step has the losses %s" % (run, losses(run)))
        if len(ends) != 1:
            raise AssertionError("%s: the runs end at the steps %s" % (data, ends))


def test_a_sample_whose_output_is_nan_is_of_no_class():
    write_set("table", (6,), 40, 10, 3 * 6 + 2, nan_in="test")  # sample 3, whose label is 0
    runs.tutti("train", "model.name=mlp", "model.hidden=[8]", "data.format=npy", "data.dir=table",
               "train.batch=16", "train.steps=8", "run.dir=run").expect(0, "loss nan")
    reported = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
    if reported["loss"] is not None or sum(map(sum, reported["confusion"])) != 9:
        raise AssertionError("eval takes it for a class: %s" % reported)
    if reported["accuracy"] != sum(c["correct"] for c in reported["classes"]) / 10 \
            or [c["samples"] for c in reported["classes"]] != [4, 3, 3]:
        raise AssertionError("eval counts it as right: %s" % reported)
    ended = runs.tutti("predict", "run", "table/x_test.npy")
    ended.expect(7, "table/x_test.npy: sample 3: the model's output is not finite")
    reported = [json.loads(line) for line in ended.out.splitlines()]
    if [line["index"] for line in reported] != [i for i in range(10) if i != 3]:
        raise AssertionError("predict names a class for it: %s" % reported)


def test_parameters_that_are_not_finite_end_the_run():
    """By the last update, after which no loss shows it: decay a million times too large."""
    one_layer = ["model.hidden=[]", "model.dropout=0", "optimizer.name=sgd", "optimizer.momentum=0",
                 "optimizer.lr=1000", "optimizer.weight_decay=1000", "train.eval_every=0"]
    runs.tutti(*runs.small("good", *one_layer, "train.steps=6", "-n", "1")).expect(0)
    for place in ("threads", "processes"):
        ended = runs.tutti(*runs.small("run-" + place, *one_layer, "train.steps=7", "-n", "2",
                                       "parallel.place=" + place))
        ended.expect(7, "is no longer finite and is not saved", "step 7: ")
        if runs.checkpoints("run-" + place):
            raise AssertionError("it was saved")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
