#!/usr/bin/env python3
"""plan.py - what `tutti plan` predicts, beside what training takes.

Usage: bench/plan.py [-n WORKERS] [--devices cpu|gpu] [--device NAME]... [--seconds S] [--limit S]
                     [MODEL...]
       TUTTI names the program (build/tutti).

On cpu (the default; lenet resnet18 gpt2): every combination of zero 0 and 1, shards of one and two
to a worker, and recompute none and light (eight layouts); step time by `tutti bench train`, peak
memory by `tutti train`.  On gpu (gpt2 resnet50 cnn; bert, gpt2-355m if named): the layouts below,
time and memory of a GPU by `tutti bench train`; about 20 seconds a model.  Each is predicted by --device measured (this
machine; the default), by --device h200 (figures of one), or by both.  Prints the errors, their
medians, and whether the layout predicted to be the best is within 5 % of the best measured.
--seconds: for a calibration (8; on gpu 2).  No run begins after --limit seconds.  Wants a machine that does
nothing else.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

PROGRAM = os.environ.get("TUTTI", "build/tutti")
BEGAN = time.monotonic()
LONGEST_S = 60  # of one run


class Model:
    def __init__(self, steps, batch, *job, log_every=2):
        self.steps, self.batch, self.job, self.log_every = steps, batch, list(job), log_every


CPU = {
    "lenet": Model(240, 128, "model.name=lenet", "data.format=digits", "data.n_train=20000",
                   "optimizer.name=adamw"),
    "resnet18": Model(16, 64, "model.name=resnet18", "model.stem=cifar",
                      "data.format=random_images", "data.image_size=32", "data.n_train=512",
                      "data.n_test=64", "optimizer.name=sgd"),
    "gpt2": Model(48, 32, "model.name=gpt2", "model.layers=4", "model.heads=4", "model.width=128",
                  "data.format=random_tokens", "data.vocabulary=64", "data.context=128",
                  "optimizer.name=adamw"),
}


def gpt2(size):
    return ("model.name=gpt2", "model.size=" + size, "model.context=1024", "data.context=1024",
            "data.format=random_tokens", "data.vocabulary=50304", "data.n_train=512",
            "data.n_test=64", "train.clip_norm=1", "train.low_precision_residual=true", "train.precision=bf16",
            "optimizer.name=adamw", "optimizer.weight_decay=0.1", "data.threads=4")


# batch: on each GPU.
GPU = {
    "gpt2": Model(10, 64, *gpt2("124M")),
    "resnet50": Model(24, 256, "model.name=resnet50", "data.format=random_images",
                      "data.image_size=224", "data.n_train=1024", "data.n_test=64",
                      "train.precision=bf16", "optimizer.name=sgd", "optimizer.lr=0.1",
                      "optimizer.weight_decay=1e-4", "data.threads=12", "data.prefetch=3",
                      log_every=3),
    "cnn": Model(600, 512, "model.name=lenet", "data.format=digits", "data.n_train=8192",
                 "data.n_test=512", "train.precision=tf32", "optimizer.name=adam",
                 "data.threads=8", log_every=40),
    "bert": Model(15, 64, "model.name=bert", "model.size=base", "model.context=512",
                  "data.format=random_tokens", "data.context=512", "data.vocabulary=30528",
                  "data.n_train=1024", "data.n_test=64", "train.low_precision_residual=true",
                  "train.precision=bf16", "optimizer.name=adamw", "optimizer.lr=1e-4",
                  "data.threads=4", log_every=3),
    "gpt2-355m": Model(15, 32, *gpt2("355M"), log_every=3),
}
IF_NAMED = ("bert", "gpt2-355m")


def layout(data=1, tensor=1, pipeline=1, zero=0, shards=0, recompute="none"):
    return dict(data=data, tensor=tensor, pipeline=pipeline, zero=zero, shards=shards or data,
                recompute=recompute)


def layouts_of(gpu, n):
    """Those to run."""
    if not gpu:
        return [layout(n, zero=zero, shards=shards, recompute=recompute) for zero in (0, 1)
                for shards in (n, 2 * n) for recompute in ("none", "light")]
    if n == 1:
        return [layout(shards=shards, recompute=recompute) for recompute, most in
                (("none", 4), ("light", 4), ("block", 2)) for shards in (1, 2, 4)
                if shards <= most]
    rows = [layout(n), layout(n, zero=1), layout(n // 2, tensor=2),
            layout(n // 2, pipeline=2, shards=4 * n), layout(n, zero=3),
            layout(n, zero=2), layout(n, shards=2 * n)]
    return rows + [layout(1, tensor=n) if n > 2 else layout(n, recompute="light")]


def tutti(*arguments):
    ended = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False,
                           timeout=LONGEST_S)
    if ended.returncode:
        said = (ended.stderr.strip() or "exit code %d" % ended.returncode).splitlines()
        raise RuntimeError(said[-1][:120])
    return ended.stdout.splitlines()[-1] if ended.stdout else ""


def keys_of(model, row, n):
    return ["parallel.workers=%d" % n, "parallel.tensor=%d" % row["tensor"],
            "parallel.pipeline=%d" % row["pipeline"], "parallel.shards=%d" % row["shards"],
            "parallel.zero=%d" % row["zero"], "train.recompute=" + row["recompute"],
            "train.steps=%d" % model.steps, "run.log_every=%d" % model.log_every,
            "run.text_samples=0"]


def records_of(arguments):
    """The metrics of a training run, in its own folder."""
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        tutti("train", *arguments, "run.dir=" + run)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def measure(model, job, row, n, gpu):
    """Milliseconds of a step, and the peak of memory in MB."""
    keys = keys_of(model, row, n)
    reported = json.loads(tutti("bench", "train", *job, *keys))
    if gpu:
        return reported["ms"], reported["peak_device_gb"] * 1e3
    ended = [r for r in records_of(job + keys) if "peak_rss" in r][-1]  # evaluates, too
    return reported["ms"], ended["peak_rss"] / 1e6


def predict(job, n, device, wanted, seconds):
    """The rows of the planner's table, by layout; {} and a line where there is none."""
    began, rows = time.monotonic(), {}
    if all(w["recompute"] == "none" for w in wanted):
        job = job + ["train.recompute=none"]
    try:
        reported = tutti("plan", *job, "-n", str(n), "--json", "--device", device, "--seconds",
                     str(seconds))
        rows = {key(r): r for r in json.loads(reported)["layouts"]}
    except (RuntimeError, subprocess.TimeoutExpired) as why:
        print("  plan --device %s: %s" % (device, why))
    missing = [w for w in wanted if key(w) not in rows]
    for w in missing:
        print("  plan --device %s: no %s" % (device, name_of(w)))
    print("  plan --device %s: %.1f s" % (device, time.monotonic() - began), flush=True)
    return rows


def key(row):
    """Stages in one piece alone are compared."""
    return tuple(row.get(k, 1) for k in ("pipeline_chunks", "data", "tensor", "pipeline", "zero", "shards", "recompute"))


def name_of(row):
    parts = ["%s %s" % (k, row[k]) for k in ("data", "tensor", "pipeline", "zero") if row[k] > 1
             or k == "data" or (k == "zero" and row[k])]
    return ", ".join(parts + ["%d shards" % row["shards"]] +
                     ([row["recompute"]] if row["recompute"] != "none" else []))


def compare(name, model, n, gpu, devices, a):
    """One dictionary for each layout and way to predict it.  12 heads in 8 pieces are one, too."""
    job = model.job + ["train.batch=%d" % (model.batch * (n if gpu else 1)),
                       "parallel.devices=" + ("gpu" if gpu else "cpu"), "parallel.uneven=whole"]
    wanted, found = layouts_of(gpu, n), []
    print("%s, %d worker%s" % (name, n, "" if n == 1 else "s"))
    reported = {device: predict(job, n, device, wanted, a.seconds) for device in devices}
    for row in wanted:
        if not any(key(row) in rows for rows in reported.values()):
            continue
        if time.monotonic() - BEGAN > a.limit:
            print("  %-36s no time left" % name_of(row))
            continue
        try:
            ms, mb = measure(model, job, row, n, gpu)
        except (RuntimeError, subprocess.TimeoutExpired) as why:
            print("  %-36s %s" % (name_of(row), why), flush=True)
            continue
        line = "  %-36s %8.2f ms %8.0f MB" % (name_of(row), ms, mb)
        for device in devices:
            r = reported[device].get(key(row))
            if not r:
                continue
            bytes_reported = r["first_bytes" if gpu else "host_bytes"]
            r = dict(r, device=device, ms=ms, time_error=r["step_s"] * 1e3 / ms - 1,
                     memory_error=bytes_reported / 1e6 / max(mb, 0.1) - 1)
            found.append(r)
            line += "  %s %8.2f (%+5.1f %%) %+5.1f %%" % (
                device, r["step_s"] * 1e3, 100 * r["time_error"], 100 * r["memory_error"])
        print(line, flush=True)
    return found


def summary(device, models):
    rows = [r for found in models.values() for r in found if r["device"] == device]
    if not rows:
        return "%s: nothing to compare" % device
    step, memory = (100 * statistics.median(abs(r[k]) for r in rows)
                    for k in ("time_error", "memory_error"))
    text = "%s: %d layouts; median error: step %.1f %%, memory %.1f %%; the layout chosen, " \
           "beside the best measured:" % (device, len(rows), step, memory)
    for name, found in models.items():
        found = [r for r in found if r["device"] == device]
        if found:
            chosen, best = (min(found, key=lambda r: r[k]) for k in ("step_s", "ms"))
            text += " %s %+.1f %%" % (name, 100 * (chosen["ms"] / best["ms"] - 1))
    return text


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n\n")[0])
    parser.add_argument("-n", type=int, default=0)
    parser.add_argument("--devices", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--device", action="append")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("models", nargs="*")
    a = parser.parse_args()
    gpu = a.devices == "gpu"
    known, n = GPU if gpu else CPU, a.n or (1 if gpu else 2)
    for model in a.models:
        if model not in known:
            sys.exit("plan.py: no model %s on %s; there are %s" % (
                model, a.devices, ", ".join(known)))
    a.seconds = a.seconds or (2 if gpu else 8)
    devices = a.device or ["measured"]
    models = {name: compare(name, known[name], n, gpu, devices, a)
              for name in a.models or [m for m in known if m not in IF_NAMED]}
    for device in devices:
        print(summary(device, models))


main()
