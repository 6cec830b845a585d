"""optim_exact_test.py - every optimizer, and what a job says about schedules, groups and clipping,
through the program: one story whatever the workers and wherever it was stopped; and parameters
that moved by as much as was said."""

import glob
import json
import os
import signal
import struct
import sys

import runs

OPTIMIZERS = ("adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd")

# One step of plain gradient descent at a rate of 1: what moved is the gradient.
ONE_STEP = ["train.steps=1", "optimizer.name=sgd", "optimizer.momentum=0", "optimizer.lr=1"]


def stop_and_continue(run, n_workers, arguments, after):
    """A run by 1 worker that is stopped after so many steps and continued by n_workers."""
    process = runs.start(*runs.small(run, "-n", "1", *arguments))
    runs.wait_until(lambda: runs.steps_reported(run) >= after or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    if runs.finish(process).code == 143:
        runs.tutti("train", "--resume", run, "-n", str(n_workers)).expect(0)


def test_every_optimizer_tells_one_story():
    for name in OPTIMIZERS:
        arguments = ["optimizer.name=" + name, "optimizer.weight_decay=0.01", "train.clip_norm=2",
                     "train.ema=0.9", "run.checkpoint_every=5"]
        runs.tutti(*runs.small(name, "-n", "1", *arguments)).expect(0)
        story = runs.story(name)
        runs.tutti(*runs.small(name + "-3", "-n", "3", *arguments)).expect(0)
        runs.same_story(story, name + "-3")
        stop_and_continue(name + "-stopped", 2, arguments, 12)
        runs.same_story(story, name + "-stopped")


def rates(run):
    return {r["step"]: r["lr"] for r in runs.records(run) if r["event"] == "step"}


def test_a_plateau_is_remembered():
    """A loss that cannot get better by 90 % lets the rate fall after each evaluation but the
    first; a run that was stopped in between falls at the same steps."""
    arguments = ["schedule.name=plateau", "schedule.patience=0", "schedule.threshold=0.9",
                 "schedule.gamma=0.5", "optimizer.lr=0.004", "run.checkpoint_every=2"]
    runs.tutti(*runs.small("whole", "-n", "2", *arguments)).expect(0)
    reported = rates("whole")
    wanted = {step: 0.004 * 0.5 ** max((step - 1) // 9 - 1, 0) for step in range(1, 41)}
    if any(abs(reported[step] / wanted[step] - 1) > 1e-6 for step in wanted):
        raise AssertionError("rates %s instead of %s" % (reported, wanted))
    stop_and_continue("stopped", 3, arguments, 23)
    runs.same_story(runs.story("whole"), "stopped")
    if rates("stopped") != reported:
        raise AssertionError("rates %s instead of %s" % (rates("stopped"), reported))


def test_only_plateau_listens():
    """The same for a constant rate, whose evaluations get no better either."""
    arguments = ["schedule.patience=0", "schedule.threshold=0.9", "optimizer.lr=0.004"]
    runs.tutti(*runs.small("constant", "-n", "1", *arguments)).expect(0)
    if len(set(rates("constant").values())) != 1:
        raise AssertionError("a constant rate changed: %s" % rates("constant"))


def tensors(run):
    """The f32 parameters of the last checkpoint: {name: list of numbers}."""
    path = sorted(glob.glob(run + "/checkpoints/step-*/model.safetensors"))[-1]
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: struct.unpack("<%df" % ((t["data_offsets"][1] - t["data_offsets"][0]) // 4),
                                data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items()}


def moved(run, *arguments):
    """How far each parameter went in one step, {name: list}; and where it began."""
    runs.tutti(*runs.small("still", "-n", "2", *ONE_STEP, "optimizer.lr=0")).expect(0)
    runs.tutti(*runs.small(run, "-n", "2", *ONE_STEP, *arguments)).expect(0)
    begin, end = tensors("still"), tensors(run)
    os.rename("still", "still-of-" + run)
    return {n: [b - a for a, b in zip(begin[n], end[n])] for n in begin}, begin


def near(got, wanted, what):
    for a, b in zip(got, wanted):
        if abs(a - b) > 1e-6:
            raise AssertionError("%s moved by %g instead of %g" % (what, a, b))


def test_groups_and_frozen_parameters():
    plain, _ = moved("plain")
    got, _ = moved("groups", 'optimizer.groups=["*.bias: lr=2", "out.*: lr=0.5"]',
                   'optimizer.freeze=["fc1.weight"]')
    near(got["fc1.weight"], [0] * len(plain["fc1.weight"]), "frozen fc1.weight")
    near(got["fc1.bias"], [2 * x for x in plain["fc1.bias"]], "fc1.bias")
    near(got["out.weight"], [x / 2 for x in plain["out.weight"]], "out.weight")
    if not any(abs(x) > 1e-4 for x in plain["fc1.weight"]):
        raise AssertionError("nothing moves in this test")
    runs.tutti(*runs.small("typo", 'optimizer.freeze=["fc7.*"]')).expect(2, "matches none of the")


def test_decay_of_a_group():
    got, begin = moved("decay", 'optimizer.groups=["out.bias: decay=0.25"]')
    plain, _ = moved("none")
    near(got["out.bias"], [x - 0.25 * w for x, w in zip(plain["out.bias"], begin["out.bias"])],
         "out.bias")
    near(got["out.weight"], plain["out.weight"], "out.weight")


def test_values_are_clipped():
    plain, _ = moved("free")
    got, _ = moved("clipped", "train.clip_value=0.003")
    for name in plain:
        near(got[name], [min(max(x, -0.003), 0.003) for x in plain[name]], name)


def test_l1_pulls_to_zero():
    plain, begin = moved("loose")
    got, _ = moved("pulled", "optimizer.l1=0.01")
    near(got["out.weight"], [x - 0.01 * ((w > 0) - (w < 0))
                             for x, w in zip(plain["out.weight"], begin["out.weight"])],
         "out.weight")
    near(got["out.bias"], plain["out.bias"], "out.bias")


def test_scaled_rates():
    """60 samples to a batch: the rate of 15 four times, or twice."""
    for how, factor in (("linear", 4), ("sqrt", 2)):
        runs.tutti(*runs.small(how, "-n", "1", "optimizer.scale_lr=" + how,
                               "optimizer.base_batch=15", "optimizer.lr=0.001")).expect(0)
        if abs(rates(how)[1] - 0.001 * factor) > 1e-9:
            raise AssertionError("%s: rate %g" % (how, rates(how)[1]))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
