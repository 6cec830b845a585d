"""server_divided_test.py - parameter servers of a model that workers divide: the story, the hash
and the bytes of the checkpoints of an all-reduce between the same workers, in threads and
processes, on devices too, and who has state is said before."""

import os
import sys

import layouts
import runs

SERVER = ["parallel.sync=parameter-server"]
MORE = ["train.steps=6", "train.clip_norm=1", "train.ema=0.9", "run.checkpoint_every=3"]


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def train(run, model, layout, *arguments):
    return layouts.train(run, layout, *layouts.models()[model], *MORE, *arguments)


def same(expected, run):
    runs.same_story(runs.story(expected), run)
    runs.same_checkpoint(expected, run)


def test_synchronous_is_the_all_reduce():
    """A head that two stages have, averages and the norm of all parts with it."""
    for model, layout, place, servers in (("lenet", (2, 1, 2), "threads", 2),
                                          ("gpt2", (2, 2, 1), "processes", 1),
                                          ("gpt2", (2, 2, 2), "threads", 1)):
        run = model + layouts.name_of(layout)
        train(run, model, layout)
        train(run + "-served", model, layout, *SERVER, "parallel.servers=%d" % servers,
              "parallel.place=" + place)
        same(run, run + "-served")
        told = next(r for r in runs.records(run + "-served") if r["event"] == "start")
        expect("by the first workers, as parameter servers" in told["backend"], told["backend"])


def test_it_goes_on_in_other_ways():
    """A checkpoint knows nothing of servers and parts; resumed runs are as others."""
    train("whole", "lenet", (2, 2, 1))
    train("half", "lenet", (2, 2, 1), *SERVER, "train.steps=3")
    runs.tutti("train", "--resume", "half", "train.steps=6", "parallel.servers=2").expect(0)
    runs.same_checkpoint("whole", "half")
    train("other", "lenet", (2, 2, 1), "train.steps=3")
    runs.tutti("train", "--resume", "other", "train.steps=6", *SERVER).expect(0)
    runs.same_checkpoint("whole", "other")


def test_on_devices():
    """Which compute with the kernels of the host (device_layouts_test.py)."""
    modules = os.path.abspath(os.environ.get("TUTTI_BUILD", "build"))
    environment = dict(os.environ, TUTTI_TEST_DEVICE="late=1",
                       TUTTI_MODULE_PATH=os.path.join(modules, "tests/modules/device"))
    for layout in ((2, 1, 2), (2, 2, 1)):
        run = layouts.name_of(layout)
        arguments = [*layouts.FEW, *layouts.models()["lenet"], *MORE, *layouts.keys_of(layout),
                     "train.precision=f32", "optimizer.name=sgd"]
        runs.tutti("train", "run.dir=" + run, *arguments).expect(0)
        runs.tutti("train", "run.dir=served" + run, *arguments, *SERVER, "parallel.devices=gpu",
                   env=environment).expect(0)
        same(run, "served" + run)


def test_who_has_state_is_said():
    few = ["inspect", *layouts.models()["lenet"], "parallel.workers=4", "parallel.pipeline=2",
           "parallel.devices=cpu", *SERVER]
    table = "such state is on the first 1 of the 2 workers of each part (parallel.servers)"
    runs.tutti(*few).expect(0, table)
    runs.tutti(*few, "--layout").expect(0, "sums go to the first 1 of the workers")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
