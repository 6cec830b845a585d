"""cmd_train_test.py - what a user of `tutti train` sees and what scripts read: the records of
metrics.jsonl, the run folder, output, backends, modes, placements, resume."""

import json
import os
import re
import sys

import runs

HASH = re.compile(r"^[0-9a-f]{16}$")

RECORDS = {
    "start": {"step", "n_steps", "workers", "shards", "params", "bytes_params", "bytes_states",
              "bytes_grads", "bytes_activations", "resident", "backend", "version"},
    "step": {"step", "epoch", "split", "loss", "accuracy", "lr", "samples_per_s", "wait_share",
             "comm_share", "compute_share", "update_share", "sent_bytes", "params_hash"},
    "times": {"step", "data_s", "compute_s", "comm_s", "update_s", "spent_s"},
    "eval": {"step", "epoch", "split", "loss", "accuracy", "samples"},
    "checkpoint": {"step", "path"},
    "end": {"step", "stopped", "params_hash", "loss", "accuracy", "samples_per_s", "wall_s",
            "first_step_s", "peak_rss", "sent_bytes"},
}


# Fields of the records of steps and of the end that appear once enough time was measured, and then
# all of them; and from which share of a step a cause is named.
SLOWEST = {"slowest_rank", "slowest_why", "slowest_late_share"}
LATE = {"step": 0.05, "end": 0.01}


def check_slowest(r):
    if not SLOWEST & set(r):
        return
    rank, why, share = (r.pop("slowest_" + key) for key in ("rank", "why", "late_share"))
    if rank not in (0, 1) or not 0 <= share <= 1:
        raise AssertionError("the slowest is rank %s, by %s" % (rank, share))
    is_late = share >= LATE[r["event"]]
    if why not in ("data", "copy", "compute", "other") if is_late else why != "none":
        raise AssertionError("late by %s because of %s" % (share, why))


def check_record(r):
    event = r["event"]
    check_slowest(r)
    if set(r) - {"event", "time"} != RECORDS[event]:
        raise AssertionError("fields of %s: %s" % (event, sorted(r)))
    if "params_hash" in r and not HASH.match(r["params_hash"]):
        raise AssertionError("params_hash %s" % r["params_hash"])
    if r.get("split") != {"step": "train", "eval": "test"}.get(event):
        raise AssertionError("split of %s is %s" % (event, r.get("split")))
    for share in ("wait_share", "comm_share", "compute_share", "update_share", "accuracy"):
        if not 0 <= r.get(share, 0) <= 1.0001:
            raise AssertionError("%s is %g" % (share, r[share]))


def test_metrics():
    for place in ("threads", "processes"):
        runs.tutti(*runs.small(place, "-n", "2", "parallel.place=" + place)).expect(0)
        records = runs.records(place)
        for r in records:
            check_record(r)
        events = [r["event"] for r in records]
        if events[0] != "start" or events[-1] != "end" or set(events) != set(RECORDS):
            raise AssertionError("events %s" % events)
        steps = [r for r in records if r["event"] == "step"]
        if [r["step"] for r in steps] != list(range(1, 41)):
            raise AssertionError("steps %s" % [r["step"] for r in steps])
        if [r["epoch"] for r in steps] != [(s - 1) // 9 for s in range(1, 41)]:
            raise AssertionError("epochs %s" % [r["epoch"] for r in steps])
        evals = [r for r in records if r["event"] == "eval"]
        if [(r["step"], r["samples"]) for r in evals] != [(s, 100) for s in (9, 18, 27, 36, 40)]:
            raise AssertionError("evaluations %s" % evals)
        saved = [r["path"] for r in records if r["event"] == "checkpoint"]
        if saved != ["%s/checkpoints/step-%09d" % (place, s) for s in (9, 18, 27, 36, 40)] or \
           not os.path.exists(saved[-1] + "/manifest.json"):
            raise AssertionError("checkpoints %s" % saved)
        end = records[-1]
        if (end["params_hash"], end["accuracy"]) != (steps[-1]["params_hash"],
                                                     evals[-1]["accuracy"]):
            raise AssertionError("the end %s is not that of the last step" % end)


def test_run_folder():
    runs.tutti(*runs.small("run", "-n", "2", "parallel.place=processes")).expect(0)
    found = sorted(name.split(".out.")[0] for name in os.listdir("run"))
    if found != ["checkpoints", "data.json", "events", "job.yaml", "log", "metrics.jsonl",
                 "report.html", "samples.txt"]:
        raise AssertionError(found)
    if runs.checkpoints("run") != [36, 40] or len(os.listdir("run/checkpoints")) != 2:
        raise AssertionError("checkpoints %s" % os.listdir("run/checkpoints"))
    if sorted(os.listdir("run/log")) != ["rank-0.txt", "rank-1.txt"]:
        raise AssertionError(os.listdir("run/log"))
    runs.tutti("train", "run/job.yaml", "run.dir=again").expect(0)  # the resolved job is a job
    if runs.story("again") != runs.story("run"):
        raise AssertionError("the resolved job is another")


def test_names_of_run_folders():
    with open("small.job.yaml", "w") as file:
        file.write("model: {name: mlp, hidden: []}\ntrain: {steps: 1}\n"
                   "data: {n_train: 200, n_test: 10}\n")
    for n in (1, 2):
        runs.tutti("train", "small.job.yaml").expect(0, "run runs/small.job-%d" % n)
    runs.tutti("train", *runs.SMALL).expect(0, "run runs/mlp-1")


def test_a_run_that_cannot_begin_leaves_no_folder():
    runs.tutti(*runs.small("wide", "model.hidden=[17]", "train.steps=1")).expect(0)
    weights = "wide/checkpoints/step-000000001/model.safetensors"
    os.mkdir("mine")
    with open("mine/note", "w") as file:
        file.write("kept")
    for place in ("threads", "processes"):
        for run in ("run", "auto", "mine"):
            ended = runs.tutti(*runs.small(run, "-n", "2", "parallel.place=" + place,
                                           "model.init=" + weights))
            ended.expect(4 if place == "threads" else ended.code, "does not match the model")
            if ended.code == 0 or os.path.exists("run") or os.path.exists("runs/mlp-1"):
                raise AssertionError("%s %s: %s" % (place, run, ended.err))
            if run == "mine" and os.listdir("mine") != ["note"]:
                raise AssertionError("mine has %s" % os.listdir("mine"))
    runs.tutti(*runs.small("run", "model.init=nowhere")).expect(4, "nowhere")
    if os.path.exists("run"):
        raise AssertionError("a folder is left")


def without_slowest(text):
    """The lines of the output but one, which depends on the load of the machine."""
    return [line for line in text.splitlines() if not line.startswith("slowest worker: ")]


def test_output():
    ended = runs.tutti(*runs.small("run")).expect(0, "step 1/40",
                                                  "epoch 5: test loss", "samples/s")
    end = runs.records("run")[-1]
    if len(without_slowest(ended.out)) != 2 or "params_hash " + end["params_hash"] not in ended.out:
        raise AssertionError("printed: %s" % ended.out)
    for flag in ("-q", "--quiet"):
        ended = runs.tutti(*runs.small("quiet" + flag, flag)).expect(0)
        if ended.err or len(without_slowest(ended.out)) != 2:
            raise AssertionError("-q printed: %s%s" % (ended.out, ended.err))
    if runs.tutti(*runs.small("no", "run.progress=false")).expect(0).err:
        raise AssertionError("run.progress=false shows progress")
    runs.tutti("train", "--help").expect(0, "usage: tutti train", "--resume RUN")


def test_arguments_in_any_order():
    with open("job.yaml", "w") as file:
        file.write("model: {name: mlp, hidden: [16]}\ntrain: {steps: 3, batch: 32}\n"
                   "data: {n_train: 200, n_test: 10}\n")
    arguments = ["run.dir=a", "-n", "2", "train.batch=40", "parallel.shards=4"]
    runs.tutti("train", "job.yaml", *arguments).expect(0)
    arguments[0] = "run.dir=b"
    runs.tutti("train", *arguments, "job.yaml").expect(0)
    runs.same_story(runs.story("a"), "b")
    runs.tutti("train", "--train.batch=40", "--parallel.shards=4", "-n", "1", "job.yaml",
               "--run.dir=c").expect(0)
    runs.same_story(runs.story("a"), "c")


def end_loss(run):
    return runs.records(run)[-1]["loss"]


def test_reference_backend():
    for model in ([], ["model.name=lenet", "data.n_train=16", "train.batch=8", "train.steps=2",
                       "data.n_test=8"]):
        fast, slow = "fast%d" % len(model), "slow%d" % len(model)
        few = ["model.dropout=0", "train.steps=12", *model]
        runs.tutti(*runs.small(fast, *few)).expect(0)
        runs.tutti(*runs.small(slow, *few, "--backend", "reference")).expect(0)
        if abs(end_loss(fast) - end_loss(slow)) > 1e-3 * end_loss(fast):
            raise AssertionError("losses %g and %g" % (end_loss(fast), end_loss(slow)))
        if runs.records(fast)[-1]["params_hash"] == runs.records(slow)[-1]["params_hash"]:
            raise AssertionError("--backend reference changes nothing")


def test_fast_mode():
    runs.tutti(*runs.small("exact", "-n", "3")).expect(0)
    for algorithm in ("auto", "ring", "tree", "direct"):
        for place in ("threads", "processes"):
            run = algorithm + "-" + place
            runs.tutti(*runs.small(run, "-n", "3", "parallel.mode=fast", "parallel.place=" + place,
                                   "parallel.algorithm=" + algorithm)).expect(0)
            if abs(end_loss(run) - end_loss("exact")) > 1e-2 * end_loss("exact"):
                raise AssertionError("%s: loss %g, exact %g" % (run, end_loss(run),
                                                                end_loss("exact")))


def test_resume_of_a_run_that_is_done():
    runs.tutti(*runs.small("run")).expect(0)
    story = runs.story("run")
    runs.tutti("train", "--resume", "run", "-n", "2").expect(0, story[("end", 40)][0])
    runs.same_story(story, "run")
    runs.tutti("train", "--resume", "run", "train.steps=45").expect(0, "steps 45")
    runs.tutti(*runs.small("long", "train.steps=45")).expect(0)
    shown = runs.story("run")
    if shown[("end", 45)] != runs.story("long")[("end", 45)]:
        raise AssertionError("another end than without the stop at 40")


def power_of_two_from(n):
    return 1 << (n - 1).bit_length()


def test_the_default_number_of_shards_follows_the_cores():
    """Up to one worker per core the result does not depend on -n; the first line says so."""
    all_cores = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, all_cores[:3])  # more workers than there are cores: few processes
        check_default_shards(min(len(all_cores), 3))
    finally:
        os.sched_setaffinity(0, all_cores)


def check_default_shards(cores):
    small = [a for a in runs.SMALL if not a.startswith("parallel.shards")]
    hashes, shards = set(), power_of_two_from(cores)
    for n in range(1, cores + 1):
        run = "run-%d" % n
        ended = runs.tutti("train", *small, "run.dir=" + run, "-n", str(n)).expect(0)
        line = ended.err.splitlines()[0]
        shown = "1 to %d workers" % shards if shards > 1 else "no identical result"
        if "%d shard" % shards not in line or shown not in line:
            raise AssertionError("the first line: " + line)
        hashes.add(runs.records(run)[-1]["params_hash"])
    if len(hashes) != 1:
        raise AssertionError("other results with other workers: %s" % hashes)
    n = 2 * cores  # other shards, and a warning
    ended = runs.tutti("train", *small, "run.dir=many", "-n", str(n), "parallel.place=processes")
    ended.expect(0, "warning: %d workers share %d core" % (n, cores), "%d shards" %
                 power_of_two_from(n))


def test_batch_norm_of_a_few_samples_warns():
    job = ["train", "model.name=resnet18", "data.format=random_images", "data.image_size=8",
           "data.n_train=32", "data.n_test=8", "train.batch=16", "train.steps=1"]
    warning = "over the 4 samples of a shard"
    runs.tutti(*job, "parallel.shards=4", "run.dir=few").expect(
        0, warning, "parallel.sync_batch_norm=true", "parallel.shards=2 larger")
    for i, more in enumerate((["parallel.shards=2"], ["parallel.shards=4",
                                                      "parallel.sync_batch_norm=true"])):
        ended = runs.tutti(*job, *more, "run.dir=enough-%d" % i)
        ended.expect(0)
        if "samples of a shard" in ended.err:
            raise AssertionError(ended.err)


def curve_steps(run):
    """[(file, step, "start" or "values")] of the events of a run, by the protobuf bytes."""
    found = []
    for name in sorted(n for n in os.listdir(run) if n.startswith("events.out")):
        with open(os.path.join(run, name), "rb") as file:
            data = file.read()
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at:at + 8], "little")
            event = data[at + 12:at + 12 + size]
            at += size + 16
            if event[9] != 0x10:  # the version, which has no step
                continue
            step, i = event[10] & 0x7f, 10
            while event[i] & 0x80:
                i += 1
                step |= (event[i] & 0x7f) << 7 * (i - 10)
            kinds = {0x3a: "start", 0x2a: "values"}
            found.append((name, step, kinds[event[i + 1]]))
    return found


def kept_by_tensorboard(events):
    """Steps of the values that TensorBoard shows: a START discards its step and those after it."""
    kept = []
    for _, step, kind in events:
        if kind == "start":
            kept = [s for s in kept if s < step]
        else:
            kept.append(step)
    return kept


def test_a_resumed_run_shows_each_step_once():
    """The newest checkpoint is lost: steps 37 to 40 and the last evaluation are done again."""
    runs.tutti(*runs.small("run", "train.steps=40")).expect(0)
    once = kept_by_tensorboard(curve_steps("run"))
    runs.shutil.rmtree("run/checkpoints/step-000000040")
    runs.tutti("train", "--resume", "run", "-n", "2").expect(0)
    shown = [(r["event"], r["step"]) for r in runs.records("run") if r["event"] in ("step", "eval")]
    if len(set(shown)) != len(shown) or len(shown) != 45:
        raise AssertionError("repeated records: %s" % shown)
    events = curve_steps("run")
    second = [e for e in events if e[0] == events[-1][0]]
    if second[0][1:] != (37, "start"):
        raise AssertionError("the second file begins with %s" % (second[0],))
    if kept_by_tensorboard(events) != once:
        raise AssertionError("TensorBoard shows %s" % kept_by_tensorboard(events))
    # A finished run that is resumed evaluates again, and still has one evaluation of step 40.
    runs.tutti("train", "--resume", "run").expect(0)
    shown = [(r["event"], r["step"]) for r in runs.records("run") if r["event"] in ("step", "eval")]
    if len(set(shown)) != len(shown) or kept_by_tensorboard(curve_steps("run")) != once:
        raise AssertionError("repeated after the end: %s" % shown)


def test_idx_is_learnt():
    """From files: what can be learnt by heart is learnt."""
    runs.write_idx("set", n_train=64, n_test=64)
    for name in ("images-idx3", "labels-idx1"):
        os.replace("set/train-%s-ubyte" % name, "set/t10k-%s-ubyte" % name)
        with open("set/t10k-%s-ubyte" % name, "rb") as file, \
             open("set/train-%s-ubyte" % name, "wb") as copy:
            copy.write(file.read())
    runs.tutti("train", "data.format=idx", "data.dir=set", "model.name=mlp", "model.hidden=[64]",
               "train.batch=16", "train.epochs=20", "optimizer.lr=1e-2", "run.dir=run", "-q",
               "train.eval_every=0").expect(0)
    end = runs.records("run")[-1]
    if end["accuracy"] < 0.95:
        raise AssertionError(json.dumps(end))
    if len([r for r in runs.records("run") if r["event"] == "eval"]) != 1:
        raise AssertionError("train.eval_every=0 evaluates between")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
