"""cuda_train_test.py - training on a GPU: the losses of the host, the same bits again, after a
resume and for any number of workers; precisions, models, reports.  Exit code 77 without a GPU."""

import json
import os
import signal
import subprocess
import sys
import time

import runs
from profiles import traffic_of

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


def falls(run, first):
    """Of ways that leave something out of their sums or add seldom: they learn, more slowly."""
    if not losses(run)[-1] < first:
        raise AssertionError("%s begins at %g: %s" % (run, first, losses(run)))


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
    runs.tutti("train", "--resume", "cut", "train.steps=24", timeout_s=110).expect(0)
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
        if not way_of_sums(name + "2").startswith("by way of the host"):
            raise AssertionError(way_of_sums(name + "2"))
        train(name + "3", job, "-n", "2", "parallel.algorithm=direct", devices="0")
        runs.same_story(runs.story(name), name + "3")
        if way_of_sums(name + "3") != "by way of the host: ranks 0 and 1 share a device":
            raise AssertionError(way_of_sums(name + "3"))


def test_small_products_that_share_a_device():
    """Threads launch one kernel with sizes of their own: none takes shared memory from another."""
    job = LENET + ["parallel.shards=8", "train.batch=128", "train.precision=tf32"]
    train("small", job, "-n", "1")
    for i in range(3):
        train("small%d" % i, job, "-n", "8", devices="0")
        runs.same_story(runs.story("small"), "small%d" % i)


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


def test_steps_that_end_on_the_host():
    """A state that the host has and server threads: a GPU's bits, since the update rounds as the
    host's does.  What is compressed or averaged there learns."""
    several = ["-n", str(min(n_devices(), 2))]
    for name, job in (("lenet", LENET), ("gpt", GPT)):
        job = job + ["train.precision=f32"]
        train(name, job, "-n", "1")
        shown = runs.story(name)
        for run, wish in (("state", ["-n", "1", "parallel.offload=optimizer"]),
                          ("streams", ["-n", "1", "parallel.offload=optimizer",
                                       "parallel.bucket_mb=0.02"]),
                          ("states", [*several, "parallel.offload=optimizer"]),
                          ("server", [*several, "parallel.sync=parameter-server"])):
            train(name + "_" + run, job, *wish)
            runs.same_story(shown, name + "_" + run)
    for wish in ("parallel.compress=topk", "parallel.compress=powersgd", "parallel.sync=local"):
        train(wish, LENET, *several, wish, "parallel.mode=fast")
        falls(wish, losses("lenet")[0])


def test_compressed_between_devices():
    """Where GPUs reach each other they compress in the recorded step, in threads and processes, by
    their memory and by NCCL: near the host, since products are added in another order."""
    if n_devices() < 2:
        return
    for name, job, wish in (("lenet", LENET, "powersgd"), ("gpt", GPT, "powersgd"),
                            ("gpt_pairs", GPT + ["parallel.compress_after=3"], "topk")):
        job = job + ["train.precision=f32", "optimizer.name=sgd", "optimizer.lr=0.05", "-n", "2",
                     "parallel.mode=fast", "parallel.compress=" + wish, "parallel.topk=0.05"]
        train(name, job, devices="cpu")
        for place, algorithm in (("threads", "direct"), ("threads", "tree"),
                                 ("processes", "direct")):
            run = "_".join((name, place, algorithm))
            train(run, job, "parallel.place=" + place, "parallel.algorithm=" + algorithm)
            if not way_of_sums(run).endswith("compressed there"):
                raise AssertionError("%s: %s" % (run, way_of_sums(run)))
            near(run, name, 2e-2)


def updates(run):
    with open(run + "/arrivals.txt") as file:
        return [[int(x) for x in line.split()] for line in file.readlines()[1:]]


def test_asynchronous_servers():
    """Workers on GPUs that wait for nobody, for those who are far behind, or for all: every batch
    makes one update and the model learns, no gradient lacks more updates than it may, and what has
    run comes again, in threads and processes, up to the kernels of fast mode."""
    n = min(n_devices(), 2)
    plain = LENET + ["train.precision=f32", "optimizer.name=sgd", "optimizer.momentum=0",
                     "optimizer.lr=0.05"]  # however late gradients come
    job = plain + ["-n", str(n), "parallel.sync=parameter-server", "parallel.mode=fast"]
    train("alone", plain, "-n", "1")
    train("stale_0", job, "parallel.staleness=0")
    near("stale_0", "alone", 2e-3)
    for staleness in ("2", "unbounded"):
        run = "stale_" + staleness
        train(run, job, "parallel.staleness=" + staleness)
        if sum(losses(run)[-8:]) >= sum(losses(run)[:8]):
            raise AssertionError("%s learns nothing: %s" % (run, losses(run)))
        shown = updates(run)
        if [u[0] for u in shown] != list(range(1, 25)) or sorted(u[1] for u in shown) != list(
                range(24)) or {u[2] for u in shown} - set(range(n)):
            raise AssertionError("%s: %s" % (run, shown))
        most = [r["staleness_max"] for r in runs.records(run) if r["event"] == "end"][-1]
        if most != max(u[0] - 1 - u[3] for u in shown) or most > 3 * (n - 1) and staleness == "2":
            raise AssertionError("%s: a gradient lacked %d updates: %s" % (run, most, shown))
        for place in ("threads", "processes"):
            again = "%s_%s" % (run, place)
            train(again, job, "parallel.staleness=" + staleness, "parallel.replay=" + run,
                  "parallel.place=" + place)
            near(again, run, 2e-3)
            if updates(again) != shown:
                raise AssertionError("%s: other updates: %s" % (again, updates(again)))


def test_unequal_shares():
    """Sums follow the shards, whoever has them."""
    if n_devices() < 2:
        return
    for name, job in (("lenet", LENET), ("joined", JOINED)):
        train(name, job, "-n", "1")
        for run, shares in (("given", "3,1"), ("measured", "measured")):
            train(name + "_" + run, job, "-n", "2", "parallel.shares=" + shares)
            runs.same_story(runs.story(name), name + "_" + run)


def test_models_in_parts():
    """Stages and pieces on GPUs of their own: threads and processes have the same bits."""
    if n_devices() < 2:
        return
    for name, job, wishes in (("lenet", LENET, ["pipeline=2"]),
                              ("gpt", GPT, ["pipeline=2", "tensor=2"])):
        job = job + ["train.precision=f32"]
        train(name, job, "-n", "1")
        for wish in wishes:
            run = name + "_" + wish
            train(run, job, "-n", "2", "parallel." + wish)
            near(run, name, 1e-4)
            train(run + "_processes", job, "-n", "2", "parallel." + wish,
                  "parallel.place=processes")
            runs.same_story(runs.story(run), run + "_processes")


def test_norms_between_exchanges():
    """Made with the exchanges before and behind them: the bits of the steps one by one, on one GPU
    by way of the host.  With many rows also while the products in front and behind run."""
    if n_devices() < 2:
        return
    job = GPT + ["train.precision=bf16", "train.low_stream=true", "model.dropout=0",
                 "parallel.tensor=2", "parallel.shards=1"]
    for width, context in ((128, 64), (1152, 64), (1152, 512)):
        both, alone = "both_%d_%d" % (width, context), "alone_%d_%d" % (width, context)
        wide = ["model.width=%d" % width, "model.heads=%d" % (width // 64),
                "data.context=%d" % context, "train.batch=%d" % (16 if context > 64 else 8)]
        train(both, job + wide, "-n", "2")
        if "norms with them" not in way_of_sums(both):
            raise AssertionError(way_of_sums(both))
        train(alone, job + wide, "-n", "2", devices="0")
        runs.same_story(runs.story(both), alone)
        train(both + "_processes", job + wide, "-n", "2", "parallel.place=processes")
        runs.same_story(runs.story(both), both + "_processes")


def test_stages_between_devices():
    """They send from device to device, alone, with copies that divide the batch, and with pieces:
    no copy of the model changes a bit, nor does a step that goes by way of the host, as every
    first one does, and every one where stages are more than GPUs."""
    if n_devices() < 2:
        return
    job = GPT + ["train.precision=f32", "train.clip_norm=0.5", "parallel.pipeline=2",
                 "parallel.bucket_mb=0.05"]
    train("two", job, "-n", "2")
    if "between stages over peers' memory" not in way_of_sums("two"):
        raise AssertionError(way_of_sums("two"))
    train("shared", job, "-n", "2", devices="0")
    runs.same_story(runs.story("two"), "shared")
    for zero in (0, 1) if n_devices() > 3 else ():
        run = "four_%d" % zero
        train(run, job, "-n", "4", "parallel.zero=%d" % zero)
        runs.same_story(runs.story("two"), run)
    if n_devices() > 3:
        for place in ("threads", "processes"):
            train(place, job, "-n", "4", "parallel.tensor=2", "parallel.place=" + place)
            if "between stages over peers' memory" not in way_of_sums(place):
                raise AssertionError(way_of_sums(place))
        runs.same_story(runs.story("threads"), "processes")


def test_parts():
    """Parameters that come from other GPUs beside the next forward pass, or for each layer, by
    either way; and a checkpoint that goes on with whole ones."""
    if n_devices() < 2:
        return
    for name, job in (("lenet", LENET), ("joined", JOINED), ("gpt", GPT)):
        more = job + ["parallel.bucket_mb=0.05", "train.ema=0.9", "train.clip_norm=0.5",
                      "run.checkpoint_every=5"]
        train(name, more, "-n", "1")
        for zero in (1,) if name == "joined" else (1, 2, 3):
            for place, algorithm, n in (("threads", "direct", 2), ("processes", "direct", 2),
                                        ("threads", "tree", 2), ("threads", "direct", 4)):
                if n > min(n_devices(), 2 if name == "gpt" else 4):  # which has two shards
                    continue
                run = "_".join((name, str(zero), place, algorithm, str(n)))
                train(run, more, "-n", str(n), "parallel.zero=%d" % zero,
                      "parallel.place=" + place, "parallel.algorithm=" + algorithm)
                runs.same_story(runs.story(name), run)
                runs.same_checkpoint(name, run)
    cut = ["-n", "2", "train.steps=10", "schedule.steps=24"]
    train("whole", LENET, "-n", "1", "schedule.steps=24")
    for zero in (1, 2, 3):
        run = "cut%d" % zero
        train(run, LENET, *cut, "parallel.zero=%d" % zero)
        runs.tutti("train", "--resume", run, "train.steps=24", "parallel.zero=0",
                   timeout_s=110).expect(0)
        if losses(run) != losses("whole") or last_hash(run) != last_hash("whole"):
            raise AssertionError("a run in parts goes on to something else")


def test_samples_on_the_device():
    """Batches that the GPU makes by itself, one step ahead or eight: the bits of fed ones."""
    job = LENET + ["train.batch=60", "-n", "1"]  # the last batch of an epoch is short
    train("fed", job, "data.resident=no")
    for run, wish, at_once in (("kept", ["data.resident=yes"], 4),
                               ("one_by_one", ["parallel.ahead=1"], 1),
                               ("eight", ["parallel.ahead=8", "train.precision=auto"], 4)):
        train(run, job, *wish)
        if losses(run) != losses("fed") or last_hash(run) != last_hash("fed"):
            raise AssertionError("%s differs from batches that are fed" % run)
        start = [r for r in runs.records(run) if r["event"] == "start"]
        if [(r["resident"], r["steps_per_launch"]) for r in start] != [(True, at_once)]:
            raise AssertionError("%s: not %d steps over samples on the device" % (run, at_once))


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
    host = rows[0, "host: waits, what it puts into queues"]
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
        if not any(s["name"].startswith("sum of grad") for s in rows[rank, "sums between workers"]):
            raise AssertionError("rank %d: no sums" % rank)


def test_trace_of_parts():
    """Two GPUs with pieces of layers, with stages and with parts of parameters: exchanges, messages
    and parameters are in queues beside the kernels, and no more of them is hidden than there is."""
    if n_devices() < 2:
        return
    for key, row, kind in (("parallel.tensor=2", "exchanges inside layers",
                            "exchanges inside layers"),
                           ("parallel.pipeline=2", "parts of the stage", "values between stages"),
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


def lose(run, fault, job, *arguments):
    """A run whose GPU reads where nothing is in the middle of its steps."""
    return runs.tutti("train", *job, "run.dir=" + run, "parallel.devices=gpu", *arguments,
                      timeout_s=60, program=runs.program_with("faults"),
                      env=dict(os.environ, TUTTI_FAULT=fault)).expect(10)


def test_lost_device():
    """A permanent error in a captured step ends the run at once; it resumes to the same bits."""
    job = LENET + ["run.checkpoint_every=9"]
    train("whole", job, "-n", "1")
    shown = runs.story("whole")
    for run, launch, arguments in (("one", 3, ["-n", "1"]),  # each of four steps
                                   ("fed", 9, ["-n", "1", "data.resident=no"]),
                                   ("process", 3, ["-n", "1", "parallel.place=processes"])):
        ended = lose(run, "cuda.replay:fail@%d" % launch, job, *arguments)
        for part in ("device 0 (", "failed: cuda: ", "illegal memory access", "The checkpoint of "
                     "step 9 is good: tutti train --resume " + run):
            if part not in ended.err:
                raise AssertionError("%s: no '%s' in %s" % (run, part, ended.err))
        if runs.checkpoints(run) != [9]:
            raise AssertionError(runs.checkpoints(run))
        runs.tutti("train", "--resume", run, timeout_s=110).expect(0)
        runs.same_story(shown, run)


def test_lost_workers():
    """Of two GPUs: a killed and a stopped worker are named at once, nothing is left on the
    devices, and what goes on from the last checkpoint comes to the bits of one GPU."""
    if n_devices() < 2:
        return
    job = LENET + ["train.steps=8000", "run.checkpoint_every=500", "parallel.place=processes"]
    train("whole", job, "-n", "1")
    shown = runs.story("whole")
    for run, sign, text, restarts in (("killed", signal.SIGKILL, "was killed by signal 9", 0),
                                      ("stopped", signal.SIGSTOP, "was stopped (signal 19)", 0),
                                      ("again", signal.SIGKILL, "starting again", 1)):
        process = runs.start("train", *job, "run.dir=" + run, "parallel.devices=gpu", "-n", "2",
                             "--restarts", str(restarts))
        runs.wait_until(lambda: runs.steps_told(run) > 700, what="step 700 of " + run)
        pid, start = runs.children(process.pid)[1], time.monotonic()
        os.kill(pid, sign)
        ended = runs.finish(process, 60)
        gone_s = time.monotonic() - start
        ended.expect(0 if restarts else 5, "rank 1 (pid %d) " % pid, text)
        print("%s: ended after %.2f s" % (run, gone_s))
        if not restarts:
            if gone_s > 20:
                raise AssertionError("%s: ended after %.2f s" % (run, gone_s))
            used = subprocess.run(["nvidia-smi", "--query-compute-apps=pid",
                                   "--format=csv,noheader"], capture_output=True, text=True)
            if str(pid) in used.stdout.split():
                raise AssertionError("memory is left on the devices")
            runs.tutti("train", "--resume", run, "-n", "2", timeout_s=110).expect(0)
        runs.same_story(shown, run)


def test_lost_device_of_two():
    """The worker on the other GPU, which waits for its sums, ends too."""
    if n_devices() < 2:
        return
    job = LENET + ["run.checkpoint_every=6"]
    train("whole", job, "-n", "1")
    for place in ("threads", "processes"):
        for algorithm in ("direct", "tree"):
            run = "_".join((place, algorithm))
            lose(run, "cuda.replay:fail@3", job, "-n", "2", "parallel.place=" + place,
                 "parallel.algorithm=" + algorithm)
            if runs.alive("run.dir=" + run):
                raise AssertionError("%s: processes are left" % run)
            runs.tutti("train", "--resume", run, timeout_s=110).expect(0)
            runs.same_story(runs.story("whole"), run)


def test_cache_that_is_damaged():
    """Ignored, and made again: the run is the same, and the next one finds it good."""
    environment = dict(os.environ, TUTTI_CACHE=os.path.abspath("cache"))
    job = ["train", *GPT, "parallel.devices=gpu", "parallel.mode=fast", "model.width=512",
           "model.heads=8", "data.context=512"]
    for run in ("first", "damaged", "after"):
        runs.tutti(*job, "run.dir=" + run, timeout_s=110, env=environment).expect(0)
        if not os.listdir("cache"):
            raise AssertionError("nothing was kept")
        for name in os.listdir("cache"):
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
