"""zero_exact_test.py - the optimizer state partitioned over all workers: one story with the run
where each has all of it, for any number of workers, in both places, with every optimizer;
checkpoints that go from one to the other, byte for byte the same; and the memory promised."""

import itertools
import json
import os
import random
import re
import shutil
import sys

import runs

WORKERS = (1, 2, 3, 4)
PLACES = ("threads", "processes")
FEW = ["parallel.shards=4", "run.log_every=1", "run.checkpoint_every=-1", "train.clip_norm=1",
       "train.ema=0.9"]


def text_arguments():
    random.seed(runs.SEED)
    with open("text.txt", "w") as file:
        file.write("".join(random.choice("abcdefgh \n") for _ in range(6000)))
    return ["data.format=text", "data.dir=text.txt", "data.tokenizer=chars", "data.context=16"]


def models():
    return {
        "lenet": [*runs.lenet(), "data.n_train=36", "data.n_test=20", "train.batch=12",
                  "train.steps=4", "optimizer.name=adamw"],
        "narrow": runs.NARROW + ["data.n_train=40", "data.n_test=4", "train.batch=8",
                                 "train.steps=2", "optimizer.name=sgd"],
        "resnet18": ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
                     "data.image_size=12", "data.n_train=40", "data.n_test=4", "train.batch=8",
                     "train.steps=2", "optimizer.name=sgd"],
        "gpt2": ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=64",
                 "model.dropout=0.1", "train.batch=24", "train.steps=4"] + text_arguments(),
    }


def train(run, *arguments):
    return runs.tutti("train", "run.dir=" + run, *FEW, *arguments).expect(0)


def grid(model, cells):
    arguments = models()[model]
    train(model, "-n", "1", *arguments)
    story = runs.story(model)
    for n_workers, place, zero in cells:
        run = "%s-%d-%s-%d" % (model, n_workers, place, zero)
        train(run, "-n", str(n_workers), "parallel.place=" + place, "parallel.zero=%d" % zero,
              *arguments)
        runs.same_story(story, run)
        runs.same_checkpoint(model, run)
    print("%s: %d runs, one hash" % (model, len(cells)))


def some_cells(place):
    """Every number of workers, the first one in this place and then in turn; gradients and
    partitioned parameters: some of them.  All of it: zero_exact_slow_test."""
    cells = [(n, PLACES[(place + i) % 2], 1) for i, n in enumerate(WORKERS)]
    more = list(itertools.product(WORKERS[1:], PLACES, (2, 3)))
    return cells + random.sample(more, 3)


def test_lenet():
    grid("lenet", some_cells(0))


def test_gpt_with_dropout():
    grid("gpt2", some_cells(1))


def test_weights_side_by_side():
    """Queries, keys and values of bert are one product; buckets are shorter than these."""
    job = ["model.name=bert", "model.layers=2", "model.heads=4", "model.width=32",
           "data.format=random_tokens", "data.context=16", "data.vocabulary=96", "data.n_train=64",
           "data.n_test=16", "train.batch=24", "train.steps=3", "optimizer.name=adamw"]
    train("one", "-n", "1", *job)
    for zero, bucket in ((2, "0.001"), (2, "0.005"), (3, "0.001"), (3, "0.01")):
        run = "zero-%d-%s" % (zero, bucket)
        train(run, "-n", "4", "parallel.zero=%d" % zero, "parallel.bucket_mb=" + bucket, *job)
        runs.same_story(runs.story("one"), run)


def test_batch_norms():
    """resnet18 itself: zero_exact_slow_test.py."""
    cells = [c for c in itertools.product(WORKERS[1:], PLACES, (1, 2, 3))]
    grid("narrow", random.sample(cells, 3 if runs.sanitized() else 6))


def test_every_algorithm_and_joined_statistics():
    """Without the overlap too: a joined batch norm leaves no thread for it."""
    arguments = models()["lenet"] + ["parallel.bucket_mb=0.05"]
    train("plain", *arguments, "-n", "1")
    for algorithm in ("direct", "tree"):
        train(algorithm, *arguments, "-n", "3", "parallel.zero=1",
              "parallel.algorithm=" + algorithm)
        runs.same_story(runs.story("plain"), algorithm)
    joined = models()["narrow"] + ["parallel.sync_batch_norm=true"]
    train("joined", *joined, "-n", "1")
    for zero, way in (("1", []), (random.choice("23"), ["parallel.place=processes"])):
        train("joined-" + zero, *joined, "-n", "3", "parallel.zero=" + zero, *way)
        runs.same_story(runs.story("joined"), "joined-" + zero)


OPTIMIZERS = ("adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd")


def optimizers(levels_of):
    """LAMB and LARS, which look at whole parameters, among them; and what changes gradients.
    levels_of: the ZeRO levels for optimizer number i."""
    for i, name in enumerate(OPTIMIZERS):
        arguments = ["optimizer.name=" + name, "optimizer.weight_decay=0.01", "train.clip_norm=2",
                     "train.clip_value=0.5", "optimizer.l1=0.0001", "train.ema=0.9",
                     "model.hidden=[100, 100]", "train.steps=6", "run.checkpoint_every=-1"]
        runs.tutti(*runs.small(name, "-n", "1", *arguments)).expect(0)
        run = "%s-zero" % name
        for zero in levels_of(i):
            runs.tutti(*runs.small(run, "-n", str(2 + i % 3), "parallel.zero=%d" % zero,
                                   "parallel.bucket_mb=0.05", *arguments)).expect(0)
            runs.same_story(runs.story(name), run)
            runs.same_checkpoint(name, run)
            shutil.rmtree(run)


def test_every_optimizer():
    """Each at one level; at all of them: zero_exact_slow_test."""
    optimizers(lambda i: ((3, 1, 2)[i % 3],))


def test_frozen_parameters():
    arguments = models()["lenet"] + ['optimizer.freeze=["fc1.weight"]', "optimizer.name=lamb"]
    train("frozen", "-n", "1", *arguments)
    for zero in "123":
        train("frozen-" + zero, "-n", "4", "parallel.zero=" + zero, *arguments)
        runs.same_story(runs.story("frozen"), "frozen-" + zero)


def cut_and_continue(run, first, then, arguments):
    """Some steps in one way, the rest in another; the schedule is that of the whole run."""
    train(run, *arguments, *first, "train.steps=2")
    path = os.path.join(run, "job.yaml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\bsteps: 2\b", "steps: 4", text, count=1))
    runs.tutti("train", "--resume", run, *then).expect(0)


def test_a_checkpoint_knows_nothing_of_it():
    arguments = models()["lenet"] + ["schedule.name=constant"]
    train("undisturbed", "-n", "1", *arguments)
    story = {k: v for k, v in runs.story("undisturbed").items() if k[0] != "eval"}
    ways = {"a": (["-n", "4", "parallel.zero=1"], ["-n", "2", "parallel.zero=0"]),
            "b": (["-n", "2", "parallel.zero=0"], ["-n", "4", "parallel.zero=1"]),
            "c": (["-n", "3", "parallel.zero=1", "parallel.place=processes"],
                  ["-n", "4", "parallel.zero=1", "parallel.place=threads"]),
            "d": (["-n", "4", "parallel.zero=3"], ["-n", "2", "parallel.zero=0"]),
            "e": (["-n", "1", "parallel.zero=0"], ["-n", "3", "parallel.zero=3"]),
            "f": (["-n", "3", "parallel.zero=2", "parallel.place=processes"],
                  ["-n", "2", "parallel.zero=3", "parallel.place=threads"])}
    for run, (first, then) in ways.items():
        cut_and_continue(run, first, then, arguments)
        last = max(k for k in story if k[0] == "end")
        if runs.story(run)[last] != story[last]:
            raise AssertionError("%s: %s instead of %s" % (run, runs.story(run)[last], story[last]))
        runs.same_checkpoint("undisturbed", run)


def test_weights_to_begin_with():
    """Averages begin as the weights do, wherever they are kept."""
    arguments = models()["lenet"]
    train("teacher", "-n", "1", *arguments)
    init = "model.init=" + os.path.join(runs.newest_checkpoint("teacher"), "model.safetensors")
    train("pupil", "-n", "1", init, *arguments)
    for zero in "13":
        train("pupil-" + zero, "-n", "3", "parallel.zero=" + zero, init, *arguments)
        runs.same_story(runs.story("pupil"), "pupil-" + zero)
    train("pupil-one", "-n", "2", "parallel.copies=one", init, *arguments)
    runs.same_story(runs.story("pupil"), "pupil-one")


def start_record(run):
    return next(r for r in runs.records(run) if r["event"] == "start")


def test_memory_is_what_was_said():
    """2 states and the averages of 2.6 million parameters, 4 workers: a quarter within 5 %."""
    arguments = ["model.name=mlp", "model.hidden=[1200, 1300]", "data.n_train=40", "data.n_test=10",
                 "train.batch=8", "train.steps=1", "optimizer.name=adam"]
    train("whole", "-n", "4", "parallel.copies=each", *arguments)
    train("one", "-n", "4", *arguments)
    train("parts", "-n", "4", "parallel.zero=1", *arguments)
    whole, parts = start_record("whole"), start_record("parts")
    for key in ("bytes_states", "bytes_ema"):
        share = parts[key] / whole[key] * 4
        if not 0.95 < share < 1.05:
            raise AssertionError("%s: %d of %d with 4 workers" % (key, parts[key], whole[key]))
    if parts["bytes_params"] != whole["bytes_params"]:
        raise AssertionError("parameters are split too")
    one = start_record("one")
    for key in ("bytes_params", "bytes_states", "bytes_ema"):
        if one[key] != whole[key] // 4:
            raise AssertionError("%s: %d of %d for one of 4" % (key, one[key], whole[key]))
    for run in ("one", "parts"):
        runs.same_checkpoint("whole", run)
    reported = runs.tutti("inspect", *FEW, *arguments, "parallel.workers=4",
                      "parallel.zero=1").expect(0, "partitioned over 4 workers").out
    mib = re.search(r"optimizer state +([0-9.]+) MiB", reported)
    if abs(float(mib.group(1)) * 1048576 / parts["bytes_states"] - 1) > 0.001:
        raise AssertionError("inspect says %s MiB, the run %d" % (mib.group(1),
                                                                 parts["bytes_states"]))
    print(json.dumps({k: v for k, v in parts.items() if k.startswith("bytes_")}))


def test_memory_of_parameters_in_parts():
    """Parameters and their state within 5 % of a quarter; gradients as the inspection says."""
    arguments = models()["gpt2"] + ["model.layers=4", "model.width=192", "train.steps=1",
                                    "parallel.bucket_mb=0.5"]
    train("all", "-n", "4", "parallel.copies=each", *arguments)
    train("cut", "-n", "4", "parallel.zero=3", *arguments)
    whole, cut = start_record("all"), start_record("cut")
    for key in ("bytes_params", "bytes_states", "bytes_ema"):
        share = cut[key] / whole[key] * 4
        if not 0.95 < share < 1.05:
            raise AssertionError("%s: %d of %d with 4 workers" % (key, cut[key], whole[key]))
    if not cut["bytes_gathered"] < whole["bytes_params"] / 2:
        raise AssertionError("%d bytes are gathered" % cut["bytes_gathered"])
    reported = runs.tutti("inspect", *FEW, *arguments, "parallel.workers=4",
                      "parallel.zero=3").expect(0, "parallel.zero=3").out
    for key, words in (("bytes_params", "a worker's params"), ("bytes_gathered", "gathered, peak"),
                       ("bytes_grads", "a worker, peak.*?state,")):
        mib = re.search(words + r" +([0-9.]+)", reported)
        if abs(float(mib.group(1)) * 1048576 / cut[key] - 1) > 0.01:
            raise AssertionError("inspect says %s MiB, the run %s %d" % (mib.group(1), key,
                                                                        cut[key]))


def test_what_does_not_go_together():
    runs.tutti("train", "-n", "2", "parallel.zero=3",
               "parallel.sync=parameter-server").expect(2, "parallel.zero=0")
    runs.tutti("train", "-n", "2", "parallel.zero=3", "parallel.mode=fast",
               "parallel.compress=topk").expect(2, "zero=1")


def test_refusals():
    """Devices that say nothing of parts, as those of fake_module.c, are refused."""
    runs.tutti("train", "parallel.zero=4").expect(2, "parallel.zero")
    environment = dict(os.environ, TUTTI_TEST_MODULE="fit")
    for zero in "13":
        runs.tutti("train", "run.dir=gpu", "parallel.zero=" + zero, "parallel.devices=gpu",
                   program=runs.program_with("fake"), env=environment).expect(
                       2, "parallel.zero=" + zero, "GPUs", "parallel.devices=cpu")
    if os.path.exists("gpu"):
        raise AssertionError("the run has begun")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
