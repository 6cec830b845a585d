"""job_file_test.py - the job.yaml of a run has every value settled and makes the same run again:
for every data format and model family; resuming reports no difference."""

import os
import re
import sys

import run_moved_test
import runs

MLP = run_moved_test.MLP


def table(target):
    def make():
        rows = "".join("%g,%g,%s\n" % (i * 37 % 11 / 3, i * 53 % 7, target(i)) for i in range(60))
        run_moved_test.write("data/train.csv", b"a,b,y\n" + rows.encode())
        return {"data": [], "model": MLP}
    return make


def values():
    made = table(lambda i: "%.3f" % (i * 29 % 13 / 7))()
    made["model"] = [*MLP, "train.loss=mse"]  # that these are values is seen in the data
    return made


def several():
    rows = "".join("%g,%g,%g\n" % (i * 37 % 11, i * 53 % 7 / 2, i % 5 / 4) for i in range(60))
    run_moved_test.write("data/train.csv", b"a,y,z\n" + rows.encode())
    return {"data": ["data.label=[y, z]"], "model": [*MLP, "train.loss=mse"]}


def with_model(make, *keys):
    def changed():
        made = make()
        made["model"] = keys
        return made
    return changed


def pretrained():
    """Sizes, activation and tying come from config.json."""
    made = run_moved_test.tokens()
    arguments = ["data.format=tokens", "data.dir=data", "data.context=8"]
    runs.tutti("train", *arguments, *run_moved_test.transformer("gpt2", "model.activation=relu"),
               "train.batch=4", "train.steps=1", "run.dir=first", "-n", "1").expect(0)
    runs.tutti("export", "first", "--format", "hf", "--out", "hub").expect(0)
    made["model"] = ["model.name=gpt2", "model.init=hub"]
    return made


CASES = {
    **run_moved_test.FORMATS,
    "csv": table(lambda i: "yes" if i % 3 else "no"), "csv-values": values, "csv-several": several,
    "cifar10-resnet": with_model(run_moved_test.FORMATS["cifar10"], "model.name=resnet18",
                                 "model.stem=cifar", "train.batch=2", "optimizer.name=sgd"),
    "images-vgg": with_model(run_moved_test.images, "model.name=vgg11", "model.stem=cifar",
                             "data.image_size=32", "train.batch=2", "optimizer.name=sgd"),
    "text-lstm": with_model(run_moved_test.text, "model.name=lstm", "model.width=8"),
    "text-bytes": with_model(run_moved_test.text, *run_moved_test.transformer(
        "gpt2", "data.tokenizer=bytes", "model.tied=no")),
    "tokens-pretrained": pretrained,
}


def hash_of(ended):
    return re.search(r"params_hash ([0-9a-f]{16})", ended.expect(0).out)[1]


def read(path):
    with open(path) as file:
        return file.read()


def without_run_dir(job):
    head, tail = job.split("run:\n")
    return head + tail.split("\n", 1)[1]


def check(name):
    case = CASES[name]()
    data = [] if case.get("drawn") else ["data.dir=data"]
    small = ["data.n_train=40", "data.n_test=8"] if case.get("drawn") else []
    first = hash_of(runs.tutti("train", "data.format=" + name.split("-")[0], *data, *small,
                               *case["data"], "train.batch=4", *case["model"], "train.steps=1",
                               "parallel.shards=2", "-n", "2"))
    run = "runs/" + os.listdir("runs")[0]
    job = read(run + "/job.yaml")
    left = [line for line in job.splitlines() if re.search(r"\bauto\b", line.split(":", 1)[1])]
    assert not left, left
    again = runs.tutti("train", run + "/job.yaml", "run.dir=again")
    assert hash_of(again) == first, (name, again.out)
    assert without_run_dir(read("again/job.yaml")) == without_run_dir(job), read("again/job.yaml")
    assert hash_of(runs.tutti("train", run + "/job.yaml", "run.dir=alone", "-n", "1")) == first
    resumed = runs.tutti("train", "--resume", "again", "train.steps=2").expect(0)
    assert "other values" not in resumed.err, resumed.err


SLOW = {"cifar10-resnet", "images-vgg"}  # of many parameters: job_file_slow_test.py


def tests_of(names):
    return {"test_" + name.replace("-", "_"): lambda name=name: check(name) for name in names}


globals().update(tests_of(name for name in CASES if name not in SLOW))


def test_processes():
    """The worker of rank 0 has seen the data, and writes for all."""
    runs.tutti(*runs.small("run", "-n", "2", "parallel.place=processes")).expect(0)
    assert not re.search(r": auto\b", read("run/job.yaml")), read("run/job.yaml")
    runs.tutti("train", "--resume", "run", "train.steps=90").expect(0)


def test_files_of_older_versions():
    """Where the job file says auto, the checkpoint has what it was settled to."""
    runs.tutti(*runs.small("run")).expect(0)
    job = read("run/job.yaml")
    for key, value in (("size", "none"), ("algorithm", "by_size"), ("backend", "fastest")):
        assert "%s: %s\n" % (key, value) in job, job
        job = job.replace("%s: %s\n" % (key, value), "%s: auto\n" % key)
    with open("run/job.yaml", "w") as file:
        file.write(job)
    resumed = runs.tutti("train", "--resume", "run", "train.steps=90").expect(0)
    assert "other values" not in resumed.err, resumed.err


def test_words_that_do_not_fit():
    runs.tutti(*runs.small("run")).expect(0)
    for part, *changed in (
            ("model.size: none needs model.layers", "model.name=gpt2"),
            ("train.loss_scale: small gradients underflow", "train.precision=f16"),
            ("data.tokenizer: text needs a tokenizer", "data.format=text", "data.dir=."),
            ("data.mask_token: data.mask_prob=0.1 needs a token", "data.mask_prob=0.1")):
        runs.tutti("train", "run/job.yaml", "run.dir=new", *changed).expect(2, part)
    runs.tutti("train", "run/job.yaml", "run.dir=new", "model.name=gpt2", "model.size=124M").expect(
        2, "model.activation: gpt2 needs an activation; give model.activation=gelu_tanh")


def test_names_with_an_equals_sign():
    """A run folder such as grid/lr=0.1 is usual: its job file is no assignment."""
    os.makedirs("grid")
    runs.tutti(*runs.small("grid/lr=0.1")).expect(0)
    runs.tutti("config", "show", "grid/lr=0.1/job.yaml").expect(0)
    runs.tutti("train", "grid/lr=0.1/job.yaml", "run.dir=grid/lr=0.2").expect(0)
    runs.tutti("train", "--resume", "grid/lr=0.2", "train.steps=90").expect(0)
    runs.tutti("train", "lr=0.1").expect(2, 'unknown key (did you mean "optimizer.lr"?)')


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
