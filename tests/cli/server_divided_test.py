"""server_divided_test.py - parameter servers of a model that workers divide, in threads and
processes and on devices.  Synchronous: the story, the hash and the bytes of the checkpoints of an
all-reduce between the same workers.  Asynchronous: one copy of the model is a run without a server,
what several did comes again to the same hash, digits are learnt, a copy that loses a worker leaves,
and the first one ends the run; and who has state is said before."""

import os
import re
import signal
import sys

import layouts
import runs

SERVER = ["parallel.sync=parameter-server"]
ASYNC = SERVER + ["parallel.mode=fast", "parallel.staleness=unbounded"]
PROCESSES = "parallel.place=processes"
MORE = ["train.steps=6", "train.clip_norm=1", "train.ema=0.9", "run.checkpoint_every=3"]


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def train(run, model, layout, *arguments):
    return layouts.train(run, layout, *layouts.models()[model], *MORE, *arguments)


def same(expected, run):
    runs.same_story(runs.story(expected), run)
    runs.same_checkpoint(expected, run)


def test_synchronous_is_the_all_reduce():
    """A head that two stages have, averages and the norm of all parts with it."""
    for model, layout, place, servers in (("lenet", (2, 1, 2), "threads", 2),
                                          ("gpt2", (2, 2, 1), "processes", 1),
                                          ("gpt2", (2, 2, 2), "threads", 1)):
        run = model + layouts.name_of(layout)
        train(run, model, layout)
        train(run + "-served", model, layout, *SERVER, "parallel.servers=%d" % servers,
              "parallel.place=" + place)
        same(run, run + "-served")
        shown = next(r for r in runs.records(run + "-served") if r["event"] == "start")
        expect("by the first workers, as parameter servers" in shown["backend"], shown["backend"])


def test_it_goes_on_in_other_ways():
    """A checkpoint knows nothing of servers and parts; resumed runs are as others."""
    train("whole", "lenet", (2, 2, 1))
    train("half", "lenet", (2, 2, 1), *SERVER, "train.steps=3")
    runs.tutti("train", "--resume", "half", "train.steps=6", "parallel.servers=2").expect(0)
    runs.same_checkpoint("whole", "half")
    train("other", "lenet", (2, 2, 1), "train.steps=3")
    runs.tutti("train", "--resume", "other", "train.steps=6", *SERVER).expect(0)
    runs.same_checkpoint("whole", "other")


def test_a_loss_scale_for_each_copy():
    """The owners of all parts leave out the same updates."""
    f16 = [*ASYNC, "train.precision=f16", "train.steps=8"]
    train("f16", "lenet", (2, 2, 1), *f16)
    train("f16-again", "lenet", (2, 2, 1), *f16, PROCESSES, "parallel.replay=f16")
    same("f16", "f16-again")
    shown = [r for r in runs.records("f16-again") if r["event"] == "staleness"][-1]
    expect(0 < shown["left_out"] < 8, shown)


def on_devices(run, *arguments):
    """Which compute with the kernels of the host (device_layouts_test.py)."""
    runs.tutti("train", "run.dir=" + run, *arguments, "parallel.devices=gpu",
               program=runs.program_with("device"),
               env=dict(os.environ, TUTTI_TEST_DEVICE="late=1")).expect(0)


def for_devices(model, layout):
    return [*layouts.FEW, *layouts.models()[model], *MORE, *layouts.keys_of(layout),
            "train.precision=f32", "optimizer.name=sgd"]


def test_on_devices():
    for layout in ((2, 1, 2), (2, 2, 1)):
        run = layouts.name_of(layout)
        arguments = for_devices("lenet", layout)
        runs.tutti("train", "run.dir=" + run, *arguments).expect(0)
        on_devices("served" + run, *arguments, *SERVER)
        same(run, "served" + run)


def the_hash(run):
    return [r["params_hash"] for r in runs.records(run) if r["event"] == "end"][-1]


def updates(run):
    """(update, batch, copy of the model, updates in its parameters)"""
    with open(run + "/arrivals.txt") as file:
        return [tuple(int(word) for word in line.split()) for line in list(file)[1:]]


def again(recorded, run):
    same(recorded, run)
    expect(updates(run) == updates(recorded), run)


def test_one_asynchronous_copy_is_a_run_without_a_server():
    for model, layout in (("lenet", (1, 1, 2)), ("gpt2", (1, 2, 1)), ("gpt2", (1, 2, 2))):
        run = model + layouts.name_of(layout)
        train(run, model, layout, "parallel.mode=fast")  # as ASYNC: a tied head is added so
        train(run + "-async", model, layout, *ASYNC)
        runs.same_checkpoint(run, run + "-async")
        expect(the_hash(run + "-async") == the_hash(run), run)


def replay_what_is_recorded(*rows):
    """rows: (model, layout, where it is recorded, where it is replayed)."""
    for model, layout, place, others in rows:
        run = model + layouts.name_of(layout)
        few = [*ASYNC, "parallel.staleness=1", "train.steps=14", "run.checkpoint_every=5"]
        train(run, model, layout, *few, "parallel.place=" + place)
        shown = updates(run)
        expect(sorted(u[1] for u in shown) == list(range(14)), shown)
        lacks = [u[0] - 1 - u[3] for u in shown]
        expect(max(lacks) <= 2 * (layout[0] - 1) and {u[2] for u in shown} <= set(range(3)), shown)
        for other in others:
            train(run + other, model, layout, *few, "parallel.replay=" + run,
                  "parallel.place=" + other)
            again(run, run + other)
        held = [r["ranges"] for r in runs.records(run) if r["event"] == "servers"][-1]
        expect(len(held) == layout[1] * layout[2], held)
        if layout[1] > 1:
            stages_waited(run)
    runs.tutti("train", "--resume", run, "parallel.data=4", "parallel.workers=4",
               "parallel.pipeline=1", "parallel.tensor=1", "parallel.sync=all-reduce",
               "parallel.staleness=0", "train.steps=16").expect(0)


def test_what_is_recorded_comes_again():
    """Averages, evaluations and checkpoints on the way; a head that two stages have.  Every layout
    is replayed in every place by server_divided_slow_test."""
    replay_what_is_recorded(("lenet", (3, 1, 2), "threads", ["processes"]),
                            ("gpt2", (2, 2, 1), "processes", ["threads", "processes"]),
                            ("gpt2", (2, 2, 2), "threads", ["threads"]))


def test_asynchronous_on_devices():
    for model, layout in (("lenet", (2, 1, 2)), ("gpt2", (2, 2, 1))):
        arguments = for_devices(model, layout) + ASYNC
        runs.tutti("train", "run.dir=" + model, *arguments).expect(0)
        on_devices(model + "-gpu", *arguments, "parallel.replay=" + model)
        again(model, model + "-gpu")
    stages_waited("gpt2-gpu")


def stages_waited(run):
    """Shares of the time, as shown with steps and at the end."""
    shares = [r["bubble"] for r in runs.records(run) if "bubble" in r]
    expect(len(shares) > 1 and all(0 < share < 1 for share in shares), "%s: %s" % (run, shares))


def test_copies_that_do_not_wait_learn():
    """As workers with whole models: digits, with backup workers too.  Averages of the parameters
    are evaluated: the last update differs from run to run."""
    few = ["train", *runs.SMALL, "model.name=mlp", "model.hidden=[64,64]", "run.log_every=20",
           "model.dropout=0", "optimizer.name=adamw", "optimizer.lr=0.002", "train.ema=0.98",
           "data.n_train=2000", "data.n_test=200", "train.batch=40", "train.steps=600",
           "run.checkpoint_every=-1", *layouts.keys_of((2, 2, 1))]
    for run, keys in (("bounded", [*ASYNC, "parallel.staleness=2"]),
                      ("backup", [*SERVER, "parallel.mode=fast", "parallel.backup_workers=1"])):
        runs.tutti(*few, "run.dir=" + run, *keys).expect(0)
        accuracy = [r["accuracy"] for r in runs.records(run) if r["event"] == "eval"][-1]
        expect(accuracy > 0.8, "%s: %g" % (run, accuracy))
        stages_waited(run)


def killed(run, rank, *arguments):
    """A run of two copies, once a worker was killed that was in the middle of it."""
    process = runs.start("train", "run.dir=" + run, *layouts.FEW, *ASYNC, PROCESSES, *arguments,
                         "train.steps=1000000", "run.checkpoint_every=10")
    runs.wait_until(lambda: runs.checkpoints(run) or process.poll() is not None)
    os.kill(runs.children(process.pid)[rank], signal.SIGKILL)
    return process


def test_a_worker_of_the_first_copy_is_killed():
    """Which keeps parameters: the run goes on from its last checkpoint."""
    process = killed("run", 1, *layouts.models()["lenet"], *layouts.keys_of((2, 2, 1)))
    runs.finish(process).expect(5, "rank 1 (pid ", "was killed by signal 9 (Killed)")
    n_steps = runs.checkpoints("run")[-1] + 5
    runs.tutti("train", "--resume", "run", "train.steps=%d" % n_steps).expect(0)


def left(run):
    return [r for r in runs.records(run) if r["event"] == "left"]


def test_a_copy_leaves_as_a_whole():
    """With the worker that speaks for it or another one, in stages and tensor shards; who is left
    trains on, evaluates and saves."""
    for run, model, layout, rank in (("stages", "gpt2", (2, 2, 1), 2),
                                     ("other", "lenet", (2, 2, 1), 3),
                                     ("shards", "gpt2", (2, 1, 2), 3)):
        process = killed(run, rank, *layouts.models()[model], *layouts.keys_of(layout))
        runs.wait_until(lambda: left(run) or process.poll() is not None, what="word of the copy")
        n_steps = runs.checkpoints(run)[-1]
        runs.wait_until(lambda: runs.checkpoints(run)[-1] > n_steps + 20, what="more steps")
        runs.wait_until(lambda: len(runs.children(process.pid)) == 2, what="the end of the copy")
        process.send_signal(signal.SIGTERM)
        runs.finish(process).expect(143, "replica 1 left after ", "the others continue",
                                     "rank %d" % rank)
        shown = left(run)
        expect([r["worker"] for r in shown] == [1], shown)
        late = [u[2] for u in updates(run) if u[0] > shown[0]["step"] + 2]
        expect(late and set(late) == {0}, late)


def test_a_request_to_end():
    """Of any worker comes to all."""
    process = runs.start("train", "run.dir=run", *layouts.FEW, *layouts.models()["lenet"], *ASYNC,
                         *layouts.keys_of((2, 1, 2)), "train.steps=1000000")
    runs.wait_until(lambda: runs.steps_reported("run") > 5 or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143, "continue with: tutti train --resume run")
    expect(runs.checkpoints("run"), "no checkpoint")


def test_who_has_state_is_said():
    few = ["inspect", *layouts.models()["lenet"], "parallel.workers=4", "parallel.pipeline=2",
           "parallel.devices=cpu", *SERVER]
    table = "optimizer state is on the first 1 of the 2 workers of each part (parallel.servers)"
    runs.tutti(*few).expect(0, table)
    runs.tutti(*few, "--layout").expect(0, "the first 1 workers are the servers")
    runs.tutti(*few, *ASYNC).expect(0, "of each part are stored once, in the process of the first")
    shown = runs.tutti(*few, *ASYNC, "--layout").expect(
        0, "of each part of the model are stored once").out
    state = [line.split("state ")[1].split()[0] for line in shown.splitlines() if "state " in line
             and line.startswith("worker")]
    expect(len(state) == 4 and state[2:] == ["0.00"] * 2 and "0.00" not in state[:2], shown)
    runs.tutti(*few, *ASYNC, "--layout", "--svg", "x.svg").expect(0)
    with open("x.svg") as file:
        drawing = file.read()
    expect(drawing.count("state: at the server") == 2 and "gradients to the first row" in drawing,
           drawing)


def test_memory_is_predicted():
    """Each part of the model is stored once; messages between its owner and workers need memory."""
    if runs.sanitized():  # which takes memory of its own
        return
    runs.tutti("train", "run.dir=run", *layouts.FEW, *ASYNC, *layouts.keys_of((2, 2, 1)),
               "model.name=mlp", "model.hidden=[800,800,800]", "data.n_train=128",
               "data.n_test=8", "train.batch=64", "optimizer.name=adamw", "train.ema=0.9",
               "parallel.shards=4", "train.steps=4", "train.eval_every=0").expect(0)
    shown = runs.tutti("plan", "--check", "run", "--seconds", "0.3").expect(0).out
    percent = float(re.search(r"peak memory, MiB .*?([-+][0-9.]+)%", shown).group(1))
    expect(abs(percent) < 10, shown)


def test_chunks():
    """Each copy has all shards of a batch, however many copies there are."""
    train("chunks", "gpt2", (1, 2, 1), "parallel.mode=fast", "parallel.pipeline_chunks=2")
    train("alone", "gpt2", (1, 2, 1), *ASYNC, "parallel.pipeline_chunks=2")
    runs.same_checkpoint("chunks", "alone")
    train("three", "gpt2", (3, 2, 1), *ASYNC, "parallel.pipeline_chunks=2")


def test_refusals():
    few = ["train", "run.dir=refused", *layouts.FEW, *ASYNC, *layouts.keys_of((2, 2, 1))]
    runs.tutti(*few, "parallel.servers=2").expect(2, "a server for each of its 2 parts")
    runs.tutti(*few, "parallel.replay=nowhere").expect(2, "the folder of an asynchronous run")
    runs.tutti(*few, "parallel.staleness=0", "parallel.backup_workers=2").expect(
        2, "2 of 2 workers that divide the batch leave none", "give at most 1")
    expect(not os.path.exists("refused/metrics.jsonl"), "a refused run has a folder")


def test_an_order_of_another_division_is_refused():
    train("run", "lenet", (2, 2, 1), *ASYNC)
    runs.tutti("train", "run.dir=other", *layouts.FEW, *layouts.models()["lenet"], *MORE, *ASYNC,
               *layouts.keys_of((2, 1, 2)), "parallel.replay=run").expect(2, "to another job")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
