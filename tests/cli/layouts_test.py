"""layouts_test.py - workers that divide the model: a few layouts against one worker alone, threads
and processes, checkpoints that go from one layout to another, workers that die.  All layouts:
layouts_slow_test.py."""

import math
import os
import re
import subprocess
import sys
import time

import layouts
import runs


def test_lenet():
    layouts.grid("lenet", [(1, 1, 2), (2, 1, 2), (1, 2, 1), (2, 2, 2)])


def test_gpt_with_tied_head_and_dropout():
    layouts.grid("gpt2", [(1, 1, 4), (1, 4, 1), (1, 2, 2)])


def test_processes_are_as_threads():
    arguments = layouts.models()["lenet"]
    layouts.train("threads", (1, 2, 2), *arguments)
    layouts.train("processes", (1, 2, 2), *arguments, "parallel.place=processes")
    runs.same_story(runs.story("threads"), "processes")
    runs.same_checkpoint("threads", "processes")


def test_a_checkpoint_knows_nothing_of_it():
    """From one worker to four and back; what is loaded and saved at once is the same bytes."""
    arguments = layouts.models()["gpt2"] + ["train.ema=0.9"]
    layouts.train("whole", (1, 1, 1), *arguments, "train.steps=4")
    layouts.train("parts", (1, 2, 2), *arguments, "train.steps=4")
    layouts.continue_with("parts", (1, 1, 1), 8)
    layouts.continue_with("whole", (2, 1, 2), 8)
    layouts.same_losses("whole", "parts")
    layouts.same_tensors("whole", "parts")


def test_use_of_what_was_trained_in_parts():
    arguments = layouts.models()["lenet"]
    layouts.train("parts", (1, 1, 2), *arguments)
    shown = [r for r in runs.records("parts") if r["event"] == "eval"][-1]
    ended = runs.tutti("eval", "parts").expect(0)
    if abs(float(re.search(r"^loss +([0-9.]+)", ended.out, re.M).group(1)) - shown["loss"]) > 1e-6:
        raise AssertionError("eval says\n%s, the run %s" % (ended.out, shown))
    init = "model.init=" + os.path.join(runs.newest_checkpoint("parts"), "model.safetensors")
    layouts.train("pupil", (1, 1, 1), init, *arguments)
    layouts.train("pupil-parts", (1, 2, 2), init, *arguments)
    layouts.same_losses("pupil", "pupil-parts")


def kill_a_worker(n_steps, restarts):
    """After some steps are shown: how the run ended, and how long that took."""
    run = "killed-%d-%d" % (n_steps, restarts)
    process = runs.start("train", "run.dir=" + run, *layouts.FEW, *layouts.models()["gpt2"],
                         *layouts.keys_of((1, 2, 2)), "parallel.place=processes",
                         "run.checkpoint_every=20", "train.steps=%d" % n_steps,
                         "run.restarts=%d" % restarts)
    runs.wait_until(lambda: runs.steps_reported(run) > 30 or process.poll() is not None,
                    what="a step")
    runs.kill_child(process, 3)
    begin = time.monotonic()
    return runs.finish(process), time.monotonic() - begin


def test_a_killed_worker_ends_all_or_is_started_again():
    """The others wait in groups that the killed one is not in.  A run that has come to its end
    before is tried again with more steps."""
    ended, took_s = kill_a_worker(1000000, 0)
    ended.expect(5, "rank 3", "was killed by signal 9")
    if took_s > 50:  # parallel.timeout_ms is a minute
        raise AssertionError("the others noticed after %g s" % took_s)
    for n_steps in (150, 1500, 5000):
        ended = kill_a_worker(n_steps, 1)[0].expect(0)
        if "starting again" in ended.out + ended.err:
            break
    ended.expect(0, "rank 3", "was killed by signal 9")


def test_ranks_of_another_launcher():
    """They are divided as ours are, on one host and over hosts."""
    arguments = layouts.models()["lenet"]
    layouts.train("ours", (1, 1, 2), *arguments)
    for hosts, words in (("a", "1 host"), ("a,b", "2 hosts")):
        ranks = []
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost",
                       MASTER_PORT=str(runs.port()), TUTTI_TEST_HOSTS=hosts)
            with open("rank-%d" % rank, "w") as out:
                ranks.append(subprocess.Popen(
                    [runs.PROGRAM, "train", "run.dir=theirs-" + hosts, *layouts.FEW, *arguments,
                     "parallel.tensor=2"], env=env, stdout=out, stderr=out,
                    stdin=subprocess.DEVNULL))
        for rank, process in enumerate(ranks):
            process.wait(runs.HANGS_S)
            with open("rank-%d" % rank) as out:
                ended = runs.Ended(["rank", str(rank)], process.returncode, out.read(), "")
            ended.expect(0, *([words] if rank == 0 else []))
        runs.same_story(runs.story("ours"), "theirs-" + hosts)
        runs.same_checkpoint("ours", "theirs-" + hosts)


LARGE = ["model.name=gpt2", "model.size=355M", "data.format=random_tokens", "data.context=64",
         "data.vocabulary=50304", "train.batch=8", "parallel.shards=4", "parallel.devices=cpu",
         "optimizer.name=adamw", "parallel.workers=4"]
MIB = 2 ** 20


def parts_reported(*arguments):
    """(parameters, state) in MiB of every part, as inspect says, and of the whole."""
    shown = runs.tutti("inspect", *arguments).expect(0).out
    whole = float(re.search(r"^parameters +([0-9.]+) MiB", shown, re.M).group(1))
    parts = re.findall(r"^ +\d+ +\d+ +\d+ +([0-9.]+) +([0-9.]+) ", shown, re.M)
    own = re.findall(r"^(?:a worker's params|optimizer state) +([0-9.]+) MiB  of", shown, re.M)
    return [(float(a), float(b)) for a, b in parts or [own]], whole


def bytes_of_stage(worker):
    """The parameters of its layers in f32: the formula of a stage, from its own graph."""
    shown = runs.tutti("inspect", *LARGE, "parallel.pipeline=4", "--worker", str(worker), "--after",
                      "stages").expect(0).out
    dims = re.findall(r"^%\d+ = param .* \{dims=\[([0-9,]+)\]", shown, re.M)
    return sum(4 * math.prod(int(d) for d in shape.split(",")) for shape in dims)


def test_memory_is_what_was_said():
    """GPT-2 of 355 million on 4 workers, AdamW, within 5 % of the formulas: P (1 + S) / 4 in shards
    and with parts of everything, P (1 + S) of its own layers in a stage.  The parameters of all
    stages are those of the model and the table of tokens once more, which the head is too."""
    for way in ("parallel.tensor=4", "parallel.zero=3"):
        shards, whole = parts_reported(*LARGE, way)
        if len(shards) != (1 if "zero" in way else 4):
            raise AssertionError(shards)
        for parameters, state in shards:
            if not 0.95 < 4 * parameters / whole < 1.05 or not 0.95 < 2 * state / whole < 1.05:
                raise AssertionError("%g and %g MiB of %g on 4 workers" % (parameters, state,
                                                                           whole))
    stages, whole = parts_reported(*LARGE, "parallel.pipeline=4")
    for worker, (parameters, state) in enumerate(stages):
        want = bytes_of_stage(worker) / MIB
        if abs(parameters / want - 1) > 0.05 or abs(state / (2 * want) - 1) > 0.05:
            raise AssertionError("stage %d: %g and %g MiB, its layers have %g" % (
                worker, parameters, state, want))
    table = 50304 * 1024 * 4 / MIB
    if len(stages) != 4 or abs(sum(p for p, _ in stages) - whole - table) > 0.01 * whole:
        raise AssertionError("%s MiB, the model has %g" % (stages, whole))


def test_memory_is_what_is_taken():
    """Of a smaller one a run takes what inspect has said of worker 0, which begins it."""
    small = LARGE[2:] + ["model.name=gpt2", "model.layers=8", "model.width=64", "model.heads=4",
                         "data.context=16", "data.vocabulary=512", "data.n_train=16",
                         "data.n_test=8"]
    for way in ("parallel.tensor=4", "parallel.pipeline=4", "parallel.zero=3"):
        said = parts_reported(*small, way)[0][0]
        run = way.replace("parallel.", "")
        runs.tutti("train", "run.dir=" + run, *layouts.FEW, *small, way,
                   "train.steps=1").expect(0)
        start = next(r for r in runs.records(run) if r["event"] == "start")
        for key, mib in zip(("bytes_params", "bytes_states"), said):
            if abs(start[key] / MIB - mib) > 0.001:
                raise AssertionError("%s: %s is %d, inspect said %g MiB" % (way, key, start[key],
                                                                           mib))


def test_memory_is_predicted():
    """Peaks of a small model, whose arrays are the least of it: messages between stages,
    scratch of collectives, batches of each worker."""
    if runs.sanitized():  # which takes memory of its own
        return
    for layout in ((1, 2, 1), (1, 1, 2)):
        run = layouts.name_of(layout)
        runs.tutti("train", "run.dir=" + run, *layouts.FEW, *layouts.keys_of(layout),
                   "model.name=lenet", "data.n_train=1000", "data.n_test=250", "train.batch=128",
                   "optimizer.name=adamw", "parallel.shards=4", "train.steps=6",
                   "train.eval_every=0", preexec_fn=runs.without_huge_pages).expect(0)
        shown = runs.tutti("plan", "--check", run, "--seconds", "0.3",
                           preexec_fn=runs.without_huge_pages).expect(0).out
        percent = float(re.search(r"peak memory, MiB .*?([-+][0-9.]+)%", shown).group(1))
        print("%s: peak memory predicted within %+.1f %%" % (run, percent))
        if abs(percent) > 8:
            raise AssertionError(shown)


def test_refusals():
    few = ["train", "run.dir=refused", *layouts.FEW]
    runs.tutti(*few, "parallel.tensor=3", "parallel.workers=4").expect(2, "parallel.workers=3")
    runs.tutti(*few, "parallel.pipeline=2", "parallel.sync=parameter-server", "parallel.workers=4",
               "parallel.servers=3").expect(2, "workers of each part of the model are the servers")
    if os.path.exists("refused"):
        raise AssertionError("the run has begun")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
