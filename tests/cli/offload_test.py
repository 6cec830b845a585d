"""offload_test.py - the optimizer's state of workers on devices in the memory of their host: the
bits of a run on CPUs, for every number and kind of worker and every optimizer, also for those that
the devices do not know; checkpoints that go from one way to the other; and the memory promised.
The devices are those of tests/backend/modules/device_module.c."""

import json
import os
import re
import resource
import sys

import runs

LENET = [*runs.lenet(), "data.n_train=32", "data.n_test=20", "train.batch=16",
         "train.steps=4", "parallel.shards=4", "run.log_every=1", "run.checkpoint_every=2",
         "train.precision=f32"]
MORE = ["optimizer.name=adamw", "train.ema=0.9", "train.clip_norm=0.5"]
OFFLOAD = ["parallel.devices=gpu", "parallel.offload=optimizer"]
PROCESSES = "parallel.place=processes"


def train(run, *arguments, says=""):
    """says: what the devices do, as in device_module.c."""
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says)
    return runs.tutti("train", *LENET, "run.dir=" + run, *arguments, env=environment)


def record(run, event):
    return [r for r in runs.records(run) if r["event"] == event][0]


def test_same_bits():
    """On a device or two, with all of the state or parts of it; checkpoints byte for byte."""
    train("host", *MORE, "-n", "1", "parallel.devices=cpu").expect(0)
    reported = runs.story("host")
    for run, place in (("one", ["-n", "1"]), ("two", ["-n", "2"]),
                       ("processes", ["-n", "2", PROCESSES]),
                       ("parts", ["-n", "2", "parallel.zero=1", "parallel.bucket_mb=0.05"]),
                       ("three", ["-n", "3", "parallel.zero=1", PROCESSES])):
        train(run, *MORE, *OFFLOAD, *place).expect(0, "optimizer state on the host")
        runs.same_story(reported, run)
        runs.same_checkpoint("host", run)


def test_queues():
    """Whatever a queue does before or after another where nobody has reported it to wait, and with
    devices that add between each other."""
    few = [*MORE, "parallel.bucket_mb=0.05", "train.steps=3"]
    train("host", *few, "-n", "1", "parallel.devices=cpu").expect(0)
    reported = runs.story("host")
    for run, says, place in (("late", "late=1", ["-n", "1"]),
                             ("early", "late=3", ["-n", "1", "data.resident=no"]),
                             ("peers", "peers=1,late=1", ["-n", "2"]),
                             ("parts", "peers=1,late=3", ["-n", "2", "parallel.zero=1"])):
        train(run, *few, *OFFLOAD, *place, says=says).expect(0)
        runs.same_story(reported, run)
    if "sums 2 at once" not in record("parts", "start")["backend"]:
        raise AssertionError(record("parts", "start"))


def test_the_host_has_no_room():
    """The state that stays on the host is counted before the run begins."""
    if runs.sanitized():
        return
    ended = runs.tutti("train", "model.name=mlp", "model.hidden=[6000, 6000]", "data.n_train=64",
                       "optimizer.name=adam", "train.batch=32", "run.dir=large", "-n", "1",
                       *OFFLOAD, env=dict(os.environ, TUTTI_TEST_DEVICE=""),
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS,
                                                             (700 << 20, 700 << 20)))
    ended.expect(8, "1 worker would take at least", "optimizer state 0.", "(ulimit -v) leaves")


STREAMS = ["optimizer.name=adamw", "train.ema=0.9", "train.clip_norm=0", "parallel.bucket_mb=0.02"]


def test_buckets_as_they_come():
    """Where no norm of all gradients is asked for a bucket is updated while others are still made,
    and its parameters go back: the bits of one bucket, which are the host's, whatever a queue does
    before or after another, for kept samples, joins inside the step, tied and frozen layers."""
    text = ["model.name=gpt2", "model.layers=2", "model.width=32", "model.heads=2",
            "data.format=random_tokens", "data.vocabulary=64", "data.context=16", "data.n_test=8",
            "run.text_samples=0"]
    joined = runs.NARROW + ["data.n_train=8", "data.n_test=4", "train.batch=4", "train.steps=1",
                            "parallel.sync_batch_norm=true", "parallel.shards=2",
                            "run.checkpoint_every=-1"]
    for name, job, lates in (("lenet", [], (0, 3)), ("gpt2", text, (1, 2)),
                             ("joined", joined, (3,)),
                             ("frozen", ["optimizer.freeze=[fc1*]"], (1,))):
        job = [*STREAMS, *job, "-n", "1"]
        if name == "lenet":
            train(name, *job, "parallel.devices=cpu").expect(0)
        else:
            train(name, *job, *OFFLOAD, "parallel.bucket_mb=100").expect(0)
        for late in lates:
            run = "%s-%d" % (name, late)
            more = ["data.resident=no"] if late % 2 else []
            train(run, *job, *OFFLOAD, *more, says="late=%d" % late).expect(0)
            runs.same_story(runs.story(name), run)
            runs.same_checkpoint(name, run)


def spans(path):
    with open(path) as file:
        return [e["name"] for e in json.load(file)["traceEvents"] if e["ph"] == "X"]


def test_when_buckets_are_waited_for():
    """A norm of all gradients, and several workers, wait for the last one."""
    come, wait = "update on the host, as gradients come", "update on the host"
    environment = dict(os.environ, TUTTI_TEST_DEVICE="")
    for name, more, expected in (("alone", ["-n", "1"], come),
                                 ("clipped", ["-n", "1", "train.clip_norm=1"], wait),
                                 ("two", ["-n", "2"], wait)):
        runs.tutti("profile", *LENET, *STREAMS, *OFFLOAD, *more, "--trace", name, "--steps", "2",
                   env=environment).expect(0)
        if spans(name).count(expected) < 2 or (spans(name).count(come) > 0) != (expected == come):
            raise AssertionError("%s: %s" % (name, sorted(set(spans(name)))))


def test_bad_sums_of_buckets():
    """A loss that is not finite ends the run, at the step at which it ends on the host."""
    bad = [*runs.DIGITS, *STREAMS, "optimizer.name=sgd", "optimizer.lr=1000", "data.n_train=64",
           "train.batch=32", "train.steps=40", "-n", "1"]
    said = train("host", *bad, "parallel.devices=cpu").expect(7, "not finite").err
    where = re.search(r"step [0-9]+", said).group()
    train("stops", *bad, *OFFLOAD).expect(7, "not finite", where)


def test_optimizers():
    """With norms of whole parameters, signs, factors; and what changes gradients before."""
    for name, more in (("lamb", []), ("lars", []), ("lion", ["optimizer.l1=1e-4"]),
                       ("rmsprop", ["train.clip_value=0.01"])):
        job = runs.small("x", "optimizer.name=" + name, "train.steps=6", *more)[1:]
        job = [a for a in job if not a.startswith("run.dir=")]
        runs.tutti("train", *job, "run.dir=%s-host" % name, "-n", "1",
                   "parallel.devices=cpu").expect(0)
        runs.tutti("train", *job, "run.dir=" + name, "-n", "2", "parallel.zero=1", *OFFLOAD,
                   "train.precision=f32").expect(0)
        runs.same_story(runs.story(name + "-host"), name)


def test_sixteen_bits():
    """A loss scale that moves, and first steps that are left out."""
    more = MORE + ["train.precision=f16", "train.clip_norm=0"]
    train("host", *more, "-n", "1", "parallel.devices=cpu").expect(0)
    reported = runs.story("host")
    if int(reported["step", 1][2], 16) != 0 or int(reported["step", 4][2], 16) == 0:
        raise AssertionError(reported)
    for run, place in (("one", []), ("two", ["-n", "2", "parallel.zero=1"])):
        train(run, *more, *OFFLOAD, *place).expect(0)
        runs.same_story(reported, run)


def test_from_one_to_the_other():
    """A run that lost its device goes on with the state elsewhere, and gives the same bits."""
    sgd = ["optimizer.name=sgd", "train.ema=0.9", "parallel.bucket_mb=0.05"]  # as buckets come
    train("whole", *sgd, "-n", "1", "parallel.devices=cpu").expect(0)
    reported = runs.story("whole")
    gpu = ["parallel.devices=gpu", "parallel.offload=none"]
    for run, before, after in (("to", gpu, OFFLOAD), ("from", OFFLOAD, gpu),
                               ("host", OFFLOAD, ["parallel.devices=cpu"])):
        train(run, *sgd, *before, "-n", "1", says="lost=4").expect(10, "device 0")
        runs.tutti("train", "--resume", run, "-n", "2", *after).expect(0)
        runs.same_story(reported, run)


def test_memory():
    """The device has two arrays of Adam and the averages less; the host has what is reported."""
    job = MORE + ["train.steps=2", "parallel.devices=gpu", "-n", "1"]
    sgd = ["optimizer.name=sgd", "train.ema=0.9", "train.steps=2", "-n", "1"]
    train("sgd", *sgd, "parallel.devices=gpu").expect(0)
    train("adam", *job, "parallel.offload=optimizer").expect(0)
    start = [record(run, "start") for run in ("sgd", "adam")]
    flat = start[0]["bytes_params"]
    if start[1]["bytes_states"] != 0 or "bytes_ema" in start[1] or start[0]["bytes_states"] != flat:
        raise AssertionError(start)
    if start[1]["bytes_offloaded"] != 5 * flat: # parameters, gradients, two states, averages
        raise AssertionError("%s of %d" % (start[1], flat))
    peak = [record(run, "end")["peak_device_bytes"] for run in ("sgd", "adam")]
    saved = peak[0] - peak[1] # its one state and the averages
    if not 2 * flat <= saved <= 2 * flat + 65536:
        raise AssertionError("%s, one array is %d" % (peak, flat))
    runs.tutti("inspect", *LENET, *MORE, *OFFLOAD, "-n", "1").expect(
        0, "at the host", "of parameters, gradients and optimizer state (parallel.offload)")


def test_room_for_the_state():
    """Named where it would make a step fit; and it does."""
    job = [*runs.DIGITS, *MORE, "-n", "1", "parallel.devices=gpu", "train.steps=1"]
    says = "free=10500000"
    train("none", *job, says=says).expect(8, "optimizer state 4.8 MiB",
                                          "parallel.offload=optimizer would need about")
    train("run", *job, "parallel.offload=optimizer", says=says).expect(0)


def test_where_it_cannot_be():
    """Workers on CPUs have it there anyway, and say so."""
    train("run", *MORE, "-n", "1", "parallel.devices=cpu", "parallel.offload=optimizer").expect(
        0, "parallel.offload has no effect")
    train("none", *MORE, *OFFLOAD, "-n", "2", "parallel.sync=parameter-server").expect(
        2, "parallel.offload=optimizer", "give parallel.offload=none with a parameter server")
    train("none", *MORE, *OFFLOAD, "-n", "2", "parallel.tensor=2").expect(
        2, "parallel.offload=optimizer", "leave out parallel.tensor and parallel.pipeline")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
