"""cuda_train_test.py - training on a GPU: the losses of the host, the same bits again, after a
resume and for any number of workers; precisions, models, reports.  Exit code 77 without a GPU."""

import json
import os
import sys

import runs
from gpus import GPT, JOINED, LENET, falls, last_hash, losses, near, train
from profiles import traffic_of


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


def test_shards_without_samples():
    """The last batch of an epoch has two samples for four shards: batch norms of the two others
    have no statistics, and their gradient is nothing, also where they are joined."""
    for name, joined in (("alone", "false"), ("joined", "true")):
        job = JOINED + ["data.n_train=18", "data.image_size=64", "train.steps=3",
                        "parallel.sync_batch_norm=" + joined, "train.precision=f32",
                        "optimizer.name=sgd", "optimizer.lr=0.001"]
        train(name + "_host", job, devices="cpu")
        train(name, job, "-n", "1")
        near(name, name + "_host", 2e-3)
        train(name + "_two", job, "-n", "2")
        runs.same_story(runs.story(name), name + "_two")


def scale_of(run):
    with open("%s/checkpoints/step-%09d/manifest.json" % (run, 24)) as file:
        return float(json.load(file)["texts"]["loss_scale"].split()[0])


def test_scaled_losses():
    """f16 with a scale that is given as on the host; with one that moves the first steps overflow
    and are left out, the scale falls, and a resume goes on with it.  tf32 is f32 with roundings."""
    for run, devices in (("host", "cpu"), ("gpu", "gpu")):
        train(run, LENET, "train.precision=f16", "train.loss_scale=256", devices=devices)
    near("gpu", "host", 0.1)
    train("moving", LENET, "train.precision=f16")
    falls("moving", 1.7)
    if not 1 <= scale_of("moving") < 65536:
        raise AssertionError("the scale is %g" % scale_of("moving"))
    train("cut", LENET, "train.precision=f16", "train.steps=10", "schedule.steps=24")
    runs.tutti("train", "--resume", "cut", "train.steps=24").expect(0)
    train("whole", LENET, "train.precision=f16", "schedule.steps=24")
    if losses("cut") != losses("whole") or last_hash("cut") != last_hash("whole"):
        raise AssertionError("a resume in f16 comes to something else")
    train("tf32", LENET, "train.precision=tf32")
    train("f32", LENET, "train.precision=f32", devices="cpu")
    near("tf32", "f32", 2e-2)


def test_same_bits():
    """Again, on one worker or several, threads or processes, and after a stop in between."""
    train("one", LENET, "-n", "1")
    shown = runs.story("one")
    for run, place in (("again", ["-n", "1"]), ("threads", ["-n", "2"]),
                       ("processes", ["-n", "2", "parallel.place=processes"])):
        train(run, LENET, *place)
        runs.same_story(shown, run)
    train("cut", LENET, "-n", "1", "train.steps=10", "schedule.steps=24")
    runs.tutti("train", "--resume", "cut", "train.steps=24", "-n", "2").expect(0)
    train("whole", LENET, "-n", "1", "schedule.steps=24")
    if losses("cut") != losses("whole") or last_hash("cut") != last_hash("whole"):
        raise AssertionError("a resume on two workers comes to something else")


def test_samples_on_the_device():
    """Batches that the GPU makes by itself, one step ahead or eight: the bits of fed ones."""
    job = LENET + ["train.batch=60", "-n", "1"]  # the last batch of an epoch is short
    train("fed", job, "data.resident=no")
    for run, option, at_once in (("kept", ["data.resident=yes"], 4),
                               ("one_by_one", ["parallel.ahead=1"], 1),
                               ("eight", ["parallel.ahead=8", "train.precision=auto"], 4)):
        train(run, job, *option)
        if losses(run) != losses("fed") or last_hash(run) != last_hash("fed"):
            raise AssertionError("%s differs from batches that are fed" % run)
        start = [r for r in runs.records(run) if r["event"] == "start"]
        if [(r["resident"], r["steps_per_launch"]) for r in start] != [(True, at_once)]:
            raise AssertionError("%s: not %d steps over samples on the device" % (run, at_once))


def test_a_transformer():
    train("host", GPT, "train.precision=f32", devices="cpu")
    train("gpu", GPT, "train.precision=f32")
    near("gpu", "host", 2e-3)
    train("low", GPT, "train.low_precision_residual=true")
    near("low", "host", 0.1)


def test_what_is_used_of_a_run():
    train("run", LENET, "-n", "1")
    runs.tutti("eval", "run").expect(0, "accuracy")
    if not os.path.getsize("run/report.html"):
        raise AssertionError("no report")
    runs.tutti("profile", *LENET, "--steps", "1").expect(0, "conv2d", "more (--all)", "ceilings")
    runs.tutti("profile", *LENET, "--steps", "1", "--all").expect(0, "(update)", "(begin)")
    runs.tutti("inspect", *LENET).expect(0, "shard program of lenet")


def spans_of(path):
    """{(rank, row): its spans}, which follow each other."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {}
    for span in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        row = rows.setdefault((span["pid"], names[span["pid"], span["tid"]]), [])
        if row and span["ts"] < row[-1]["ts"] + row[-1]["dur"] - 0.5:
            raise AssertionError("%s begins before the one before it ends" % span)
        if span["dur"] < 0 or span["ts"] < 0:
            raise AssertionError(str(span))
        row.append(span)
    return rows


def ends_of(row, name):
    return [span["ts"] + span["dur"] for span in row if span["name"] == name]


def test_trace():
    """Queues of each worker's GPU by its own clock, beside the host's; sums where there are two."""
    runs.tutti("profile", *LENET, "--trace", "one.json", "--steps", "4").expect(0)
    rows = spans_of("one.json")
    kernels, copies = rows[0, "device: kernels"], rows[0, "device: copies of samples"]
    host = rows[0, "host: waits and enqueued work"]
    for row, name in ((kernels, "begin"), (kernels, "update"), (kernels, "report to the host"),
                      (copies, "samples to the device"), (host, "waiting for samples"),
                      (host, "waiting for the device")):
        if [s["name"] for s in row].count(name) != 4:
            raise AssertionError("%s: not 4 times" % name)
    for begin, copy in zip([s for s in kernels if s["name"] == "begin"], copies):
        if begin["ts"] + begin["dur"] < copy["ts"] + copy["dur"]:
            raise AssertionError("a step begins before its samples are there")
    reports, waits = ends_of(kernels, "report to the host"), ends_of(host, "waiting for the device")
    lags = [heard - shown for shown, heard in zip(reports, waits)]
    if not abs(min(lags, key=abs)) < 2000:  # us; a host that is busy may hear of a step later
        raise AssertionError("clocks of host and device are apart: %s" % lags)
    runs.tutti("profile", *LENET, "--trace", "two.json", "-n", "2").expect(0)
    rows = spans_of("two.json")
    for rank in (0, 1):
        sums = rows[rank, "sums between workers"]
        if not any(s["name"] == "all_reduce of gradients" for s in sums):
            raise AssertionError("rank %d: no sums" % rank)


def test_trace_of_parts():
    """Two GPUs with tensor shards, stages and partitioned parameters: collectives, messages
    and parameters are in queues beside the kernels, and no more of them is hidden than there is."""
    if runs.n_devices() < 2:
        return
    for key, row, kind in (("parallel.tensor=2", "TP collectives",
                            "TP collectives"),
                           ("parallel.pipeline=2", "segments of the stage",
                            "values between stages"),
                           ("parallel.zero=3", "sums between workers", "parameters")):
        out = runs.tutti("profile", *GPT, key, "-n", "2", "parallel.devices=gpu", "--steps", "2",
                         "--trace", "parts.json").expect(0, "between 2 workers").out
        traffic = traffic_of(out).get(kind)
        if not traffic or traffic[0] < 1 or not traffic[1] > 0:
            raise AssertionError("%s: %s" % (key, out))
        rows = spans_of("parts.json")
        for rank in (0, 1):
            if not rows.get((rank, row)) or not rows.get((rank, "device: kernels")):
                raise AssertionError("%s: rank %d has only %s" % (key, rank, list(rows)))
            if [s["name"] for s in rows[rank, "device: kernels"]].count("update") != 2:
                raise AssertionError("%s: rank %d: not two steps" % (key, rank))


def test_cache_that_is_damaged():
    """Ignored, and made again: the run is the same, and the next one finds it good."""
    environment = dict(os.environ, TUTTI_CACHE=os.path.abspath("cache"))
    job = ["train", *GPT, "parallel.devices=gpu", "parallel.mode=fast", "model.width=512",
           "model.heads=8", "data.context=512"]
    for run in ("first", "damaged", "after"):
        runs.tutti(*job, "run.dir=" + run, env=environment).expect(0)
        kept = [name for name in os.listdir("cache") if not name.endswith(".lock")]
        if not kept:
            raise AssertionError("nothing was kept")
        for name in kept:
            with open("cache/" + name, "rb") as file:
                good = file.read()
            if run == "damaged" and b"tutti-cache" != good[:11]:
                raise AssertionError("%s was not made again" % name)
            if run == "first":
                with open("cache/" + name, "wb") as file:
                    file.write(b"x" * 11 + good[11:-1])
    near("damaged", "first", 0.05)
    near("after", "first", 0.05)


def test_bad_devices():
    """What is not there is named, and a model that does not fit is refused before it runs."""
    job = ["train", *LENET, "run.dir=none"]
    runs.tutti(*job, "parallel.devices=99").expect(2, "there is no device 99; this machine has")
    runs.tutti(*job, "parallel.devices=0,0").expect(2, "device 0 is named twice")
    if os.path.exists("none"):
        raise AssertionError("left a folder: %s" % os.listdir("none"))


def test_doctor_names_nccl():
    shown = runs.tutti("doctor", "--quick").expect(0, "  between devices: ").out
    if "between devices: NCCL 2." not in shown and "between devices: no NCCL (" not in shown:
        raise AssertionError(shown)


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
