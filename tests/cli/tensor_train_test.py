"""tensor_train_test.py - models in tensor shards on several workers: twenty steps with
the losses of one worker, in threads and processes, with workers that divide the batch; evaluation,
checkpoints, and what is said where nothing can be cut."""

import os
import random
import sys

import runs

FEW = ["train.steps=20", "parallel.shards=4", "run.log_every=1", "train.clip_norm=1"]


def text_arguments(*more):
    random.seed(runs.SEED)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    with open("text.txt", "w") as file:
        file.write(" ".join(random.choice(words) for _ in range(3000)))
    return ["data.format=text", "data.dir=text.txt", "data.tokenizer=chars", "data.context=16",
            "train.batch=16", "optimizer.name=adamw", "optimizer.lr=1e-3", *more]


def transformer(name, *more):
    return ["model.name=" + name, "model.layers=2", "model.heads=4", "model.width=32",
            "model.dropout=0.1"] + text_arguments(*more)


def models():
    return {
        "lenet": [*runs.lenet(), "data.n_train=160", "data.n_test=40", "train.batch=24",
                  "optimizer.name=sgd", "optimizer.lr=0.05"],
        "gpt2": transformer("gpt2"),
        "bert": transformer("bert", "data.mask_prob=0.15"),
    }


def train(run, *arguments):
    return runs.tutti("train", "run.dir=" + run, *FEW, *arguments, timeout_s=600).expect(0)


def losses(run):
    """By step, and last that of the evaluation at the end."""
    rows = [r for r in runs.records(run) if "loss" in r]
    steps = {r["step"]: r["loss"] for r in rows if r["event"] == "step"}
    last = [r["loss"] for r in rows if r["event"] != "step"][-1:]
    return [steps[k] for k in sorted(steps)] + last


def expect_near(run, other, tolerance=1e-5):
    a, b = losses(run), losses(other)
    assert len(a) == len(b) == 21, (run, len(a), other, len(b))
    worst = max(abs(x - y) / max(1, abs(y)) for x, y in zip(a, b))
    assert worst <= tolerance, "%s: %g from %s" % (run, worst, other)
    print("%s: within %.1e of %s" % (run, worst, other))


def cell(model, arguments, n, tensor, place):
    run = "%s-%d-%d-%s" % (model, n, tensor, place)
    train(run, "-n", str(n), "parallel.tensor=%d" % tensor, "parallel.place=" + place, *arguments)
    expect_near(run, model)
    return run


CELLS = {"lenet": (4, 4, "threads"), "gpt2": (4, 2, "processes"), "bert": (2, 2, "threads")}


def test_losses():
    """With all layouts: tensor_slow_test.py."""
    for model, arguments in models().items():
        train(model, "-n", "1", *arguments)
        cell(model, arguments, *CELLS[model])


def test_checkpoints_are_of_the_whole():
    arguments = models()["gpt2"]
    train("whole", "-n", "1", "run.checkpoint_every=10", *arguments)
    train("divided", "-n", "4", "parallel.tensor=4", "train.steps=10", "run.checkpoint_every=10",
          *arguments)
    runs.tutti("train", "--resume", "divided", "-n", "1", "parallel.tensor=1",
               "train.steps=20").expect(0)
    expect_near("divided", "whole")
    runs.tutti("eval", "divided").expect(0, "loss")


def test_what_cannot_be_cut_is_said():
    arguments = ["model.name=mlp", "model.hidden=[20]", "data.n_train=64", "-n", "5",
                 "parallel.tensor=5", "parallel.shards=4", "train.steps=1"]
    ended = runs.tutti("train", "run.dir=five", *arguments)
    ended.expect(0)
    arguments[4] = "11"
    ended = runs.tutti("train", "run.dir=eleven", *arguments, "parallel.tensor=11")
    ended.expect(2, "command line: error: parallel.tensor: 11 workers cannot divide linear 'fc1' "
                 "with 20 features from 784, nor 1 other layer; numbers that divide all layers: "
                 "2, 4, 5, 10, 20\n")
    ended = runs.tutti("train", "run.dir=eleven", *arguments, "parallel.tensor=11",
                       "parallel.uneven=whole")
    ended.expect(2, "parallel.tensor=11: 11 must divide the features, channels, heads or classes",
                 "numbers that work: 2, 4, 5, 10, 20; with some layers whole: 7")


UNEVEN = ("3 workers cannot divide embedding of 'transformer.wte.weight' with 16 x 32 weights, nor "
          "5 other layers; numbers that divide all layers: 2, 4; parallel.uneven=whole leaves such "
          "layers whole on every worker")


def test_layers_that_do_not_divide_are_refused():
    """Before anything starts, at the place in the job, by whatever reads a layout; the planner has
    none such among its own."""
    with open("job.yaml", "w") as file:
        file.write("parallel:\n  tensor: 3\n")
    job = ["job.yaml"] + text_arguments("model.name=gpt2", "model.layers=1", "model.heads=4",
                                        "model.width=32", "parallel.shards=1", "train.steps=1")
    for command in (["train", "run.dir=run"], ["inspect"], ["inspect", "--layout"],
                    ["train", "run.dir=run", "parallel.place=processes"]):
        ended = runs.tutti(command[0], *job, "-n", "3", *command[1:])
        ended.expect(2, "job.yaml:2:11: error: parallel.tensor: " + UNEVEN)
    assert not os.path.exists("run"), "the run has begun"
    runs.tutti("simulate", *job, "-n", "3").expect(2, "parallel.tensor: " + UNEVEN)
    reported = runs.tutti("plan", *job, "-n", "3", "--seconds", "0.2").expect(0, UNEVEN).out
    assert "tensor 3" not in reported.split("not possible:")[0], reported
    runs.tutti("train", "run.dir=run", *job, "-n", "3", "parallel.uneven=whole").expect(0)


def test_heads_that_do_not_divide_are_said():
    """Three workers cut the rest of a model with four heads, if they may: attention stays whole,
    and they hear it, before the run and in it; two workers hear nothing."""
    job = text_arguments("model.name=gpt2", "model.layers=1", "model.heads=4", "model.width=48",
                         "model.dropout=0", "train.steps=1", "parallel.shards=1",
                         "parallel.uneven=whole")
    why = "attention of 4 heads stays whole on every worker; numbers that divide the heads: 2, 4"
    ended = runs.tutti("inspect", "-n", "3", "parallel.tensor=3", *job)
    ended.expect(0, why, "% of the parameters are whole on every worker")
    ended = runs.tutti("train", "run.dir=heads3", "-n", "3", "parallel.tensor=3", *job)
    ended.expect(0, "warning: parallel.tensor=3: " + why)
    whole = [r for r in runs.records("heads3") if why in r.get("text", "")]
    assert len(whole) == 1, whole
    ended = runs.tutti("train", "run.dir=heads2", "-n", "2", "parallel.tensor=2", *job).expect(0)
    assert "stays whole" not in ended.out + ended.err, ended.err
    ended = runs.tutti("train", "run.dir=heads7", "-n", "7", "parallel.tensor=7", *job)
    ended.expect(2, "numbers that work: 2, 4", "with some layers whole: 3,")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
