"""elastic_test.py - workers of an elastic run are killed and stopped: the others continue from
memory, a new one joins, no step is lost or recorded twice, and the bits are those of an undisturbed
run; with too few workers the run ends, and it can be resumed."""

import os
import re
import signal
import subprocess
import sys
import time

import runs

# 300 steps with dropout, evaluated and saved on the way.
LONG = ["train.steps=300", "run.checkpoint_every=90", "parallel.place=processes", "train.ema=0.9"]
N_STEPS = 300
# Steps of elastic runs last long enough to be disturbed on the fastest machine.
SLOW_STEPS = {"program": os.path.join(runs.BUILD, "tests", "tutti_faults"),
              "env": dict(os.environ, TUTTI_FAULT="train.data:delay_ms=3")}


class Run:
    """A run of 4 elastic workers in a folder of its own."""

    def __init__(self, folder, *options, program=SLOW_STEPS["program"], env=SLOW_STEPS["env"]):
        self.folder = folder
        self.log = folder + ".out"
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(
                [program, *runs.small(folder, *LONG, *options), "-n", "4"],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)

    def pids(self):
        """Process of each rank that runs, by the rank that it was started with."""
        shown = subprocess.run([runs.PROGRAM, "ps", self.folder], capture_output=True, text=True)
        lines = [line.split() for line in shown.stdout.splitlines()[1:]]
        return {int(line[0]): int(line[1]) for line in lines}

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def wait_for(self, step):
        runs.wait_until(lambda: self.process.poll() is not None or
                        runs.last_step(self.folder) >= step, what="step %d" % step)
        assert self.process.poll() is None, self.text()

    def wait_for_spare(self):
        runs.wait_until(lambda: self.process.poll() is not None or
                        "waiting as a spare" in runs.tutti("ps", self.folder).out, what="a spare")
        assert self.process.poll() is None, self.text()

    def wait_for_workers(self, n):
        """Until the run has ended, or has changed to n workers."""
        runs.wait_until(lambda: self.process.poll() is not None or
                        [r["workers"] for r in runs.records(self.folder, "start")][1:][-1:] == [n],
                        what="%d workers" % n)

    def signal(self, rank, sig=signal.SIGKILL):
        """Between two epochs a rank is not shown for a moment."""
        def sent():
            pid = self.pids().get(rank)
            try:
                return pid and (os.kill(pid, sig) or True)
            except ProcessLookupError:  # the rank has died, and is started again
                return False
        runs.wait_until(sent, what="rank %d" % rank)

    def scale(self, n_workers):
        """When the command returns, that many workers train."""
        runs.tutti("scale", self.folder, str(n_workers)).expect(0)
        starts = [r["workers"] for r in runs.records(self.folder, "start")]
        assert starts[-1] == n_workers or self.process.poll() is not None, (n_workers, starts)

    def end(self):
        code = self.process.wait(runs.HANGS_S)
        return code, self.text()


def steps_of(folder):
    """The recorded steps, in order."""
    return [r["step"] for r in runs.records(folder, "step")]


def hash_of(text):
    return re.findall(r"params_hash ([0-9a-f]{16})", text)[-1]


def undisturbed(*options):
    """The hash of the run whole, of one worker."""
    return hash_of(runs.train_once("whole", *LONG, *options, "-n", "1"))


def check(run, expected, n_lost):
    code, text = run.end()
    assert code == 0, text
    assert hash_of(text) == expected, text
    assert text.count("the run goes on with") == n_lost, text
    assert steps_of(run.folder) == steps_of("whole"), steps_of(run.folder)
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
    lost = grows.pids()[0]
    grows.signal(0)
    grows.wait_for(100)
    assert lost not in grows.pids().values(), grows.pids()
    grows.signal(3, signal.SIGSTOP)
    check(grows, expected, 2)
    assert "until another one has joined" in grows.text()


def test_lost_while_it_records_again():
    """The first rank after a change dropped the record of the last step and dies before it has
    written it again: the next one does."""
    expected = undisturbed()
    run = Run("again", "parallel.min_workers=2", env=dict(
        os.environ,
        TUTTI_FAULT="train.metrics:kill@rank=0,step=40;train.record_again:kill@rank=1,step=40"))
    check(run, expected, 2)


def test_lost_during_a_change():
    """Rank 1 dies in the change after another death, the first worker while a new one joins, and
    another one after an evaluation that is not recorded yet."""
    expected = undisturbed()
    for zero in 0, 1:
        run = Run("zero%d" % zero, "parallel.min_workers=1", "parallel.zero=%d" % zero,
                  "run.restarts=4", env=dict(os.environ, TUTTI_FAULT=";".join((
                      "train.data:delay_ms=3", "train.save:kill@rank=3,step=90",
                      "train.taken_over:kill@rank=1,step=90", "train.taken_over:kill@rank=0,3",
                      "train.evaluated:kill@rank=2,step=180"))))
        n_lost = run.end()[1].count("the run goes on with")
        check(run, expected, n_lost)
        assert n_lost >= 4, run.text()


def test_scaled():
    longer = "train.steps=800"
    expected = undisturbed(longer)
    run = Run("scaled", longer, "parallel.min_workers=2")
    run.wait_for(30)
    for n_workers in 2, 4:
        ended = runs.tutti("scale", "scaled", str(n_workers))
        ended.expect(0)
        runs.wait_until(lambda n=n_workers: sorted(run.pids()) == list(range(n)),
                        what="ps shows %d workers" % n_workers)
    for n_workers, words in (("1", "2 (parallel.min_workers) to 4 (parallel.max_workers)"),
                             ("5", "to 4"), ("x", "usage")):
        ended = runs.tutti("scale", "scaled", n_workers)
        assert ended.code == 2 and words in ended.err, ended
    code, text = run.end()
    assert code == 0 and hash_of(text) == expected, text
    assert text.count("leaves; the run goes on with") == 2, text
    assert runs.tutti("scale", "scaled", "2").code == 2  # it has ended


def test_new_workers_join_together():
    """Rank 2 has loaded the data before rank 3: one change adds both."""
    run = Run("together", "parallel.min_workers=2", "train.steps=100000", env=dict(
        os.environ, TUTTI_FAULT="train.data:delay_ms=3;train.load:delay_ms=2000@rank=2;"
                                "train.load:delay_ms=2200@rank=3"))
    run.wait_for(3)
    run.scale(2)
    run.scale(4)
    assert [r["workers"] for r in runs.records("together", "start")] == [4, 2, 4], run.text()
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143, run.text()


def test_more_than_at_the_start_and_a_spare():
    expected = undisturbed()
    run = Run("more", "parallel.min_workers=4", "parallel.max_workers=7", "parallel.spares=1",
              "train.steps=%d" % N_STEPS)
    runs.wait_until(lambda: sorted(run.pids()) == [0, 1, 2, 3, 4], what="a spare")
    run.wait_for(30)
    ended = runs.tutti("scale", "more", "6")  # the spare is the fifth worker
    ended.expect(0)
    assert sum(r["event"] == "start" and r["workers"] == 6 for r in runs.records("more")) == 1
    ended = runs.tutti("scale", "more", "4")
    ended.expect(0)
    # Below parallel.min_workers without the spare.
    run.wait_for_spare()
    run.signal(0)
    code, text = run.end()
    assert code == 0 and hash_of(text) == expected, text
    assert "was killed by signal 9 (Killed); the run goes on with 4 workers\n" in text, text
    assert steps_of("more") == list(range(1, N_STEPS + 1)), steps_of("more")


def test_scaled_by_signals_and_a_file():
    def n_workers(run):
        return sum(" step " in line and "spare" not in line
                   for line in runs.tutti("ps", run.folder).out.splitlines()[1:])
    run = Run("asked", "train.steps=100000", "parallel.min_workers=1", "parallel.max_workers=6",
              "parallel.hostfile=my hosts", "run.checkpoint_every=-1")
    run.wait_for(30)
    for sig, n_wanted in ((signal.SIGUSR2, 3), (signal.SIGUSR1, 4), (signal.SIGUSR1, 5)):
        run.process.send_signal(sig)
        runs.wait_until(lambda n=n_wanted: n_workers(run) == n, what="%d workers" % n_wanted)
    for text, n_wanted in (("localhost slots=2\nelsewhere slots=9\n", 2),
                           ("localhost slots=9\n", 6)):
        with open("new", "w") as file:
            file.write(text)
        os.rename("new", "my hosts")
        runs.wait_until(lambda n=n_wanted: n_workers(run) == n, what="%d workers" % n_wanted)
    with open("my hosts", "w") as file:
        file.write("localhost slots=many\n")
    runs.wait_until(lambda: "my hosts: line 1: expected HOST" in run.text(), what="a warning")
    assert "my hosts asks for 9 workers; this run has 1 to 6" in run.text()
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143, run.text()


def test_a_spare_that_waits_for_long():
    """The clock of the supervisor jumps by 3 hours while the spare waits: it is not called slow,
    and takes the place of a worker that is lost."""
    run = Run("long", "parallel.min_workers=4", "parallel.spares=1", "run.restarts=1",
              env=dict(os.environ, TUTTI_FAULT="train.data:delay_ms=20@rank=0;"
                                               "watch.look:advance_ms=10800000@9"))
    run.wait_for_spare()
    run.wait_for(150)  # 3 s, in which the supervisor looks 15 times
    run.signal(2)
    code, text = run.end()
    assert code == 0 and "the run goes on with 4 workers\n" in text, text
    assert "waiting as a spare" not in text, text


def test_stopped_with_a_spare():
    run = Run("stopped", "parallel.min_workers=2", "parallel.spares=2", "train.steps=100000")
    run.wait_for(30)
    run.process.send_signal(signal.SIGTERM)
    code, text = run.end()
    assert code == 143 and "was killed" not in text, text


def test_shards_for_the_most_workers():
    ended = runs.tutti(*runs.small("wide", "parallel.shards=auto", "parallel.min_workers=1",
                                   "parallel.max_workers=24", "parallel.place=processes",
                                   "train.steps=1", "-n", "2"))
    assert ended.code == 0 and runs.records("wide")[0]["shards"] == 32, ended


def test_threads():
    """tutti scale and a signal, for replicas and for partitions."""
    expected = undisturbed()
    for zero in 0, 1:
        run = Run("threads%d" % zero, "parallel.place=threads", "parallel.min_workers=1",
                  "parallel.max_workers=6", "parallel.zero=%d" % zero)
        run.wait_for(20)
        run.scale(2)
        run.scale(6)
        run.process.send_signal(signal.SIGUSR2)
        check(run, expected, 0)
        sizes = [r["workers"] for r in runs.records(run.folder) if r["event"] == "start"]
        assert sizes[:3] == [4, 2, 6], sizes


def test_too_few_end_and_resume():
    expected = undisturbed()
    run = Run("few", "parallel.min_workers=4")
    run.wait_for(100)
    run.signal(1)
    code, text = run.end()
    assert code == 5 and "was killed by signal 9" in text, text
    ended = runs.tutti("train", "--resume", "few", "-n", "2", "parallel.min_workers=2")
    assert ended.code == 0 and hash_of(ended.out + ended.err) == expected, ended


def test_resumed_as_it_was():
    """The job of the run folder has the number of replicas at the start, which is no limit."""
    expected = undisturbed()
    run = Run("stored", "parallel.min_workers=2", "parallel.max_workers=6")
    run.wait_for(50)
    runs.tutti("scale", "stored", "3").expect(0)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143, run.text()
    assert steps_of("stored")[-1] < N_STEPS
    ended = runs.tutti("train", "--resume", "stored")
    assert ended.code == 0 and hash_of(ended.out + ended.err) == expected, ended


def test_a_spare_without_state():
    """The only member dies: the spare has no state, so the run starts again from a checkpoint."""
    expected = undisturbed()
    command = [runs.PROGRAM, *runs.small("sole", *LONG, "-n", "1", "parallel.min_workers=1",
                                         "parallel.spares=1", "run.restarts=2")]
    with open("sole.out", "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    runs.wait_until(lambda: runs.last_step("sole") >= 100, what="steps")
    shown = subprocess.run([runs.PROGRAM, "ps", "sole"], capture_output=True, text=True).stdout
    os.kill(int(shown.splitlines()[1].split()[1]), signal.SIGKILL)
    assert process.wait(runs.HANGS_S) == 0
    with open("sole.out") as out:
        assert hash_of(out.read()) == expected


def test_refused():
    for options, words in ((["parallel.place=threads", "parallel.spares=1"],
                            "parallel.place=processes"),
                           (["parallel.place=processes", "parallel.sync=parameter-server",
                             "parallel.mode=fast", "parallel.staleness=2"],
                            "parallel.staleness=0"),
                           (["parallel.place=processes", "-n", "1"], "is more than"),
                           (["parallel.place=processes", "parallel.max_workers=16"],
                            "16 workers for 8 shards"),
                           (["parallel.place=processes", "parallel.max_workers=1"],
                            "is less than parallel.workers=2"),
                           (["parallel.place=processes", "parallel.tensor=2",
                             "parallel.max_workers=32"], "16 workers that divide the batch"),
                           (["parallel.min_workers=0", "parallel.spares=1"],
                            "is for elastic runs; give parallel.min_workers too"),
                           (["parallel.place=processes", "parallel.load_weights=1,1"],
                            "parallel.load_weights=equal")):
        ended = runs.tutti(*runs.small("refused", "parallel.min_workers=2", "-n", "2", *options))
        assert ended.code == 2 and words in ended.err, ended


def test_other_launchers_are_refused():
    job = runs.small("refused", "parallel.min_workers=1", "parallel.place=processes", "-n", "2")
    ranks = dict(os.environ, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                 MASTER_ADDR="localhost", MASTER_PORT="29999")
    runs.tutti(*job, env=ranks).expect(2, "another launcher started this one")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
