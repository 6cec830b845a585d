"""local_test.py - parallel.sync=local through the program.

Digits are learnt with a part of the bytes, threads and processes come to the same bits, so does a
run that is stopped and continued, and what cannot be is refused.
"""

import os
import re
import signal
import sys

import runs

LOCAL = ["parallel.mode=fast", "parallel.devices=cpu", "parallel.shards=4", "parallel.sync=local"]
DIGITS = ["model.name=mlp", "model.hidden=[64]", "data.n_train=960", "data.n_test=300",
          "train.batch=32",
          "train.steps=%d" % (60 if runs.sanitized() else 240), "optimizer.name=adam",
          "schedule.name=constant", "run.text_samples=0", "run.log_every=1"]


def train(run, *arguments):
    runs.tutti("train", "run.dir=" + run, *LOCAL, *DIGITS, *arguments).expect(0)
    return runs.records(run)[-1]


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def test_digits_are_learnt():
    plain = train("plain", "-n", "2", "parallel.sync=all-reduce")
    for place in ("threads", "processes"):
        end = train(place, "-n", "2", "parallel.average_every=8", "parallel.place=" + place)
        print(place, end["accuracy"], plain["accuracy"], end["sent_bytes"] / plain["sent_bytes"])
        expect(runs.sanitized() or end["accuracy"] > plain["accuracy"] - 0.04, end)
        expect(end["sent_bytes"] < 0.3 * plain["sent_bytes"], end)
    runs.same_story(runs.story("threads"), "processes")
    steps = [r["step"] for r in runs.records("threads") if r["event"] == "step"]
    looked_at = {s for s in range(1, steps[-1] + 1) if s % 8 == 0 or s % 30 == 0}
    expect(set(steps) == looked_at, steps)


def test_averages_are_evaluated():
    """The same from the checkpoint, by one worker."""
    train("run", "-n", "3", "train.steps=60", "train.ema=0.9", "parallel.average=all")
    end = runs.records("run")[-1]
    reported = runs.tutti("eval", "run").expect(0).out
    expect("%.4f" % end["accuracy"] in reported, (end, reported))


def test_stopped_and_continued():
    """By a signal, between two averagings; and at a checkpoint, with the bits of the whole."""
    train("whole", "-n", "2", "train.steps=60", "run.checkpoint_every=25",
          "parallel.average_every=7")
    train("half", "-n", "2", "train.steps=50", "run.checkpoint_every=25",
          "parallel.average_every=7")
    path = os.path.join("half", "job.yaml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\bsteps: 50\b", "steps: 60", text, count=1))
    runs.tutti("train", "--resume", "half").expect(0)
    runs.same_checkpoint("whole", "half")
    process = runs.start("train", "run.dir=run", *LOCAL, *DIGITS, "-n", "3", "train.steps=100000",
                         "parallel.average_every=7")
    runs.wait_until(lambda: runs.steps_reported("run") > 5)
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143, "continue with: tutti train --resume run")
    done = runs.checkpoints("run")[-1]
    expect(done % 7 == 0 or done % 30 == 0, done)


def test_a_worker_that_fails():
    arguments = ["train", "run.dir=run", *LOCAL, *DIGITS, "-n", "3", "optimizer.name=sgd",
                 "optimizer.lr=1000"]
    runs.tutti(*arguments).expect(7, "is not finite")


def refuse(text, *arguments):
    runs.tutti(*runs.small("refused", *arguments)).expect(2, text)
    expect(not os.path.exists("refused/metrics.jsonl"), "a refused run has a folder")


def test_refusals():
    refuse("give parallel.mode=fast", *LOCAL, "parallel.mode=exact")
    refuse("give parallel.zero=0", *LOCAL, "parallel.zero=1")
    refuse("sends parameters, not gradients", *LOCAL, "parallel.compress=topk")
    refuse("give train.on_nan=stop", *LOCAL, "train.on_nan=skip")
    refuse("give bf16 or f32", *LOCAL, "train.precision=f16")
    refuse("parallel.sync_batch_norm joins all workers", *LOCAL, "parallel.sync_batch_norm=true")
    refuse("give parallel.sync=local too", "parallel.average_after=5")
    refuse("give parallel.sync=local too", "parallel.average=all")
    refuse("parallel.average_every", *LOCAL, "parallel.average_every=0")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
