"""stop_test.py - Ctrl-C and SIGTERM, for threads and processes: the run stops at a step boundary
with a checkpoint, says how to go on, exits with 130 or 143; a second one ends it at once."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys

import runs

LONG = ["train.steps=1000000", "run.checkpoint_every=-1", "run.log_every=1"]


def running(*arguments, run="run", **options):
    """A run that is in the middle of its steps."""
    process = runs.start(*runs.small(run, *LONG, *arguments), **options)
    runs.wait_until(lambda: runs.steps_reported(run) > 5, what="the first steps")
    return process


def end_of(run):
    return [r for r in runs.records(run) if r["event"] == "end"][-1]


def stop(place, sig, code):
    process = running("-n", "3", "parallel.place=" + place)
    process.send_signal(sig)
    runs.finish(process).expect(code, "continue with: tutti train --resume run")
    end = end_of("run")
    if not end["stopped"] or runs.checkpoints("run") != [end["step"]]:
        raise AssertionError("%s, checkpoints %s" % (end, runs.checkpoints("run")))
    last = str(end["step"] + 3)
    runs.tutti("train", "--resume", "run", "-n", "2", "train.steps=" + last).expect(0)
    if end_of("run")["step"] != end["step"] + 3:
        raise AssertionError("continued to %s" % end_of("run"))
    runs.story("run")


def test_ctrl_c_threads():
    stop("threads", signal.SIGINT, 130)


def test_ctrl_c_processes():
    stop("processes", signal.SIGINT, 130)


def test_sigterm_threads():
    stop("threads", signal.SIGTERM, 143)


def test_sigterm_processes():
    stop("processes", signal.SIGTERM, 143)


def test_a_terminal_that_closes():
    stop("threads", signal.SIGHUP, 143)


def test_many_ctrl_c_are_distinguished_from_sigterm():
    """Whichever worker hears first, the exit code is that of the signal."""
    for i in range(10):
        process = running("-n", "4", "parallel.place=processes", run="run%d" % i)
        process.send_signal(signal.SIGINT)
        runs.finish(process).expect(130)


def is_pending(pid, sig):
    """Sent to a process and not taken yet: another of the kind would be lost."""
    with open("/proc/%d/status" % pid) as file:
        masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", file.read(), re.MULTILINE)
    return any(int(mask, 16) >> (sig - 1) & 1 for mask in masks)


def second_ctrl_c(place):
    """Steps of minutes, so that the first cannot be answered yet; the second needs no answer."""
    process = runs.start("train", "model.name=mlp", "model.hidden=[2000, 2000, 2000]",
                         "data.n_train=4096", "train.batch=4096", "parallel.shards=2", "-n", "2",
                         "--backend", "reference", "run.dir=run", "parallel.place=" + place)
    runs.wait_until(lambda: os.path.exists("run/metrics.jsonl") and runs.records("run"),
                    what="the start")
    process.send_signal(signal.SIGINT)
    runs.wait_until(lambda: not is_pending(process.pid, signal.SIGINT), what="the first one")
    if process.poll() is not None:
        raise AssertionError("the first one ended it")
    # One that comes very soon after the first counts as the same.
    for wait_s in [0.2] * 100:
        try:
            process.wait(wait_s)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    runs.finish(process).expect(130)
    runs.wait_until(lambda: not runs.alive("run.dir=run"), what="the end of all workers")


def test_second_ctrl_c_threads():
    second_ctrl_c("threads")


def test_second_ctrl_c_processes():
    second_ctrl_c("processes")


def state_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()[0]


def pause_at(point, place):
    """A run whose program stops itself at a point: nothing happens there until it is continued."""
    return runs.start(*runs.small("run", "-n", "2", "parallel.place=" + place, *LONG),
                      program=os.path.join(runs.BUILD, "tests", "tutti_faults"),
                      env=dict(os.environ, TUTTI_FAULT=point + ":stop"))


def test_ctrl_c_around_the_run():
    """Before the run takes the signals, and after it gave them back: the exit code is that of the
    signal all the same."""
    for place in ("threads", "processes"):
        for sig, code in ((signal.SIGINT, 130), (signal.SIGHUP, 143)):
            process = pause_at("train.begin", place)
            runs.wait_until(lambda: state_of(process.pid) == "T", what="the begin")
            process.send_signal(sig)
            process.send_signal(signal.SIGCONT)
            runs.finish(process).expect(code)
            process = pause_at("train.ended", place)
            runs.wait_until(lambda: runs.steps_reported("run") > 5, what="the first steps")
            process.send_signal(sig)
            runs.wait_until(lambda: state_of(process.pid) == "T", what="the end")
            process.send_signal(sig)
            process.send_signal(signal.SIGCONT)
            runs.finish(process).expect(code)
            shutil.rmtree("run")


def test_signals_do_not_touch_the_computation():
    """oneDNN's AVX matrix product works with the stack pointer at a heap block: a signal frame on
    that thread would overwrite the heap.  Below a supervisor further signals do nothing, so many
    can be sent to workers that compute."""
    process = runs.start("train", "model.name=mlp", "model.hidden=[700, 700, 700]",
                         "data.n_train=4096", "train.batch=512", "train.steps=100000",
                         "run.checkpoint_every=-1", "run.log_every=1", "parallel.shards=2",
                         "-n", "2", "run.dir=run", "parallel.place=processes",
                         env={**os.environ, "TUTTI_KERNELS": "avx2"})
    runs.wait_until(lambda: runs.steps_reported("run") > 2, what="the first steps")
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
        workers = [int(pid) for pid in file.read().split()]
    for _ in range(400):
        for pid in workers:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
    runs.finish(process).expect(143, "continue with: tutti train --resume run")
    last = str(end_of("run")["step"] + 1)
    runs.tutti("train", "--resume", "run", "-n", "1", "train.steps=" + last).expect(0)


def test_one_at_a_time():
    """A run that is at work is not continued by another process, threads or processes.  Its steps
    are slow: it leaves the cores to the others, and little comes into its output meanwhile."""
    slow = {"program": os.path.join(runs.BUILD, "tests", "tutti_faults"),
            "env": dict(os.environ, TUTTI_FAULT="exec.compute:delay_ms=20")}
    for place, other in (("threads", "processes"), ("processes", "threads")):
        process = running("-n", "2", "parallel.place=" + place, run=place, **slow)
        runs.tutti("train", "--resume", place, "-n", "2", "parallel.place=" + other).expect(
            2, "another process trains in it")
        process.send_signal(signal.SIGTERM)
        runs.finish(process).expect(143)


def test_who_comes_second_touches_nothing():
    """A new run in the folder of another one that has not begun to train yet."""
    os.mkdir("run")
    with open("run/job.yaml", "w") as file:
        file.write("of the first")
    lock = os.open("run", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    runs.tutti(*runs.small("run", "-n", "1")).expect(2, "another process trains in it")
    if open("run/job.yaml").read() != "of the first":
        raise AssertionError("the job of the first run is lost")
    second = runs.start(*runs.small("run", "-n", "1"))
    runs.wait_until(lambda: os.path.isdir("run/log"), what="the second one")
    with open("run/metrics.jsonl", "w"):
        os.close(lock)
    runs.finish(second).expect(2, "already holds a run")


def test_nohup_is_respected():
    """A run whose parent ignored a signal goes on, threads as processes."""
    for place in ("threads", "processes"):
        for sig in (signal.SIGINT, signal.SIGHUP):
            run = "%s-%d" % (place, sig)
            process = runs.start(*runs.small(run, "train.steps=400", "run.checkpoint_every=-1"),
                                 "-n", "2", "parallel.place=" + place,
                                 preexec_fn=lambda: signal.signal(sig, signal.SIG_IGN))
            runs.wait_until(lambda: runs.steps_reported(run) > 5, what="the first steps")
            os.killpg(process.pid, sig)
            runs.finish(process).expect(0)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
