#!/usr/bin/env python3
"""elastic_cost.py --without PROGRAM [--tutti PROGRAM] [--pairs N] [--seconds S] [JOB ...]

What the flight recorder and the membership of elastic runs cost while nothing fails.  PROGRAM is
built without the recorder:
    cmake -S . -B build-without -G Ninja -DCMAKE_C_FLAGS=-DTUTTI_FLIGHT=0
    ninja -C build-without tutti

Runs of two worker processes take turns, N times (10), each for about S seconds (5): the program
without the recorder, with it, and as an elastic run.  A run's figure is the mean time of a step
over the faster three quarters of 20 parts of the run.  Prints the median over the turns of the
differences between two runs of the same turn, in us and per cent of a step.  JOBs: small (steps of
some 0.1 ms), large (10 ms and more).  The noise is that of the last line: two runs of the same
program and job."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

PARTS = 20
JOBS = {"small": ["model.name=mlp", "model.hidden=[16]", "train.batch=16", "parallel.shards=2"],
        "large": ["model.name=lenet", "train.batch=256", "parallel.shards=2"]}


def step_s(program, folder, job, n_steps, *more):
    """Seconds of a step of a run."""
    shutil.rmtree(folder, ignore_errors=True)
    every = max(n_steps // (PARTS + 1), 1)
    subprocess.run([program, "train", *JOBS[job], "data.format=digits", "data.n_train=2560",
                    "data.n_test=10", "train.epochs=1000000", "train.steps=%d" % n_steps,
                    "train.eval_every=0", "run.checkpoint_every=-1", "run.progress=false",
                    "run.log_every=%d" % every, "parallel.place=processes", "-n", "2",
                    "run.dir=" + folder, *more], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        found = [(r["step"], r["time"]) for r in map(json.loads, file) if r["event"] == "step"]
    times = sorted((t - s) / (b - a) for (a, s), (b, t) in zip(found, found[1:]) if b - a == every)
    return max(statistics.mean(times[:(3 * len(times) + 3) // 4]), 1e-6)


def measure(args, root, job):
    ways = {"without": (args.without, []), "recorder": (args.tutti, []),
            "elastic": (args.tutti, ["parallel.min_workers=1"]), "again": (args.tutti, [])}
    trial = step_s(args.tutti, os.path.join(root, "trial"), job,
                   420 if job == "small" else 63)
    n_steps = max(int(args.seconds / trial), 2 * (PARTS + 1))
    took = {name: [] for name in ways}
    for turn in range(args.pairs):
        names = list(ways)
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            program, more = ways[name]
            took[name].append(step_s(program, os.path.join(root, name), job, n_steps, *more))
    whole = statistics.median(took["without"])
    print("%s: %d turns of %d steps; a step takes %.1f us without the recorder" %
          (job, args.pairs, n_steps, whole * 1e6))
    for title, name, base in (("recorder", "recorder", "without"),
                              ("membership", "elastic", "recorder"),
                              ("the same again", "again", "recorder")):
        differences = [a - b for a, b in zip(took[name], took[base])]
        more = statistics.median(differences)
        print("  %-15s %+8.2f us, %+6.2f %%  (%+.2f to %+.2f us)" %
              (title, more * 1e6, 100 * more / whole, min(differences) * 1e6,
               max(differences) * 1e6), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", required=True)
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("jobs", nargs="*")
    args = parser.parse_args()
    if set(args.jobs) - set(JOBS):
        parser.error("jobs are: " + ", ".join(JOBS))
    args.without, args.tutti = os.path.abspath(args.without), os.path.abspath(args.tutti)
    root = tempfile.mkdtemp(prefix="elastic-cost-")
    try:
        for job in args.jobs or JOBS:
            measure(args, root, job)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
