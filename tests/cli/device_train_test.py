"""device_train_test.py - training on devices, on a machine without any: the module of
tests/backend/modules/device_module.c computes on the host, so the same bits must come; it can lose
a device in the middle and say how much memory is free."""

import json
import os
import re
import subprocess
import sys

import runs

JOB = [*runs.lenet(), "data.n_train=80", "data.n_test=20", "train.batch=8",
       "train.steps=12", "parallel.shards=4", "run.log_every=1", "optimizer.name=sgd",
       "train.precision=f32", "run.checkpoint_every=4"]
PROCESSES = "parallel.place=processes"


def train(run, *arguments, says="", devices="gpu"):
    """says: what the devices do, as in device_module.c."""
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says)
    return runs.tutti("train", *JOB, "run.dir=" + run, "parallel.devices=" + devices, *arguments,
                      env=environment)


def test_same_bits():
    """Fed or kept on the device, on one device or two: as on the host."""
    train("host", "-n", "1", devices="cpu").expect(0)
    shown = runs.story("host")
    for run, place in (("one", ["-n", "1"]), ("two", ["-n", "2"]),
                       ("processes", ["-n", "2", PROCESSES]),
                       ("fed", ["-n", "1", "data.resident=no"]), ("ahead", ["parallel.ahead=8"])):
        train(run, *place).expect(0)
        runs.same_story(shown, run)
        start = [r for r in runs.records(run) if r["event"] == "start"][0]
        if "devices for tests" not in start["backend"]:
            raise AssertionError(start["backend"])
    images = ["model.name=lenet", "data.format=random_images", "data.image_size=28",
              "data.n_train=96", "data.n_test=8", "train.batch=20", "train.steps=10"]
    train("host_images", *images, "-n", "1", devices="cpu").expect(0)
    train("images", *images, "data.resident=no", "-n", "2").expect(0)
    runs.same_story(runs.story("host_images"), "images")
    unseen = ["train.eval_every=0", "run.checkpoint_every=-1"]  # without evaluations or checkpoints
    train("host_unseen", *images, *unseen, "-n", "1", devices="cpu").expect(0)
    for run, place in (("unseen", ["parallel.ahead=8"]), ("unseen_fed", ["data.resident=no"])):
        train(run, *images, *unseen, *place, "-n", "1").expect(0)
        runs.same_story(runs.story("host_unseen"), run)


def test_steps_of_one_launch():
    """Four small steps at a time over kept samples: so many launches, and the bits of the host,
    also where an evaluation leaves a launch incomplete."""
    job = ["train.steps=27", "run.checkpoint_every=-1", "train.eval_every=0", "run.log_every=9"]
    train("host", *job, "-n", "1", devices="cpu").expect(0)
    # launches of 26 steps, after one that loads kernels; plays= fails with the next one
    for run, says, more, n in (("fours", "plays=8", ["-n", "1"], 4),
                               ("two", "plays=8,peers=1", ["-n", "2"], 4),
                               ("late", "plays=8,late=1", ["-n", "1"], 4),
                               ("threes", "plays=12", ["-n", "1", "parallel.ahead=7"], 3),
                               ("one_by_one", "", ["-n", "1", "parallel.ahead=2"], 1)):
        train(run, *job, *more, says=says).expect(0)
        runs.same_story(runs.story("host"), run)
        shown = [r["steps_per_launch"] for r in runs.records(run) if r["event"] == "start"]
        if shown != [n]:
            raise AssertionError("%s: %s" % (run, shown))
    train("more", *job, "-n", "1", says="plays=7").expect(10, "illegal memory access")
    train("looked_at", *job, "train.eval_every=7", "-n", "1").expect(0)
    train("host_looked_at", *job, "train.eval_every=7", "-n", "1", devices="cpu").expect(0)
    runs.same_story(runs.story("host_looked_at"), "looked_at")


def test_running_statistics():
    """Shares of three samples round; a device and a host round them alike."""
    net = runs.NARROW + ["data.n_train=6", "data.n_test=2", "train.batch=3", "train.steps=1",
                         "parallel.shards=2", "run.checkpoint_every=-1"]
    train("host", *net, "-n", "1", devices="cpu").expect(0)
    train("two", *net, "-n", "2").expect(0)
    runs.same_story(runs.story("host"), "two")


def test_parts_of_state():
    """Split over workers, whose parts go through the host: the bits of the host, averages and
    clipping too; and checkpoints that others go on from, each in its own way."""
    more = [*runs.DIGITS, "train.ema=0.9", "train.clip_norm=0.5", "train.epochs=1"]
    parts = more + ["parallel.zero=1"]
    train("host", *more, "-n", "1", devices="cpu").expect(0)
    shown = runs.story("host")
    for run, sharing, place in (("one", False, ["-n", "1"]), ("two", False, ["-n", "2"]),
                                ("four", True, ["-n", "4"]),
                                ("three", True, ["-n", "3", PROCESSES])):
        ended = train(run, *parts, *place).expect(0)
        if (place[1] + " workers share 2 GPUs" in ended.err) != sharing:
            raise AssertionError(ended.err)
        runs.same_story(shown, run)
    start = [[r for r in runs.records(run) if r["event"] == "start"][0] for run in ("one", "four")]
    if not 0.9 < start[1]["bytes_states"] / start[0]["bytes_states"] * 4 < 1.1:
        raise AssertionError(start)
    train("lost", *parts, "-n", "2", says="lost=7").expect(10)
    runs.tutti("train", "--resume", "lost", "-n", "3", "parallel.devices=cpu").expect(0)
    runs.same_story(shown, "lost")


def test_shared_devices():
    """More workers than devices: refused where the job says so, and only then."""
    refuses = ["parallel.share_devices=false", "train.steps=2"]
    train("fit", "-n", "2", *refuses).expect(0)
    for run, place in (("threads", []), ("processes", [PROCESSES])):
        train(run, "-n", "3", *place, *refuses).expect(
            2, "3 workers on this machine, but parallel.devices=gpu is 2 GPUs")
    train("one", "-n", "2", *refuses, devices="1").expect(2, "devices=1 is 1 GPU; give parallel.wo")
    if any(os.path.exists(run) for run in ("threads", "processes", "one")):
        raise AssertionError("a refused run left a folder")
    train("host", "-n", "3", *refuses, devices="cpu").expect(0)


def test_devices_of_another_launcher():
    """One visible device for each rank, all of them number 0: shared only where it is the same."""
    refuses = ["parallel.share_devices=false", "parallel.shards=2", "train.steps=2"]
    for run, first, code in (("own", (0, 1), 0), ("same", (1, 1), 2)):
        ranks = []
        for rank in range(2):
            env = dict(os.environ, TUTTI_TEST_DEVICE="devices=1,first=%d" % first[rank],
                       RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost",
                       MASTER_PORT=str(runs.port()))
            with open("rank-%d" % rank, "w") as out:
                ranks.append(subprocess.Popen(
                    [runs.PROGRAM, "train", "run.dir=" + run, *JOB, *refuses,
                     "parallel.devices=gpu"], stdout=out, stderr=out, env=env))
        codes = [rank.wait(runs.HANGS_S) for rank in ranks]
        with open("rank-0") as file:
            said = file.read()
        if codes != [code, code] or ("2 workers on this machine" in said) != (code == 2):
            raise AssertionError("%s %s" % (codes, said))


def test_queues():
    """A queue that does something sooner or later than another does not matter; nor do sums of
    devices that reach each other, with the state whole or partitioned."""
    few = ["train.steps=6", "train.ema=0.9", "train.clip_norm=0.5", "parallel.bucket_mb=0.05"]
    train("host", *few, "-n", "1", devices="cpu").expect(0)
    shown = runs.story("host")
    for run, says, place in (("late", "late=1", ["-n", "1"]), ("early", "late=3", ["-n", "2"]),
                             ("peers", "peers=1,late=1", ["-n", "2"]),
                             ("parts", "peers=1,late=3", ["-n", "2", "parallel.zero=1"])):
        train(run, *few, *place, says=says).expect(0)
        runs.same_story(shown, run)
        shares = [r["comm_share"] for r in runs.records(run) if r["event"] == "step"]
        if run == "late" and any(shares) or says[:5] == "peers" and not all(shares):
            raise AssertionError("%s: waited for others %s" % (run, shares))


def test_hosts():
    """Devices of several hosts add inside each host first: the bits of the host, with the state
    whole or partitioned."""
    few = ["train.steps=5", "train.ema=0.9", "train.clip_norm=0.5", "parallel.bucket_mb=0.05"]
    train("host", *few, "-n", "1", devices="cpu").expect(0)
    shown = runs.story("host")
    for run, hosts, option in (("two", "0011", "zero=0"), ("parts", "0011", "zero=3"),
                             ("one_and_three", "0111", "zero=1")):
        says = "peers=1,late=1,devices=4,hosts=" + hosts
        train(run, *few, "-n", "4", "parallel." + option, says=says).expect(0)
        runs.same_story(shown, run)
        start = [r for r in runs.records(run) if r["event"] == "start"][0]
        if not start["backend"].endswith("4 at once, of 2 hosts"):
            raise AssertionError(start["backend"])


def test_parameters_in_16_bits():
    """The update leaves them so and no step casts them: the bits of the host, which does, also
    where gradients of uneven runs of shards are summed in the update, all or those of the last
    bucket, and after parameters have come from a checkpoint."""
    job = ["train.precision=bf16", "train.ema=0.9", "optimizer.freeze=['conv1.*']",
           "train.steps=10"]
    train("host", *job, "-n", "1", devices="cpu").expect(0)
    shown = runs.story("host")
    for run, says, place in (("one", "", ["-n", "1"]),
                             ("parts", "peers=1", ["-n", "2", "parallel.zero=1"]),
                             ("joint", "peers=1,joint=1,devices=3,late=3", ["-n", "3"]),
                             ("rest", "peers=1,joint=2,devices=3,late=3",
                              ["-n", "3", "parallel.bucket_mb=0.05"])):
        train(run, *job, *place, says=says).expect(0)
        runs.same_story(shown, run)
    for run, end in (("joint", ", in the update"), ("rest", ", the last bucket in the update")):
        start = [r for r in runs.records(run) if r["event"] == "start"][0]
        if not start["backend"].endswith("sums 3 at once" + end):
            raise AssertionError(start["backend"])
    train("lost", *job, "-n", "1", says="lost=7").expect(10)
    runs.tutti("train", "--resume", "lost", "-n", "1").expect(0)
    runs.same_story(shown, "lost")
    steps = [runs.tutti("inspect", *JOB, *job, "parallel.devices=" + devices).expect(0).out
             for devices in ("cpu", "gpu")]
    n_casts = [len(re.findall(r"^\d+ +cast ", text, re.MULTILINE)) for text in steps]
    if not n_casts[1] <= n_casts[0] - 6:
        raise AssertionError("%d and %d casts" % tuple(n_casts))


def test_bad_loss_of_sums_in_the_update():
    """Every worker finds it with the numbers that come with the gradients."""
    train("run", "-n", "2", "optimizer.lr=1000", "optimizer.weight_decay=1",
          says="peers=1,joint=1").expect(
        7, "the loss is not finite (shard 0 of 4); the parameters are as before this step")


def lose(run, says, *arguments):
    """A run whose device fails: exit code, and text in the terminal or the worker's log."""
    ended = train(run, *arguments, says=says).expect(10)
    text = ended.err
    if PROCESSES in arguments:
        with open(run + "/log/rank-1.txt") as file:
            text += file.read()
    return text


LOSSES = {
    "alone": ("lost=7", "steps 6 to 8: device 0 (test device 0)", ["-n", "1"]),
    "fed": ("lost=7", "steps 6 to 7: device 0", ["-n", "1", "data.resident=no"]),
    "second": ("lost=7,on=1", "step 7: device 1 (test device 1)", ["-n", "2"]),
    "both": ("lost=7", "step 7: device ", ["-n", "2"]),
    "joint": ("lost=7,on=1,peers=1,joint=1", "device 1 (test device 1)", ["-n", "2"]),
    "worker": ("lost=7,on=1", "step 7: device 1 (test device 1)", ["-n", "2", PROCESSES]),
}


def check_losses(*names):
    """Named with the steps at work; the last checkpoint leads to the undisturbed run's bits."""
    train("whole", "-n", "1").expect(0)
    shown = runs.story("whole")
    for run in names:
        says, step, place = LOSSES[run]
        text = lose(run, says, *place)
        for part in (step, "failed: cuda: an illegal memory access was encountered",
                     "The checkpoint of step 4 is good: tutti train --resume " + run):
            if part not in text:
                raise AssertionError("%s: no '%s' in %s" % (run, part, text))
        if runs.checkpoints(run) != [4]:
            raise AssertionError("%s: checkpoints %s" % (run, runs.checkpoints(run)))
        if runs.alive("run.dir=" + run):
            raise AssertionError("%s: processes are left" % run)
        runs.tutti("inspect", run).expect(0)
        runs.tutti("train", "--resume", run, "-n", "1").expect(0)
        runs.same_story(shown, run)


def test_lost_devices():
    """The others: device_train_slow_test.py."""
    check_losses("fed", "joint", "worker")


def test_started_again():
    """A process has its device back after a restart."""
    train("whole", "-n", "1").expect(0)
    train("run", "-n", "2", PROCESSES, "--restarts", "1", says="lost=7,on=1,once=1").expect(0)
    runs.same_story(runs.story("whole"), "run")


def test_lost_before_a_checkpoint():
    text = lose("run", "lost=2", "-n", "1", "run.checkpoint_every=-1")
    for part in ("There is no checkpoint yet, so the run starts again: tutti train --resume run",
                 "parallel.devices"):
        if part not in text:
            raise AssertionError(text)
    failed = [r for r in runs.records("run") if r["event"] == "failed"]
    if [r["status"] for r in failed] != ["a device failed"]:
        raise AssertionError(failed)
    runs.tutti("train", "--resume", "run").expect(0)


def has_scratch():
    """Whether kernels for products take memory of their own, which oneDNN's do for AVX-512."""
    shown = runs.tutti("doctor", "--quick").expect(0).out
    return ("avx512 kernels" in shown or "amx kernels" in shown) and "oneDNN" in shown


MEMORY = {
    "one": ("1", []), "two": ("2", []), "ema": ("1", ["train.ema=0.9"]),
    "stages": ("2", ["parallel.pipeline=2", "model.name=mlp", "model.hidden=[512,512,512,512]",
                     "train.batch=1024", "parallel.shards=4"]),
}


def check_memory(*names):
    """What a step is said to need, scratch of kernels and what is kept for other stages too, is
    what the device gives out."""
    for run in names:
        n, more = MEMORY[run]
        job = ["-n", n, "train.batch=256", "parallel.shards=2", "train.steps=3",
               "data.resident=no", *more]
        train(run, *job).expect(0)
        peak = runs.records(run)[-1]["peak_device_bytes"]
        train(run + "-fits", *job, says="free=%d" % (1.05 * peak)).expect(0)
        shown = train(run + "-not", *job, says="free=%d" % (0.95 * peak)).expect(8).err
        need = re.search(r"the step needs (\d+\.\d) MiB", shown)
        if not need or abs(float(need.group(1)) * 1048576 / peak - 1) > 0.05:
            raise AssertionError("%s: %d bytes were taken, and predicted: %s" % (run, peak, shown))
        if has_scratch() and "scratch of kernels" not in shown:
            raise AssertionError("%s: no scratch in: %s" % (run, shown))


def test_memory_that_is_predicted():
    """The others: device_train_slow_test.py."""
    check_memory("stages")


def test_too_little_memory():
    """Refused before the first step, with the numbers and what would make it fit."""
    job = [*runs.DIGITS, "-n", "1", "train.batch=256", "parallel.shards=1", "train.steps=2"]
    shown = train("run", *job, says="free=20000000").expect(
        8, "the step needs ", " of device memory, more than the free 19.1 MiB: activations of a ",
        "parameters 1.6 MiB", "optimizer state 1.6 MiB", "gradients", "train.batch",
        "train.recompute=block", "train.precision=bf16").err
    if os.path.exists("run"):
        raise AssertionError("left: %s" % os.listdir("run"))
    shards = re.search(r"(parallel.shards=\d+) would need about \d+\.\d MiB", shown)
    if not shards:
        raise AssertionError(shown)
    train("run", *job, shards.group(1), says="free=20000000").expect(0)
    train("none", *job, says="free=4000000").expect(
        8, "No number of shards fits: use a smaller model")


def test_parts_that_would_fit():
    """With several workers and stages: partitions as little as suffices, and then it does.  Not of
    workers that make their own updates, which have none."""
    wide = [*runs.DIGITS, "model.name=mlp", "train.steps=2", "run.checkpoint_every=-1"]
    job = wide + ["model.hidden=[%s]" % ",".join(["400"] * 12), "-n", "4",
                  "parallel.bucket_mb=0.3"]
    stages = wide + ["model.hidden=[%s]" % ",".join(["400"] * 16), "-n", "8",
                     "parallel.pipeline=2", "parallel.bucket_mb=0.1"]
    # A stage needs so much with the scratch of its kernels: our own products take the most.
    stage = 9170000 if has_scratch() else 9000000
    if "no oneDNN" in runs.tutti("doctor", "--quick").expect(0).out:
        stage = 10200000
    for level, free, some in ((1, 21000000, job), (2, 16000000, job), (3, 14000000, job),
                              (3, stage, stages)):
        says = "peers=1,devices=8,free=%d" % free
        advice = "parallel.zero=%d" % level
        for less in ([], ["parallel.zero=2"]) if level == 3 else ([],):
            shown = train("run", *some, *less, says=says).expect(8, advice + " would need about ")
            if shown.err.count("parallel.zero") != 1:
                raise AssertionError(shown.err)
        train("run-%d-%d" % (level, free), *some, advice, says=says).expect(0)
    for own in (["parallel.sync=local"], ["parallel.compress=topk"]):
        shown = train("own", *job, *own, "parallel.mode=fast", says="devices=4,free=14000000")
        if "parallel.zero" in shown.expect(8).err:
            raise AssertionError(shown.err)


def test_unsupported_device():
    """Doctor says so and goes on; a job that wants it ends before its first step."""
    environment = dict(os.environ, TUTTI_TEST_DEVICE="old=0")
    shown = runs.tutti("doctor", "--quick", env=environment).expect(
        0, "device 0: test device 0", "cannot be used: cuda: test device 0 is too old",
        "device 1: test device 1", "  between devices: a library of tests 1.2\n").out
    if shown.count("free memory") != 1:
        raise AssertionError(shown)
    for place in (["-n", "1"], ["-n", "2"], ["-n", "2", PROCESSES]):
        ended = train("run", *place, says="old=0")
        if ended.code not in (2, 5) or os.path.exists("run/metrics.jsonl"):
            raise AssertionError("%s: exit code %d, %s" % (place, ended.code, ended.err))
        if PROCESSES not in place and "is too old: leave it out" not in ended.err:
            raise AssertionError(ended.err)
    train("one", "-n", "1", says="old=0", devices="1").expect(0)


def test_links():
    """A link that cannot be measured and one that flips a bit are shown with all others."""
    runs.tutti("doctor").expect(0, "device 0         -     10.0", "all data right",
                                "not measured: no algorithm reduces between these devices")
    environment = dict(os.environ, TUTTI_TEST_DEVICE="devices=3,full=2,wrong=1")
    shown = runs.tutti("doctor", env=environment).expect(
        0, "device 0         -     10.0        ?", "device 1      10.0        -        ?",
        "device 0 from 2: not measured: cuda: device 2 has no room", "device 2: test device 2",
        "    device 1 from 0: WRONG DATA arrived; do not train on both\n").out
    if shown.count("WRONG DATA") != 1 or "all data right" in shown:
        raise AssertionError(shown)


def test_devices_by_number():
    train("run", "-n", "1", devices="1", says="lost=3,on=1").expect(10, "device 1 (test device 1)")
    train("none", devices="2").expect(2, "there is no device 2; this machine has 2")
    runs.tutti("doctor", "--quick").expect(0, "device 1: test device 1", "free memory: 1.0 GiB")


def test_library_of_one_device():
    environment = dict(os.environ, TUTTI_TEST_DEVICE="devices=1")
    runs.tutti("doctor", "--quick", env=environment).expect(
        0, "device 0: test device 0", "  between devices: a library of tests 1.2\n")


def rows_of(path):
    """{(process, row): names of its spans}"""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    rows = {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        key = (processes[e["pid"]], names[e["pid"], e["tid"]])
        rows.setdefault(key, []).append(e["name"])
    return rows


def profile_one(says):
    environment = dict(os.environ, TUTTI_TEST_DEVICE=says)
    runs.tutti("profile", *JOB, "--trace", "one.json", "--steps", "3", "--all",
               env=environment).expect(0, "conv2d", "(update)", "(report to the host)",
                                       "(merge)")
    rows = rows_of("one.json")
    rank = "rank 0, device 0"
    if set(rows) != {(rank, "host: waits and enqueued work"), (rank, "device: kernels"),
                     (rank, "device: copies of samples")}:
        raise AssertionError(sorted(rows))
    kernels = rows[rank, "device: kernels"]
    host = rows[rank, "host: waits and enqueued work"]
    for name, n, row in (("samples to the device", 3, rows[rank, "device: copies of samples"]),
                         ("waiting for samples", 3, host), ("waiting for the device", 3, host),
                         ("begin", 3, kernels), ("update", 3, kernels), ("conv2d", 24, kernels),
                         ("report to the host", 3, kernels)):
        if row.count(name) != n:
            raise AssertionError("%s: %d times instead of %d" % (name, row.count(name), n))
    if host[:4] != ["waiting for samples", "feeding", "putting into queues", "waiting for samples"]:
        raise AssertionError("the second step is not begun before the first has ended: %s" % host)


def test_profile():
    """Queues of each device: kernels, copies, sums; and what the host waits for.  With moments in
    recordings, and where these take none."""
    profile_one("")
    profile_one("plain=1")
    runs.tutti("profile", *JOB, "--trace", "two.json", "--steps", "2", "-n", "2").expect(0)
    runs.tutti("profile", *JOB, "parallel.shards=64", "train.batch=64", "--steps", "1000").expect(
        2, "profile: 1000 steps of up to", "give fewer")
    rows = rows_of("two.json")
    for rank in ("rank 0, device 0", "rank 1, device 1"):
        if rows[rank, "sums between workers"].count("all_reduce of gradients") != 2:
            raise AssertionError(rows[rank, "sums between workers"])
        for name in ("gradients to the host", "gradients to the device", "sums to the host"):
            if rows[rank, "device: kernels"].count(name) != 2:
                raise AssertionError("%s: no %s" % (rank, name))


def test_a_damaged_cache_is_named():
    """Of choices that devices measured: a run on devices says that they are not used."""
    os.makedirs("cache")
    for name, text in (("cublaslt-0", "tutti-cache, not really"), ("empty", ""),
                       ("cublaslt-0.lock", "")):
        with open(os.path.join("cache", name), "w") as file:
            file.write(text)
    short = ["train.steps=2", "run.checkpoint_every=-1"]
    for run, devices, warned in (("device", "gpu", True), ("host", "cpu", False)):
        environment = dict(os.environ, TUTTI_CACHE=os.path.abspath("cache"), TUTTI_TEST_DEVICE="")
        runs.tutti("train", *JOB, *short, "run.dir=" + run, "parallel.devices=" + devices, "-n",
                   "2", env=environment).expect(0)
        texts = [r["text"] for r in runs.records(run) if r["event"] == "warning"]
        found = [t for t in texts if "damaged and are not used" in t]
        if len(found) != warned or (warned and not ("cublaslt-0" in found[0] and "empty" in found[0]
                                                    and ".lock" not in found[0])):
            raise AssertionError(texts)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
