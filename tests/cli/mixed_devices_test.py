"""mixed_devices_test.py - workers on devices and on the host in one run, on a machine without
devices: the module of tests/backend/modules/device_module.c computes with the host's kernels, so
losses are those of a run on the host up to the order of sums.  Parameters are the same bits on all
workers: each step compares their hashes, and so does each checkpoint."""

import json
import os
import re
import sys

import runs

JOB = [*runs.lenet(), "data.n_train=48", "data.n_test=20", "train.batch=16", "train.steps=6",
       "parallel.shards=8", "run.log_every=1", "parallel.mode=fast", "parallel.bucket_mb=0.05",
       "run.checkpoint_every=3"]
PROCESSES = "parallel.place=processes"


def run_tutti(*arguments, says=""):
    return runs.tutti(*arguments, env=dict(os.environ, TUTTI_TEST_DEVICE=says))


def train(run, devices, *arguments, says=""):
    return run_tutti("train", *JOB, "run.dir=" + run, "parallel.devices=" + devices, *arguments,
                     says=says)


def near(expected, run, tolerance=1e-5):
    """As runs.same_story, but sums may be in another order."""
    reported = runs.story(run)
    if reported.keys() != expected.keys():
        raise AssertionError("%s: %s, not %s" % (run, sorted(reported), sorted(expected)))
    for (what, step), value in reported.items():
        loss, there = ((v[1] if what == "end" else v[0]) for v in (value, expected[what, step]))
        if not abs(loss - there) <= tolerance * abs(there):
            raise AssertionError("%s: loss %r at %s %d, not %r" % (run, loss, what, step, there))


def records(run, event):
    return [r for r in runs.records(run) if r["event"] == event]


def test_losses_of_the_host():
    """Each optimizer's update is the host's, on all workers."""
    more = ["optimizer.name=adamw", "train.clip_norm=0.5", "train.ema=0.9"]
    train("host", "cpu", "-n", "1", *more).expect(0)
    reported = runs.story("host")
    for run, devices, keys, places in (
            ("three", "gpu,cpu", ["parallel.load_weights=2,1,1"], [0, 1, -1]),
            ("first", "cpu,1", ["parallel.load_weights=1,3", PROCESSES], [-1, 1])):
        train(run, devices, *keys, *more, says="late=1" if run == "three" else "").expect(0)
        near(reported, run)
        if records(run, "start")[0]["devices"] != places:
            raise AssertionError("%s: %s" % (run, records(run, "start")))
    start = train("reported", "0,cpu", *more, "train.steps=1").expect(
        0, "workers on device 0, the host, optimizer state on the host")
    said = r"cuda: devices for tests, stack 1, on test device; cpu: .*; workers on"
    if not re.search(said, start.err + start.out):
        raise AssertionError(start.err + start.out)


def test_dropout():
    """Dropout masks depend on the sample, not on its worker."""
    net = ["model.name=mlp", "model.hidden=[32]", "model.dropout=0.5"]
    train("host", "cpu", "-n", "1", *net).expect(0)
    train("mixed", "0,cpu", "parallel.load_weights=5,3", *net).expect(0)
    near(runs.story("host"), "mixed")


def test_checkpoints():
    """Of a mix by any others, and of any others by a mix."""
    keys = ["parallel.load_weights=3,1", "optimizer.name=sgd"]  # which the devices know too
    train("whole", "cpu", "-n", "2", *keys).expect(0)
    reported = runs.story("whole")
    train("mixed", "0,cpu", *keys, "train.steps=3").expect(0)
    train("plain", "cpu", "-n", "2", *keys, "train.steps=3").expect(0)
    with open(runs.newest_checkpoint("mixed") + "/manifest.json") as file:
        manifest = json.load(file)
    if manifest["texts"]["shard_map"] != "6 and 2" or "; cpu: " not in manifest["backend"]:
        raise AssertionError(manifest)
    for begun, devices in (("mixed", "cpu"), ("mixed", "0"), ("mixed", "cpu,0"), ("mixed", "0,cpu"),
                           ("plain", "0,cpu")):
        run = "%s-%s" % (begun, devices)
        os.system("cp -r %s %s" % (begun, run))
        mode = ["parallel.workers=1", "parallel.load_weights=equal"] if devices == "0" else []
        run_tutti("train", "--resume", run, "parallel.devices=" + devices, "train.steps=6",
                  *mode).expect(0)
        own = runs.story(run)
        for (what, step) in reported:
            if (what, step) not in own:
                raise AssertionError("%s: nothing about %s %d" % (run, what, step))
            a, b = own[what, step], reported[what, step]
            if abs(a[what == "end"] - b[what == "end"]) > 1e-5:
                raise AssertionError("%s: %s %d is %s, not %s" % (run, what, step, a, b))


def test_measured():
    """Unasked: by their speed, whatever that is; a device that sleeps for each shard has fewer."""
    train("host", "cpu", "-n", "1").expect(0)
    for run, says in (("unasked", ""), ("slow", "slow=0,delay=30")):
        train(run, "0,cpu", says=says).expect(0)
        near(runs.story("host"), run)
        shares = records(run, "shard_map")[0]
        if not shares["measured"] or sum(shares["shards"]) != 8:
            raise AssertionError(shares)
    if shares["group_s"][0] < 0.03:
        raise AssertionError(shares)


def test_bad_losses():
    """Told of alike by all workers, and left out by all of them."""
    bad = [*runs.DIGITS, "optimizer.lr=1000", "optimizer.name=sgd", "parallel.load_weights=1,1",
           "train.steps=12", "run.checkpoint_every=-1"]
    train("device", "0,cpu", *bad).expect(
        7, "the loss is not finite (shard 0 of 8, first in a shard")
    train("host", "cpu,0", *bad, PROCESSES)
    with open("host/log/rank-1.txt") as file:
        if "the loss is not finite (shard 0 of 8, first in " not in file.read():
            raise AssertionError("rank 1 does not know of it")
    train("skips", "0,cpu", *bad, "train.on_nan=skip").expect(0, "train.on_nan=skip skipped")
    train("gradient", "0,cpu", *bad, "train.on_nan=skip", "train.clip_norm=1",
          "train.precision=f16").expect(0)


def test_lost_device():
    """The others end with it, and go on without it from the checkpoint."""
    train("lost", "0,cpu", "parallel.load_weights=1,1", says="lost=5").expect(
        10, "step 5: device 0 (test device 0) failed")
    train("parted", "cpu,0", "parallel.load_weights=1,1", PROCESSES, says="lost=5").expect(10)
    for run in ("lost", "parted"):
        if runs.checkpoints(run) != [3] or runs.alive("run.dir=" + run):
            raise AssertionError("%s: %s" % (run, runs.checkpoints(run)))
        run_tutti("train", "--resume", run, "parallel.devices=cpu").expect(0)


def test_views():
    run_tutti("inspect", *JOB, "parallel.devices=0,cpu", "--layout").expect(
        0, "worker 0    on device 0", "worker 1    on the host")
    run_tutti("inspect", *JOB, "parallel.devices=0,cpu", "--svg", "layout.svg").expect(0)
    with open("layout.svg") as file:
        text = file.read()
    if "worker 0  on device 0<" not in text or "worker 1  on the host<" not in text:
        raise AssertionError("the SVG does not show the place of each worker")
    run_tutti("inspect", *JOB, "parallel.devices=cpu,0").expect(
        0, "at the host ", "(some workers are on the host)")
    run_tutti("plan", *JOB, "parallel.devices=0,cpu", "--seconds", "0.2").expect(
        0, "data 2", "the best", "adds whole gradients")
    run_tutti("plan", *JOB, "parallel.devices=0,cpu", "--device", "h200").expect(
        2, "leave out --device h200")
    train("checked", "0,cpu", "train.steps=2")
    run_tutti("plan", "--check", "checked", "--device", "h200").expect(2, "leave out --device h200")


def test_refusals():
    for devices, keys, text in (
            ("0,cpu", ["parallel.mode=exact"],
             "parallel.devices: the kernels of GPUs and of the host do not give the same bits"),
            ("0,cpu", ["-n", "1"], "give at least parallel.workers=2"),
            ("gpu,cpu", ["-n", "2"], "2 workers would all be on GPUs"),
            ("0,0,cpu", [], "device 0 is named twice"),
            ("5,cpu", [], "there is no device 5"),
            ("0,cpu", ["parallel.zero=1"], "give parallel.zero=0"),
            ("0,cpu", ["parallel.sync=local"], "give parallel.sync=all-reduce"),
            ("0,cpu", ["parallel.compress=topk"], "give parallel.compress=none"),
            ("0,cpu", ["parallel.tensor=2"], "a divided model"),
            ("0,cpu", ["data.resident=yes"], "resident samples need all workers on GPUs"),
            ("0,cpu", ["parallel.backend=reference"], "leave one of the two out")):
        train("no", devices, *keys).expect(2, text)
        if os.path.exists("no"):
            raise AssertionError("%s %s left a folder" % (devices, keys))


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
