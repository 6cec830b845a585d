"""elastic_test.py - workers of an elastic run are killed and stopped: the others continue from
memory, a new one joins, no step is lost or recorded twice, and the bits are those of an undisturbed
run; with too few workers the run ends, and it can be resumed."""

import json
import os
import re
import signal
import subprocess
import sys

import runs

# 400 steps with dropout, evaluated and saved on the way.
LONG = ["train.steps=400", "run.checkpoint_every=90", "parallel.place=processes", "train.ema=0.9"]
N_STEPS = 400


class Run:
    """A run of 4 elastic workers in a folder of its own."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.log = folder + ".out"
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(
                [runs.PROGRAM, *runs.small(folder, *LONG, *options), "-n", "4"], stdout=out,
                stderr=out, stdin=subprocess.DEVNULL)

    def pids(self):
        """Process of each rank, as it was started; None: it does not run."""
        shown = subprocess.run([runs.PROGRAM, "ps", self.folder], capture_output=True, text=True)
        pids = [line.split()[1] for line in shown.stdout.splitlines()[1:]]
        return [int(pid) if pid != "-" else None for pid in pids]

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def wait_for(self, step):
        runs.wait_until(lambda: self.process.poll() is not None or
                        (steps_of(self.folder) or [0])[-1] >= step, what="step %d" % step)
        assert self.process.poll() is None, self.text()

    def signal(self, rank, sig=signal.SIGKILL):
        """Between two epochs a rank is not shown for a moment."""
        def sent():
            pid = (self.pids() + [None] * 4)[rank]
            try:
                return pid and (os.kill(pid, sig) or True)
            except ProcessLookupError:  # the rank has died, and is started again
                return False
        runs.wait_until(sent, what="rank %d" % rank)

    def end(self):
        code = self.process.wait(runs.HANGS_S)
        return code, self.text()


def steps_of(folder):
    """The recorded steps, in order."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), errors="replace") as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [r["step"] for r in map(json.loads, lines) if r["event"] == "step"]


def hash_of(text):
    return re.findall(r"params_hash ([0-9a-f]{16})", text)[-1]


def undisturbed():
    ended = runs.tutti(*runs.small("whole", *LONG, "-n", "4"))
    assert ended.code == 0, ended
    return hash_of(ended.out + ended.err)


def check(run, expected, n_lost):
    code, text = run.end()
    assert code == 0, text
    assert hash_of(text) == expected, text
    assert text.count("the run goes on with") == n_lost, text
    assert steps_of(run.folder) == list(range(1, N_STEPS + 1)), steps_of(run.folder)
    records = runs.records(run.folder)
    whole = runs.records("whole")
    for event in "step", "eval":
        losses = [(r["step"], r["loss"]) for r in records if r["event"] == event]
        others = [(r["step"], r["loss"]) for r in whole if r["event"] == event]
        assert losses == others, [pair for pair in zip(losses, others) if pair[0] != pair[1]]


def test_killed_and_stopped():
    expected = undisturbed()
    shrinks = Run("shrinks", "parallel.min_workers=2")
    shrinks.wait_for(30)
    shrinks.signal(2)
    shrinks.wait_for(120)
    shrinks.signal(0)  # another worker writes the records from now on
    check(shrinks, expected, 2)
    grows = Run("grows", "parallel.min_workers=1", "run.restarts=2")
    grows.wait_for(30)
    grows.signal(0)
    grows.wait_for(100)
    grows.signal(3, signal.SIGSTOP)
    check(grows, expected, 2)
    assert "until another one has joined" in grows.text()


def test_scaled():
    longer = "train.steps=1500"
    ended = runs.tutti(*runs.small("longer", *LONG, longer, "-n", "2"))
    expected = hash_of(ended.out + ended.err)
    run = Run("scaled", longer, "parallel.min_workers=2")
    run.wait_for(30)
    for n_workers in "2", "4":
        ended = runs.tutti("scale", "scaled", n_workers)
        assert ended.code == 0, ended
    for n_workers, words in (("1", "2 (parallel.min_workers) to 4"), ("5", "to 4"), ("x", "usage")):
        ended = runs.tutti("scale", "scaled", n_workers)
        assert ended.code == 2 and words in ended.err, ended
    code, text = run.end()
    assert code == 0 and hash_of(text) == expected, text
    assert text.count("leaves; the run goes on with") == 2, text
    assert runs.tutti("scale", "scaled", "2").code == 2  # it has ended


def test_too_few_end_and_resume():
    expected = undisturbed()
    run = Run("few", "parallel.min_workers=4")
    run.wait_for(100)
    run.signal(1)
    code, text = run.end()
    assert code == 5 and "was killed by signal 9" in text, text
    ended = runs.tutti("train", "--resume", "few", "-n", "2", "parallel.min_workers=2")
    assert ended.code == 0 and hash_of(ended.out + ended.err) == expected, ended


def test_refused():
    for options, words in ((["parallel.place=threads"], "parallel.place=processes"),
                           (["parallel.place=processes", "parallel.zero=1"], "parallel.zero=0"),
                           (["parallel.place=processes", "-n", "1"], "is more than"),
                           (["parallel.place=processes", "parallel.load_weights=1,1"],
                            "parallel.load_weights=equal")):
        ended = runs.tutti(*runs.small("refused", "parallel.min_workers=2", "-n", "2", *options))
        assert ended.code == 2 and words in ended.err, ended


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
