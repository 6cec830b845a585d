#!/usr/bin/env python3
"""plan.py - what `tutti plan` predicts, beside what training takes.

Usage: bench/plan.py [-n WORKERS] [MODEL...]     (lenet resnet18 gpt2; all but named)
       TUTTI names the program (build/tutti).

For each model: every combination of zero 0 and 1, shards of one and two to a worker, and recompute
none and light (eight layouts); the planner's step time and peak memory, then the same layout run by
`tutti bench train` for the time and `tutti train` for the memory.  Prints the errors, their medians, and whether the layout predicted to be the
best is within 5 % of the best measured.  Wants a machine that does nothing else.
"""
import json, os, statistics, subprocess, sys, tempfile

PROGRAM = os.environ.get("TUTTI", "build/tutti")
JOBS = {
    "lenet": ["model.name=lenet", "data.format=digits", "data.n_train=20000", "train.batch=128",
              "optimizer.name=adamw"],
    "resnet18": ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
                 "data.image_size=32", "data.n_train=512", "data.n_test=64", "train.batch=64",
                 "optimizer.name=sgd"],
    "gpt2": ["model.name=gpt2", "model.layers=4", "model.heads=4", "model.width=128",
             "data.format=random_tokens", "data.vocabulary=64", "data.context=128",
             "train.batch=32", "optimizer.name=adamw"],
}
STEPS = {"lenet": 240, "resnet18": 16, "gpt2": 48}


def tutti(*arguments):
    ended = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def measured(model, job, row, n):
    keys = ["parallel.workers=%d" % n, "parallel.shards=%d" % row["shards"],
            "parallel.zero=%d" % row["zero"], "train.recompute=" + row["recompute"],
            "train.steps=%d" % STEPS[model], "run.log_every=2", "run.text_samples=0"]
    timed = tutti("bench", "train", model, *job, *keys)
    with tempfile.TemporaryDirectory() as folder:  # evaluates and saves, too
        run = os.path.join(folder, "run")
        subprocess.run([PROGRAM, "train", *job, *keys, "run.dir=" + run], check=True,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            ended = [r for r in map(json.loads, file) if "peak_rss" in r][-1]
    return timed["ms"], ended["peak_rss"] / 1e6


def compare(model, n):
    job = JOBS[model] + ["parallel.devices=cpu"]
    told = tutti("plan", *job, "-n", str(n), "--json")
    rows = [r for r in told["layouts"] if r["recompute"] in ("none", "light") and r["data"] == n
            and r["shards"] in (n, 2 * n) and r["zero"] in (0, 1)]
    print("%s, %d workers, %.1f s of calibration" % (model, n, told["calibration_s"]))
    for r in rows:
        r["ms"], r["mb"] = measured(model, job, r, n)
        r["time_error"] = r["step_s"] * 1e3 / r["ms"] - 1
        r["memory_error"] = r["host_bytes"] / 1e6 / r["mb"] - 1
        print("  %-44s %8.2f ms for %8.2f (%+5.1f %%)  %7.1f MB for %7.1f (%+5.1f %%)" % (
            r["layout"], r["step_s"] * 1e3, r["ms"], 100 * r["time_error"],
            r["host_bytes"] / 1e6, r["mb"], 100 * r["memory_error"]), flush=True)
    chosen, best = min(rows, key=lambda r: r["step_s"]), min(rows, key=lambda r: r["ms"])
    print("  the layout chosen takes %.1f %% more than the best measured" % (
        100 * (chosen["ms"] / best["ms"] - 1)))
    return rows


def main():
    arguments, n = sys.argv[1:], 2
    if arguments[:1] == ["-n"]:
        n, arguments = int(arguments[1]), arguments[2:]
    rows = [r for model in arguments or JOBS for r in compare(model, n)]
    for key in ("time_error", "memory_error"):
        print("median %s: %.1f %%" % (key.replace("_", " "),
                                      100 * statistics.median(abs(r[key]) for r in rows)))


main()
