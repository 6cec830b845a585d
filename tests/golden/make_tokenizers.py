#!/usr/bin/env python3
"""make_tokenizers.py: tokenizer files and what the tokenizers package makes of texts with them.

Usage: python3 tests/golden/make_tokenizers.py, with tokenizers; writes hf_tokenizers.json for
tests/data/tokenizer/tokenizer_test.c."""

import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = ["the quick brown fox, don't jump! 123 456\n\t over   the lazy dog's ",
          "Grüße aus 日本 привет 🙂 " * 3, "<user>hi</user> [SEP] <|endoftext|> a b ab abc <pad>"]
PARTS = ["<user>", "</user>", "[SEP]", "<|endoftext|>", "<us", "the", " ", "  ", "\n", "\u00a0",
         "é", "日", "🙂", "'s", "abc", "ab", "a", "12", " x", "\u3000", "hi"]


def added(content, special=False, **flags):
    return AddedToken(content, special=special, **dict({"normalized": False}, **flags))


CASES = {
    "special": [added("<|endoftext|>", True), added("[SEP]", True), added("<user>")],
    "strips": [added("<user>", lstrip=True), added("[SEP]", rstrip=True),
               added("</user>", lstrip=True, rstrip=True)],
    "longest": [added("<us"), added("<user>"), added("ab"), added("abc"), added("a")],
    "two passes": [added("ab", normalized=True), added("<user>", normalized=True),
                   added("user>"), added("bc")],
    "white space": [added(" "), added("\n"), added("the", rstrip=True)],
    "not ASCII": [added("é"), added("日本"), added("日")],
}


def make(tokens, ignore_merges, use_regex):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet,
                                                      show_progress=False))
    for token in tokens:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    return t


def main():
    made = []
    draw = random.Random(5)
    for i, (name, tokens) in enumerate(CASES.items()):
        t = make(tokens, i % 3 == 1, i % 4 != 3)
        texts = ["".join(draw.choice(PARTS) for _ in range(draw.randrange(1, 14)))
                 for _ in range(12)]
        cases = []
        for text in texts:
            try:
                cases.append({"text": text, "ids": t.encode(text).ids})
            except BaseException:  # the package fails where tokens overlap their white space
                continue
        made.append({"name": name, "file": json.loads(t.to_str()), "cases": cases})
    with open(os.path.join(HERE, "hf_tokenizers.json"), "w") as file:
        json.dump({"tokenizers": made}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
