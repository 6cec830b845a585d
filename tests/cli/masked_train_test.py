"""masked_train_test.py - examples/bert.yaml guesses masked letters: it learns, evaluation is always
of the same masks, text and token files are the same to it."""

import json
import math
import os
import random
import sys

import runs

EXAMPLE = os.path.join(os.environ.get("TUTTI_SOURCE", os.getcwd()), "examples", "bert.yaml")
WORDS = "red green blue black white orange".split()
SMALL = ["data.context=24", "data.stride=16", "model.layers=2", "model.width=32",
         "optimizer.lr=8e-3", "schedule.warmup_steps=50", "run.checkpoint_every=-1"]


def write_words(name, n_words=4000):
    """Words at random: a letter can be reported by those around it.  The number of letters."""
    random.seed(runs.SEED)
    text = " ".join(random.choice(WORDS) for _ in range(n_words))
    with open(name, "w") as file:
        file.write(text)
    return len(set(text))


def end_of(run):
    return [r for r in runs.records(run) if r["event"] == "end"][0]


def test_it_learns():
    n_letters = write_words("words.txt")
    n_steps = 100 if runs.sanitized() else 550
    runs.tutti("train", EXAMPLE, "data.dir=words.txt", "run.dir=run", *SMALL,
               "train.steps=%d" % n_steps, "train.eval_every=0").expect(0)
    blind, end = math.log(n_letters + 1), end_of("run")
    if end["loss"] > blind * (0.95 if runs.sanitized() else 0.35):
        raise AssertionError("loss %g, blindly %g" % (end["loss"], blind))
    for _ in range(2):
        reported = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
        if abs(reported["loss"] - end["loss"]) > 1e-9 or reported["accuracy"] != end["accuracy"]:
            raise AssertionError("eval says %s, training said %s" % (reported, end))
    runs.tutti("generate", "run").expect(2, "bert on data.format=text is not a causal")


def test_token_files_are_the_same():
    write_words("words.txt")
    few = SMALL + ["train.steps=8", "run.log_every=1"]
    runs.tutti("train", EXAMPLE, "data.dir=words.txt", "run.dir=text", *few).expect(0)
    runs.tutti("data", "pack", EXAMPLE, "data.dir=words.txt", "--out", "packed").expect(0)
    runs.tutti("train", EXAMPLE, "data.format=tokens", "data.dir=packed", "data.tokenizer=auto",
               "run.dir=tokens", *few).expect(0)
    runs.same_story(runs.story("text"), "tokens")


def test_a_mask_token_of_the_vocabulary():
    n_letters = write_words("words.txt", 400)
    few = SMALL + ["train.steps=2", "data.dir=words.txt"]
    runs.tutti("train", EXAMPLE, "run.dir=run", *few, "data.mask_token=0").expect(0)
    runs.tutti("train", EXAMPLE, *few, "data.mask_token=%d" % n_letters).expect(
        2, "data.mask_token %d is outside the vocabulary, 0 .. %d; auto adds one" % (
            n_letters, n_letters - 1))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
