"""server_test.py - parallel.sync=parameter-server through the program.

Synchronous: the story, the hash and the bytes of the checkpoints of an all-reduce, for any number
of workers and servers.  Asynchronous: one worker is one worker, a recorded run comes again to the
same hash, digits are learnt, checkpoints know nothing of it, and what cannot be is refused.
"""

import os
import random
import re
import signal
import sys

import arrivals
import runs

WORKERS = (1, 2, 4)
SERVER = ["parallel.sync=parameter-server"]
ASYNC = SERVER + ["parallel.mode=fast", "parallel.staleness=unbounded"]
FEW = ["parallel.shards=4", "parallel.devices=cpu", "run.log_every=1", "run.checkpoint_every=-1",
       "run.text_samples=0", "train.clip_norm=1", "train.ema=0.9"]


def models():
    random.seed(runs.SEED)
    with open("text.txt", "w") as file:
        file.write("".join(random.choice("abcdefgh \n") for _ in range(6000)))
    return {
        "lenet": [*runs.lenet(), "data.n_train=96", "data.n_test=40", "train.batch=24",
                  "train.steps=8", "optimizer.name=adamw"],
        "gpt2": ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=64",
                 "model.dropout=0.1", "train.batch=24", "train.steps=4", "data.format=text",
                 "data.dir=text.txt", "data.tokenizer=chars", "data.context=16"],
    }


def train(run, *arguments):
    return runs.tutti("train", "run.dir=" + run, *FEW, *arguments).expect(0)


def train_small(run, *arguments):
    runs.tutti(*runs.small(run, *arguments)).expect(0)


def the_hash(run):
    return [r["params_hash"] for r in runs.records(run) if r["event"] == "end"][-1]


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def test_synchronous_is_the_all_reduce():
    for model, arguments in models().items():
        train(model, "-n", "1", *arguments)
        story = runs.story(model)
        for n_workers in WORKERS:
            run = "%s-%d" % (model, n_workers)
            train(run, "-n", str(n_workers), "parallel.servers=%d" % random.choice((1, 2, 3)),
                  *SERVER, *arguments)
            runs.same_story(story, run)
            runs.same_checkpoint(model, run)


def test_servers_among_processes():
    """The first workers keep the state; also of a run whose server is killed."""
    for model, arguments in models().items():
        train(model, "-n", "1", *arguments)
        for n_workers in (2, 4):
            run = "%s-%d" % (model, n_workers)
            train(run, "-n", str(n_workers), "parallel.place=processes", *SERVER, *arguments,
                  "parallel.servers=%d" % random.randint(1, n_workers))
            runs.same_story(runs.story(model), run)
            runs.same_checkpoint(model, run)


def test_servers_of_compressed_gradients():
    """Synchronous servers own partitions: the same gradients are sent, with the same bits."""
    for way in ("bf16", "topk", "powersgd"):
        fast = ["parallel.mode=fast", "parallel.compress=" + way, "parallel.place=processes"]
        train_small(way, "-n", "3", *fast)
        train_small(way + "-served", "-n", "3", *fast, *SERVER, "parallel.servers=2")
        runs.same_story(runs.story(way), way + "-served")


def test_a_server_is_killed():
    """It is named, all start again from the last checkpoint, and nothing is lost.  A run that has
    come to its end before is tried again with more steps."""
    ended = None
    for n_steps in (400, 2000, 10000, 50000):
        run, whole = "run-%d" % n_steps, "whole-%d" % n_steps
        arguments = ["model.name=mlp", "model.hidden=[32]", "data.n_train=960", "data.n_test=40",
                     "train.batch=24", "train.steps=%d" % n_steps, "optimizer.name=adamw",
                     "run.checkpoint_every=0"]
        process = runs.start("train", "run.dir=" + run, *FEW, "-n", "2", *SERVER, *arguments,
                             "parallel.place=processes", "--restarts", "1")
        runs.wait_until(lambda: runs.checkpoints(run) or process.poll() is not None)
        for pid in runs.children(process.pid)[:1]:
            os.kill(pid, signal.SIGKILL)
        ended = runs.finish(process).expect(0)
        if "starting again" in ended.err:
            break
    ended.expect(0, "starting again", "warning: rank 0 (pid ", "was killed by signal 9 (Killed)")
    train(whole, "-n", "1", *arguments)
    runs.same_checkpoint(whole, run)
    expect(the_hash(run) == the_hash(whole), "other parameters after a restart")


def test_joined_statistics_and_other_optimizers():
    arguments = runs.NARROW + ["data.n_train=16", "data.n_test=4", "train.batch=8",
                               "train.steps=2", "optimizer.name=lamb",
                               "parallel.sync_batch_norm=true"]
    train("one", "-n", "1", *arguments)
    train("two", "-n", "2", *SERVER, *arguments)
    runs.same_story(runs.story("one"), "two")
    if runs.sanitized():  # slow there
        return
    train("alone", "-n", "1", *ASYNC, *arguments)
    expect(the_hash("alone") == the_hash("one"), "joined statistics of an asynchronous worker")


def test_one_asynchronous_worker_is_one_worker():
    for model, arguments in models().items():
        train(model, "-n", "1", *arguments)
        train(model + "-async", "-n", "1", *ASYNC, *arguments)
        runs.same_checkpoint(model, model + "-async")
        a, b = runs.story(model), runs.story(model + "-async")
        steps = [key for key in a if key[0] == "step"]
        expect(steps and all(a[k][0] == b[k][0] and a[k][2] == b[k][2] for k in steps), model)


def updates(run):
    with open(run + "/arrivals.txt") as file:
        return [tuple(int(word) for word in line.split()) for line in list(file)[1:]]


def test_what_was_recorded_comes_again():
    for model, arguments in models().items():
        arguments = arguments + ["train.steps=12"]
        train(model, "-n", "4", *ASYNC, *arguments)
        reported = updates(model)
        expect([u[0] for u in reported] == list(range(1, 13)), reported)
        expect(sorted(u[1] for u in reported) == list(range(12)), reported)
        counts = [r["counts"] for r in runs.records(model) if r["event"] == "staleness"][-1]
        lacks = [u[0] - 1 - u[3] for u in reported]
        expect(counts == [lacks.count(i) for i in range(max(lacks) + 1)], (counts, lacks))
        for servers in (1, 3):
            run = "%s-again-%d" % (model, servers)
            train(run, "-n", "4", *ASYNC, *arguments, "parallel.servers=%d" % servers,
                  "parallel.replay=" + model)
            runs.same_story(runs.story(model), run)
            runs.same_checkpoint(model, run)
            expect(updates(run) == reported, run)


def test_digits_are_learnt():
    """As well as by workers that wait for each other, in an order by a clock of its own; MNIST in
    async_slow_test.py.  What comes by the machine's clock keeps to the bound."""
    n_steps = 20 if runs.sanitized() else 1000
    arguments = ["model.name=mlp", "model.hidden=[64]", "data.n_train=5000", "data.n_test=600",
                 "train.batch=32", "train.steps=%d" % n_steps, "optimizer.name=adam",
                 "train.eval_every=0",
                 "run.log_every=0", "train.ema=0", "schedule.name=cosine"]
    train("together", "-n", "2", *arguments)
    least = runs.records("together")[-1]["accuracy"] - 0.03
    for staleness, bound in (("unbounded", n_steps), ("4", 4)):
        way = ASYNC + ["-n", "4", "parallel.staleness=" + staleness]
        order = arrivals.by_clock((1.0, 1.01, 1.02, 8.0), n_steps, bound)
        arrivals.write("order-" + staleness, order, 4, 32, 4)
        run = "learns-" + staleness
        train(run, *way, *arguments, "parallel.replay=order-" + staleness)
        end = runs.records(run)[-1]
        print(run, end["accuracy"], least, end["staleness_mean"], end["staleness_max"])
        expect(runs.sanitized() or end["accuracy"] >= max(least, 0.8), end)
    train("by-itself", *ASYNC, "-n", "4", "parallel.staleness=4", *arguments, "train.steps=40")
    end = runs.records("by-itself")[-1]
    expect(end["staleness_max"] <= (4 + 1) * 3, end)


def test_backup_workers():
    """Digits are learnt from the gradients that come first, whichever these are, and dropped ones
    are reported.  What is made of those that came: tests/ps/server_test.c."""
    arguments = ["model.name=mlp", "model.hidden=[64]", "data.n_train=1500", "data.n_test=300",
                 "train.batch=32", "train.steps=%d" % (40 if runs.sanitized() else 280),
                 "optimizer.name=adam", "train.ema=0", "schedule.name=cosine", "run.log_every=1"]
    end = train_end("first", "-n", "4", *SERVER, *arguments, "parallel.mode=fast",
                    "parallel.backup_workers=1")
    print(end["accuracy"], end["dropped"])
    expect(runs.sanitized() or end["accuracy"] >= 0.4, end)  # of ten kinds
    reported = runs.records("first")
    steps = [r["step"] for r in reported if r["event"] == "step"]
    expect(steps == list(range(1, end["step"] + 1)), steps)
    counts = [r["counts"] for r in reported if r["event"] == "dropped"][-1]
    expect(len(counts) == 4 and sum(counts) == end["dropped"] <= end["step"], (counts, end))
    expect(not os.path.exists("first/arrivals.txt"), "there is no order of gradients to report")
    runs.tutti("train", "--resume", "first", "-n", "1", "parallel.sync=all-reduce",
               "parallel.backup_workers=0").expect(0)


def train_end(run, *arguments):
    train(run, *arguments)
    return runs.records(run)[-1]


def test_checkpoints_know_nothing_of_it():
    arguments = models()["lenet"] + ["schedule.name=constant"]
    train("whole", "-n", "1", *arguments)
    ways = {"a": (["-n", "2", *SERVER], ["-n", "4", "parallel.sync=all-reduce"]),
            "b": (["-n", "4"], ["-n", "2", *SERVER, "parallel.servers=2"]),
            "c": (["-n", "1", *ASYNC], ["-n", "3", "parallel.sync=all-reduce",
                                        "parallel.staleness=0", "parallel.mode=exact"]),
            "d": (["-n", "2"], ["-n", "1", *ASYNC])}
    for run, (first, then) in ways.items():
        train(run, *arguments, *first, "train.steps=4")
        path = os.path.join(run, "job.yaml")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(re.sub(r"\bsteps: 4\b", "steps: 8", text, count=1))
        runs.tutti("train", "--resume", run, *then).expect(0)
        runs.same_checkpoint("whole", run)


def test_stopped_and_continued():
    """The first part is repeated with the rest: the file of arrivals goes on where it ended."""
    arguments = models()["lenet"] + ["train.steps=1000000", "data.n_train=320", "train.batch=8",
                                     "run.checkpoint_every=0", "run.log_every=1"]
    process = runs.start("train", "run.dir=run", *FEW, "-n", "3", *ASYNC, *arguments)
    runs.wait_until(lambda: runs.steps_reported("run") > 50)
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143, "continue with: tutti train --resume run")
    done = runs.checkpoints("run")[-1]
    expect([u[0] for u in updates("run")] == list(range(1, done + 1)), "updates before the stop")
    end = done // 40 * 40 + 80
    path = os.path.join("run", "job.yaml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\bsteps: 1000000\b", "steps: %d" % end, text, count=1))
    runs.tutti("train", "--resume", "run").expect(0)
    expect([u[0] for u in updates("run")] == list(range(1, end + 1)), "updates after it")
    train("again", "-n", "3", *ASYNC, *arguments, "train.steps=%d" % end, "parallel.replay=run")
    expect(the_hash("again") == the_hash("run"), "a run in two parts does not come again")


def test_memory_is_reported_before():
    reported = runs.tutti("inspect", "model.name=mlp", "model.hidden=[1000]", "parallel.workers=4",
                      "optimizer.name=adam", "parallel.devices=cpu", *SERVER).expect(0).out
    peak, state = re.search(r"the server, peak +([0-9.]+) MiB  of parameters, ([0-9.]+) of state",
                            reported).groups()
    n_bytes = 795010 * 4 / 1048576
    expect(abs(float(peak) / (3 * n_bytes) - 1) < 0.01, reported)
    expect(abs(float(state) / (2 * n_bytes) - 1) < 0.01, reported)


def refuse(code, text, *arguments):
    runs.tutti(*runs.small("refused", *arguments)).expect(code, text)
    expect(not os.path.exists("refused/metrics.jsonl"), "a refused run has a folder")


def test_refusals():
    refuse(2, "exact mode does not allow", *SERVER, "parallel.staleness=4")
    refuse(2, "give parallel.mode=fast", *SERVER, "parallel.staleness=unbounded")
    refuse(2, "give parallel.sync=parameter-server", "parallel.staleness=4", "parallel.mode=fast")
    refuse(2, "give parallel.sync=parameter-server", "parallel.servers=2")
    backup = SERVER + ["parallel.backup_workers=1"]
    refuse(2, "give parallel.mode=fast", *backup)
    refuse(2, "never wait for each other", *backup, "parallel.mode=fast", "parallel.staleness=2")
    refuse(2, "at most 1", *backup, "parallel.mode=fast", "parallel.workers=2",
           "parallel.backup_workers=2")
    refuse(2, "joins all workers", *backup, "parallel.mode=fast", "parallel.sync_batch_norm=true")
    refuse(2, "same loss scale", *backup, "parallel.mode=fast", "train.precision=f16")
    refuse(2, "repeats the order", *backup, "parallel.mode=fast", "parallel.replay=x")
    refuse(2, "give parallel.sync=parameter-server", "parallel.backup_workers=1")
    refuse(2, "worker processes are the servers", *SERVER, "parallel.place=processes",
           "parallel.workers=2", "parallel.servers=3")
    refuse(2, "give parallel.zero=0", *SERVER, "parallel.zero=1")
    refuse(2, "share memory with a synchronous server", *SERVER, "parallel.mode=fast",
           "parallel.compress=f16")
    refuse(2, "keeps a residual of every gradient", *ASYNC, "parallel.compress=topk")
    refuse(2, "repeats the order of an asynchronous run", "parallel.replay=somewhere")
    refuse(2, "it is the folder of an asynchronous run", *ASYNC, "parallel.replay=nowhere")
    refuse(2, "parallel.staleness", *ASYNC, "parallel.staleness=some")
    refuse(2, "parallel.servers", *SERVER, "parallel.servers=0")


def test_bad_arrivals():
    arguments = runs.small("run", *ASYNC, "-n", "2")
    runs.tutti(*arguments).expect(0)
    with open("run/arrivals.txt") as file:
        lines = file.read().split("\n")
    head, first, second = lines[:3]
    bad = {"belongs to another job": [head.replace("workers 2", "workers 3"), first],
           "the file is empty": [],
           "expected four numbers": [head, "1 0 0"],
           "arrivals.txt:3: expected four": [head, first, "2 1 0 x"],
           "no such worker": [head, "1 0 2 0"],
           "newer than the update": [head, "1 0 0 1"],
           "the update before this one is missing": [head, first, "3 2 0 0"],
           "has 2 updates, but this job makes 40": [head, first, second],
           "does not fit between the stops": lines[:-2] + ["40 0 0 0"]}
    for text, content in bad.items():
        os.makedirs("bad", exist_ok=True)
        with open("bad/arrivals.txt", "w") as file:
            file.write("".join(line + "\n" for line in content))
        refuse(2, text, *ASYNC, "-n", "2", "parallel.replay=bad")
    os.makedirs("crossed")  # two workers side by side; written, for which of them is late is chance
    with open("crossed/arrivals.txt", "w") as file:
        file.write(head + "\n")
        for i in range(40):
            batch = {6: 7, 7: 6}.get(i, i)
            file.write("%d %d %d %d\n" % (i + 1, batch, batch == 6, 6 if i == 7 else i))
    crossed = [*ASYNC, "-n", "2", "parallel.replay=crossed"]
    refuse(2, "does not fit between the stops", *crossed, "run.checkpoint_every=7")
    train_small("fits", *crossed)


def left_out(run):
    return [r for r in runs.records(run) if r["event"] == "staleness"][-1].get("left_out", 0)


def test_a_loss_scale_for_each_worker():
    """The first ones are too high: such updates are left out, and only of those who made them."""
    f16 = ["train.precision=f16"]
    train_small("plain", "-n", "2", *f16)
    train_small("served", "-n", "2", *SERVER, *f16)
    expect(the_hash("plain") == the_hash("served"), "a synchronous server has other bits")
    train_small("one", "-n", "1", *f16)
    train_small("alone", "-n", "1", *ASYNC, *f16)
    expect(the_hash("one") == the_hash("alone"), "a worker alone has other bits")
    train_small("run", "-n", "3", *ASYNC, *f16)
    with open("run/arrivals.txt") as file:
        lines = file.read().splitlines()
    scales = {}  # of each worker in its order, however many batches it came to
    for line in lines[1:]:
        scales.setdefault(line.split()[2], []).append(float(line.split()[4]))
    expect(lines[0].endswith(" scaled") and all(s[0] == 65536 for s in scales.values()), lines)
    expect(min(min(s) for s in scales.values()) < 65536, lines)
    expect(0 < left_out("run") < 20, "%d updates are left out" % left_out("run"))
    train_small("again", "-n", "3", *ASYNC, *f16, "parallel.replay=run")
    expect(the_hash("run") == the_hash("again"), "the order that was recorded gives other bits")
    expect(left_out("run") == left_out("again"), "and other updates are left out")
    refuse(2, "belongs to another job", *ASYNC, "-n", "3", "parallel.replay=run")
    with open("run/arrivals.txt", "w") as file:
        file.write("\n".join([lines[0], lines[1].rsplit(" ", 1)[0] + " -1"]) + "\n")
    refuse(2, "expected a loss scale", *ASYNC, *f16, "-n", "3", "parallel.replay=run")


def test_updates_are_left_out():
    """A loss scale of the job is never lowered; updates that overflow are skipped."""
    much = ["train.precision=f16", "train.loss_scale=4294967296"]
    loose = {"async": ASYNC, "backup": SERVER + ["parallel.mode=fast", "parallel.backup_workers=1"]}
    for name, way in loose.items():
        runs.tutti(*runs.small(name + "-ends", "-n", "3", *way, *much)).expect(7, "not finite")
        ended = runs.tutti(*runs.small(name, "-n", "3", *way, *much, "train.on_nan=skip"))
        ended.expect(0, "was left out", "train.on_nan=skip skipped 40 steps")
        little = ["train.precision=f16", "train.loss_scale=128", "train.on_nan=skip"]
        ended = runs.tutti(*runs.small(name + "-good", "-n", "3", *way, *little)).expect(0)
        expect("left out" not in ended.out + ended.err, ended.out + ended.err)


def test_a_gradient_that_is_not_finite_ends_it():
    ended = runs.tutti(*runs.small("run", *ASYNC, "-n", "3", "optimizer.lr=1000",
                                   "optimizer.weight_decay=1", "optimizer.name=sgd",
                                   "train.steps=4000"))
    ended.expect(7, "is not finite")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
