"""cuda_divided_test.py - what workers on GPUs do beside parts of the model: compressed sums, own
updates, norms joined over all shards, parts of gradients and parameters.  Two GPUs, which four
workers share where the layout has as many.  Exit code 77 without two."""

import sys

import runs
from gpus import last_hash, near, train

LENET = ["model.name=lenet", "data.n_train=256", "data.n_test=32", "train.batch=32",
         "train.steps=12", "parallel.shards=4", "run.log_every=1", "train.eval_every=2",
         "train.precision=f32", "optimizer.name=sgd", "train.ema=0.9"]
GPT = ["model.name=gpt2", "model.layers=2", "model.width=32", "model.heads=2",
       "data.format=random_tokens", "data.vocabulary=64", "data.context=64", "data.n_train=256",
       "data.n_test=16", "train.batch=8", "train.steps=8", "parallel.shards=2", "run.log_every=1",
       "run.text_samples=0", "train.precision=f32", "optimizer.name=sgd", "optimizer.lr=0.1",
       "train.eval_every=2", "train.ema=0.9", "train.clip_norm=0.5"]
JOINED = ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
          "data.image_size=32", "data.n_train=64", "data.n_test=8", "train.batch=16",
          "train.steps=4", "parallel.shards=4", "parallel.sync_batch_norm=true",
          "run.log_every=1", "train.precision=f32", "optimizer.name=sgd", "optimizer.lr=0.01"]
FAST = "parallel.mode=fast"
SERVER = ["parallel.sync=parameter-server"]
ASYNC = SERVER + [FAST, "parallel.staleness=2", "train.eval_every=0"]
LOCAL = [FAST, "parallel.sync=local", "parallel.average_every=3", "parallel.average=all"]


def keys_of(data, stages, shards):
    return ["-n", str(data * stages * shards), "parallel.pipeline=%d" % stages,
            "parallel.tensor=%d" % shards]


def test_rounded_parts():
    """Of sums in 16 bits owners use their part.  Kernels of fast mode may give other bits."""
    job = LENET + [FAST, "-n", "2", "parallel.wire=bf16", "parallel.bucket_mb=0.05"]
    for shards in (4, 2):
        whole = "whole_%d" % shards
        train(whole, job, "parallel.shards=%d" % shards)
        for zero in (1, 2, 3):
            run = "%s_zero_%d" % (whole, zero)
            train(run, job, "parallel.shards=%d" % shards, "parallel.zero=%d" % zero)
            near(run, whole, 2e-3)


def test_residuals():
    """As of whole models with all of the state; stages send of their layers what these do, and of
    tensor shards it is as on the host."""
    job = LENET + [FAST, "train.ema=0"]
    for kind in ("topk", "powersgd"):
        compress = "parallel.compress=" + kind
        train(kind, job, compress, "-n", "2")
        train(kind + "_zero", job, compress, "-n", "2", "parallel.zero=1")
        near(kind + "_zero", kind, 2e-3)
        train(kind + "_stages", job, compress, *keys_of(2, 2, 1))
        near(kind + "_stages", kind, 2e-3)
    for run, devices in (("shards", "gpu"), ("shards_host", "cpu")):
        train(run, GPT, FAST, "parallel.compress=powersgd", *keys_of(2, 1, 2), devices=devices)
    near("shards", "shards_host", 2e-3)


def test_own_updates():
    """Copies of the model that average now and then: stages as whole ones, tensor shards as on the
    host."""
    train("whole", LENET, *LOCAL, "-n", "2")
    train("stages", LENET, *LOCAL, *keys_of(2, 2, 1))
    near("stages", "whole", 1e-4)
    for run, devices in (("shards", "gpu"), ("shards_host", "cpu")):
        train(run, GPT, *LOCAL, *keys_of(2, 1, 2), devices=devices)
    near("shards", "shards_host", 2e-3)


def test_joined_norms():
    """Over all shards, in stages and beside tensor shards; however many copies."""
    train("one", JOINED, "-n", "1")
    train("stages", JOINED, *keys_of(1, 2, 1))
    near("stages", "one", 2e-2)
    train("shards", JOINED, *keys_of(1, 1, 2))
    near("shards", "one", 2e-2)
    for run, layout in (("stages_2", (2, 2, 1)), ("shards_2", (2, 1, 2))):
        train(run, JOINED, *keys_of(*layout))
        runs.same_story(runs.story(run[:-2]), run)
        for zero in (2, 3):
            parts = "%s_zero_%d" % (run, zero)
            train(parts, JOINED, "parallel.zero=%d" % zero, *keys_of(*layout))
            runs.same_story(runs.story(run), parts)


def test_joined_norms_beside_parts():
    """From GPU to GPU as a part of the recorded step, or by the host where two workers share one:
    the bits of one worker."""
    job = JOINED + ["parallel.bucket_mb=4"]
    train("one", job, "-n", "1")
    for name, devices in (("between", "gpu"), ("shared", "0")):
        for zero in (2, 3):
            run = "%s_%d" % (name, zero)
            train(run, job, "parallel.zero=%d" % zero, "-n", "2", devices=devices)
            runs.same_story(runs.story("one"), run)
            runs.same_checkpoint("one", run)


def test_parts_by_way_of_the_host():
    """Partitioned gradients and parameters with tensor shards, in stages, and where two workers
    share a GPU."""
    for name, layout, devices, zeros in (("shards", (2, 1, 2), "gpu", (1, 2, 3)),
                                         ("stages", (2, 2, 1), "gpu", (2, 3)),
                                         ("shared", (2, 1, 1), "0", (2, 3))):
        job = GPT + ["parallel.bucket_mb=0.02", *keys_of(*layout)]
        train(name, job, devices=devices)
        for zero in zeros:
            run = "%s_zero_%d" % (name, zero)
            train(run, job, "parallel.zero=%d" % zero, devices=devices)
            runs.same_story(runs.story(name), run)
            runs.same_checkpoint(name, run)


def test_servers():
    """Of each part its first workers: an all-reduce between the same ones.  Copies that do not
    wait: what was recorded comes again in processes, and on the host within rounding."""
    for name, layout in (("shards", (2, 1, 2)), ("stages", (2, 2, 1))):
        job, order = GPT + keys_of(*layout), "parallel.replay=" + name + "_async"
        train(name, job)
        train(name + "_served", job, *SERVER)
        runs.same_story(runs.story(name), name + "_served")
        runs.same_checkpoint(name, name + "_served")
        train(name + "_async", job, *ASYNC)
        train(name + "_again", job, *ASYNC, order, "parallel.place=processes")
        if last_hash(name + "_again") != last_hash(name + "_async"):
            raise AssertionError("%s: the order comes to other parameters" % name)
        train(name + "_host", job, *ASYNC, order, devices="cpu")
        near(name + "_host", name + "_async", 2e-3)


if __name__ == "__main__":
    runs.need_gpus(2)
    runs.main(sys.modules[__name__])
