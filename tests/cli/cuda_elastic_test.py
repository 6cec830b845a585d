"""cuda_elastic_test.py - elastic runs on 2 or more GPUs: a worker is killed or stopped, its GPU
fails, a spare takes its place, the number of workers changes, over peers' memory and by NCCL; the
bits are those of one GPU.  Exit code 77 without two GPUs."""

import json
import os
import signal
import subprocess
import sys
import time

import runs
from gpus import GPT, LENET, last_hash, train

LONG = LENET + ["train.steps=8000", "run.checkpoint_every=-1", "train.eval_every=0"]
PROCESSES = ["parallel.place=processes"]
N = 2


def start(run, job, *arguments, program=None, env=None):
    return runs.start("train", *job, "run.dir=" + run, "parallel.devices=gpu", *arguments,
                      program=program, env=env)


def last_step(run):
    """Of a run that is at work."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), errors="replace") as file:
            lines = [line for line in file.read().split("\n")[:-1] if '"event":"step"' in line]
    except FileNotFoundError:
        return 0
    return json.loads(lines[-1])["step"] if lines else 0


def ask(*arguments):
    """The files of a run at work are those of its output."""
    return subprocess.run([runs.PROGRAM, *arguments], capture_output=True, text=True)


def pids(run):
    shown = ask("ps", run).stdout.splitlines()[1:]
    return [int(line.split()[1]) for line in shown if "spare" not in line]


def wait_for(run, process, step):
    runs.wait_until(lambda: last_step(run) >= step or process.poll() is not None,
                    what="step %d of %s" % (step, run))
    if last_step(run) < step:
        runs.finish(process).expect(0)
        raise AssertionError("%s ended after step %d" % (run, last_step(run)))


def check(run, process, whole, n_steps):
    runs.finish(process).expect(0)
    steps = [r["step"] for r in runs.records(run) if r["event"] == "step"]
    if steps != list(range(1, n_steps + 1)):
        raise AssertionError("%s: %s" % (run, steps[:50]))
    if last_hash(run) != last_hash(whole):
        raise AssertionError("%s: %s, alone %s" % (run, last_hash(run), last_hash(whole)))


def lose_one(run, job, whole, n_steps, *arguments, sign=signal.SIGKILL):
    process = start(run, job, *arguments)
    wait_for(run, process, n_steps // 4)
    before, begin = last_step(run), time.monotonic()
    os.kill(pids(run)[1], sign)
    wait_for(run, process, before + 2)
    print("%s: the next step after %.3f s" % (run, time.monotonic() - begin), flush=True)
    check(run, process, whole, n_steps)


def test_lost_workers():
    """The others go on, or with run.restarts the lost worker comes back on the same GPU."""
    train("whole", LONG, "-n", "1")
    elastic = [*PROCESSES, "parallel.min_workers=1", "-n", str(N)]
    for algorithm in "direct", "tree":
        way = "parallel.algorithm=" + algorithm
        lose_one("killed-" + algorithm, LONG, "whole", 8000, *elastic, way)
        lose_one("again-" + algorithm, LONG, "whole", 8000, *elastic, way, "run.restarts=1")
    lose_one("stopped", LONG, "whole", 8000, *elastic, sign=signal.SIGSTOP)


def test_partitions():
    job = GPT + ["parallel.shards=4", "train.steps=4000", "run.checkpoint_every=-1",
                 "train.eval_every=0"]
    train("whole", job, "-n", "1")
    for zero in 1, 3:
        lose_one("zero%d" % zero, job, "whole", 4000, *PROCESSES, "parallel.min_workers=1", "-n",
                 str(N), "parallel.zero=%d" % zero)


def test_stages_and_tensor_shards():
    """The other worker of the replica waits until the lost one is started again."""
    job = LONG + ["train.steps=2000"]
    for way in ("pipeline", "tensor") if N == 4 else ():
        layout = ["parallel.%s=2" % way]
        train("whole-" + way, job, *layout, "-n", "2")
        for zero in 0, 1:
            lose_one("%s-zero%d" % (way, zero), job, "whole-" + way, 2000, *PROCESSES, *layout,
                     "parallel.zero=%d" % zero, "parallel.min_workers=2", "-n", str(N),
                     "run.restarts=1")


def test_spare():
    train("whole", LONG, "-n", "1")
    process = start("spare", LONG, *PROCESSES, "parallel.min_workers=%d" % N, "parallel.spares=1",
                    "-n", str(N))
    runs.wait_until(lambda: "waiting as a spare" in ask("ps", "spare").stdout or
                    process.poll() is not None, what="a spare")
    wait_for("spare", process, 100)
    os.kill(pids("spare")[0], signal.SIGKILL)
    check("spare", process, "whole", 8000)


def test_scaled():
    """Processes and threads."""
    job = LONG + ["train.steps=30000", "train.epochs=100000"]
    train("whole", job, "-n", "1")
    for place in "processes", "threads":
        process = start(place, job, "parallel.place=" + place, "parallel.min_workers=1", "-n",
                        str(N))
        wait_for(place, process, 100)
        for n_workers in 1, N:
            begin = time.monotonic()
            code = ask("scale", place, str(n_workers)).returncode
            if code != 0:
                raise AssertionError("scale: %d" % code)
            print("%s: %d workers after %.3f s" % (place, n_workers, time.monotonic() - begin))
        check(place, process, "whole", 30000)


def test_gpu_that_fails():
    """It ends its worker; the others go on, and the GPU is used again."""
    train("whole", LONG, "-n", "1")
    used = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"],
                          capture_output=True, text=True).stdout.split()
    for run, restarts in (("fails", 0), ("replaced", 1)):
        process = start(run, LONG, *PROCESSES, "parallel.min_workers=1", "-n", str(N),
                        "run.restarts=%d" % restarts, program=runs.program_with("faults"),
                        env=dict(os.environ, TUTTI_FAULT="cuda.replay:fail@rank=1,300"))
        check(run, process, "whole", 8000)
    now = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"],
                         capture_output=True, text=True).stdout.split()
    if len(now) > len(used):
        raise AssertionError("processes are left on the devices: %s" % now)


if __name__ == "__main__":
    runs.need_gpus(2)
    N = min(runs.n_devices(), 4)
    runs.main(sys.modules[__name__])
