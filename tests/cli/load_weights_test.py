"""load_weights_test.py - workers with unequal numbers of shards: the bits of the run of one worker,
whatever the load weights, threads or processes, and what else is divided; measured weights, shown;
devices of different kinds; checkpoints that continue with other weights."""

import json
import os
import random
import sys

import runs
import zero_exact_test

PLACES = ("threads", "processes")
SERVED = ["parallel.sync=parameter-server"]
SHARES = {2: ("3,1", "1,7"), 3: ("1,6,1", "2,1,1"), 4: ("5,1,1,1", "1,1,2,4")}


def models():
    """Those of zero_exact_test.py, in eight shards, the network with batch norm joined."""
    all_models = zero_exact_test.models()
    all_models["resnet18"] += ["parallel.sync_batch_norm=true"]
    return all_models


def train(run, *arguments):
    return runs.tutti("train", "run.dir=" + run, "run.log_every=1", "run.checkpoint_every=-1",
                      "train.clip_norm=1", "parallel.shards=8", *arguments).expect(0)


def grid(model, cells):
    """cells: shares, place and more keys."""
    arguments = models()[model]
    train(model, "-n", "1", *arguments)
    story = runs.story(model)
    for i, (shares, place, more) in enumerate(cells):
        run = "%s-%d" % (model, i)
        n_workers = shares.count(",") + 1
        train(run, "-n", str(n_workers), "parallel.load_weights=" + shares,
              "parallel.place=" + place, *more, *arguments)
        runs.same_story(story, run)
        runs.same_checkpoint(model, run)
        shown = [r for r in runs.records(run) if r["event"] == "shard_map"]
        if len(shown) != 1 or sum(shown[0]["shards"]) != 8 or len(shown[0]["shards"]) != n_workers:
            raise AssertionError("%s: %s" % (run, shown))
    print("%s: %d runs, one hash" % (model, len(cells)))


def every_cell(zeros):
    return [(shares, place, ["parallel.zero=%d" % zero]) for n in SHARES for shares in SHARES[n]
            for place in PLACES for zero in zeros]


def served_cells():
    """The same load weights with synchronous servers, which are threads, or the first workers."""
    return [(shares, place, SERVED + ["parallel.servers=%d" % random.randint(1, n)])
            for n in SHARES for shares in SHARES[n] for place in PLACES]


def test_lenet():
    cells = every_cell((0, 1, 2, 3))
    whole = [("3,1", "threads", []), ("1,6,1", "threads", SERVED),
             ("5,1,1,1", "processes", ["parallel.algorithm=tree"]),
             ("5,1,1,1", "threads", ["parallel.copies=each"])]
    grid("lenet", whole + random.sample(cells, 2) + random.sample(served_cells(), 2))


def test_gpt_with_dropout():
    grid("gpt2", [("5,1,1,1", "threads", [])] + random.sample(every_cell((0, 1, 2, 3)), 1))


def test_other_shares_after_a_checkpoint():
    arguments = models()["lenet"]
    train("whole", "-n", "1", *arguments)
    story = runs.story("whole")
    train("begun", "-n", "2", "parallel.load_weights=3,1", *arguments, "train.steps=2")
    with open(runs.newest_checkpoint("begun") + "/manifest.json") as file:
        if json.load(file)["texts"]["shard_map"] != "6 and 2":
            raise AssertionError("the manifest has no shard map")
    for shares in ("1,7", "measured", "equal"):
        run = "then-" + shares.replace(",", "-")
        os.system("cp -r begun " + run)
        runs.tutti("train", "--resume", run, "parallel.load_weights=" + shares,
                   "train.steps=4").expect(0)
        shown = runs.story(run)
        del shown["eval", 2], shown["end", 2]  # of the run that was to end there
        if shown != story:
            raise AssertionError("%s: %s instead of %s" % (run, shown, story))


def test_fast_mode_weighs_samples_alike():
    arguments = models()["lenet"] + ["parallel.mode=fast"]
    train("alone", "-n", "1", *arguments)
    train("many", "-n", "4", "parallel.load_weights=5,1,1,1", *arguments)
    a, b = runs.story("alone"), runs.story("many")
    for key in a:
        if key[0] == "step" and abs(a[key][0] - b[key][0]) > 1e-5:
            raise AssertionError("%s: loss %g, alone %g" % (key, b[key][0], a[key][0]))


def test_refusals():
    arguments = models()["lenet"]
    for keys, text in ((["-n", "3", "parallel.load_weights=3,1"], "2 weights for 3 workers"),
                       (["-n", "2", "parallel.load_weights=3;1"],
                        "expected auto, equal, measured")):
        runs.tutti("train", "run.dir=no", *arguments, *keys).expect(2, text)
    runs.tutti("plan", *arguments, "-n", "2", "parallel.load_weights=3,1", "parallel.shards=8",
               "train.recompute=none", "--seconds", "0.2").expect(
                   0, "parallel.load_weights=3,1 is ignored")
    runs.tutti("inspect", *arguments, "-n", "2", "parallel.load_weights=3,1", "parallel.shards=8",
               "--layout").expect(0, "shards 0..5", "shards 6..7")


# ---- devices: the module of tests/backend/modules/device_module.c ----

DEVICES = [*runs.lenet(), "data.n_train=48", "data.n_test=20", "train.batch=16",
           "train.steps=6", "parallel.shards=8", "run.log_every=1", "optimizer.name=sgd",
           "train.precision=f32"]


def on_devices(run, *arguments, says="", devices="gpu"):
    return runs.tutti("train", *DEVICES, "run.dir=" + run, "parallel.devices=" + devices,
                      *arguments, program=runs.program_with("device"),
                      env=dict(os.environ, TUTTI_TEST_DEVICE=says))


def reported_shares(run):
    shown = [r for r in runs.records(run) if r["event"] == "shard_map"]
    return shown[0] if shown else None


def test_devices():
    on_devices("host", "-n", "1", devices="cpu").expect(0)
    story = runs.story("host")
    for run, keys, says in (
            ("given", ["-n", "2", "parallel.load_weights=3,1"], ""),
            ("processes", ["-n", "2", "parallel.load_weights=1,3", "parallel.place=processes"], ""),
            ("parts", ["-n", "2", "parallel.load_weights=7,1", "parallel.zero=1"], ""),
            ("shared", ["-n", "4", "parallel.load_weights=5,1,1,1"], ""),
            ("slow", ["-n", "2", "parallel.load_weights=measured"], "slow=1,delay=15"),
            ("served", ["-n", "2", "parallel.load_weights=measured", *SERVED], "slow=1,delay=15"),
            ("alike", ["-n", "2"], "")):
        on_devices(run, *keys, says=says).expect(0)
        runs.same_story(story, run)
    for run, keys in (("kinds", []), ("kinds-served", SERVED)):
        on_devices(run, "-n", "2", "parallel.mode=fast", *keys,
                   says="kind=1,slow=1,delay=15").expect(0)
    for run in ("slow", "served", "kinds", "kinds-served"):
        shown = reported_shares(run)
        if not shown["measured"] or shown["group_s"][1] < 0.015:
            raise AssertionError(shown)
    if reported_shares("alike"):
        raise AssertionError("devices of one kind were measured unasked")
    if reported_shares("given")["shards"] != [6, 2]:
        raise AssertionError(reported_shares("given"))


if __name__ == "__main__":
    random.seed(runs.SEED)
    runs.main(sys.modules[__name__])
