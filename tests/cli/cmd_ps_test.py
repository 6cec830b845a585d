"""cmd_ps_test.py - tutti ps and tutti stacks show the ranks of a running job, as threads and as
processes, and refuse a folder in which nothing trains, also after the run was killed."""

import os
import signal
import subprocess
import sys
import time

import runs

LONG = ["train.steps=1000000", "train.epochs=1000000", "run.checkpoint_every=-1",
        "train.eval_every=0"]


def tutti(*arguments):
    return subprocess.run([runs.PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=runs.HANGS_S)


def wait_for_steps(run):
    """The lines of tutti ps, once the ranks have committed steps."""
    for _ in range(600):
        result = tutti("ps", run)
        lines = result.stdout.splitlines()[1:]
        if lines and all(line.split()[2].isdigit() and int(line.split()[2]) > 0 for line in lines):
            return lines
        time.sleep(0.1)
    raise AssertionError("no steps: " + result.stdout + result.stderr)


def show(place):
    run = "run " + place
    with open(place + ".err", "w") as err:
        process = subprocess.Popen(
            [runs.PROGRAM, "train", *runs.SMALL, *LONG, "-n", "2", "parallel.place=" + place,
             "run.dir=" + run], stdout=err, stderr=err, stdin=subprocess.DEVNULL)
    try:
        lines = wait_for_steps(run)
        assert len(lines) == 2, lines
        assert [line.split()[0] for line in lines] == ["0", "1"], lines
        pids = {int(line.split()[1]) for line in lines}
        assert len(pids) == (2 if place == "processes" else 1), lines
        assert (process.pid in pids) == (place == "threads"), lines
        stacks = tutti("stacks", run).stdout
        assert stacks.count("rank ") >= len(pids), stacks
        assert "tti_worker_loop_run" in stacks, stacks
        assert process.poll() is None  # asking did not end it
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    gone = tutti("ps", run)
    assert gone.returncode == 2 and "no process of this host trains" in gone.stderr, gone


def test_threads():
    show("threads")


def test_processes():
    show("processes")


def test_refused():
    for command in "ps", "stacks":
        assert tutti(command).returncode == 2
        assert tutti(command, "--help").stdout.startswith("usage: tutti " + command)
        result = tutti(command, "nowhere")
        assert result.returncode == 2 and "nowhere: No such file" in result.stderr, result
    os.mkdir("empty")
    with open("empty/live", "w") as file:
        file.write("1 0\n")  # a process that has no recorder
    assert tutti("ps", "empty").returncode in (1, 2, 3)


def test_end_leaves_no_trace():
    ended = runs.tutti(*runs.small("r", "-n", "2", "parallel.place=processes"))
    assert ended.code == 0, ended
    assert not os.path.exists("r/live")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
