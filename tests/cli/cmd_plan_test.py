"""cmd_plan_test.py - `tutti plan`: layouts, the best first; the job with it; a run beside it."""

import json
import os
import resource
import signal
import sys

import runs

JOB = ["model.name=mlp", "model.hidden=[32]", "data.n_train=200", "data.n_test=20",
       "train.batch=32", "parallel.bucket_mb=0.02"]


def plan(*arguments):
    ended = runs.tutti("plan", *JOB, "--json", "--seconds", "0.1", *arguments)
    return json.loads(ended.expect(0).out)


def test_layouts():
    """Each once, in order of their time, and the parts of a step come to the whole.  (ZeRO-3 has
    no less where one layer is nearly all of the model.)"""
    shown = plan("-n", "2", "parallel.copies=each")
    rows = shown["layouts"]
    names = [r["layout"] for r in rows]
    if len(set(names)) != len(names) or len(names) < 8 or shown["workers"] != 2:
        raise AssertionError(names)
    times = [r["step_s"] for r in rows if r["fits"]]
    if times != sorted(times) or times[0] <= 0:
        raise AssertionError(times)
    for a, b in zip(rows, rows[1:]):  # what is computed twice for nothing is not the first choice
        if a["fits"] and a["step_s"] == b["step_s"] and a["worker_bytes"] == b["worker_bytes"] \
                and a["recompute"] != "none" and b["recompute"] == "none":
            raise AssertionError("%s before %s" % (a, b))
    for r in rows:
        parts = sum(r[k] for k in ("compute_s", "bubble_s", "model_parallel_s", "add_s", "reduce_s",
                                   "update_s", "load_s"))
        if abs(parts - r["step_s"]) > 1e-9 or r["data"] * r["tensor"] * r["pipeline"] != 2:
            raise AssertionError(r)
        if r["zero"] in (1, 2) and r["worker_bytes"] >= next(
                o["worker_bytes"] for o in rows if not o["zero"] and o["shards"] == r["shards"]
                and o["recompute"] == r["recompute"] and o["data"] == r["data"]):
            raise AssertionError("zero saves nothing: %s" % r)
        if (r["model_parallel_s"] > 0) != (r["tensor"] > 1) and r["pipeline"] == 1:
            raise AssertionError("what collectives send inside shards: %s" % r)
        if (0 < r["bubble"] < 1) != (r["pipeline"] > 1):
            raise AssertionError("stages wait: %s" % r)
    if not any(r["measured"] for r in rows):
        raise AssertionError("nothing was measured")


def test_what_is_computed_twice_for_nothing():
    """A model that keeps nothing worth it has one row for each layout, in the table too."""
    ended = runs.tutti("plan", "model.name=mlp", "model.hidden=[]", "data.n_train=64",
                       "data.n_test=8", "train.batch=32", "-n", "2", "--device", "cpu", "--all")
    if "recompute" in ended.expect(0, "data 2, 2 shards").out:
        raise AssertionError(ended.out)
    gpt = ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=64",
           "data.format=random_tokens", "data.vocabulary=256", "data.context=64",
           "train.batch=32"]
    runs.tutti("plan", *gpt, "-n", "2", "--device", "cpu", "--all").expect(
        0, "data 2, 2 shards, recompute light", "data 2, 2 shards, recompute block")


def test_stages():
    """More stages than the model has layers are no layout; others wait for each other."""
    ended = runs.tutti("plan", *JOB, "-n", "4", "--seconds", "0.1", "--all", "train.recompute=none",
                       "parallel.devices=cpu")
    ended.expect(0, "bubble", "pipeline 4", "stages; give at most")


def test_stages_in_chunks():
    """Two chunks each wait less and send more; what the job says of it stays."""
    job = [*JOB, "model.hidden=[64,64,64]", "--device", "h200", "--json", "train.recompute=none",
           "parallel.shards=8", "-n", "2"]
    shown = {r["layout"]: r for r in json.loads(runs.tutti("plan", *job).expect(0).out)["layouts"]}
    whole, halves = shown["data 1, pipeline 2, 8 shards"], \
        shown["data 1, pipeline 2, 2 chunks, 8 shards"]
    if (whole["pipeline_chunks"], halves["pipeline_chunks"]) != (1, 2):
        raise AssertionError(shown)
    if halves["bubble"] >= whole["bubble"] or halves["sent_bytes"] <= whole["sent_bytes"]:
        raise AssertionError("%s, %s" % (whole, halves))
    given = json.loads(runs.tutti("plan", *job, "parallel.pipeline=2",
                                  "parallel.pipeline_chunks=2").expect(0).out)
    chunks = {(r["pipeline"], r["pipeline_chunks"]) for r in given["layouts"]}
    if chunks != {(1, 1), (2, 2)}:
        raise AssertionError(chunks)


def test_what_the_job_says_stays():
    if len(plan("-n", "2", "--device", "h200", "parallel.shards=auto")["layouts"]) < 8:
        raise AssertionError("auto is not a number of shards")
    rows = plan("-n", "2", "--device", "h200", "parallel.shards=4",
                "train.recompute=light")["layouts"]
    if {(r["shards"], r["recompute"]) for r in rows} != {(4, "light")}:
        raise AssertionError(rows)


def test_sizes_in_the_job_are_a_number_of_workers():
    """What the job has so far keeps no layout from them, and is not left in the best."""
    given = ["parallel.data=2", "parallel.pipeline=2", "--device", "cpu"]
    shown = plan(*given)
    sizes = {(r["data"], r["tensor"], r["pipeline"]) for r in shown["layouts"]}
    if shown["workers"] != 4 or not {(4, 1, 1), (2, 2, 1), (2, 1, 2)} <= sizes:
        raise AssertionError("%d workers: %s" % (shown["workers"], sizes))
    runs.tutti("plan", *JOB, *given, "--out", "best.yaml").expect(0)
    with open("best.yaml") as file:
        text = file.read()
    if "data: auto" not in text or "workers: 4" not in text:
        raise AssertionError(text)


def test_the_schedule_is_that_of_the_job():
    """train.steps alone is how long the run is: of the job that is written too."""
    runs.tutti("plan", *JOB, "train.steps=7", "-n", "2", "--device", "cpu", "parallel.shards=2",
               "--out", "best.yaml").expect(0)
    shown = runs.tutti("config", "show", "best.yaml").expect(0).out
    if "  steps: 7" not in shown.split("schedule:")[1]:
        raise AssertionError(shown)


def test_a_planned_job_is_planned_anew():
    """-n is for what comes out, not for the layout that the job has so far; where it does not
    divide the shards, stages and tensor shards may."""
    job = [*JOB, "model.hidden=[32,32,32]", "parallel.workers=4", "parallel.pipeline=4",
           "parallel.shards=4", "train.recompute=none", "--device", "cpu", "--json"]
    shown = json.loads(runs.tutti("plan", *job, "-n", "6").expect(0).out)
    sizes = {(r["data"], r["tensor"], r["pipeline"]) for r in shown["layouts"]}
    if shown["workers"] != 6 or not {(3, 2, 1), (3, 1, 2)} <= sizes or (6, 1, 1) in sizes:
        raise AssertionError(shown)
    runs.tutti("plan", *JOB, "parallel.load_weights=3,1", "-n", "4", "--device", "cpu").expect(
        0, "parallel.load_weights=3,1 is ignored")


def test_columns_stand_below_each_other():
    lines = runs.tutti("plan", *JOB, "-n", "4", "--device", "cpu", "--all").expect(0).out
    lines = lines.splitlines()[1:]
    end = lines[0].index("step, ms") + len("step, ms")
    rows = lines[1:[line.startswith("worker, host") for line in lines].index(True)]
    if len(rows) < 20 or any(line[end - 1] == " " or line[end] != " " for line in rows):
        raise AssertionError("\n".join(lines))


def test_a_core_for_each_worker():
    """By the figures of one: twice the workers have half the shards each, in f32, on the host."""
    more = ["--device", "cpu", "parallel.shards=4", "train.recompute=none"]
    one, two = (plan("-n", n, *more)["layouts"] for n in ("1", "2"))
    one, two = one[0], [r for r in two if r["layout"] == "data 2, 4 shards"][0]
    if one["measured"] or abs(one["compute_s"] / two["compute_s"] - 2) > 1e-6:
        raise AssertionError("%s, %s" % (one, two))
    if two["reduce_s"] <= 0 or two["host_bytes"] <= 2 * two["worker_bytes"] - 1e5:
        raise AssertionError(two)
    runs.tutti("plan", *JOB, "-n", "2", *more, "--out", "best.yaml").expect(0, "0.0 s of calib")
    with open("best.yaml") as file:
        if "devices: cpu" not in file.read():
            raise AssertionError("the best layout is for devices")


def test_the_best_runs():
    """What --out writes is a job, and --check puts its run beside the prediction."""
    batch = 2048  # so large that its memory, and not that of the program, is most of the run's
    ended = runs.tutti("plan", *JOB, "model.hidden=[512]", "data.n_train=4096",
                       "train.batch=%d" % batch, "train.steps=2", "-n", "2", "--seconds", "0.1",
                       "--out", "best.yaml")
    ended.expect(0, "the best", "samples/s")
    ballast = b"x" * (64 << 20)  # the memory of the process that starts a run is not the run's
    runs.tutti("train", "best.yaml", "run.dir=run").expect(0)
    del ballast
    started = [r for r in runs.records("run") if r["event"] == "start"][0]
    if started["workers"] != 2:
        raise AssertionError(started)
    ended = runs.tutti("plan", "--check", "run", "--seconds", "0.1")
    ended.expect(0, "predicted", "step, ms", "peak memory")
    by_figures = ["--check", "run", "--device", "cpu", "--json"]
    shown = json.loads(runs.tutti("plan", *by_figures).expect(0).out)
    end = [r for r in runs.records("run") if r["event"] == "end"][0]
    step, peak = shown["step_s"], shown["host_bytes"]
    if abs(step["measured"] * end["samples_per_s"] / batch - 1) > 1e-3 or step["predicted"] <= 0:
        raise AssertionError("%s, %s" % (shown, end))
    if not 0.5 < peak["predicted"] / peak["measured"] < 2:
        raise AssertionError(shown)
    runs.tutti("plan", "--check", "run", "--device", "h200").expect(2, "the run was on the host")


def test_a_run_that_was_continued_otherwise():
    """What another layout took is not put beside the prediction of the job's."""
    runs.tutti("train", *JOB, "run.dir=run", "train.steps=2", "-n", "2", "parallel.shards=2",
               "parallel.devices=cpu").expect(0)
    for n_steps, more, shown in (("3", ["-n", "1"], "data 1, 2 shards, and"),
                                ("4", ["parallel.zero=2"], "data 2, 2 shards, zero 2, and"),
                                ("5", ["parallel.tensor=2"], "data 1, tensor 2, 2 shards, and")):
        runs.tutti("train", "--resume", "run", "train.steps=" + n_steps, *more).expect(0)
        runs.tutti("plan", "--check", "run").expect(2, "last resumed as " + shown)
    runs.tutti("train", "--resume", "run").expect(0)
    runs.tutti("plan", "--check", "run").expect(2, "did no step")
    runs.tutti("train", "--resume", "run", "train.steps=6").expect(0)
    runs.tutti("plan", "--check", "run", "--device", "cpu").expect(0, "data 2, 2 shards")
    with open("run/metrics.jsonl") as file:
        records = file.read()
    with open("run/metrics.jsonl", "w") as file:  # parts whose product is 0 in an int
        file.write(records.replace('"workers":2', '"workers":2,"tensor":65536,"pipeline":65536'))
    runs.tutti("plan", "--check", "run", "--device", "cpu").expect(2, "last resumed as data 1, ")


def leave_no_room():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


def test_memory():
    """What has no room stands last, and where nothing has the command says so."""
    ended = runs.tutti("plan", *JOB, "-n", "2", "--memory", "1kB", "--seconds", "0.1", "--out",
                       "best.yaml")
    ended.expect(2, "none of", "fits", "the smallest needs")
    if os.path.exists("best.yaml"):
        raise AssertionError("best.yaml was written")
    runs.tutti("plan", *JOB, "-n", "2", "--device", "cpu", "--out", "/dev/full").expect(
        1, "cannot write /dev/full: No space left")
    with open("best.yaml", "w") as file:
        file.write("mine")
    runs.tutti("plan", *JOB, "-n", "2", "--device", "cpu", "--json", "--out", "best.yaml",
               preexec_fn=leave_no_room)
    with open("best.yaml") as file:
        if file.read() != "mine" or os.path.exists("best.yaml.tmp"):
            raise AssertionError("a file was damaged by one that could not be written")
    rows = plan("-n", "2", "--device", "h200", "--memory", "1kB")["layouts"]
    if any(r["fits"] for r in rows):
        raise AssertionError(rows)


def test_a_device_that_is_not_here():
    job = ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=64",
           "data.format=random_tokens", "data.vocabulary=256", "data.context=64",
           "train.batch=32"]
    ended = runs.tutti("plan", *job, "-n", "8", "--device", "h200", "--all",
                       "parallel.shards=8", "train.recompute=none").expect(
        0, "by its costs", "tensor 2", "pipeline 2")
    if "0.0 s of calibration" not in ended.out:
        raise AssertionError(ended.out)
    rows = {r["layout"]: r for r in json.loads(runs.tutti(
        "plan", *job, "-n", "2", "--device", "h200", "--json", "parallel.shards=2",
        "train.recompute=none").expect(0).out)["layouts"]}
    whole, tensor = rows["data 2, 2 shards"], rows["data 1, tensor 2, 2 shards"]
    if not tensor["model_parallel_s"] > whole["model_parallel_s"] == 0:
        raise AssertionError("collectives between devices cost nothing: %s" % tensor)
    if tensor["worker_bytes"] >= whole["worker_bytes"]:
        raise AssertionError("a tensor shard is as large as the whole: %s" % tensor)


def test_devices_that_are_not_here():
    """What the job says of GPUs that this machine does not have keeps it from none of their
    layouts, and the job that is written computes on them."""
    more = ["--device", "h200", "-n", "2", "parallel.shards=2", "train.recompute=none"]
    shown = [plan(*more, *given)["layouts"] for given in ([], ["parallel.devices=gpu"],
                                                         ["parallel.devices=0,1"])]
    if shown[0] != shown[1] or shown[0] != shown[2]:
        raise AssertionError(shown)
    for given, written in (("auto", "gpu"), ("cpu", "gpu"), ("gpu", "gpu"), ("0,1", "0,1")):
        runs.tutti("plan", *JOB, *more, "parallel.devices=" + given, "--out", "best.yaml").expect(0)
        with open("best.yaml") as file:
            text = file.read()
        if "devices: %s\n" % written not in text.replace('"', "") or "bf16" not in text:
            raise AssertionError("of %s\n%s" % (given, text))
    runs.tutti("plan", *JOB, *more, "parallel.devices=some").expect(2, "neither auto, cpu, gpu")
    runs.tutti("plan", *JOB, *more, "parallel.devices=0,cpu", "parallel.mode=fast").expect(
        2, "leave out --device h200")


def test_how_many_devices_that_are_not_here():
    """As many as the job lists; the cores of this machine say nothing of them."""
    more = ["--device", "h200", "train.recompute=none"]
    for n, given in ((3, ["parallel.devices=0,1,4"]), (2, ["parallel.devices=0,1,4", "-n", "2"]),
                     (5, ["parallel.devices=0,1,4", "parallel.workers=5"])):
        shown = plan(*more, *given)["workers"]
        if shown != n:
            raise AssertionError("%s: %d workers" % (given, shown))
    nothing = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    for given in ([], ["parallel.devices=gpu"], ["parallel.devices=cpu"]):
        runs.tutti("plan", *JOB, *more, *given, env=nothing).expect(
            2, "needs the number of GPUs", "give -n, or a list such as parallel.devices=0,1")


def test_a_backend_of_the_host_is_none_of_gpus():
    for given in ([], ["parallel.devices=cpu"]):
        for command in ("plan", "simulate"):
            runs.tutti(command, *JOB, *given, "-n", "2", "--device", "h200",
                       "parallel.backend=cpu").expect(
                2, "parallel.backend=cpu computes on the host", "give --device cpu")
    shown = plan("-n", "2", "--device", "cpu", "parallel.backend=cpu", "parallel.shards=2")
    if shown["workers"] != 2:
        raise AssertionError(shown)


def test_precision_of_a_device_that_is_not_here():
    """Products of f32 take longest, those in tf32 lie between them and 16 bits."""
    job = ["plan", "model.name=mlp", "model.hidden=[4096,4096]", "data.n_train=64",
           "data.n_test=8", "train.batch=4096", "-n", "1", "--device", "h200", "--json",
           "parallel.shards=1", "train.recompute=none"]
    low, tf32, wide = (json.loads(runs.tutti(*job, "train.precision=" + given).expect(0).out)
                       ["layouts"][0]["compute_s"] for given in ("bf16", "tf32", "f32"))
    if not 1.5 * low < tf32 < wide / 3:
        raise AssertionError("%g, %g, %g s" % (low, tf32, wide))


def test_devices():
    """Measured on devices (of host memory), all of them at once; parts of a model too."""
    devices = {"program": runs.program_with("device"),
               "env": dict(os.environ, TUTTI_TEST_DEVICE="peers=1,devices=2")}
    ended = runs.tutti("plan", *JOB, "optimizer.name=sgd", "parallel.devices=gpu", "-n", "2",
                       "--seconds", "0.1", "--json", "parallel.shards=2", "train.recompute=none",
                       **devices)
    rows = {r["layout"]: r for r in json.loads(ended.expect(0).out)["layouts"]}
    whole = rows["data 2, 2 shards"]
    if not whole["measured"] or whole["reduce_s"] <= 0:
        raise AssertionError(whole)
    if not {"data 1, pipeline 2, 2 shards", "data 1, tensor 2, 2 shards"} <= set(rows):
        raise AssertionError(list(rows))
    runs.tutti("train", *JOB, "optimizer.name=sgd", "parallel.devices=gpu", "-n", "2",
               "parallel.shards=2", "train.steps=4", "run.dir=run", **devices).expect(0)
    peak = [r for r in runs.records("run") if "peak_device_bytes" in r][-1]["peak_device_bytes"]
    if not 0.9 < whole["first_bytes"] / peak < 1.1:
        raise AssertionError("%g bytes predicted, %g taken" % (whole["first_bytes"], peak))
    runs.tutti("plan", "--check", "run", "--seconds", "0.1", **devices).expect(
        0, "step, ms", "of worker 0's GPU, MiB")
    memory_of_stages(devices)


def memory_of_stages(devices):
    """Of the first of two stages: values on their way and scratch of each shard under way."""
    job = [*JOB, "optimizer.name=sgd", "parallel.devices=gpu", "-n", "2", "parallel.shards=8",
           "train.recompute=none", "data.resident=no"]
    shown = runs.tutti("plan", *job, "--seconds", "0.2", "--json", **devices).expect(0).out
    stages = [r for r in json.loads(shown)["layouts"]
              if r["layout"] == "data 1, pipeline 2, 8 shards"][0]
    runs.tutti("train", *job, "parallel.pipeline=2", "train.steps=3", "run.dir=stages",
               **devices).expect(0)
    peak = [r for r in runs.records("stages") if "peak_device_bytes" in r][-1]["peak_device_bytes"]
    if not 0.95 < stages["first_bytes"] / peak < 1.05:
        raise AssertionError("%g bytes predicted, %g taken" % (stages["first_bytes"], peak))


def test_bad_input():
    runs.tutti("plan", *JOB, "--memory", "much").expect(2, "80GB")
    runs.tutti("plan", *JOB, "--seconds", "-1").expect(2, "--seconds")
    runs.tutti("plan", *JOB, "--seconds", "1x").expect(2, "--seconds")
    runs.tutti("plan", "--check", "run", "more").expect(2, "more")
    runs.tutti("plan", "--check", "run", "-n", "2").expect(2, "leave out '-n'")
    for n, why in (("0", "'0'"), ("-3", "'-3'"), ("2x", "'2x'"),
                   ("65537", "of 1 to 65536 workers")):
        runs.tutti("plan", *JOB, "-n", n, "--device", "cpu").expect(2, why)
    runs.tutti("plan", "--check", "run", "--out", "best.yaml").expect(2, "leave out '--out'")
    runs.tutti("plan", "--check", "run", "--memory", "1GB").expect(2, "leave out '--memory'")
    runs.tutti("plan", *JOB, "--memory").expect(2, "--memory, or no value after it")
    runs.tutti("plan", *JOB, "--device", "h200", "parallel.offload=optimizer").expect(
        2, "parallel.offload=optimizer", "describes only GPUs")
    runs.tutti("plan", *JOB, "--device", "abacus").expect(2, "h200")
    runs.tutti("plan", *JOB, "-n", "7", "train.batch=1").expect(2, "no layout of 7", "batch")
    runs.tutti("plan", "--check", "nothing").expect(2, "nothing")
    runs.tutti("plan", "--help").expect(0, "usage: tutti plan")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
