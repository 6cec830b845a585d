#!/usr/bin/env python3
"""hangs.py [--rounds N] [--for SECONDS] [--seed S] [--build BUILD] [KIND ...]

Makes a rank of three hang or end in 12 ways, each once per round and all at the same time, at a
random rank and step.  Prints for each kind how often the first report named the culprit and what
it was doing, with no other report, and how long the rank had made no progress by then.  Exit code
1: less than 99 % of all reports are right.

BUILD (build) needs tests/tutti_faults and the modules of the tests: ninja -C build."""

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
N_RANKS, FOREVER_MS = 3, 120000
FIRST_SHARDS = [0, 2, 5]  # of the 8 shards of each rank


def kinds(hang_test, draw):
    """name -> (fault, options, further arguments of Run, parts of the report or None, exit code and
    pattern of the end)."""
    forever = "%d" % FOREVER_MS
    rank, later, nth = draw.randrange(N_RANKS), draw.randrange(1, N_RANKS), draw.randrange(1, 6)
    step = draw.choice([step for step in range(10, 31) if step % 9])  # 9 end an epoch
    at = "rank=%d,step=%d" % (rank, step)
    who, when = "rank %d (pid" % rank, "step %d, " % step
    processes, threads = hang_test.PROCESSES, hang_test.THREADS
    table = {
        "spin": ("exec.layer:spin_ms=%s@%s,%d" % (forever, at, nth), [processes], {},
                 (who, when + "run", "spin_in_fault")),
        "sleep": ("exec.layer:delay_ms=%s@%s,%d" % (forever, at, nth), [threads], {},
                  (who, when + "run", "sleep_in_fault")),
        "lock": ("exec.layer:lock_ms=%s@%s,%d" % (forever, at, nth), [processes], {},
                 (who, when + "run", "lock_in_fault")),
        "data": ("train.data:delay_ms=%s@%s" % (forever, at), [processes], {},
                 (who, when + "load batch", "tti_phases_next_batch")),
        # The point of the loader has the first shard of the rank.
        "loader": ("loader.read:delay_ms=%s@rank=%d,step=4,%d" %
                   (forever, FIRST_SHARDS[rank], nth), [processes], {},
                   (who, "step 4, read samples", "run_job")),
        "disk": ("ckpt.rename:delay_ms=%s@1" % forever,
                 [processes, "run.checkpoint_every=%d" % step], {},
                 ("rank 0 (pid", "is slow", "saving a checkpoint, step %d" % step, "write files")),
        "metrics": ("train.metrics:lock_ms=%s@rank=0,step=%d" % (forever, step), [processes], {},
                    ("rank 0 (pid", when + "write metrics", "lock_in_fault")),
        "kernel": ("", ["parallel.devices=gpu", "optimizer.name=sgd", "-n", "2",
                        "train.precision=f32"],
                   {"program": hang_test.runs.program_with("device"),
                    "TUTTI_TEST_DEVICE": "devices=2,peers=1,spins=%d,on=%d" % (step, later - 1)},
                   ("rank %d (pid" % (later - 1), "spin_in_kernel")),
        "evaluation": ("exec.evaluate:delay_ms=%s@rank=%d,1" % (forever, rank),
                       [processes, "parallel.phase_timeout_ms=4000"], {},
                       (who, "is slow: evaluating for 2 s")),
    }
    ends = {
        "stop": ("exec.compute:stop@" + at, 5,
                 r"rank %d \(pid \d+\) was stopped \(signal 19\), step %d compute" % (rank, step)),
        "dead host": ("exec.compute:vanish@" + at, 5,
                      r"rank %d \(pid \d+\) was killed by signal 9 \(Killed\), step %d compute" %
                      (rank, step)),
        "other call": ("train.other_call:fail@rank=%d,step=%d" % (later, step), 9,
                       r"rank %d called barrier\(\) where rank 0 called \w+\(" % later),
    }
    return table, {name: (fault, [processes], {}, code, text)
                   for name, (fault, code, text) in ends.items()}


def start(hang_test, name, fault, options, more):
    return hang_test.Run(name.replace(" ", "-"), fault, *options, **more)


def judge(runs, run, parts):
    """Seconds without progress that the report tells, 0: it tells none; raises AssertionError."""
    run.wait_for(run.reports, "report")
    found = run.reports()
    no_stack = "ready, but it gets no core" in found[0]  # as a loaded machine has it
    for part in parts:
        missing = part not in found[0] and not (no_stack and part == parts[-1])
        assert not missing, "%s: no '%s' in\n%s" % (run.name, part, found[0])
    assert len(found) == 1, "\n".join(found)
    stalled = re.search(r"no progress for ([0-9.]+) s", found[0])
    return float(stalled.group(1)) if stalled else 0


def judge_end(runs, run, code, pattern):
    assert run.process.wait(runs.HANGS_S) == code, run.text()
    assert re.search(pattern, run.text()), "%s: no '%s' in\n%s" % (run.name, pattern, run.text())
    assert not run.reports(), run.text()
    return 0


def one_round(hang_test, wanted, draw, tally):
    hangs, ends = kinds(hang_test, draw)
    at_work = []
    try:
        for name, kind in [*hangs.items(), *ends.items()]:
            if not wanted or name in wanted:
                at_work.append((name, kind[3:], start(hang_test, name, *kind[:3])))
        for name, expected, run in at_work:
            try:
                after_s = (judge(hang_test.runs, run, *expected) if name in hangs else
                           judge_end(hang_test.runs, run, *expected))
                tally[name].append(after_s)
            except AssertionError as error:
                tally[name].append(None)
                print("%s: %s" % (name, error), flush=True)
    finally:
        for _, _, run in at_work:
            run.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--for", dest="duration", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build")
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    os.environ.setdefault("TUTTI_BUILD", build)
    os.environ.setdefault("TUTTI_PROGRAM", os.path.join(build, "tutti"))
    os.environ.setdefault("TUTTI_SOURCE", os.path.dirname(HERE))
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "cli"))
    import hang_test  # reads the environment when it is imported
    draw, begin, n_rounds = random.Random(args.seed), time.monotonic(), 0
    known = [name for table in kinds(hang_test, draw) for name in table]
    if set(args.kinds) - set(known):
        parser.error("kinds are: %s" % ", ".join(known))
    tally = {name: [] for name in args.kinds or known}
    root = tempfile.mkdtemp(prefix="tutti-hangs-")
    try:
        while n_rounds < args.rounds and (args.duration == 0 or
                                          time.monotonic() - begin < args.duration):
            n_rounds += 1
            folder = os.path.join(root, str(n_rounds))
            os.mkdir(folder)
            os.chdir(folder)
            one_round(hang_test, args.kinds, draw, tally)
            os.chdir(root)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.chdir("/")
        shutil.rmtree(root, ignore_errors=True)
    n_right = n_all = 0
    for name, reports in tally.items():
        right = [t for t in reports if t is not None]
        n_right += len(right)
        n_all += len(reports)
        after = [t for t in right if t > 0]
        print("%-12s %4d of %4d right%s" % (name, len(right), len(reports),
                                           ", after at most %.1f s" % max(after) if after else ""))
    print("%d rounds: %d of %d right, %.2f %%" % (n_rounds, n_right, n_all,
                                                  100 * n_right / max(n_all, 1)))
    return n_right < 0.99 * n_all


if __name__ == "__main__":
    sys.exit(main())
