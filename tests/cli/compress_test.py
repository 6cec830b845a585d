"""compress_test.py - parallel.compress=topk and powersgd through the program.

Digits are learnt with a part of the bytes, in threads and processes, also by a run that is
continued, and what cannot be is refused.
"""

import os
import sys

import runs

FAST = ["parallel.mode=fast", "parallel.devices=cpu", "parallel.shards=4"]
DIGITS = ["model.name=mlp", "model.hidden=[64]", "data.n_train=1200", "data.n_test=300",
          "train.batch=32", "train.steps=%d" % (30 if runs.sanitized() else 300),
          "optimizer.name=adam", "schedule.name=cosine", "run.text_samples=0"]
WAYS = {"topk": ["parallel.compress=topk", "parallel.topk=0.02"],
        "powersgd": ["parallel.compress=powersgd", "parallel.rank=2"]}


def train(run, *arguments):
    out = runs.tutti("train", "run.dir=" + run, *FAST, *arguments).expect(0).out
    end = runs.records(run)[-1]
    reported = "sent %.3f MB by each worker" % (end["sent_bytes"] * 1e-6)
    if (reported in out) == ("parallel.compress=" not in " ".join(arguments)):
        raise AssertionError(out)
    return end


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def test_digits_are_learnt():
    plain = train("plain", "-n", "2", *DIGITS)
    for way, arguments in WAYS.items():
        for place in ("threads", "processes"):
            run = "%s-%s" % (way, place)
            end = train(run, "-n", "2", "parallel.place=" + place, *DIGITS, *arguments)
            print(run, end["accuracy"], plain["accuracy"], end["sent_bytes"] / plain["sent_bytes"])
            expect(end["sent_bytes"] < 0.15 * plain["sent_bytes"], end)
            expect(runs.sanitized() or end["accuracy"] > plain["accuracy"] - 0.04, end)
        threads, processes = ("%s-%s" % (way, p) for p in ("threads", "processes"))
        expect(runs.records(threads)[-1]["params_hash"] ==
               runs.records(processes)[-1]["params_hash"], "threads and processes differ")


def test_steps_tell_what_they_send():
    train("late", "-n", "3", *DIGITS, "train.steps=6", "run.log_every=1",
          "parallel.compress_after=2", *WAYS["topk"])
    sent = [r["sent_bytes"] for r in runs.records("late") if r["event"] == "step"]
    expect(len(sent) == 6 and sent[0] == sent[1] and sent[2] < 0.2 * sent[1], sent)
    expect(len(set(sent[2:])) == 1, sent)


def test_stopped_and_continued():
    """Residuals are not in checkpoints: a run that goes on begins with none."""
    for way, arguments in WAYS.items():
        train(way, "-n", "2", *DIGITS, "train.steps=20", *arguments)
        path = os.path.join(way, "job.yaml")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace("steps: 20", "steps: 30", 1))
        runs.tutti("train", "--resume", way, "-n", "3").expect(0)
        expect(runs.records(way)[-1]["step"] == 30, runs.records(way)[-1])


def refuse(text, *arguments):
    runs.tutti(*runs.small("refused", *arguments)).expect(2, text)
    expect(not os.path.exists("refused/metrics.jsonl"), "a refused run has a folder")


def test_refusals():
    fast = ["parallel.mode=fast"]
    for arguments in WAYS.values():
        refuse("give parallel.mode=fast", *arguments)
        refuse("or zero=1", *fast, *arguments, "parallel.zero=2")
        refuse("give train.on_nan=stop", *fast, *arguments, "train.on_nan=skip")
        refuse("give bf16 or f32", *fast, *arguments, "train.precision=f16")
        refuse("give none", *fast, *arguments, "parallel.sync=parameter-server")
    refuse("is for parallel.compress=topk and powersgd", "parallel.compress_after=3")
    for bad in ("parallel.topk=0", "parallel.topk=0.6", "parallel.rank=0", "parallel.rank=x"):
        refuse(bad.split("=")[0], *fast, *WAYS["topk"], bad)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
