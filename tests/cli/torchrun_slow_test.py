"""torchrun_slow_test.py - PyTorch's torchrun as the launcher: the bits of one worker; a rank is
killed, and the run goes on when torchrun starts all ranks again.  Skipped where it is not."""

import os
import shutil
import signal
import subprocess
import sys

import hosts_test
import runs

# The spellings that old versions know too.  What ranks write goes through files: some versions
# cannot do without (torch 1.13 with Python 3.11).
TORCHRUN = ["torchrun", "--standalone", "--no_python", "--nproc_per_node", "2", "-r", "1", "-t",
            "1", "--log_dir", "log"]


def start(*arguments, more=()):
    with open("told", "w") as told:
        return subprocess.Popen([*TORCHRUN, *more, runs.PROGRAM, *arguments], stdout=told,
                                stderr=told, stdin=subprocess.DEVNULL,
                                env=hosts_test.environment(), start_new_session=True)


def finish(process, code, *parts):
    """What all of them have said; the limit is for what hangs."""
    try:
        ended = process.wait(300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    with open("told", errors="replace") as told:
        return runs.Ended(["torchrun"], ended, told.read(), "").expect(code, *parts).out


def test_the_bits_of_one_worker():
    story = hosts_test.expected()
    finish(start(*runs.small("run")), 0, "rank 0 of 2, by torchrun (RANK=0, WORLD_SIZE=2); 1 host")
    runs.same_story(story, "run")
    runs.same_checkpoint("expected", "run")


def test_a_killed_rank():
    """Told without restarts; with one the run goes on from its last checkpoint."""
    for restarts in (0, 1):
        run = "run-%d" % restarts
        job = runs.small(run, "run.checkpoint_every=500", "run.log_every=500", "train.eval_every=0",
                         "train.steps=20000")
        process = start(*job, more=["--max_restarts", str(restarts)])
        runs.wait_until(lambda: runs.checkpoints(run) or process.poll() is not None, 120)
        rank_1 = [pid for pid in runs.alive("run.dir=" + run) if is_rank(pid, 1)]
        os.kill(rank_1[0], signal.SIGKILL)
        told = finish(process, 1 if restarts == 0 else 0, "rank 1 (pid %d on " % rank_1[0], "died")
        if "already holds a run" in told:
            raise AssertionError(told)
    runs.tutti(*runs.small("whole", "run.checkpoint_every=500", "run.log_every=500",
                           "train.eval_every=0", "train.steps=20000", "-n", "1")).expect(0)
    runs.same_story(runs.story("whole"), "run-1")
    runs.same_checkpoint("whole", "run-1")


def is_rank(pid, rank):
    with open("/proc/%d/environ" % pid, "rb") as file:
        told = file.read().split(b"\0")
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        is_ours = file.read().startswith(runs.PROGRAM.encode() + b"\0")
    return is_ours and b"RANK=%d" % rank in told


if __name__ == "__main__":
    if not shutil.which("torchrun"):
        print("skipped: there is no torchrun")
        sys.exit(77)
    runs.main(sys.modules[__name__])
