"""cmd_generate_test.py - `tutti generate`: a model that has learnt a sequence says it, the seed
decides, prompts of any length; models that write nothing."""

import sys

import runs

ALPHABET = "abcdefghijklmnopqrstuvwxyz\n"


def train(model, *arguments):
    with open("text.txt", "w") as file:
        file.write(ALPHABET * 60)
    runs.tutti("train", "model.name=" + model, "model.layers=1", "model.heads=2", "model.width=32",
               "data.format=text", "data.dir=text.txt", "data.tokenizer=chars", "data.context=16",
               "train.batch=16", "train.steps=60", "parallel.shards=2", "optimizer.lr=0.02",
               "run.dir=run", "-q", *arguments).expect(0)


def said(*arguments):
    return runs.tutti("generate", "run", *arguments).expect(0).out


def test_what_was_learnt():
    train("gpt2", "-n", "2")
    twice = 2 * ALPHABET
    assert said("--prompt", "abc", "--max-tokens", "40", "--temperature", "0") == \
        twice[:43] + "\n"
    assert said("--prompt", "xyz\n" + ALPHABET, "--max-tokens", "5", "--temperature", "0") == \
        "xyz\n" + ALPHABET + "abcde\n"  # longer than the context
    assert said("--temperature", "0", "--max-tokens", "3").strip() == "abc"
    assert said("--prompt", "m", "--top-k", "1", "--max-tokens", "4") == "mnopq\n"
    assert said("--prompt", "m", "--top-p", "0", "--temperature", "9", "--max-tokens", "4") == \
        "mnopq\n"
    hot = ["--prompt", "a", "--temperature", "50", "--max-tokens", "60", "--seed"]
    assert said(*hot, "1") == said(*hot, "1") != said(*hot, "2")


def test_a_recurrent_model():
    train("lstm", "train.steps=120")
    assert said("--prompt", "abc", "--max-tokens", "20", "--temperature", "0") == \
        ALPHABET[:23] + "\n"


def test_bad_input():
    runs.tutti(*runs.small("images")).expect(0)
    runs.tutti("generate", "images").expect(2, "is not a causal language model")
    train("gpt2", "train.steps=2")
    ended = runs.tutti("generate", "run", "--prompt", "A").expect(3, "not in the vocabulary")
    assert ended.out == ""
    runs.tutti("generate", "run", "--top-p", "2").expect(2, "--top-p")
    runs.tutti("generate", "run", "--max-tokens", "0").expect(2, "--max-tokens", "from 1 to")
    runs.tutti("generate", "run", "--seed", "x").expect(2, "not a number")
    runs.tutti("generate", "run", "--max-tokens").expect(2, "no value")
    runs.tutti("generate").expect(2, "expected a run folder")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
