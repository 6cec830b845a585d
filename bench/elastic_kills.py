#!/usr/bin/env python3
"""elastic_kills.py [--kills N] [--seed S] [--tutti PROGRAM] [--respawn] [KEY=VALUE ...]

Kills a random worker of a run with 4 worker processes (lenet, batch 128, 8 shards), N times, one
kill per run, and prints how long the next committed step took (as metrics.jsonl shows it), and
whether the final hash is that of an undisturbed run.  With --respawn the dead worker is started
again and joins.  Exit code 1: a run failed or had another hash."""

import argparse
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def arguments(folder, options, respawn, elastic):
    found = ["model.name=lenet", "data.format=digits", "data.n_train=3840", "data.n_test=200",
             "train.batch=128", "train.epochs=2", "train.seed=1", "parallel.shards=8",
             "parallel.place=processes", "run.log_every=1", "run.dir=" + folder]
    if elastic:
        found += ["parallel.min_workers=2", "run.restarts=%d" % (1 if respawn else 0)]
    return found + options


def children(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                rest = file.read().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(rest[1]) == pid:
            found.append(int(path.split("/")[2]))
    return found


def steps(folder):
    """Number of the last recorded step, 0: none."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), errors="replace") as file:
            found = re.findall(r'"event":"step","time":[0-9.]+,"step":(\d+)', file.read())
    except FileNotFoundError:
        return 0
    return int(found[-1]) if found else 0


def hash_of(text):
    found = re.findall(r"params_hash ([0-9a-f]{16})", text)
    return found[-1] if found else None


def one_run(program, folder, options, args, draw):
    with open(folder + ".out", "w+") as out:
        process = subprocess.Popen([program, "train", *arguments(folder, options, args.respawn,
                                                                 True), "-n", "4"],
                                   stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        at = draw.randrange(1, 50)
        while steps(folder) < at and process.poll() is None:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.1)
        before, start = steps(folder), time.monotonic()
        victims = children(process.pid)
        victim = draw.randrange(len(victims))
        os.kill(victims[victim], signal.SIGKILL)
        in_flight = before + 1  # may have been committed before the kill
        while steps(folder) <= in_flight and process.poll() is None:
            time.sleep(0.001)
        took = time.monotonic() - start
        code = process.wait()
        out.seek(0)
        text = out.read()
    return code, took, hash_of(text), victim, before, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--respawn", action="store_true")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    program, draw, failed = os.path.abspath(args.tutti), random.Random(args.seed), 0
    root = tempfile.mkdtemp(prefix="elastic-kills-")
    whole = subprocess.run([program, "train", *arguments(os.path.join(root, "whole"), args.options,
                                                         False, False), "-n", "4"],
                           capture_output=True, text=True)
    expected, times = hash_of(whole.stdout + whole.stderr), []
    print("undisturbed:", expected)
    for i in range(args.kills):
        folder = os.path.join(root, "run%d" % i)
        code, took, found, victim, step, text = one_run(program, folder, args.options, args, draw)
        times.append(took)
        if code != 0 or found != expected:
            failed += 1
            print("run %d, worker %d killed after step %d: code %d, hash %s" %
                  (i, victim, step, code, found), text[-1500:], sep="\n")
        shutil.rmtree(folder, ignore_errors=True)
    times.sort()
    if times:
        print("%d kills, %d failed; next step after median %.3f s, p90 %.3f s, most %.3f s" %
              (len(times), failed, times[len(times) // 2], times[len(times) * 9 // 10], times[-1]))
    for path in glob.glob(os.path.join(root, "*.out")):
        os.remove(path)
    shutil.rmtree(root, ignore_errors=True)
    return failed > 0 or expected is None


if __name__ == "__main__":
    sys.exit(main())
