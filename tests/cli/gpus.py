"""gpus.py - what the tests of training on GPUs share: small jobs, and runs held against runs."""

import runs

LENET = ["model.name=lenet", "data.n_train=1024", "data.n_test=200", "train.batch=64",
         "train.steps=24", "parallel.shards=4", "run.log_every=1"]
GPT = ["model.name=gpt2", "model.layers=2", "model.width=32", "model.heads=2",
       "data.format=random_tokens", "data.vocabulary=64", "data.context=64", "data.n_train=256",
       "data.n_test=16", "train.batch=8", "train.steps=8", "parallel.shards=2",
       "run.log_every=1", "run.text_samples=0"]
JOINED = ["model.name=resnet18", "data.format=random_images", "data.image_size=32",
          "data.n_train=64", "data.n_test=8", "train.batch=16", "train.steps=6",
          "parallel.shards=4", "parallel.sync_batch_norm=true", "run.log_every=1"]


def way_of_sums(run):
    return [r["backend"] for r in runs.records(run) if r["event"] == "start"][-1].split("sums ")[-1]


def train(run, job, *arguments, devices="gpu"):
    return runs.tutti("train", *job, "run.dir=" + run, "parallel.devices=" + devices,
                      *arguments).expect(0)


def losses(run):
    return [r["loss"] for r in runs.records(run) if r["event"] == "step"]


def last_hash(run):
    return [r["params_hash"] for r in runs.records(run) if r["event"] == "end"][-1]


def near(run, other, tolerance):
    a, b = losses(run), losses(other)
    if len(a) != len(b) or not a:
        raise AssertionError("%d and %d steps" % (len(a), len(b)))
    worst = max(abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b))
    if not worst < tolerance:
        raise AssertionError("%s differs from %s by %g" % (run, other, worst))


def falls(run, first):
    """Of ways that leave something out of their sums or add seldom: they learn, more slowly."""
    if not losses(run)[-1] < first:
        raise AssertionError("%s begins at %g: %s" % (run, first, losses(run)))
