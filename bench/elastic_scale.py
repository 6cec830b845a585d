#!/usr/bin/env python3
"""elastic_scale.py [--times N] [--many W] [--few W] [--tutti PROGRAM] [--limit-s S]
                    [--devices N [--job gpt2|lenet]] [KEY=VALUE ...]

Trains lenet (batch 128, 8 shards) with --many workers (4) and asks with `tutti scale` for --few
(half of them) and for --many again, N times.  Prints for both directions how long the command took,
which returns when that many workers train, and for how long no step was committed meanwhile, less a
median step.
Exit code 1: 99 % of the pauses or commands were longer than --limit-s, or the final hash differs
from that of a run whose workers stay the same.

New workers load the data while the others train, so a command that adds workers takes longer than
the pause.  parallel.place=threads measures threads.  With --devices, N workers on N GPUs train GPT-2
124M, and --limit-s counts for the pauses alone:

    bench/elastic_scale.py --devices 4 --limit-s 0.3"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import elastic_kills


class Committed(threading.Thread):
    """The times at which steps of a run appeared in its records."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.times, self.is_over = folder, [], False

    def run(self):
        last = 0
        while not self.is_over:
            step = elastic_kills.last_step(self.folder)
            if step > last:
                self.times.append(time.monotonic())
                last = step
            time.sleep(0.001)

    def longest_gap(self, begin, end):
        """Between two commits, the first of which is the last one before begin."""
        before = [t for t in self.times if t <= begin][-1:]
        inside = [t for t in self.times if begin < t]
        within = [t for t in inside if t <= end] + [t for t in inside if t > end][:1]
        times = before + within
        return max((b - a for a, b in zip(times, times[1:])), default=0)


def quantiles(times):
    times = sorted(times)
    return "median %.3f s, most %.3f s" % (times[len(times) // 2], times[-1])


def p99(times):
    return sorted(times)[min(len(times) * 99 // 100, len(times) - 1)]


def measure(program, root, args):
    options = elastic_kills.options_of(args)
    run = elastic_kills.Run(program, os.path.join(root, "scaled"), options,
                            "train.epochs=1000000", "parallel.min_workers=%d" % args.few,
                            n_workers=args.many)
    while elastic_kills.last_step(run.folder) < 20 and not run.is_over():
        time.sleep(0.01)
    committed = Committed(run.folder)
    committed.start()
    draw, failed = random.Random(args.seed), False
    changes = {args.few: [], args.many: []}
    for _ in range(args.times):
        for n_workers in (args.few, args.many):
            time.sleep(0.5 + draw.random() * 0.5)
            begin = time.monotonic()
            code = subprocess.run([program, "scale", run.folder, str(n_workers)]).returncode
            end = time.monotonic()
            failed |= code != 0
            changes[n_workers].append((begin, end))
    time.sleep(0.5)
    committed.is_over = True
    committed.join()
    run.process.send_signal(elastic_kills.signal.SIGTERM)
    failed |= run.end()[0] != 143
    steps = sorted(b - a for a, b in zip(committed.times, committed.times[1:]))
    median = steps[len(steps) // 2]
    print("median step %.4f s" % median)
    for n_workers, spans in changes.items():
        took = [end - begin for begin, end in spans]
        pauses = [max(committed.longest_gap(*span) - median, 0) for span in spans]
        print("to %d workers, %d times: command %s; no step for %s" %
              (n_workers, len(spans), quantiles(took), quantiles(pauses)))
        longest = p99(pauses) if args.devices else max(p99(took), p99(pauses))
        failed |= args.limit_s > 0 and longest > args.limit_s
    n_steps = elastic_kills.last_step(run.folder) + 5
    whole = subprocess.run([program, *elastic_kills.arguments(
        os.path.join(root, "whole"), options, "train.epochs=1000000",
        "train.steps=%d" % n_steps, n_workers=args.many)], capture_output=True, text=True)
    again = subprocess.run([program, "train", "--resume", run.folder,
                            "train.steps=%d" % n_steps], capture_output=True, text=True)
    hashes = [elastic_kills.hash_of(ended.stdout + ended.stderr) for ended in (whole, again)]
    is_same = hashes[0] is not None and hashes[0] == hashes[1]
    print("%d steps, the hash is %s" % (n_steps, "the same" if is_same else hashes))
    return failed or not is_same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--many", type=int, default=4)
    parser.add_argument("--few", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--limit-s", type=float, default=0)
    parser.add_argument("--devices", type=int, default=0)
    parser.add_argument("--job", choices=sorted(elastic_kills.JOBS))
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    if args.devices:
        args.many = args.devices
    args.few = args.few or max(args.many // 2, 1)
    root = tempfile.mkdtemp(prefix="elastic-scale-")
    try:
        return measure(os.path.abspath(args.tutti), root, args)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
