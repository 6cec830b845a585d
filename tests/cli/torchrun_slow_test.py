"""torchrun_slow_test.py - PyTorch's torchrun as the launcher: the bits of one worker; a rank, or a
host's agent, is killed, and the run goes on when torchrun starts all ranks again.  Skipped where it
is not."""

import os
import shutil
import signal
import socket
import subprocess
import sys

import hosts_test
import runs

# Options in spellings of old versions. The ranks' output goes to files, which some versions
# require (torch 1.13 with Python 3.11).
TORCHRUN = ["torchrun", "--no_python", "-r", "1", "-t", "1"]
ONE_HOST = ["--standalone", "--nproc_per_node", "2"]
LONG = ["run.checkpoint_every=500", "run.log_every=500", "train.eval_every=0", "train.steps=20000"]


def start(*arguments, more=(), name="shown", how=ONE_HOST):
    with open(name, "w") as shown:
        return subprocess.Popen(
            [*TORCHRUN, "--log_dir", "log-" + name, *how, *more, runs.PROGRAM, *arguments],
            stdout=shown, stderr=shown, stdin=subprocess.DEVNULL, env=hosts_test.environment(),
            start_new_session=True)


def finish(process, code, *parts, name="shown"):
    """What all of them have said; the limit is for what hangs."""
    try:
        ended = process.wait(300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    with open(name, errors="replace") as shown:
        return runs.Ended(["torchrun"], ended, shown.read(), "").expect(code, *parts).out


def ranks(run, rank):
    """Processes that are this one of a run."""
    return [pid for pid in runs.alive("run.dir=" + run) if is_rank(pid, rank)]


def test_the_bits_of_one_worker():
    story = hosts_test.expected()
    finish(start(*runs.small("run")), 0, "rank 0 of 2, by torchrun (RANK=0, WORLD_SIZE=2); 1 host")
    runs.same_story(story, "run")
    runs.same_checkpoint("expected", "run")


def test_a_killed_rank():
    """Told without restarts; with one the run goes on from its last checkpoint."""
    for restarts in (0, 1):
        run = "run-%d" % restarts
        process = start(*runs.small(run, *LONG), more=["--max_restarts", str(restarts)])
        runs.wait_until(lambda: runs.checkpoints(run) or process.poll() is not None, 120)
        rank_1 = ranks(run, 1)[0]
        os.kill(rank_1, signal.SIGKILL)
        shown = finish(process, 1 if restarts == 0 else 0, "rank 1 (pid %d on " % rank_1, "died")
        if "already holds a run" in shown:
            raise AssertionError(shown)
    runs.tutti(*runs.small("whole", *LONG, "-n", "1")).expect(0)
    runs.same_story(runs.story("whole"), "run-1")
    runs.same_checkpoint("whole", "run-1")


def test_another_agent_takes_the_place_of_a_lost_one():
    """It counts its restarts from 0, and the other one from 1."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = "localhost:%d" % free.getsockname()[1]
    how = ["--nnodes", "2", "--nproc_per_node", "1", "--max_restarts", "3", "--rdzv_id", "tutti",
           "--rdzv_backend", "c10d", "--rdzv_endpoint", place, "--monitor_interval", "0.2"]
    job = runs.small("run", *LONG)
    agents = []
    try:
        agents.append(start(*job, name="first", how=how))
        runs.wait_until(lambda: listens(place) or agents[0].poll() is not None, 120)
        agents.append(start(*job, name="second", how=how))
        runs.wait_until(lambda: runs.checkpoints("run") or agents[0].poll() is not None, 120)
        for pid in [agents[1].pid] + runs.children(agents[1].pid):
            os.kill(pid, signal.SIGKILL)
        agents.append(start(*job, name="third", how=how))
        finish(agents[0], 0, name="first")
        finish(agents[2], 0, name="third")
    finally:
        for pid in [a.pid for a in agents if a.poll() is None] + runs.alive("run.dir=run"):
            os.kill(pid, signal.SIGKILL)
    runs.tutti(*runs.small("whole", *LONG, "-n", "1")).expect(0)
    runs.same_story(runs.story("whole"), "run")
    runs.same_checkpoint("whole", "run")


def listens(place):
    host, port = place.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False


def is_rank(pid, rank):
    with open("/proc/%d/environ" % pid, "rb") as file:
        shown = file.read().split(b"\0")
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        is_ours = file.read().startswith(runs.PROGRAM.encode() + b"\0")
    return is_ours and b"RANK=%d" % rank in shown


if __name__ == "__main__":
    if not shutil.which("torchrun"):
        print("skipped: there is no torchrun")
        sys.exit(77)
    runs.main(sys.modules[__name__])
