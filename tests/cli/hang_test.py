"""hang_test.py - twelve kinds of faults that stop a run or make it slow: the rank that causes it is
named with its phase, operation, layer and stack, the ranks that wait for it are not, and a phase
that is only slow ends nothing.  The runs of a test are at work at the same time."""

import os
import re
import signal
import subprocess
import sys

import runs

PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")
FOREVER_MS = 120000
PROCESSES, THREADS = "parallel.place=processes", "parallel.place=threads"
# Longer than it takes to report: a job that is late does not end by a limit of its own.
PATIENT = ["parallel.timeout_ms=100000", "parallel.phase_timeout_ms=100000"]
LATEST_S = 2.5  # a report says how long the rank has made no progress


def on_two_cores():
    """A worker with more cores computes several shards at a time: then the nth layer is any."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


class Run:
    """A run of three ranks with a fault; it is killed once what it shall report was found."""

    def __init__(self, name, fault, *options, program=PROGRAM, **env):
        self.name = name
        with open(name + ".out", "w") as out:
            self.process = subprocess.Popen(
                [program, *runs.small(name, "-n", "3", *PATIENT, *options)], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=on_two_cores,
                env=dict(os.environ, TUTTI_FAULT=fault, **env))

    def text(self):
        with open(self.name + ".out", errors="replace") as file:
            return file.read()

    def reports(self):
        return [line for line in self.text().splitlines()
                if "has made no progress" in line or "is slow" in line]

    def wait_for(self, found, what):
        runs.wait_until(lambda: found() or self.process.poll() is not None, what=what)
        assert found(), "%s: no %s in\n%s" % (self.name, what, self.text())

    def expect(self, *parts):
        """The first report has all parts, and there is no other one."""
        self.wait_for(self.reports, " ".join(parts))
        report = self.reports()
        for part in parts:
            assert part in report[0], "%s: no '%s' in\n%s" % (self.name, part, report[0])
        assert len(report) == 1, report
        stalled = re.search(r"no progress for ([0-9.]+) s", report[0])
        if stalled and not runs.sanitized():
            assert float(stalled.group(1)) <= LATEST_S, report

    def end(self):
        """The program and its workers, which are its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            self.process.kill()
        return self.process.wait(runs.HANGS_S)


def layer(action, rank, nth, *options):
    """Hangs after the nth layer of step 20."""
    return Run(action, "exec.layer:%s_ms=%d@rank=%d,step=20,%d" % (action, FOREVER_MS, rank, nth),
               *options)


def test_hangs_are_named():
    started = {
        "spin": layer("spin", 2, 3, PROCESSES),
        "delay": layer("delay", 0, 2, THREADS),
        "lock": layer("lock", 1, 5, PROCESSES),
        "data": Run("data", "train.data:delay_ms=%d@rank=1,step=20" % FOREVER_MS, PROCESSES),
        # rank= is the first shard of the worker's
        "loader": Run("loader", "loader.read:delay_ms=%d@rank=2,step=4,20" % FOREVER_MS, PROCESSES),
        "disk": Run("disk", "ckpt.rename:delay_ms=%d@1" % FOREVER_MS, PROCESSES,
                    "run.checkpoint_every=20"),
        "metrics": Run("metrics", "train.metrics:lock_ms=%d@rank=0,step=21" % FOREVER_MS,
                       PROCESSES),
    }
    try:
        started["spin"].expect("rank 2 (pid", "step 20, run", "spin_in_fault", "tti_instance_run")
        started["delay"].expect("rank 0 (pid", "step 20, run drop (dropout)", "sleep_in_fault")
        started["lock"].expect("rank 1 (pid", "step 20, run", "lock_in_fault")
        started["data"].expect("rank 1 (pid", "step 20, load batch", "tti_phases_next_batch")
        started["loader"].expect("rank 1 (pid", "step 4, read samples", "run_job")
        started["disk"].expect("rank 0 (pid", "is slow", "saving a checkpoint, step 20",
                               "write files", "tti_ckpt_save")
        started["metrics"].expect("rank 0 (pid", "step 21, write metrics", "lock_in_fault")
        for run in started.values():
            assert run.process.poll() is None, run.text()  # reports end nothing
    finally:
        for run in started.values():
            run.end()


def test_a_kernel_of_a_device():
    program = runs.program_with("device")
    run = Run("device", "", "parallel.devices=gpu", "optimizer.name=sgd", "-n", "2",
              "train.precision=f32", program=program,
              TUTTI_TEST_DEVICE="devices=2,peers=1,spins=20,on=1")
    try:
        run.expect("rank 1 (pid", "step 19, queue kernels", "spin_in_kernel")
    finally:
        run.end()


def test_a_slow_evaluation_is_called_slow():
    """And the run ends well: it is the last report of several evaluations, and a rank that waits is
    not named."""
    run = Run("evaluation", "exec.evaluate:delay_ms=6000@rank=1,1", PROCESSES,
              "parallel.phase_timeout_ms=8000")
    code = run.process.wait(runs.HANGS_S)
    assert code == 0, run.text()
    run.expect("rank 1 (pid", "is slow: evaluating for 4 s")


def test_ranks_that_end_or_stop():
    """They are named by the supervisor, or by the other ranks, before they count as hanging."""
    started = {
        "stopped": (Run("stopped", "exec.compute:stop@rank=1,step=20", PROCESSES), 5,
                    r"rank 1 \(pid \d+\) was stopped \(signal 19\), step 20 compute"),
        # A child of the dead rank keeps its connections open, as if its host had lost power.
        "vanished": (Run("vanished", "exec.compute:vanish@rank=1,step=20", PROCESSES), 5,
                     r"rank 1 \(pid \d+\) was killed by signal 9 \(Killed\), step 20 compute"),
        "mismatch": (Run("mismatch", "train.other_call:fail@rank=1,step=20", PROCESSES), 9,
                     r"rank 1 called barrier\(\) where rank 0 called \w+\(n_elems"),
        "mismatch-threads": (Run("mismatch-threads", "train.other_call:fail@rank=2,step=20",
                                 THREADS), 9, r"rank 2 called barrier\(\) where rank 0 called"),
    }
    for run, code, said in started.values():
        assert run.process.wait(runs.HANGS_S) == code, run.text()
        assert re.search(said, run.text()), run.text()
        assert not run.reports(), run.text()


# Holds a thread as a debugger does, until this helper ends: PTRACE_SEIZE and PTRACE_INTERRUPT.
HOLD = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0:
    sys.exit(77)
libc.ptrace(0x4207, int(sys.argv[1]), None, None)
time.sleep(100)
"""


def test_a_thread_that_gets_no_core():
    """The process runs, but one of its threads does not."""
    run = Run("starved", "", THREADS, "train.steps=1000000", "train.epochs=1000000",
              "run.checkpoint_every=-1", "train.eval_every=0", program=runs.PROGRAM)
    helper = None
    try:
        run.wait_for(lambda: runs.steps_reported("starved") > 20, "steps")
        shown = subprocess.run([runs.PROGRAM, "stacks", "starved"], capture_output=True, text=True)
        threads = re.findall(r"  thread (\d+) \(.*\)\n((?:    .*\n)+)", shown.stdout)
        tid = next(int(tid) for tid, stack in threads
                   if "tti_worker_loop_run" in stack and int(tid) != run.process.pid)
        helper = subprocess.Popen([sys.executable, "-c", HOLD, str(tid)])
        run.wait_for(lambda: run.reports() or helper.poll() is not None, "report")
        if helper.poll() == 77:
            print("skipped: this process may trace no other")
            return
        said = r"rank \d .* no progress .*its thread %d does not answer \(state t: stopped\)" % tid
        assert re.search(said, run.reports()[0]), run.reports()
    finally:
        if helper:
            helper.kill()
            helper.wait()
        run.end()


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
