"""device_layouts_test.py - models that workers on devices divide between them, on a machine without
any: the module of tests/backend/modules/device_module.c computes with the host's kernels, so every
layout must come to the bits of the same layout on the host; and checkpoints go from one to the
other."""

import os
import sys

import layouts
import runs

FEW = ["run.log_every=1", "run.text_samples=0", "schedule.name=constant", "optimizer.name=sgd",
       "train.precision=f32", "train.steps=6", "parallel.shards=8", "run.checkpoint_every=4"]
LENET = ["model.name=lenet", "data.n_train=64", "data.n_test=32", "train.batch=32", *FEW]
PROCESSES = "parallel.place=processes"


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


def same_as_host(host, run, layout, *arguments):
    train(run, "gpu", layout, *arguments).expect(0)
    on_devices(run)
    runs.same_story(runs.story(host), run)
    runs.same_checkpoint(host, run)


def test_pieces_of_layers():
    """Sums, gathers and parts by way of the host; replicas and parts of the state do not matter."""
    train("lenet", "cpu", (1, 1, 2), *LENET).expect(0)
    same_as_host("lenet", "lenet-2", (1, 1, 2), *LENET)
    same_as_host("lenet", "lenet-2x2", (2, 1, 2), *LENET, PROCESSES)
    text = gpt2()
    train("gpt2", "cpu", (1, 1, 2), *text).expect(0)
    same_as_host("gpt2", "gpt2-2", (1, 1, 2), *text)
    same_as_host("gpt2", "gpt2-zero", (2, 1, 2), *text, "parallel.zero=1")


def test_another_kind_of_device():
    """One of which nobody has seen that it can: refused where it is asked for, else the host."""
    for layout in ((1, 1, 2), (1, 2, 1)):
        train("none", "gpu", layout, *LENET, says="whole=1").expect(
            2, "a model is divided between workers on the host alone so far",
            "parallel.devices=cpu")
    train("host", "auto", (1, 1, 2), *LENET, "train.steps=1", says="whole=1").expect(0, "cpu: ")


if __name__ == "__main__":
    os.environ["TUTTI_MODULE_PATH"] = os.path.join(
        os.path.abspath(os.environ.get("TUTTI_BUILD", "build")), "tests/modules/device")
    runs.main(sys.modules[__name__])
