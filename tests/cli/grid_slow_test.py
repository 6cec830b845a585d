"""grid_slow_test.py - replicas, ZeRO 1 to 3 and the synchronous server on 2 to 8 workers, over the
models of layouts.py: 20 steps come to one story, one hash and the bytes of one checkpoint with a
worker alone; fast mode, divided models with parts of the state or a server, to its losses within
1e-5.
Divided models without: layouts_slow_test.py."""

import shutil
import sys

import layouts
import runs

SERVER = ["parallel.sync=parameter-server"]
PROCESSES = ["parallel.place=processes"]
WORKERS = (2, 4, 8)
PARTS = ((4, 2, 1), (2, 4, 1), (4, 1, 2), (2, 1, 4), (2, 2, 2))


def exact_cells(workers):
    """{name: (workers, keys)}: each must give the bits of one worker."""
    cells = {}
    for n in workers:
        cells["replicas-%d" % n] = n, ["parallel.copies=each"]
        cells["one-copy-%d" % n] = n, ["parallel.copies=one"]
        for zero in "123":
            cells["zero%s-%d" % (zero, n)] = n, ["parallel.zero=" + zero]
        for servers in (1, 3):
            cells["server%d-%d" % (servers, n)] = n, SERVER + ["parallel.servers=%d" % servers]
    cells["replicas-8-processes"] = 8, PROCESSES
    cells["zero3-8-processes"] = 8, PROCESSES + ["parallel.zero=3"]
    cells["server2-8-processes"] = 8, PROCESSES + SERVER + ["parallel.servers=2"]
    cells["zero1-3-tree"] = 3, ["parallel.zero=1", "parallel.algorithm=tree"]
    return cells


def near_cells(layouts_of_parts):
    """{name: (layout, keys)}: sums in another order."""
    cells = {"ring-8": ((8, 1, 1), ["parallel.mode=fast", "parallel.algorithm=ring"])}
    for layout in layouts_of_parts:
        cells["zero1-" + layouts.name_of(layout)] = layout, ["parallel.zero=1"]
        cells["server-" + layouts.name_of(layout)] = layout, SERVER
    return cells


def train(run, n_workers, *arguments):
    runs.tutti("train", "run.dir=" + run, *layouts.FEW, *arguments, "-n", str(n_workers),
               timeout_s=600).expect(0)


def grid(model, workers=WORKERS, parts=PARTS):
    arguments = layouts.models()[model]
    train(model, 1, *arguments)
    story, worst = runs.story(model), 0
    exact, near = exact_cells(workers), near_cells(parts)
    if len([key for key in story if key[0] == "step"]) != layouts.N_STEPS:
        raise AssertionError("%d steps are reported" % len(story))
    for run, (n_workers, keys) in exact.items():
        train(run, n_workers, *arguments, *keys)
        runs.same_story(story, run)
        runs.same_checkpoint(model, run)
        shutil.rmtree(run)
    for run, (layout, keys) in near.items():
        layouts.train(run, layout, *arguments, *keys)
        worst = max(worst, layouts.same_losses(model, run))
        shutil.rmtree(run)
    print("%s: %d runs with the hash of one worker; %d with losses within %.2g" % (
        model, len(exact), len(near), worst))


def test_lenet():
    grid("lenet")


def test_resnet():
    """Ten seconds of a core each."""
    grid("resnet18", (8,), ((4, 1, 2), (2, 2, 2)))


def test_gpt_with_tied_head_and_dropout():
    grid("gpt2")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
