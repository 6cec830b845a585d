"""cuda_lost_test.py - a GPU or a worker that fails in the middle of a run: named, ended without
waiting, resumed to the same bits.  Exit code 77 without a GPU."""

import os
import signal
import subprocess
import sys
import time

import runs
from gpus import LENET, train


def lose(run, fault, job, *arguments):
    """A run whose GPU reads where nothing is in the middle of its steps."""
    return runs.tutti("train", *job, "run.dir=" + run, "parallel.devices=gpu", *arguments,
                      program=runs.program_with("faults"),
                      env=dict(os.environ, TUTTI_FAULT=fault)).expect(10)


def test_lost_device():
    """A permanent error in a captured step ends the run at once; it resumes to the same bits."""
    job = LENET + ["run.checkpoint_every=9"]
    train("whole", job, "-n", "1")
    shown = runs.story("whole")
    for run, launch, arguments in (("one", 3, ["-n", "1"]),  # each of four steps
                                   ("fed", 9, ["-n", "1", "data.resident=no"]),
                                   ("process", 3, ["-n", "1", "parallel.place=processes"])):
        ended = lose(run, "cuda.replay:fail@%d" % launch, job, *arguments)
        for part in ("device 0 (", "failed: cuda: ", "illegal memory access", "The checkpoint of "
                     "step 9 is good: tutti train --resume " + run):
            if part not in ended.err:
                raise AssertionError("%s: no '%s' in %s" % (run, part, ended.err))
        if runs.checkpoints(run) != [9]:
            raise AssertionError(runs.checkpoints(run))
        runs.tutti("train", "--resume", run).expect(0)
        runs.same_story(shown, run)


def test_lost_workers():
    """Of two GPUs: a killed and a stopped worker are named at once, nothing is left on the
    devices, and what goes on from the last checkpoint comes to the bits of one GPU."""
    if runs.n_devices() < 2:
        return
    job = LENET + ["train.steps=8000", "run.checkpoint_every=500", "parallel.place=processes"]
    train("whole", job, "-n", "1")
    shown = runs.story("whole")
    for run, sign, text, restarts in (("killed", signal.SIGKILL, "was killed by signal 9", 0),
                                      ("stopped", signal.SIGSTOP, "was stopped (signal 19)", 0),
                                      ("again", signal.SIGKILL, "starting again", 1)):
        process = runs.start("train", *job, "run.dir=" + run, "parallel.devices=gpu", "-n", "2",
                             "--restarts", str(restarts))
        runs.wait_until(lambda: runs.steps_reported(run) > 700, what="step 700 of " + run)
        pid, start = runs.children(process.pid)[1], time.monotonic()
        os.kill(pid, sign)
        ended = runs.finish(process, 60)
        gone_s = time.monotonic() - start
        ended.expect(0 if restarts else 5, "rank 1 (pid %d) " % pid, text)
        print("%s: ended after %.2f s" % (run, gone_s))
        if not restarts:
            if gone_s > 20:
                raise AssertionError("%s: ended after %.2f s" % (run, gone_s))
            used = subprocess.run(["nvidia-smi", "--query-compute-apps=pid",
                                   "--format=csv,noheader"], capture_output=True, text=True)
            if str(pid) in used.stdout.split():
                raise AssertionError("memory is left on the devices")
            runs.tutti("train", "--resume", run, "-n", "2").expect(0)
        runs.same_story(shown, run)


def test_lost_device_of_two():
    """The worker on the other GPU, which waits for its sums, ends too."""
    if runs.n_devices() < 2:
        return
    job = LENET + ["run.checkpoint_every=6"]
    train("whole", job, "-n", "1")
    for place in ("threads", "processes"):
        for algorithm in ("direct", "tree"):
            run = "_".join((place, algorithm))
            lose(run, "cuda.replay:fail@3", job, "-n", "2", "parallel.place=" + place,
                 "parallel.algorithm=" + algorithm)
            if runs.alive("run.dir=" + run):
                raise AssertionError("%s: processes are left" % run)
            runs.tutti("train", "--resume", run).expect(0)
            runs.same_story(runs.story("whole"), run)


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
