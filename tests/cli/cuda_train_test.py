"""cuda_train_test.py - training on a GPU: the losses of the host, the same bits again, after a
resume and for any number of workers; precisions, models, reports.  Exit code 77 without a GPU."""

import os
import subprocess
import sys

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


def n_devices():
    doctor = subprocess.run([runs.PROGRAM, "doctor", "--quick"], capture_output=True, text=True)
    return sum(line.strip().startswith("device ") for line in doctor.stdout.splitlines())


def way_of_sums(run):
    return [r["backend"] for r in runs.records(run) if r["event"] == "start"][-1].split("sums ")[-1]


def train(run, job, *arguments, devices="gpu"):
    return runs.tutti("train", *job, "run.dir=" + run, "parallel.devices=" + devices, *arguments,
                      timeout_s=110).expect(0)


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


def test_as_the_host():
    """f32 on the GPU and on the host: only the order of sums differs."""
    train("host", LENET, "train.precision=f32", devices="cpu")
    train("gpu", LENET, "train.precision=f32")
    near("gpu", "host", 2e-3)
    train("low", LENET)  # bf16
    near("low", "host", 0.1)
    with open("low/job.yaml") as file:
        if "precision: bf16" not in file.read():
            raise AssertionError("auto is not bf16 on a GPU")


def test_same_bits():
    """Again, on one worker or several, threads or processes, and after a stop in between."""
    train("one", LENET, "-n", "1")
    told = runs.story("one")
    for run, place in (("again", ["-n", "1"]), ("threads", ["-n", "2"]),
                       ("processes", ["-n", "2", "parallel.place=processes"])):
        train(run, LENET, *place)
        runs.same_story(told, run)
    train("cut", LENET, "-n", "1", "train.steps=10", "schedule.steps=24")
    runs.tutti("train", "--resume", "cut", "train.steps=24", "-n", "2", timeout_s=110).expect(0)
    train("whole", LENET, "-n", "1", "schedule.steps=24")
    if losses("cut") != losses("whole") or last_hash("cut") != last_hash("whole"):
        raise AssertionError("a resume on two workers comes to something else")


def test_workers_that_share_a_device():
    """Nothing connects them: the host adds, says so, and comes to the same bits."""
    for name, job in (("lenet", LENET), ("joined", JOINED)):
        train(name, job, "-n", "1")
        train(name + "2", job, "-n", "2", devices="0")
        runs.same_story(runs.story(name), name + "2")
        if way_of_sums(name + "2") != "by way of the host: ranks 0 and 1 share a device":
            raise AssertionError(way_of_sums(name + "2"))


def test_ways_of_sums():
    """On several GPUs, by kernels over each other's memory and by NCCL, even shards or not."""
    if n_devices() < 2:
        return
    for name, job in (("lenet", LENET), ("joined", JOINED), ("gpt", GPT)):
        train(name, job, "-n", "1")
        for place in ("threads", "processes"):
            for algorithm, way in (("direct", "over peers' memory"), ("tree", "NCCL ")):
                run = "_".join((name, place, algorithm))
                train(run, job, "-n", "2", "parallel.place=" + place,
                      "parallel.algorithm=" + algorithm)
                runs.same_story(runs.story(name), run)
                if not way_of_sums(run).startswith(way):
                    raise AssertionError("%s: %s" % (run, way_of_sums(run)))
    if n_devices() > 2:
        train("three", LENET, "-n", "3")
        runs.same_story(runs.story("lenet"), "three")


def test_samples_on_the_device():
    """Batches that the GPU makes by itself, one step ahead or eight: the bits of fed ones."""
    job = LENET + ["train.batch=60", "-n", "1"]  # the last batch of an epoch is short
    train("fed", job, "data.resident=no")
    for run, wish in (("kept", ["data.resident=yes"]), ("one_by_one", ["parallel.ahead=1"]),
                      ("eight", ["parallel.ahead=8", "train.precision=auto"])):
        train(run, job, *wish)
        if losses(run) != losses("fed") or last_hash(run) != last_hash("fed"):
            raise AssertionError("%s differs from batches that are fed" % run)
        if [r["resident"] for r in runs.records(run) if r["event"] == "start"] != [True]:
            raise AssertionError("%s: the samples are not on the device" % run)


def test_a_transformer():
    train("host", GPT, "train.precision=f32", devices="cpu")
    train("gpu", GPT, "train.precision=f32")
    near("gpu", "host", 2e-3)
    train("low", GPT, "train.low_stream=true")
    near("low", "host", 0.1)


def test_what_is_used_of_a_run():
    train("run", LENET, "-n", "1")
    runs.tutti("eval", "run").expect(0, "accuracy")
    if not os.path.getsize("run/report.html"):
        raise AssertionError("no report")
    runs.tutti("profile", *LENET, "--steps", "1").expect(0, "conv2d", "update", "ceilings")
    runs.tutti("inspect", *LENET).expect(0, "shard program of lenet")


def test_bad_devices():
    """What is not there is named, and a model that does not fit is refused before it runs."""
    job = ["train", *LENET, "run.dir=none"]
    runs.tutti(*job, "parallel.devices=99").expect(2, "there is no device 99; this machine has")
    runs.tutti(*job, "parallel.devices=0,0").expect(2, "device 0 is named twice")
    if os.path.exists("none"):
        raise AssertionError("left a folder: %s" % os.listdir("none"))


if __name__ == "__main__":
    if "device 0:" not in subprocess.run([runs.PROGRAM, "doctor", "--quick"],
                                         capture_output=True, text=True).stdout:
        print("skipped: no device")
        sys.exit(77)
    runs.main(sys.modules[__name__])
