"""cmd_bench_train_test.py - `tutti bench train`: one line of JSON, and nothing left behind."""

import json
import os
import shutil
import sys

import runs

SHORT = ["train.steps=40", "data.n_train=200", "data.n_test=20"]


def test_one_line():
    ended = runs.tutti("bench", "train", "mlp", "model.hidden=[16]", "train.batch=32", "-n", "2",
                       "parallel.shards=4", *SHORT).expect(0)
    figures = json.loads(ended.out)
    if (figures["what"], figures["workers"], figures["shards"], figures["batch"]) != \
       ("mlp", 2, 4, 32):
        raise AssertionError(ended.out)
    if not all(figures[key] > 0 for key in ("per_s", "ms", "first_step_s", "peak_rss_mb")):
        raise AssertionError(ended.out)
    if "tokens_per_s" in figures:
        raise AssertionError("images: " + ended.out)
    if os.path.exists("runs"):
        raise AssertionError("left: %s" % os.listdir("runs"))


def test_processes():
    ended = runs.tutti("bench", "train", "mlp", "model.hidden=[16]", "train.batch=32", "-n", "2",
                       "parallel.place=processes", *SHORT).expect(0)
    figures = json.loads(ended.out)
    if ended.err:
        raise AssertionError(ended.err)
    if figures["workers"] != 2 or not figures["per_s"] > 0:
        raise AssertionError(ended.out)


def test_a_model_file_is_named():
    """Not model.name, which the job does not use."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/pt2")
    name = 'a "net".v2'
    shutil.copy(os.path.join(golden, "interface_linear.pt2"), name + ".pt2")
    with open("table.csv", "w") as file:
        file.write("a,b,c,d,y\n" + "".join("%d,2,3.5,%d,%d\n" % (i, i % 7, i % 3)
                                           for i in range(64)))
    ended = runs.tutti("bench", "train", "model.file=%s.pt2" % name, "data.format=csv",
                       "data.dir=table.csv", "train.batch=8", "train.steps=8", "-n", "1").expect(0)
    if json.loads(ended.out)["what"] != name:
        raise AssertionError(ended.out)


def test_tokens():
    ended = runs.tutti("bench", "train", "gpt2", "model.layers=1", "model.width=8", "model.heads=1",
                       "model.context=16", "data.format=random_tokens", "data.context=16",
                       "data.vocabulary=32", "train.batch=4", *SHORT).expect(0)
    figures = json.loads(ended.out)
    if not figures["per_s"] > 0 or abs(figures["tokens_per_s"] - 16 * figures["per_s"]) > 16:
        raise AssertionError(ended.out)


def test_a_short_text():
    """The data has fewer samples than the default asks for."""
    with open("text.txt", "w") as file:
        file.write("one more word and then another " * 20)
    for form in ("data.format=text", "--data.format=text"):
        ended = runs.tutti("bench", "train", "lstm", "model.layers=1", "model.width=4",
                           "train.batch=4", "parallel.shards=1", "-n", "1", form,
                           "data.dir=text.txt", "data.context=8", "train.steps=20").expect(0)
        if not json.loads(ended.out)["per_s"] > 0:
            raise AssertionError(ended.out)


def test_usage():
    runs.tutti("bench", "train", "--help").expect(0, "usage: tutti bench train")
    runs.tutti("bench", "train", "nonet").expect(2, "nonet")
    runs.tutti("bench", "train", "mlp", "train.stesp=4").expect(2, "unknown key")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
