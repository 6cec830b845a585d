"""models_exact_test.py - networks with batch norm, joined or not, attention, dropout, recurrence,
masked tokens and mixed samples: one story for any number of workers, threads or processes."""

import random
import shutil
import sys

import runs

FEW = ["train.steps=6", "train.batch=24", "parallel.shards=4", "run.log_every=1",
       "run.checkpoint_every=-1"]


def text_arguments():
    random.seed(runs.SEED)
    with open("text.txt", "w") as file:
        file.write("".join(random.choice("abcdefgh \n") for _ in range(6000)))
    return ["data.format=text", "data.dir=text.txt", "data.tokenizer=chars", "data.context=16"]


ALL = ((3, "threads"), (2, "processes"), (4, "threads"), (2, "threads"))


def check(name, *arguments, layouts=ALL):
    arguments = FEW + list(arguments)
    runs.tutti("train", "run.dir=%s-1" % name, "-n", "1", *arguments).expect(0)
    story = runs.story(name + "-1")
    for n_workers, place in layouts[:1] if runs.sanitized() else layouts:
        run = "%s-%d-%s" % (name, n_workers, place)
        runs.tutti("train", "run.dir=" + run, "-n", str(n_workers), "parallel.place=" + place,
                   *arguments).expect(0)
        runs.same_story(story, run)
        shutil.rmtree(run)


OWN, JOINED = ["model.drop_path=0.2"], ["parallel.sync_batch_norm=true"]
PICTURES = ["data.n_train=120", "data.n_test=6", "train.steps=2", "train.batch=10"]


def test_batch_norms():
    """resnet18 itself: models_exact_slow_test.py."""
    check("own", *runs.NARROW, *PICTURES, *OWN)
    check("joined", *runs.NARROW, *PICTURES, *JOINED)


def test_gpt_with_dropout():
    check("gpt", "model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=16",
          "model.dropout=0.1", *text_arguments())


def test_bert_guesses_masked_tokens():
    check("bert", "model.name=bert", "model.layers=2", "model.heads=2", "model.width=16",
          "model.dropout=0.1", "data.mask_prob=0.15", "data.threads=2", *text_arguments())


def test_mixup():
    check("mixup", "data.mixup=0.4", "train.label_smoothing=0.1", "data.n_train=100",
          "data.n_test=30", "data.threads=2")
    runs.tutti("train", "run.dir=plain", "data.n_train=100", "data.n_test=30",
               "train.label_smoothing=0.1", *FEW).expect(0)
    if runs.story("plain") == runs.story("mixup-1"):
        raise AssertionError("mixup changes nothing")


def test_mixup_needs_two_samples_in_a_shard():
    runs.tutti("train", "data.mixup=0.4", "train.batch=4", "parallel.shards=4").expect(
        2, "data.mixup: mixes samples of the same shard", "give train.batch=8 or fewer shards")


def test_lstm():
    check("lstm", "model.name=lstm", "model.width=16", "model.layers=2", "model.dropout=0.1",
          *text_arguments())


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
