"""exact_test.py - the promise of exact mode, through the program: any number of workers, as
threads or processes, with any algorithm, undisturbed, stopped or killed and continued by another
number, has the same story: every logged loss, every evaluation, the final hash, bit for bit.

Here a sample of the grid; exact_slow_test.py has all of it."""

import itertools
import os
import random
import signal
import sys

import runs

WORKERS = (1, 2, 3, 4, 8)
PLACES = ("threads", "processes")
ALGORITHMS = ("auto", "direct", "tree")
ENDS = ("undisturbed", "stopped", "killed")

MODELS = {
    "mlp": [],
    "lenet": [*runs.lenet(), "data.n_train=72", "train.batch=24", "train.steps=5",
              "data.n_test=40", "train.clip_norm=1"],
}


def job(model, run, *arguments):
    return runs.small(run, "run.checkpoint_every=5", *MODELS[model], *arguments)


def expected(model):
    runs.tutti(*job(model, "expected-" + model, "-n", "1")).expect(0)
    return runs.story("expected-" + model)


def resume(run, n_workers, place):
    return runs.tutti("train", "--resume", run, "-n", str(n_workers), "parallel.place=" + place)


def disturb(end, arguments, run, n_steps):
    """Starts a run and stops or kills it at an arbitrary time; True if it had not ended."""
    reported = runs.steps_reported(run)
    process = runs.start(*arguments)
    if end == "stopped":
        at = random.randint(1, n_steps - 1)
        runs.wait_until(lambda: process.poll() is not None or
                        runs.steps_reported(run) >= at + reported)
        process.send_signal(signal.SIGTERM)
    else:  # before the first step, too
        at = random.randint(0, n_steps - 1)
        runs.wait_until(lambda: process.poll() is not None or
                        runs.steps_reported(run) >= at + reported)
        process.kill()
    code = runs.finish(process).code
    # After its last step a run no longer treats a signal as a request to stop: it ends at once.
    if code not in ((143, 0, -signal.SIGTERM) if end == "stopped" else (-9, 0)):
        raise AssertionError("%s: exit code %d after it was %s" % (run, code, end))
    runs.wait_until(lambda: not runs.alive("run.dir=" + run), what="the end of all workers")
    return code != 0


def one(story, model, n_workers, place, algorithm, end):
    run = "-".join((model, str(n_workers), place, algorithm, end))
    arguments = job(model, run, "-n", str(n_workers), "parallel.place=" + place,
                    "parallel.algorithm=" + algorithm)
    if end == "undisturbed":
        runs.tutti(*arguments).expect(0)
    else:
        n_steps = max(step for event, step in story if event == "step")
        in_time = disturb(end, arguments, run, n_steps)
        while in_time and not os.path.exists(run + "/metrics.jsonl"):
            in_time = disturb(end, arguments, run, n_steps)  # there was nothing to continue yet
        if in_time:
            resume(run, random.choice([w for w in WORKERS if w != n_workers]),
                   random.choice(PLACES)).expect(0)
    runs.same_story(story, run)


def grid(model, cells):
    story = expected(model)
    for cell in cells:
        one(story, model, *cell)
    print("%s: %d runs, one hash: %s" % (model, len(cells), story[max(
        key for key in story if key[0] == "end")][0]))


def every_cell():
    return list(itertools.product(WORKERS, PLACES, ALGORITHMS, ENDS))


def test_every_size_of_buckets():
    """One value each, a few, what is chosen, all in one."""
    story = expected("lenet")
    for size, place in (("0.001", "threads"), ("0.1", "processes"), ("4096", "threads")):
        run = "bucket-" + size
        runs.tutti(*job("lenet", run, "-n", "2", "parallel.place=" + place,
                        "parallel.bucket_mb=" + size)).expect(0)
        runs.same_story(story, run)


def test_every_number_of_workers_in_both_places():
    grid("mlp", [(w, p, "auto", "undisturbed") for w in WORKERS for p in PLACES])


def test_a_sample_of_the_grid():
    grid("mlp", random.sample([c for c in every_cell() if c[3] != "undisturbed"], 8))


def test_every_algorithm_with_convolutions():
    grid("lenet", [(3, "threads", "direct", "undisturbed"), (4, "processes", "tree", "undisturbed"),
                   (8, "threads", "tree", "undisturbed"), (2, "processes", "direct", "stopped")])


def test_one_row_to_a_shard():
    for model in MODELS:
        for n_workers in ("1", "3"):
            run = model + n_workers
            runs.tutti(*job(model, run, "train.batch=8", "train.steps=3", "data.n_train=20", "-n",
                            n_workers)).expect(0)
        runs.same_story(runs.story(model + "1"), model + "3")


def test_stopped_and_continued_again_and_again():
    story = expected("mlp")
    arguments = job("mlp", "run", "-n", "2")
    for n_workers in (3, 8, 1, 4):
        disturb("stopped", arguments, "run", 10)
        arguments = ["train", "--resume", "run", "-n", str(n_workers), "run.dir=run"]
    runs.tutti(*arguments).expect(0)
    runs.same_story(story, "run")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
