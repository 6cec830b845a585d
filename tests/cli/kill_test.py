"""kill_test.py - a worker is killed, the run is killed while it writes checkpoints, the supervisor
is killed: what is noticed, how soon, what is left, and that a resume gives the same bits.

Here a few of each, on a machine that may have much else to do; kill_slow_test.py has a hundred
workers, two hundred checkpoints and the limits of an idle one."""

import json
import os
import random
import shutil
import signal
import sys
import time

import cmd_predict_test
import runs

NOTICED_MS = 50000  # parallel.timeout_ms is 60000
GONE_S = 50
PLACE = "parallel.place=processes"


def expected(*arguments):
    runs.tutti(*runs.small("expected", *arguments)).expect(0)
    return runs.story("expected")


def kill_a_worker(run, arguments, n_workers):
    """Kills one worker at a random moment.  (rank, its number, when), None if it was too late."""
    process = runs.start(*arguments)
    runs.wait_until(lambda: len(runs.children(process.pid)) == n_workers or
                    process.poll() is not None, what="all workers")
    at = runs.steps_reported(run) + random.randint(0, 40)  # of the 40 steps of a small run
    runs.wait_until(lambda: runs.steps_reported(run) >= at or process.poll() is not None,
                    what="a step")
    pids = runs.children(process.pid)
    rank = random.randrange(n_workers)
    if len(pids) < n_workers:
        runs.finish(process).expect(0)
        return None
    killed_ns = time.monotonic_ns()
    os.kill(pids[rank], signal.SIGKILL)
    ended = runs.finish(process)
    gone_s = (time.monotonic_ns() - killed_ns) / 1e9
    if ended.code == 0:
        return None  # it had done its work
    ended.expect(5, "rank %d (pid %d) was killed by signal 9" % (rank, pids[rank]))
    left = runs.alive("run.dir=" + run)
    if left or gone_s > GONE_S:
        raise AssertionError("after %.2f s processes are left: %s" % (gone_s, left))
    if not os.path.exists(run):
        return None  # killed before its start: what it had made was taken away again
    with open(run + "/error.json") as file:
        report = json.load(file)
    if (report["rank"], report["worker_signal"], report["exit_code"]) != (rank, 9, 5):
        raise AssertionError("error.json says %s" % report)
    return (report["noticed_ns"] - killed_ns) / 1e6, gone_s * 1e3


def kill_workers(n_kills):
    """n_kills runs of which a worker is killed; each is continued to the same end."""
    story = expected("run.checkpoint_every=4")
    noticed, gone = [], []
    while len(noticed) < n_kills:
        n_workers = random.choice((2, 3, 4))
        shutil.rmtree("run", ignore_errors=True)
        times = kill_a_worker("run", runs.small("run", "run.checkpoint_every=4", PLACE, "-n",
                                                str(n_workers)), n_workers)
        if times is None:
            continue
        noticed.append(times[0])
        gone.append(times[1])
        if os.path.exists("run/metrics.jsonl"):
            if runs.checkpoints("run"):
                runs.tutti("inspect", "run/checkpoints/step-%09d" %
                           runs.checkpoints("run")[-1]).expect(0)
            runs.tutti("train", "--resume", "run", "-n", str(random.choice((1, 2, 3)))).expect(0)
            runs.same_story(story, "run")
    print("killed %d workers: noticed after at most %.1f ms, all gone after at most %.0f ms"
          % (n_kills, max(noticed), max(gone)))
    if not runs.sanitized() and max(noticed) > NOTICED_MS:
        raise AssertionError("a death was noticed after %.1f ms" % max(noticed))


def kill_while_saving(n_kills):
    """Kills runs that save after every step; there is a valid checkpoint once one was reported."""
    story = expected("run.checkpoint_every=1")
    n_reported = 0
    for _ in range(n_kills):
        shutil.rmtree("run", ignore_errors=True)
        process = runs.start(*runs.small("run", "run.checkpoint_every=1", "-n",
                                         random.choice("12")))
        at = random.randint(1, 39)
        runs.wait_until(lambda: runs.steps_reported("run") >= at or process.poll() is not None,
                        what="a step")
        process.kill()
        runs.finish(process)
        reported = [r["step"] for r in runs.records("run") if r["event"] == "checkpoint"]
        n_reported += bool(reported)
        if reported and max(runs.checkpoints("run"), default=0) < reported[-1]:
            raise AssertionError("step %d was reported, there are %s" % (reported[-1],
                                                                     runs.checkpoints("run")))
        if reported:
            runs.tutti("inspect", "run").expect(0)
        runs.tutti("train", "--resume", "run", "-n", "2").expect(0)
        runs.same_story(story, "run")
        left = [n for n in os.listdir("run/checkpoints") if not n[5:].isdigit()]
        if left:
            raise AssertionError("left in checkpoints/: %s" % left)
    print("killed %d runs, %d of them with a checkpoint" % (n_kills, n_reported))


def test_killed_workers():
    kill_workers(3)


def test_killed_while_saving():
    kill_while_saving(10)


def kill_twice(run, n_workers, n_steps):
    """A run of which a worker is killed, and one of the next; what it said to the end."""
    process = runs.start(*runs.small(run, PLACE, "-n", str(n_workers), "run.checkpoint_every=4",
                                     "train.steps=%d" % n_steps, "--restarts", "2"))
    gone = set()
    for reported in (6, 12):
        def fresh():
            return set(runs.children(process.pid)) - gone
        runs.wait_until(lambda: process.poll() is not None or
                        runs.steps_reported(run) > reported and len(fresh()) == n_workers,
                        what="step %d" % reported)
        for pid in list(fresh())[:1]:
            gone.add(pid)
            runs.kill(pid)
    return runs.finish(process).expect(0)


def test_restarts():
    """Killed twice, started again twice, and the bits of a run that nothing happened to.  A run
    that has come to its end before is tried again with more steps."""
    for n_workers in (2, 1):
        ended = None
        for n_steps in (400, 2000, 10000, 50000):
            run = "run-%d-%d" % (n_workers, n_steps)
            ended = kill_twice(run, n_workers, n_steps)
            if "(2 of 2)" in ended.err:
                break
        ended.expect(0, "starting again", "(2 of 2)")
        whole = "whole-%d-%d" % (n_workers, n_steps)
        runs.tutti(*runs.small(whole, "run.checkpoint_every=-1",
                               "train.steps=%d" % n_steps)).expect(0)
        runs.same_story(runs.story(whole), run)
    process = runs.start(*runs.small("no", PLACE, "-n", "2", "train.steps=1000000"))
    runs.wait_until(lambda: runs.steps_reported("no") > 3, what="the first steps")
    os.kill(runs.children(process.pid)[0], signal.SIGKILL)
    runs.finish(process).expect(5, "was killed by signal 9")


def one_restart(ended, run, code):
    """It ended with what it had met in the same step after one restart of nine."""
    ended.expect(93, "starting again in 100 ms (1 of 9)", "exited with code %d" % code,
                 "2 starts with the same failure in the same step")
    if "(2 of 9)" in ended.err:
        raise AssertionError("it was started a third time")
    with open(run + "/error.json") as file:
        report = json.load(file)
    if (report["worker_exit_code"], report["exit_code"]) != (code, 93):
        raise AssertionError("error.json says %s" % report)


def test_a_loss_that_is_not_finite_comes_again():
    """Decay a million times too large: the checkpoint of the sixth step is good, the ninth is not
    come to, and every start would compute the same."""
    for n_workers in (2, 1):
        run = "run-%d" % n_workers
        arguments = ["model.hidden=[]", "model.dropout=0", "optimizer.name=sgd",
                     "optimizer.momentum=0", "optimizer.lr=1000", "optimizer.weight_decay=1000",
                     "train.eval_every=0", "run.checkpoint_every=3", PLACE, "--restarts", "9"]
        ended = runs.tutti(*runs.small(run, *arguments, "-n", str(n_workers)))
        one_restart(ended, run, 7)
        if runs.checkpoints(run)[-1] != 6:
            raise AssertionError("checkpoints of %s" % runs.checkpoints(run))


def test_a_damaged_sample_comes_again():
    """Behind some checkpoints, or at once, as the order of the samples is."""
    for split, n in (("train", 24), ("test", 2)):
        for kind in "ab":
            os.makedirs("data/%s/%s" % (split, kind))
            for i in range(n):
                cmd_predict_test.write_png("data/%s/%s/%d.png" % (split, kind, i),
                                           cmd_predict_test.images(1))
    arguments = ["train", "model.name=mlp", "model.hidden=[4]", "data.format=images",
                 "data.dir=data", "data.image_size=28", "train.batch=4",
                 "parallel.shards=4", "run.checkpoint_every=1"]
    if "PNG" in runs.tutti(*arguments, "run.dir=good", "train.steps=1", "-n", "1").err:
        return  # built without libpng
    with open("data/train/b/7.png", "r+b") as file:
        file.truncate(100)
    ended = runs.tutti(*arguments, "run.dir=run", "train.steps=60", PLACE, "-n", "2",
                       "--restarts", "9")
    one_restart(ended.expect(93, "exited with code 3: loader: ", "b/7.png: damaged PNG"), "run", 3)


def test_no_orphans_of_a_killed_supervisor():
    process = runs.start(*runs.small("run", PLACE, "-n", "3", "train.steps=1000000",
                                     "run.checkpoint_every=-1"))
    runs.wait_until(lambda: runs.steps_reported("run") > 3, what="the first steps")
    if len(runs.alive("run.dir=run")) != 4:
        raise AssertionError("not a supervisor and 3 workers")
    process.kill()
    runs.finish(process)
    runs.wait_until(lambda: not runs.alive("run.dir=run"), GONE_S, "the end of the workers")


def kill_supervisors(n_kills):
    """At any moment from the start on, also while workers leave and join: no worker is left."""
    longest_s = 0
    for i in range(n_kills):
        shutil.rmtree("run", ignore_errors=True)
        elastic = (["parallel.min_workers=1", "parallel.spares=1", "parallel.zero=1",
                    "run.restarts=9"] if i % 3 else [])
        process = runs.start(*runs.small("run", PLACE, "-n", "3", "train.steps=1000000",
                                         "run.checkpoint_every=-1", *elastic))
        time.sleep(random.random() * 0.4)
        if i % 3 == 2:
            runs.kill_child(process, random.randrange(3))
            time.sleep(random.random() * 0.2)
        process.kill()
        start_s = time.monotonic()
        runs.finish(process)
        runs.wait_until(lambda: not runs.alive("run.dir=run"), GONE_S, "the end of the workers")
        longest_s = max(longest_s, time.monotonic() - start_s)
    print("killed %d supervisors: all gone after at most %.2f s" % (n_kills, longest_s))


def test_killed_supervisors():
    kill_supervisors(4)


def test_a_stopped_worker_is_a_lost_one():
    process = runs.start(*runs.small("run", PLACE, "-n", "3", "train.steps=1000000",
                                     "run.checkpoint_every=-1"))
    runs.wait_until(lambda: runs.steps_reported("run") > 3, what="the first steps")
    os.kill(runs.children(process.pid)[1], signal.SIGSTOP)
    runs.finish(process).expect(5, "rank 1 (pid ", "was stopped (signal 19)")
    if runs.alive("run.dir=run"):
        raise AssertionError("processes are left")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
