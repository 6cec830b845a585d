"""device_zero_test.py - parts of state, gradients and parameters on devices that reach each other,
on a machine without any: the module of tests/backend/modules/device_module.c computes with the
host's kernels.  One story, and the bytes of one checkpoint, with a worker alone that has all of it;
parameters that come late, wrong or not at all."""

import os
import random
import sys

import layouts
import runs

FEW = ["run.log_every=1", "run.text_samples=0", "optimizer.name=sgd", "train.precision=f32",
       "train.ema=0.9", "train.clip_norm=0.5", "parallel.shards=4", "run.checkpoint_every=3"]
MLP = ["model.name=mlp", "model.hidden=[48, 48, 48, 48, 48, 48]", "data.n_train=128",
       "data.n_test=32", "train.batch=16", "train.steps=8", "parallel.bucket_mb=0.01", *FEW]
LENET = [*runs.lenet(), "data.n_train=64", "data.n_test=16", "train.batch=8",
         "train.steps=4", "parallel.bucket_mb=0.05", *FEW]
RESNET = [*runs.NARROW, "data.n_train=4", "data.n_test=2", "train.batch=2", *FEW,
          "train.steps=1", "parallel.shards=2", "run.checkpoint_every=-1", "train.ema=0"]
ZERO = (1, 2, 3)
random.seed(runs.SEED)


def gpt2():
    return ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=32",
            "model.dropout=0.1", "train.batch=8", "train.steps=4", "parallel.bucket_mb=0.02",
            *layouts.write_text(), *FEW]


def train(run, *arguments, devices="gpu", says="peers=1,devices=4"):
    """says: what the devices do, as in device_module.c."""
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says)
    return runs.tutti("train", "run.dir=" + run, "parallel.devices=" + devices, *arguments,
                      env=environment)


def late():
    """Queues of devices that are as late or as early as they may be, or neither; fast links."""
    return "peers=1,devices=4,late=%d,linked=%d" % (random.randrange(4), random.randrange(2))


def same_as(whole, n_workers, zero, *arguments, says=""):
    run = "%s-%d-%d-%d" % (whole, n_workers, zero, len(os.listdir()))
    train(run, "-n", str(n_workers), "parallel.zero=%d" % zero, *arguments,
          says=says or late()).expect(0)
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    if "%d at once" % n_workers not in start["backend"]:
        raise AssertionError("%s: devices do not reach each other: %s" % (run, start["backend"]))
    runs.same_story(runs.story(whole), run)
    runs.same_checkpoint(whole, run)
    return run


def expect_low(run, low):
    """Whether parameters of a run travel in 16 bits."""
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    if ("% of the parameters in 16 bits" in start["backend"]) != low:
        raise AssertionError("%s: %s" % (run, start["backend"]))


def test_queues():
    """That do something as late or as early as they may; one shard for each worker, whose
    gradients have no place but those that others take again, or several, or not equally many."""
    for shards in (2, 4):
        job = MLP + ["parallel.shards=%d" % shards]
        whole = "mlp-%d" % shards
        train(whole, "-n", "1", *job).expect(0)
        for zero in ZERO:
            for late in (1, 2, 3) if shards == 2 else (random.choice((1, 2, 3)),):
                n_workers = 2 if shards == 2 else late + 1
                says = "peers=1,devices=4,late=%d,linked=%d" % (late, late % 2)
                same_as(whole, n_workers, zero, *job, says=says)


def test_models():
    for name, job, n_workers, zeros in (("lenet", LENET, 4, (random.choice(ZERO),)),
                                        ("gpt2", gpt2(), 2, ZERO)):
        train(name, "-n", "1", *job).expect(0)
        for zero in zeros:
            same_as(name, n_workers, zero, *job)


def test_parameters_in_16_bits():
    """The update writes the copies of own parameters; those of others come in 16 bits, and their
    parameters when they are read: for checkpoints and evaluations."""
    job = [*gpt2(), "train.precision=bf16"]
    train("bf16", "-n", "1", *job).expect(0)
    for n_workers, more in ((2, []), (3, []), (2, ["parallel.load_weights=3,1"])):
        expect_low(same_as("bf16", n_workers, 1, *job, *more), True)
    expect_low(same_as("bf16", 4, 1, *job, says="peers=1,devices=4,hosts=0011"), False)
    train("by-host", "-n", "2", "parallel.zero=1", *job, says="devices=4").expect(0)
    runs.same_story(runs.story("bf16"), "by-host")


def test_joined_norms():
    """All shards of a worker are under way at once, and share places; some workers have fewer."""
    job = RESNET + ["parallel.sync_batch_norm=true", "parallel.shards=4", "train.batch=4"]
    zeros = [2, 3]
    random.shuffle(zeros)
    train("resnet", "-n", "1", *job).expect(0)
    for n_workers, zero in zip((2, 3), zeros):
        same_as("resnet", n_workers, zero, *job)


def test_ways():
    """In fast mode, fed step by step, and with unequal shares."""
    train("mlp", "-n", "1", *MLP).expect(0)
    ways = ["parallel.mode=fast", "data.resident=no", "parallel.load_weights=3,1"]
    random.shuffle(ways)
    for zero, way in zip(ZERO, ways):
        same_as("mlp", 2, zero, *MLP, way)


def test_compressed():
    """Rounded sums of which everybody uses its part, in places of their own too: the bits of
    whole ones."""
    for shards, zeros in ((2, (1, random.choice((2, 3)))), (4, (random.choice((2, 3)),))):
        job = MLP + ["parallel.mode=fast", "parallel.wire=bf16", "parallel.shards=%d" % shards]
        whole = "rounded-%d" % shards
        train(whole, "-n", "2", *job).expect(0)
        for zero in zeros:
            same_as(whole, 2, zero, *job)


def test_goes_on_in_other_ways():
    """Checkpoints know nothing of parts."""
    train("host", "-n", "1", *MLP, devices="cpu").expect(0)
    ways = (0,) + ZERO
    for i, zero in enumerate(ways):
        run = "cut-%d" % zero
        train(run, "-n", "2", *MLP, "parallel.zero=%d" % zero,
              says="peers=1,lost=5,on=%d" % (i % 2)).expect(10, "The checkpoint of step 3 is good")
        other = ways[(i + 1) % len(ways)]
        environment = dict(os.environ, TUTTI_TEST_DEVICE="peers=1,devices=4")
        runs.tutti("train", "--resume", run, "-n", "4", "parallel.zero=%d" % other,
                   env=environment).expect(0)
        runs.same_story(runs.story("host"), run)


def test_memory():
    """A quarter of the state, then of gradients and parameters beside what is under way; the device
    has given out so much less as the start of the run says, and to all workers as much."""
    used, sums, peaks = [], [], []
    job = MLP + ["model.hidden=[200, 200, 200, 200, 200, 200, 200, 200, 200, 200]"]
    for zero in (0,) + ZERO:
        run = "zero-%d" % zero
        train(run, "-n", "4", *job, "parallel.zero=%d" % zero, "train.steps=1",
              "train.ema=0").expect(0)
        used.append([r for r in runs.records(run) if r["event"] == "start"][0])
        end = runs.records(run)[-1]
        peaks.append(end["peak_device_bytes"])
        most, least = end["most_device_bytes"], end["least_device_bytes"]
        blocks = 2 * 65536 if zero else 0  # parts are of whole blocks, of both states
        if not 0.98 * most - blocks <= least <= peaks[-1] <= most:
            raise AssertionError(end)
        sums.append(sum(used[-1].get("bytes_" + key, 0)
                        for key in ("params", "states", "grads", "gathered")))
        if abs((peaks[0] - peaks[-1]) - (sums[0] - sums[-1])) > 4096:
            raise AssertionError("zero=%d: %s bytes were taken, %s reported" % (zero, peaks, sums))
    for key, zero, most in (("bytes_states", 1, 0.3), ("bytes_grads", 2, 0.7),
                            ("bytes_params", 3, 0.3)):
        if not used[zero][key] < most * used[zero - 1][key]:
            raise AssertionError("%s: %s" % (key, [u[key] for u in used]))


def test_not_everywhere():
    """Where devices do not reach each other the host makes the moves; with state on the host
    gradients are whole."""
    train("whole", "-n", "1", *MLP).expect(0)
    train("apart", "-n", "2", *MLP, "parallel.zero=3", says="devices=4").expect(0)
    runs.same_story(runs.story("whole"), "apart")
    runs.same_checkpoint("whole", "apart")
    train("host", "-n", "2", *MLP, "parallel.zero=3", "parallel.offload=optimizer").expect(
        2, "parallel.offload=optimizer: the host updates from complete gradients")


def test_lost_peer():
    """A device that is lost while others wait for its parameters."""
    for zero in ZERO:
        run = "lost-%d" % zero
        train(run, "-n", "4", *MLP, "parallel.zero=%d" % zero,
              says="peers=1,devices=4,lost=6,on=2").expect(10, "device 2 (test device 2) failed")


def test_a_copy_that_went_wrong():
    """Is found when the hash of all parameters is compared, a step later."""
    train("run", "-n", "2", *MLP, "parallel.zero=1", says="peers=1,spoils=14").expect(
        9, "computed different parameters")
    for n in random.sample(range(5, 27), 3):  # pieces of the second and third step
        train("low-%d" % n, "-n", "2", *gpt2(), "train.precision=bf16", "parallel.zero=1",
              says="peers=1,spoils=%d" % n).expect(9, "computed different parameters")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
