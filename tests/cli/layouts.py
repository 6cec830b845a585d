"""layouts.py - for layouts_test.py and layouts_slow_test.py: models, layouts of workers over them,
and what a divided run must have in common with one worker alone."""

import array
import json
import operator
import os
import random
import struct

import runs

TOLERANCE = 1e-5  # of a loss, in f32: sums in another order
N_STEPS = 6  # layouts_slow_test.py: 20
FEW = ["run.log_every=1", "run.checkpoint_every=-1", "run.text_samples=0", "schedule.name=constant",
       "parallel.devices=cpu", "train.steps=%d" % N_STEPS]


def write_text():
    draw = random.Random(3)
    words = ["one", "more", "word", "and", "then", "another"]
    with open("text.txt", "w") as file:
        file.write(" ".join(draw.choice(words) for _ in range(1500)))
    return ["data.format=text", "data.dir=text.txt", "data.tokenizer=chars", "data.context=16"]


def models():
    """Small ones of each kind, with 8 shards.  Batch norm over few samples makes of any other order
    of sums, such as that of another instruction set, other losses after a few steps, unless the
    learning rate is small."""
    return {
        "lenet": [*runs.lenet(), "data.n_train=96", "data.n_test=32", "train.batch=32",
                  "optimizer.name=adamw", "parallel.shards=8"],
        "resnet18": ["model.name=resnet18", "model.stem=cifar", "data.n_train=64",
                     "data.n_test=16", "train.batch=16", "optimizer.name=sgd", "optimizer.lr=1e-6",
                     "parallel.shards=8"],
        "gpt2": ["model.name=gpt2", "model.layers=4", "model.heads=4", "model.width=32",
                 "model.dropout=0.1", "train.batch=16", "optimizer.name=adamw", "train.clip_norm=1",
                 "parallel.shards=8"] + write_text(),
        "bert": ["model.name=bert", "model.layers=2", "model.heads=4", "model.width=32",
                 "model.dropout=0.1", "data.mask_prob=0.15", "train.batch=16",
                 "optimizer.name=adamw", "parallel.shards=8"] + write_text(),
    }


def all_layouts(n_most, most_stages=8):
    """(data, pipeline, tensor) of up to so many workers, at least one of the last two."""
    sizes = (1, 2, 4, 8)
    return [(d, p, t) for d in sizes for p in sizes for t in sizes
            if d * p * t <= n_most and p * t > 1 and p <= most_stages]


def name_of(layout):
    return "d%dp%dt%d" % layout


def keys_of(layout):
    data, pipeline, tensor = layout
    return ["parallel.workers=%d" % (data * pipeline * tensor), "parallel.pipeline=%d" % pipeline,
            "parallel.tensor=%d" % tensor]


def train(run, layout, *arguments):
    return runs.tutti("train", "run.dir=" + run, *FEW, *arguments, *keys_of(layout)).expect(0)


def losses(run):
    """By (what, step), of steps and evaluations."""
    return {(r["event"], r["step"]): r["loss"] for r in runs.records(run)
            if r["event"] in ("step", "eval")}


def near(a, b, tolerance=TOLERANCE):
    return abs(a - b) <= tolerance * max(1, abs(b))


def same_losses(expected, run, tolerance=TOLERANCE):
    """The largest difference, if it is small enough."""
    want, got = losses(expected), losses(run)
    if want.keys() != got.keys():
        raise AssertionError("%s has other steps than %s" % (run, expected))
    worst = max(abs(got[k] - want[k]) / max(1, abs(want[k])) for k in want)
    if worst > tolerance:
        key = next(k for k in sorted(want, key=lambda k: k[1])
                   if not near(got[k], want[k], tolerance))
        raise AssertionError("%s: the loss of %s is %.9g instead of %.9g (worst: %.3g)" % (
            run, key, got[key], want[key], worst))
    return worst


def tensors(path):
    """{name: (shape, floats)} of a safetensors file, in the order of the file."""
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(n))
        body = file.read()
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        floats = array.array("f")
        floats.frombytes(body[slice(*entry["data_offsets"])])
        out[name] = (tuple(entry["shape"]), floats)
    return out


def same_tensors(expected, run, tolerance=1e-2):
    """Names, order and shapes are the same; values within what up to 20 steps make of rounding,
    against the largest of the tensor."""
    for part in ("model", "optimizer"):
        want = tensors(os.path.join(runs.newest_checkpoint(expected), part + ".safetensors"))
        got = tensors(os.path.join(runs.newest_checkpoint(run), part + ".safetensors"))
        if list(want) != list(got):
            raise AssertionError("%s: other tensors than %s" % (run, expected))
        for name, (shape, values) in want.items():
            if got[name][0] != shape:
                raise AssertionError("%s: %s has shape %s" % (run, name, got[name][0]))
            most = max(max(values, default=0), -min(values, default=0), 1e-3)
            worst = max(map(abs, map(operator.sub, values, got[name][1])), default=0)
            if worst > tolerance * most:
                raise AssertionError("%s: %s differs by %.3g of %.3g" % (run, name, worst, most))


def grid(model, layouts, *more, tolerance=1e-2):
    """Every layout against one worker; of one division of the model the bits do not depend on the
    number of replicas."""
    arguments = models()[model] + list(more)
    train(model, (1, 1, 1), *arguments)
    worst, first = 0, {}
    for layout in layouts:
        run = "%s-%s" % (model, name_of(layout))
        train(run, layout, *arguments)
        worst = max(worst, same_losses(model, run))
        same_tensors(model, run, tolerance)
        division = layout[1:]
        if division in first:
            runs.same_story(runs.story(first[division]), run)
            runs.same_checkpoint(first[division], run)
        first.setdefault(division, run)
    print("%s: %d layouts, losses within %.2g of one worker's" % (model, len(layouts), worst))


def continue_with(run, layout, n_steps):
    """On to n_steps under another layout."""
    return runs.tutti("train", "--resume", run, *keys_of(layout),
                      "train.steps=%d" % n_steps).expect(0)
