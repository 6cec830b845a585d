"""cuda_mixed_test.py - workers on a GPU and on the host in one run: the losses of the host, one set
of parameters on all workers (each step and each checkpoint compares them), shares, resume.
Exit code 77 without a GPU."""

import sys

import cuda_train_test as one
import runs

FAST = ["parallel.mode=fast", "run.checkpoint_every=12"]
GIVEN = "parallel.shares=3,1"
PROCESSES = "parallel.place=processes"
MLP = ["model.name=mlp", "model.dropout=0.2", *one.LENET[1:]]
CASES = {"lenet": (one.LENET, 2e-3), "mlp": (MLP, 2e-3), "gpt2": (one.GPT, 2e-3),
         "joined": (one.JOINED, 0.1)}  # joined statistics make much of a bit


def shares_of(run):
    return [r["shards"] for r in runs.records(run) if r["event"] == "shares"][-1]


def test_losses_of_the_host():
    for name, (job, tolerance) in CASES.items():
        shares = "parallel.shares=1,1" if name == "gpt2" else GIVEN
        one.train(name + "-host", [*job, *FAST], "-n", "1", devices="cpu")
        one.train(name, [*job, *FAST, shares], devices="0,cpu")
        one.near(name, name + "-host", tolerance)


def test_places_and_precisions():
    one.train("host", [*one.LENET, *FAST], "-n", "1", devices="cpu")
    for run, devices, keys, tolerance in (
            ("first", "cpu,0", ["parallel.shares=1,3", PROCESSES], 2e-3),
            ("three", "0,cpu", ["-n", "3", "parallel.shares=2,1,1"], 2e-3),
            ("adamw", "0,cpu", [GIVEN, "optimizer.name=adamw", "train.ema=0.9",
                                "train.clip_norm=1"], None),
            ("wire", "0,cpu", [GIVEN, "parallel.compress=bf16"], 0.05)):
        one.train(run, [*one.LENET, *FAST], *keys, devices=devices)
        if tolerance:
            one.near(run, "host", tolerance)
    for precision, tolerance in (("tf32", 0.01), ("bf16", 0.05)):
        job = [*one.LENET, *FAST, "train.precision=" + precision]
        alone = precision + "-alone"
        one.train(alone, job, devices="0")
        one.train(precision, job, GIVEN, devices="0,cpu")
        one.near(precision, alone, tolerance)


def test_measured():
    """Unasked, and reported."""
    for place in ("threads", "processes"):
        one.train(place, [*one.LENET, *FAST, "parallel.shards=16", "parallel.place=" + place],
                  devices="gpu,cpu")
        shares = shares_of(place)
        print("%s: shards %s" % (place, shares))
        if sum(shares) != 16 or len(shares) != one.n_devices() + 1:
            raise AssertionError(shares)


def test_resume():
    """A checkpoint of a mix goes on anywhere, and one of a GPU in a mix."""
    job = [*one.LENET, *FAST, "optimizer.name=sgd", "train.precision=f32"]
    one.train("host", job, "-n", "1", devices="cpu")
    for begun, then in (("0,cpu", "cpu"), ("0,cpu", "0"), ("0", "0,cpu"), ("cpu", "cpu,0")):
        run = "%s-%s" % (begun, then)
        one.train(run, [*job, "train.steps=12", "schedule.steps=24"], devices=begun)
        workers = "2" if "," in then else "1"
        runs.tutti("train", "--resume", run, "parallel.devices=" + then, "-n", workers,
                   "train.steps=24", timeout_s=110).expect(0)
        one.near(run, "host", 2e-3)


def test_refused_in_exact_mode():
    runs.tutti("train", *one.LENET, "run.dir=no", "parallel.devices=0,cpu").expect(
        2, "exact mode promises bits that do not depend on who computes a shard")


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
