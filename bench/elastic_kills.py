#!/usr/bin/env python3
"""elastic_kills.py [--kills N] [--per-run K] [--seed S] [--tutti PROGRAM] [--limit-s S]
                    [--devices N [--job gpt2|lenet]] [--spare]
                    [--for SECONDS --every SECONDS [--turns N]] [KEY=VALUE ...]

Kills random workers of runs with 4 worker processes (lenet, batch 128, 8 shards), N times, K kills
per run (10), and starts each again at once (tutti scale).  Prints the time from a kill to the first
new step that the next membership commits, by the times in metrics.jsonl, and whether every run
recorded each step once and has the final hash of an undisturbed run.  Exit code 1: one did not, or
99 % of the steps took longer than --limit-s.

With --devices, N workers train GPT-2 124M (batch 32, 8 shards) on N GPUs: with 4 GPUs

    bench/elastic_kills.py --devices 4 --kills 20 --limit-s 1             # survivors go on
    bench/elastic_kills.py --devices 4 --kills 20 --limit-s 0.5 --spare   # a spare takes the place

There all kills are in one run, unless --per-run says otherwise.  It is stopped after the last kill,
and the undisturbed run trains as many steps afterwards.

With --spare, a spare takes the place of each killed worker, which is started again as the next spare.
A kill waits until all workers, and the spare, are there again.

With --for, two runs train for so long: one is left alone, of the other a random worker is killed
--every so often and started again by run.restarts.  Prints the goodput: committed steps of the
second relative to those of the first.  The runs train side by side and share the cores, so a pause
of one makes the other faster; with --turns N each trains alone, N times, in turns.  A machine may
change its speed from one turn to the next by more than the kills cost.  Therefore it also prints
the goodput from the second run alone: the steps between two kills, relative to those that the pace
of the last half of that time would have given."""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

N_WORKERS = 4
HANGS_S = 60
JOBS = {"lenet": ["model.name=lenet", "data.format=digits", "data.n_train=3840", "data.n_test=200",
                  "train.batch=128"],
        "gpt2": ["model.name=gpt2", "model.size=124M", "model.context=1024",
                 "data.format=random_tokens", "data.context=1024", "data.vocabulary=50304",
                 "data.n_train=4096", "data.n_test=8", "train.batch=32", "train.clip_norm=1",
                 "train.eval_every=0", "optimizer.name=adamw", "optimizer.weight_decay=0.1",
                 "run.text_samples=0"]}


def options_of(args):
    """The job, and where it trains."""
    job = args.job or ("gpt2" if args.devices else "lenet")
    return JOBS[job] + (["parallel.devices=gpu"] if args.devices else []) + args.options


def arguments(folder, options, *more, n_workers=N_WORKERS):
    return ["train", "train.seed=1", "parallel.shards=8", "parallel.place=processes",
            "run.log_every=1", "run.checkpoint_every=-1", "run.dir=" + folder, *options, *more,
            "-n", str(n_workers)]


def steps(folder, n_last_bytes=0):
    """The recorded steps, in order; with n_last_bytes those at the end of the file."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as file:
            if n_last_bytes:
                file.seek(max(os.fstat(file.fileno()).st_size - n_last_bytes, 0))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [int(step) for step in
            re.findall(r'"event":"step","time":[^,]+,"step":(\d+),', text)]


def goodput_of(times, kills):
    """The steps from each kill to the next one, relative to the pace in the last half of that time,
    when all workers are there again.  times, kills: seconds."""
    n_done, n_possible = 0, 0.0
    for begin, end in zip(kills, kills[1:]):
        middle = (begin + end) / 2
        n_last = sum(middle < time <= end for time in times)
        n_done += sum(begin < time <= end for time in times)
        n_possible += n_last / (end - middle) * (end - begin)
    return n_done / max(n_possible, 1)


def step_times(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        return [float(time) for time in
                re.findall(r'"event":"step","time":([^,]+),', file.read())]


def last_step(folder):
    return (steps(folder, 4096) or steps(folder) or [0])[-1]


def step_hash(folder):
    """The hash of the parameters in the record of the last step."""
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        return hash_of(file.read().replace('"params_hash":"', "params_hash "))


def hash_of(text):
    found = re.findall(r"params_hash ([0-9a-f]{16})", text)
    return found[-1] if found else None


class Run:
    def __init__(self, program, folder, options, *more, n_workers=N_WORKERS):
        self.program, self.folder = program, folder
        self.out = open(folder + ".out", "w+")
        self.process = subprocess.Popen(
            [program, *arguments(folder, options, *more, n_workers=n_workers)], stdout=self.out,
            stderr=self.out, stdin=subprocess.DEVNULL)

    def is_over(self):
        return self.process.poll() is not None

    def workers(self):
        """Processes of the ranks that train."""
        shown = subprocess.run([self.program, "ps", self.folder], capture_output=True, text=True)
        lines = [line for line in shown.stdout.splitlines()[1:]
                 if "ended" not in line and "spare" not in line]
        return [int(line.split()[1]) for line in lines]

    def has_spare(self):
        shown = subprocess.run([self.program, "ps", self.folder], capture_output=True, text=True)
        return "waiting as a spare" in shown.stdout

    def is_whole(self, args):
        return len(self.workers()) == args.workers and (not args.spare or self.has_spare())

    def records_after(self, n_bytes):
        """The records after the first n_bytes, and some before: a change of membership may remove
        the record of a step that was not committed."""
        with open(os.path.join(self.folder, "metrics.jsonl"), "rb") as file:
            file.seek(max(n_bytes - 8192, 0))
            return file.read().decode(errors="replace")

    def resumed(self, n_bytes, kill):
        """The time of the first step that was committed by the membership after a kill, and not by
        the one before; None: none was."""
        start = None
        for event, at, step in re.findall(r'"event":"(start|step)","time":([^,]+),"step":(\d+),',
                                          self.records_after(n_bytes)):
            if event == "start" and float(at) >= kill - 0.001:  # they are cut to milliseconds
                start = int(step)
            elif start is not None and int(step) > start:
                return float(at)
        return None

    def wait_until(self, condition, what, poll_s=0.002):
        """Ends a run that hangs, and prints where."""
        begin = time.monotonic()
        while not condition() and not self.is_over():
            if time.monotonic() - begin > HANGS_S:
                print("%s: no %s in %d s" % (self.folder, what, HANGS_S))
                for command in "ps", "stacks":
                    shown = subprocess.run([self.program, command, self.folder],
                                           capture_output=True, text=True)
                    print((shown.stdout + shown.stderr)[:6000], flush=True)
                self.process.kill()
                self.process.wait()
            time.sleep(poll_s)

    def kill_one(self, draw):
        """Seconds to the next committed step; None: there was no worker to kill."""
        victims = self.workers()
        if not victims:
            return None
        n_bytes = os.path.getsize(os.path.join(self.folder, "metrics.jsonl"))
        kill = time.time()
        try:
            os.kill(draw.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return None
        self.wait_until(lambda: self.resumed(n_bytes, kill) is not None, "step")
        after = self.resumed(n_bytes, kill)
        return None if after is None else max(after - kill, 0)

    def end(self):
        code = self.process.wait()
        self.out.seek(0)
        text = self.out.read()
        self.out.close()
        return code, text


def restore(run, args):
    """Until all workers are there again."""
    def asked():
        if not args.spare and not run.is_whole(args):
            subprocess.run([run.program, "scale", run.folder, str(args.workers)],
                           capture_output=True)
        return not (args.spare or args.devices) or run.is_whole(args)
    run.wait_until(asked, "new worker", 0.02)


def undisturbed(program, root, args, n_steps):
    """The hash after so many steps."""
    folder = os.path.join(root, "whole")
    whole = subprocess.run([program, *arguments(
        folder, options_of(args), "train.epochs=1000000", "train.steps=%d" % n_steps,
        n_workers=args.workers)], capture_output=True, text=True)
    expected = step_hash(folder) if whole.returncode == 0 else None
    shutil.rmtree(folder, ignore_errors=True)
    print("undisturbed, %d steps:" % n_steps, expected or whole.stderr[-1500:], flush=True)
    return expected


def kill_often(program, root, args, draw):
    is_stopped, n_steps = args.devices > 0, args.per_run * 25
    elastic = ["parallel.min_workers=%d" % args.workers, "parallel.spares=1",
               "run.restarts=1000000"] if args.spare else [
                   "parallel.min_workers=%d" % max(min(2, args.workers - 1), 1)]
    length = ["train.epochs=1000000"] + ([] if is_stopped else ["train.steps=%d" % n_steps])
    expected = None if is_stopped else undisturbed(program, root, args, n_steps)
    times, n_failed, n_runs = [], 0, 0
    while (expected or is_stopped) and len(times) < args.kills and n_failed < args.most_failures:
        n_runs += 1
        run = Run(program, os.path.join(root, "run%d" % n_runs), options_of(args), *elastic,
                  *length, n_workers=args.workers)
        run.wait_until(lambda: last_step(run.folder) >= 3, "step")
        for _ in range(args.per_run):
            if args.devices or args.spare:
                restore(run, args)
            time.sleep(draw.random() * 0.2)
            took = run.kill_one(draw) if not run.is_over() and len(times) < args.kills else None
            if took is None:
                continue
            times.append(took)
            if args.devices:
                print("  after kill %d: %.3f s" % (len(times), took), flush=True)
            if not (args.devices or args.spare):
                restore(run, args)
        if is_stopped and not run.is_over():
            run.process.send_signal(signal.SIGTERM)
        code, text = run.end()
        found = steps(run.folder)
        if is_stopped:
            n_steps = max(found, default=0)
            expected = undisturbed(program, root, args, n_steps) if n_steps else None
        result = step_hash(run.folder) if found else None
        if (code != (143 if is_stopped else 0) or result is None or result != expected or
                found != list(range(1, n_steps + 1))):
            n_failed += 1
            print("steps that are missing: %s, or there twice: %s" % (
                sorted(set(range(1, n_steps + 1)) - set(found))[:50],
                sorted(step for step in set(found) if found.count(step) > 1)[:50]))
            print("run %d: code %d, hash %s" % (n_runs, code, result), text[-1500:], sep="\n")
        shutil.rmtree(run.folder, ignore_errors=True)
    if not times:
        return True
    times.sort()
    p99 = times[min(len(times) * 99 // 100, len(times) - 1)]
    print("%d kills in %d runs, %d runs failed; next step after median %.3f s, p90 %.3f s, "
          "p99 %.3f s, most %.3f s" % (len(times), n_runs, n_failed, times[len(times) // 2],
                                       times[len(times) * 9 // 10], p99, times[-1]))
    return n_failed > 0 or expected is None or (args.limit_s > 0 and p99 > args.limit_s)


def train_for(program, root, args, draw, names, seconds):
    """Trains runs side by side.  Returns the steps that each committed, the number of kills, and the
    goodput between them."""
    endless = ["train.epochs=1000000", "run.progress=false"]
    more = {"alone": [], "killed": ["parallel.min_workers=2", "run.restarts=1000000"]}
    runs = [Run(program, os.path.join(root, name), options_of(args), *endless, *more[name],
                n_workers=args.workers) for name in names]
    while any(last_step(run.folder) < 3 and not run.is_over() for run in runs):
        time.sleep(0.01)
    first, start, kills = [last_step(run.folder) for run in runs], time.monotonic(), []
    next_kill = args.every / 2 if "killed" in names else seconds
    while time.monotonic() - start < seconds:
        time.sleep(max(min(next_kill, seconds) - (time.monotonic() - start), 0))
        if next_kill < seconds:
            kill = time.time()
            if runs[names.index("killed")].kill_one(draw) is not None:
                kills.append(kill)
            next_kill += args.every
    done = [last_step(run.folder) - n for run, n in zip(runs, first)]
    for run in runs:
        run.process.send_signal(signal.SIGTERM)
        code, text = run.end()
        if code != 143:
            print("code %d" % code, text[-1500:], sep="\n")
            raise SystemExit(1)
    goodput = goodput_of(step_times(runs[-1].folder), kills) if len(kills) > 1 else None
    for run in runs:
        shutil.rmtree(run.folder)
    return done, len(kills), goodput


def compare_goodput(program, root, args, draw):
    """Prints the goodput of each pair of runs and of all together."""
    alone = killed = n_kills = 0
    goodputs = []
    for turn in range(max(args.turns, 1)):
        if args.turns:
            done = {}
            for name in ("alone", "killed") if turn % 2 == 0 else ("killed", "alone"):
                (done[name],), n, goodput = train_for(program, root, args, draw, [name],
                                                      args.duration / args.turns)
                n_kills += n
                goodputs += [goodput] if goodput is not None else []
        else:
            found, n_kills, goodput = train_for(program, root, args, draw, ["alone", "killed"],
                                                args.duration)
            done = dict(zip(("alone", "killed"), found))
            goodputs += [goodput] if goodput is not None else []
        alone, killed = alone + done["alone"], killed + done["killed"]
        if args.turns:
            print("turn %d: %.1f %%" % (turn + 1, 100 * done["killed"] / max(done["alone"], 1)),
                  flush=True)
    print("%d kills in %.0f s: %d steps, %d in the undisturbed run%s; goodput %.1f %%" %
          (n_kills, args.duration, killed, alone, "" if args.turns else " beside it",
           100 * killed / max(alone, 1)))
    if goodputs:
        print("by the pace between kills: %.1f %%" % (100 * sum(goodputs) / len(goodputs)))
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--per-run", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--limit-s", type=float, default=0)
    parser.add_argument("--for", dest="duration", type=float, default=0)
    parser.add_argument("--every", type=float, default=15)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--devices", type=int, default=0)
    parser.add_argument("--job", choices=sorted(JOBS))
    parser.add_argument("--spare", action="store_true")
    parser.add_argument("--most-failures", type=int, default=10)
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    args.workers = args.devices or N_WORKERS
    args.per_run = args.per_run or (args.kills if args.devices else 10)
    root = tempfile.mkdtemp(prefix="elastic-kills-")
    measure = compare_goodput if args.duration > 0 else kill_often
    failed = measure(os.path.abspath(args.tutti), root, args, random.Random(args.seed))
    shutil.rmtree(root, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
