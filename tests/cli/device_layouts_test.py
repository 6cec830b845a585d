"""device_layouts_test.py - models that workers on devices divide between them, on a machine without
any: the module of tests/backend/modules/device_module.c computes with the host's kernels, so every
layout must come to the bits of the same layout on the host; and checkpoints go from one to the
other."""

import os
import signal
import sys

import layouts
import runs

FEW = ["run.log_every=1", "run.text_samples=0", "schedule.name=constant", "optimizer.name=sgd",
       "train.precision=f32", "train.steps=6", "parallel.shards=8", "run.checkpoint_every=4"]
LENET = [*runs.lenet(), "data.n_train=64", "data.n_test=32", "train.batch=32", *FEW]
PROCESSES = "parallel.place=processes"


# Orders of device_module.c: all other queues later than the kernels', and the reverse.  Other runs
# have late=0 and late=1; device_layouts_slow_test.py has all four of each kind.
LATE = {"shards": (2, 3), "norms": (2, 3), "stages": (2, 3)}


def gpt2():
    return ["model.name=gpt2", "model.layers=2", "model.heads=4", "model.width=32",
            "model.dropout=0.1", "train.batch=16", "train.clip_norm=0.5", *layouts.write_text(),
            *FEW]


def train(run, devices, layout, *arguments, says=""):
    """layout: data, pipeline, tensor; says: what the devices do, as in device_module.c."""
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says)
    return runs.tutti("train", "run.dir=" + run, "parallel.devices=" + devices, *arguments,
                      *layouts.keys_of(layout), env=environment)


def on_devices(run):
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    if "devices for tests" not in start["backend"]:
        raise AssertionError("%s: computed on %s" % (run, start["backend"]))


def expect_collectives(run, says):
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    if says not in start["backend"]:
        raise AssertionError("%s: %s" % (run, start["backend"]))


def same_as_host(host, run, layout, *arguments, says=""):
    train(run, "gpu", layout, *arguments, says=says).expect(0)
    on_devices(run)
    runs.same_story(runs.story(host), run)
    runs.same_checkpoint(host, run)


def test_pieces_of_layers():
    """Sums, gathers and parts through the host; replicas and parts of the state do not matter."""
    train("lenet", "cpu", (1, 1, 2), *LENET).expect(0)
    same_as_host("lenet", "lenet-2", (1, 1, 2), *LENET)
    same_as_host("lenet", "lenet-2x2", (2, 1, 2), *LENET, PROCESSES)
    text = gpt2() + ["train.ema=0.9"]
    train("gpt2", "cpu", (1, 1, 2), *text).expect(0)
    same_as_host("gpt2", "gpt2-2", (1, 1, 2), *text)
    same_as_host("gpt2", "gpt2-zero", (2, 1, 2), *text, "parallel.zero=1")


def test_tensor_shards_between_devices():
    """Recorded, with collectives of the devices: the bits of the way through the host, wherever
    copies, sums and collectives are as late or as early as they may be; of few devices by the
    host."""
    text = gpt2() + ["train.ema=0.9", "train.eval_every=2"]
    train("gpt2", "cpu", (1, 1, 2), *text).expect(0)
    for late in LATE["shards"]:
        run = "gpt2-late-%d" % late
        same_as_host("gpt2", run, (1, 1, 2), *text, says="peers=1,late=%d" % late)
        expect_collectives(run, "sums 2 at once")
    same_as_host("gpt2", "gpt2-2x2", (2, 1, 2), *text, says="peers=1,devices=4,late=3")
    expect_collectives("gpt2-2x2", "sums 2 at once, inside layers 2 at once")
    same_as_host("gpt2", "gpt2-zero", (2, 1, 2), *text, "parallel.zero=1",
                 says="peers=1,devices=4,late=1")
    same_as_host("gpt2", "gpt2-few", (2, 1, 2), *text, says="peers=1")
    expect_collectives("gpt2-few", "through the host: there are fewer devices than tensor")
    same_as_host("gpt2", "gpt2-apart", (1, 1, 2), *text, PROCESSES, says="peers=1")
    expect_collectives("gpt2-apart", "through the host: test devices")
    for name, layout, more in (("lenet", (1, 1, 2), ["train.precision=bf16"]),
                               ("low", (1, 1, 2), ["train.precision=bf16", *text]),
                               ("four", (1, 1, 4), ["train.precision=f16", *text])):
        train(name, "cpu", layout, *LENET, *more).expect(0)
        same_as_host(name, name + "-devices", layout, *LENET, *more,
                     says="peers=1,devices=4,late=2")
        expect_collectives(name + "-devices", "sums %d at once" % layout[2])


def test_gradients_that_share_readers():
    """Three tables are added before anything reads them, so collectives beside kernels change who
    reads their gradients last: parameters lie in one order all the same, and so hashes and norms
    are those of the host."""
    text = ["model.name=bert", "data.mask_prob=0.15", *gpt2()[1:]]
    train("bert", "cpu", (1, 1, 2), *text).expect(0)
    same_as_host("bert", "bert-by-host", (1, 1, 2), *text)
    same_as_host("bert", "bert-2", (1, 1, 2), *text, says="peers=1,late=3")


def test_norms_between_collectives():
    """Made with the collectives beside them: the bits of their steps one by one, by way of
    the host, whenever what is put into queues is done."""
    text = gpt2() + ["model.dropout=0", "train.precision=bf16", "train.low_precision_residual=true",
                     "train.steps=4"]
    train("host", "gpu", (1, 1, 2), *text, says="fuses=1").expect(0)
    expect_collectives("host", "through the host")
    for late in LATE["norms"]:
        same_as_host("host", "joint-%d" % late, (1, 1, 2), *text,
                     says="fuses=1,peers=1,late=%d" % late)
        expect_collectives("joint-%d" % late,
                           "norms with them, overlapped with products before them")
    train("host-4", "gpu", (1, 1, 4), *text, says="fuses=1").expect(0)
    expect_collectives("host-4", "through the host")
    for late in LATE["norms"]:
        same_as_host("host-4", "joint-4-%d" % late, (1, 1, 4), *text,
                     says="fuses=1,peers=1,devices=4,late=%d" % late)
        expect_collectives("joint-4-%d" % late,
                           "norms with them, overlapped with products before them")
    for layout, host in (((2, 1, 2), "host"), ((2, 1, 4), "host-4")):
        run = "joint-2x%d" % layout[2]  # groups of tensor ranks in two replicas
        same_as_host(host, run, layout, *text, "parallel.zero=1",
                     says="fuses=1,peers=1,devices=8,late=3")
        expect_collectives(run, "norms with them, overlapped with products before them")


def test_rows_beside_products():
    """With many tokens the workers divide these in the second half of a layer: norms have a
    collective on one side only."""
    text = gpt2() + ["model.dropout=0", "train.precision=bf16", "train.low_precision_residual=true",
                     "train.batch=64", "parallel.shards=1", "train.steps=2"]
    for n in (2, 4):
        host, layout = "host-%d" % n, (1, 1, n)
        shown = runs.tutti("inspect", "--worker", "0", "parallel.devices=gpu", *text,
                           *layouts.keys_of(layout),
                           env=dict(os.environ, TUTTI_TEST_DEVICE="fuses=1,peers=1,devices=4"))
        shown.expect(0, "linear_add")
        train(host, "gpu", layout, *text, says="fuses=1").expect(0)
        for late in LATE["norms"]:
            run = "rows-%d-%d" % (n, late)
            same_as_host(host, run, layout, *text,
                         says="fuses=1,peers=1,devices=4,late=%d" % late)
            expect_collectives(run, "norms with them, overlapped with products before them")


def test_a_head_without_logits():
    """Where kernels do much at once, head and loss are one op and products add the residual
    stream: the same for any number of workers, with parts of the state, and made again."""
    text = gpt2() + ["model.dropout=0", "train.precision=bf16", "train.low_precision_residual=true"]
    environment = dict(os.environ, TUTTI_TEST_DEVICE="fuses=1")
    runs.tutti("inspect", "parallel.devices=gpu", "-n", "1", *text, env=environment).expect(
        0, "cross_entropy_head", "scale_rows", "linear_add", "linear_gelu")
    train("one", "gpu", (1, 1, 1), *text, says="fuses=1").expect(0)
    for run, layout, more in (("two", (2, 1, 1), []), ("parts", (2, 1, 1), ["parallel.zero=3"]),
                              ("again", (1, 1, 1), ["train.recompute=block"])):
        train(run, "gpu", layout, *text, *more, says="fuses=1,peers=1").expect(0)
        runs.same_story(runs.story("one"), run)
        runs.same_checkpoint("one", run)


def test_stages():
    """The bits of the host, whose stages give those of one worker; chunks, replicas, a table that
    two stages have, and tensor shards within stages; also where copies are as late or as early
    as they may be."""
    train("lenet", "cpu", (1, 2, 1), *LENET).expect(0)
    for late in ("late=1", "late=2"):
        same_as_host("lenet", "lenet-" + late, (1, 2, 1), *LENET, says=late)
    same_as_host("lenet", "lenet-2x2", (2, 2, 1), *LENET, "parallel.zero=1", PROCESSES)
    chunks = LENET + ["parallel.pipeline_chunks=2", "train.precision=f16"]
    train("chunks", "cpu", (1, 2, 1), *chunks).expect(0)
    same_as_host("chunks", "chunks-2", (1, 2, 1), *chunks, says="late=1")
    text = gpt2()
    for name, layout, late in (("gpt2", (1, 2, 1), "late=2"), ("both", (1, 2, 2), "late=1")):
        train(name, "cpu", layout, *text).expect(0)
        same_as_host(name, name + "-devices", layout, *text, says=late)
    shown = train("shown", "gpu", (1, 2, 1), *LENET).expect(
        0, "pipeline: stages waited", "expected")
    step = [r for r in runs.records("shown") if r["event"] == "step"][-1]
    if not 0 < step["bubble"] < 1:
        raise AssertionError(shown.err)
    train("none", "gpu", (1, 2, 1), *LENET, "data.resident=yes").expect(
        2, "data.resident=yes: a stage of a pipeline")


def test_a_long_shared_table():
    """A value that is sent to the next stage in chunks: same losses as one worker and the host."""
    job = ["model.name=gpt2", "model.layers=2", "model.width=16", "model.heads=2",
           "data.format=random_tokens", "data.vocabulary=20000", "data.context=4",
           "data.n_train=32", "data.n_test=4", "train.batch=8", *FEW, "optimizer.lr=2"]
    train("one", "cpu", (1, 1, 1), *job).expect(0)
    train("host", "cpu", (1, 2, 1), *job).expect(0)
    layouts.same_losses("one", "host")
    for layout in ((1, 2, 1), (2, 2, 1)):
        same_as_host("host", "devices-%d" % layout[0], layout, *job, says="late=2")


def test_stages_between_devices():
    """Values and gradients of a shared table from device to device: the bits of the way by the
    host, wherever copies and messages come as late or as early as they may; of few devices, or such
    as do not reach each other, by the host."""
    text = gpt2() + ["train.eval_every=2"]
    train("gpt2", "cpu", (1, 2, 1), *text).expect(0)
    for late in LATE["stages"]:
        run = "gpt2-late-%d" % late
        same_as_host("gpt2", run, (1, 2, 1), *text, says="peers=1,late=%d" % late)
        expect_collectives(run, "sums between stages 2 at once")
    same_as_host("gpt2", "gpt2-by-host", (1, 2, 1), *text, says="peers=1,p2p=0")
    same_as_host("gpt2", "gpt2-cut", (1, 2, 1), *text, says="peers=1,weighs=1") # elsewhere
    same_as_host("gpt2", "gpt2-few", (2, 2, 1), *text, says="peers=1")
    expect_collectives("gpt2-few", "between stages through the host: there are fewer devices than")
    same_as_host("gpt2", "gpt2-apart", (1, 2, 1), *text, PROCESSES, says="peers=1")
    expect_collectives("gpt2-apart", "between stages through the host: test devices")
    for zero in (0, 1):
        run = "gpt2-zero-%d" % zero
        same_as_host("gpt2", run, (2, 2, 1), *text, "parallel.zero=%d" % zero,
                     "parallel.bucket_mb=0.01", says="peers=1,devices=4,late=%d" % (3 - 2 * zero))
        expect_collectives(run, "sums 2 at once, between stages 2 at once")
    for name, layout, late, more in (("four", (1, 4, 1), 1, text), ("both", (1, 2, 2), 2, text),
                                     ("chunks", (1, 2, 1), 1, [*LENET, "train.precision=f16",
                                                               "parallel.pipeline_chunks=2"])):
        train(name, "cpu", layout, *more).expect(0)
        run = "%s-devices" % name
        same_as_host(name, run, layout, *more, says="peers=1,devices=4,late=%d" % late)
        expect_collectives(run, "between stages %d at once" % layout[1])
    all_axes = ["parallel.zero=1", "train.eval_every=2"]
    same_as_host("both", "all", (2, 2, 2), *text, *all_axes, says="peers=1,devices=8,late=1")
    expect_collectives("all", "sums 2 at once, inside layers 2 at once, between stages 2 at once")
    step = [r for r in runs.records("all") if r["event"] == "step"][-1]
    busy = step["stages_busy"]
    if len(busy) != 2 or abs(1 - sum(busy) / 2 - step["bubble"]) > 1e-6 or not 0 < min(busy):
        raise AssertionError(str(step))


def test_a_stage_without_exchanges():
    """Layers that nobody divides make up one of the stages, whose workers add sums and hashes with
    the others of their tensor shard all the same; between devices, or through the host."""
    bare = ["model.name=mlp", "model.hidden=[24, 24, 24, 24]", "data.n_train=64", "data.n_test=32",
            "train.batch=32", *FEW, "train.clip_norm=0.1"]
    train("bare", "cpu", (1, 3, 2), *bare).expect(0)
    for says, way in (("peers=1,late=1", "sums 2 at once, between stages 3 at once"),
                      ("late=2", "between stages through the host")):
        run = "bare-" + says[-1]
        same_as_host("bare", run, (1, 3, 2), *bare, says="devices=6," + says)
        expect_collectives(run, way)


def test_parts_in_stages():
    """Gradients and parameters of stages in parts, and both where norms are joined, some workers
    having fewer shards: through the host, the bits of whole ones; a worker that is lost while
    others wait for its parameters."""
    text = gpt2() + ["train.eval_every=2", "train.ema=0.9", "parallel.bucket_mb=0.02",
                     "train.steps=4", "run.checkpoint_every=2"]
    joined = [*runs.NARROW, "data.n_train=8", "data.n_test=2", "train.batch=8", *FEW,
              "train.steps=1", "run.checkpoint_every=-1", "parallel.sync_batch_norm=true",
              "parallel.shards=4"]
    for name, job, rows in (("gpt2", text, (((2, 2, 1), 3), ((3, 2, 1), 2 + runs.SEED % 2))),
                            ("joined", joined, (((2, 2, 1), 3 - runs.SEED % 2),))):
        train(name, "cpu", (1, 2, 1), *job).expect(0)
        for layout, zero in rows:
            run = "%s-%d-%d" % (name, layout[0], zero)
            same_as_host(name, run, layout, *job, "parallel.zero=%d" % zero,
                         says="peers=1,devices=6,late=2")
            expect_collectives(run, "through the host")
    train("lost", "gpu", (2, 2, 1), *text, "parallel.zero=3",
          says="peers=1,devices=4,lost=3,on=2").expect(10)
    runs.tutti("train", "--resume", "lost").expect(0)
    runs.same_story(runs.story("gpt2"), "lost")


def test_own_updates():
    """Of copies of the model; a last batch of an epoch leaves two of them without samples."""
    job = LENET + ["parallel.mode=fast", "parallel.sync=local", "parallel.average_every=3",
                   "data.n_train=36", "train.batch=16", "train.steps=4"]
    train("few", "cpu", (4, 1, 2), *job).expect(0)
    same_as_host("few", "few-devices", (4, 1, 2), *job)


def test_checkpoints_go_from_one_to_the_other():
    """Devices in stages, the host in tensor shards, one device, devices in tensor shards: one
    story."""
    job = LENET + ["train.steps=4"]
    train("alone", "cpu", (1, 1, 1), *LENET, "train.steps=16").expect(0)
    train("run", "gpu", (1, 2, 1), *job).expect(0)
    for devices, layout, n_steps in (("cpu", (1, 1, 2), 8), ("gpu", (1, 1, 1), 12),
                                     ("gpu", (2, 1, 2), 16)):
        runs.tutti("train", "--resume", "run", "parallel.devices=" + devices,
                   *layouts.keys_of(layout), "train.steps=%d" % n_steps).expect(0)
    want, got = layouts.losses("alone"), layouts.losses("run")
    for step in range(1, 17):
        if not layouts.near(want["step", step], got["step", step]):
            raise AssertionError("step %d: %s instead of %s" % (step, got["step", step],
                                                                want["step", step]))


LAYOUTS = {"stages": (1, 2, 1), "shards": (1, 1, 2)}
LOSSES = {"lost": ([], "lost=6,on=1"), "apart": ([PROCESSES], "lost=6,on=1"),
          "peer": ([], "peers=1,lost=6,on=1"), "late": ([], "peers=1,late=1,lost=6,on=0")}


def check_losses(kinds):
    """kinds: of LOSSES, for each of LAYOUTS."""
    for name, layout in LAYOUTS.items():
        train(name, "gpu", layout, *LENET).expect(0)
        for kind in kinds[name]:
            more, says = LOSSES[kind]
            run = name + "-" + kind
            train(run, "gpu", layout, *LENET, *more, says=says).expect(10)
            if runs.checkpoints(run) != [4]:
                raise AssertionError("%s: checkpoints %s" % (run, runs.checkpoints(run)))
            runs.tutti("train", "--resume", run).expect(0)
            runs.same_story(runs.story(name), run)


def test_a_device_that_is_lost():
    """It is named, the others end too, and the last checkpoint leads to the same bits.  Every kind
    of loss in either layout: device_layouts_slow_test.py."""
    check_losses({"stages": ["late"], "shards": ["apart", "peer"]})
    train("both-lost", "gpu", (2, 2, 1), *LENET, says="peers=1,devices=4,lost=6,on=2").expect(10)
    runs.tutti("train", "--resume", "both-lost").expect(0)
    runs.same_story(runs.story("stages"), "both-lost")


def test_a_signal_stops_all():
    """In the same step, also those that it came to later."""
    for i in range(0, 4, 3):
        run = "run-%d" % i
        process = runs.start("train", "run.dir=" + run, "parallel.devices=gpu", *LENET,
                             "train.steps=100000", "data.n_train=32", "parallel.timeout_ms=20000",
                             "train.eval_every=0", *layouts.keys_of((1, 1, 2)))
        runs.wait_until(lambda: runs.steps_reported(run) > i or process.poll() is not None,
                        what="a step")
        process.send_signal(signal.SIGTERM)
        runs.finish(process).expect(143)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
