"""resume_test.py - a resumed run against the job in its checkpoint: keys that cannot change are
refused with what to do instead, others are listed, and no damage of job.yaml goes unnoticed."""

import os
import random
import shutil
import sys

import runs

LISTED = "the run continues with other values than its checkpoint"


def make_run(run, *arguments):
    """A run whose newest checkpoint is lost, so that it has steps to repeat."""
    runs.tutti(*runs.small(run, "run.checkpoint_every=20", *arguments)).expect(0)
    params_hash = runs.records(run)[-1]["params_hash"]
    shutil.rmtree(run + "/checkpoints/step-000000040")
    return params_hash


def replace(path, old, new):
    with open(path) as file:
        text = file.read()
    if old not in text:
        raise AssertionError("no '%s' in %s" % (old, path))
    with open(path, "w") as file:
        file.write(text.replace(old, new))


def test_keys_that_cannot_change_are_refused():
    make_run("run")
    before = os.listdir("run/checkpoints")
    for change, was in (("train.batch=32", "60"), ("optimizer.name=sgd", "adamw"),
                        ("parallel.shards=4", "8"), ("model.hidden=[8]", "[16]"),
                        ("train.seed=2", "1"), ("model.name=lenet", "mlp")):
        key, value = change.split("=")
        runs.tutti("train", "--resume", "run", change, "-n", "2").expect(
            2, "%s: %s here (command line), %s in the checkpoint" % (key, value, was),
            "start a new run from these weights", "model.init=run/checkpoints/step-000000020")
    if os.listdir("run/checkpoints") != before:
        raise AssertionError("a refused run left %s" % os.listdir("run/checkpoints"))
    # The command that the message suggests works.
    runs.tutti("train", "run/job.yaml", "run.dir=new", "train.batch=32",
               "model.init=run/checkpoints/step-000000020").expect(0)


def test_other_differences_are_listed():
    """Those of job.yaml; an assignment on the command line is meant, and needs no notice."""
    make_run("run")
    ended = runs.tutti("train", "--resume", "run", "train.steps=25", "optimizer.lr=0.5").expect(0)
    if LISTED in ended.err:
        raise AssertionError(ended.err)
    for place in ("threads", "processes"):
        run = "run-" + place
        make_run(run)
        replace(run + "/job.yaml", "lr: 0.001", "lr: 0.002")
        replace(run + "/job.yaml", "dropout: 0.2", "#ropout: 0.2")
        ended = runs.tutti("train", "--resume", run, "-n", "2", "parallel.place=" + place)
        ended.expect(0, "warning: " + LISTED, "optimizer.lr: 0.002 here (%s/job.yaml:" % run,
                     "0.001 in the checkpoint", "model.dropout: 0 here (the default), 0.2 in")
        if ended.err.count(LISTED) != 1:
            raise AssertionError("reported more than once: " + ended.err)


def test_samples_that_changed():
    """Data with the same classes, statistics and size is compared by its contents."""
    rows = ["%d.5,%s" % (i, "ab"[i % 2]) for i in range(40)]

    def write(rows):
        with open("t.csv", "w") as file:
            file.write("x,label\n" + "\n".join(rows) + "\n")

    for place in ("threads", "processes"):
        run = "changed-" + place
        write(rows)
        runs.tutti("train", "model.name=mlp", "model.hidden=[8]", "data.format=csv",
                   "data.dir=t.csv", "train.batch=8", "train.epochs=1", "run.dir=" + run).expect(0)
        os.rename("t.csv", "u.csv")
        again = ["train", "--resume", run, "data.dir=u.csv", "-n", "2", "parallel.place=" + place]
        ended = runs.tutti(*again, "train.epochs=2").expect(0)
        if "not that of the run before" in ended.err:
            raise AssertionError("the same data elsewhere: " + ended.err)
        os.remove("u.csv")
        write([row[:-1] + ("a" if row[-1] == "b" else "b") for row in rows])
        again[3] = "data.dir=t.csv"
        ended = runs.tutti(*again, "train.epochs=3")
        ended.expect(0, "warning: the data is not that of the run before: it had 36 training")
        if ended.err.count("not that of the run before") != 1:
            raise AssertionError("reported more than once: " + ended.err)


def test_nothing_to_train():
    """The run has more steps than it is asked for, or as many: a warning, and exit code 0."""
    make_run("run")
    runs.tutti("train", "--resume", "run", "run.progress=true").expect(0)
    params_hash = runs.records("run")[-1]["params_hash"]
    for place in ("threads", "processes"):
        for change, part in ((["train.steps=30"], "and train.steps=30 ends it after 30, counted"),
                             ([], "already has 40 steps, and train.steps=40 ends it after 40"),
                             (["train.epochs=100"], "give a larger train.steps to train it")):
            ended = runs.tutti("train", "--resume", "run", *change, "-n", "2",
                               "parallel.place=" + place)
            ended.expect(0, "warning: nothing to train: the run already has 40 steps", part)
            if ended.err.count("nothing to train") != 1:
                raise AssertionError("reported more than once: " + ended.err)
            if runs.records("run")[-1]["params_hash"] != params_hash:
                raise AssertionError("other parameters")
    runs.tutti(*runs.small("epochs", "train.steps=0", "train.epochs=2")).expect(0)
    runs.tutti("train", "--resume", "epochs", "train.epochs=1").expect(
        0, "(2 epochs), and train.epochs=1 ends it after", "give a larger train.epochs")
    ended = runs.tutti("train", "--resume", "epochs", "train.epochs=3").expect(0)
    if "nothing to train" in ended.err:
        raise AssertionError(ended.err)


def flip(data, bit):
    return data[:bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1:]


def test_no_bit_of_the_job_changes_the_result_silently(n_bits=24):
    """Each flip is refused, listed, or has no effect on the result."""
    expected = make_run("run")
    with open("run/job.yaml", "rb") as file:
        job = file.read()
    keep = {name for name in os.listdir("run/checkpoints")}
    draw = random.Random(runs.SEED)
    for bit in draw.sample(range(8 * len(job)), n_bits):
        with open("run/job.yaml", "wb") as file:
            file.write(flip(job, bit))
        ended = runs.tutti("train", "--resume", "run", "run.progress=true")
        if ended.code not in (0, 2, 3, 4):
            raise AssertionError("bit %d: exit code %d: %s" % (bit, ended.code, ended.err))
        if ended.code == 0 and LISTED not in ended.err and expected not in ended.out:
            raise AssertionError("bit %d (byte %r) is silent: %s" % (
                bit, job[max(bit // 8 - 20, 0):bit // 8 + 20], ended.out))
        for name in set(os.listdir("run/checkpoints")) - keep:
            shutil.rmtree("run/checkpoints/" + name)
        if set(os.listdir("run/checkpoints")) != keep:  # run.keep was changed
            shutil.rmtree("run")
            make_run("run")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
