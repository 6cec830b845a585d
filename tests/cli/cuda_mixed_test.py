"""cuda_mixed_test.py - workers on a GPU and on the host in one run: the losses of the host, one set
of parameters on all workers (each step and each checkpoint compares them), shares, resume.
Exit code 77 without a GPU."""

import sys

import gpus
import runs

FAST = ["parallel.mode=fast", "run.checkpoint_every=12"]
GIVEN = "parallel.load_weights=3,1"
PROCESSES = "parallel.place=processes"
MLP = ["model.name=mlp", "model.dropout=0.2", *gpus.LENET[1:]]
CASES = {"lenet": (gpus.LENET, 2e-3), "mlp": (MLP, 2e-3), "gpt2": (gpus.GPT, 2e-3),
         "joined": (gpus.JOINED, 0.1)}  # joined statistics make much of a bit


def shares_of(run):
    return [r["shards"] for r in runs.records(run) if r["event"] == "shard_map"][-1]


def test_losses_of_the_host():
    for name, (job, tolerance) in CASES.items():
        shares = "parallel.load_weights=1,1" if name == "gpt2" else GIVEN
        gpus.train(name + "-host", [*job, *FAST], "-n", "1", devices="cpu")
        gpus.train(name, [*job, *FAST, shares], devices="0,cpu")
        gpus.near(name, name + "-host", tolerance)


def test_places_and_precisions():
    gpus.train("host", [*gpus.LENET, *FAST], "-n", "1", devices="cpu")
    for run, devices, keys, tolerance in (
            ("first", "cpu,0", ["parallel.load_weights=1,3", PROCESSES], 2e-3),
            ("three", "0,cpu", ["-n", "3", "parallel.load_weights=2,1,1"], 2e-3),
            ("adamw", "0,cpu", [GIVEN, "optimizer.name=adamw", "train.ema=0.9",
                                "train.clip_norm=1"], None),
            ("wire", "0,cpu", [GIVEN, "parallel.wire=bf16"], 0.05)):
        gpus.train(run, [*gpus.LENET, *FAST], *keys, devices=devices)
        if tolerance:
            gpus.near(run, "host", tolerance)
    for precision, tolerance in (("tf32", 0.01), ("bf16", 0.05)):
        job = [*gpus.LENET, *FAST, "train.precision=" + precision]
        alone = precision + "-alone"
        gpus.train(alone, job, devices="0")
        gpus.train(precision, job, GIVEN, devices="0,cpu")
        gpus.near(precision, alone, tolerance)


def test_measured():
    """Unasked, and reported."""
    for place in ("threads", "processes"):
        gpus.train(place, [*gpus.LENET, *FAST, "parallel.shards=16", "parallel.place=" + place],
                  devices="gpu,cpu")
        shares = shares_of(place)
        print("%s: shards %s" % (place, shares))
        if sum(shares) != 16 or len(shares) != runs.n_devices() + 1:
            raise AssertionError(shares)


def test_resume():
    """A checkpoint of a mix goes on anywhere, and one of a GPU in a mix."""
    job = [*gpus.LENET, *FAST, "optimizer.name=sgd", "train.precision=f32"]
    gpus.train("host", job, "-n", "1", devices="cpu")
    for begun, then in (("0,cpu", "cpu"), ("0,cpu", "0"), ("0", "0,cpu"), ("cpu", "cpu,0")):
        run = "%s-%s" % (begun, then)
        gpus.train(run, [*job, "train.steps=12", "schedule.steps=24"], devices=begun)
        workers = "2" if "," in then else "1"
        runs.tutti("train", "--resume", run, "parallel.devices=" + then, "-n", workers,
                   "train.steps=24").expect(0)
        gpus.near(run, "host", 2e-3)


def test_refused_in_exact_mode():
    runs.tutti("train", *gpus.LENET, "run.dir=no", "parallel.devices=0,cpu").expect(
        2, "do not give the same bits, which exact mode promises")


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
