#!/usr/bin/env python3
"""make_bpe.py: prints tests/golden/bpe_cases.h: a small byte-pair vocabulary and what a plain
implementation of GPT-2's tokenizer makes of awkward texts.

The pattern runs on Python's regular expressions, with \\p{L}, \\p{N} and \\s spelled out from
unicodedata; pairs are joined as in the original, all occurrences of the best pair per round.
"""

import json
import random
import re
import unicodedata

TEXT = """First Citizen: Before we proceed any further, hear me speak. All: Speak, speak!
We're all resolved rather to die than to famish? I've said they'll resolve; it's the 1st of 1607.
Der Flöte süßer Klang über Straßen; l'été à la forêt, où naîtra l'œuvre. Привет, мир! Мир вам.
the the the there then them they than that this these those 12 123 1234 2024 20240520
日本語の文章は、日本語で書かれた文章です。 def f(x):\n    return x  +  1\n\n\n\tend 🙂🙂🎵
""" * 3
N_MERGES = 160
SPACES = "".join(map(chr, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
                           0x2029, 0x202F, 0x205F, 0x3000]))


def char_class(letter):
    runs, start = [], None
    for n in range(0x110001):
        inside = n < 0x110000 and unicodedata.category(chr(n))[0] == letter
        if inside and start is None:
            start = n
        if not inside and start is not None:
            runs.append("\\U%08x-\\U%08x" % (start, n - 1))
            start = None
    return "".join(runs)


L, N, S = char_class("L"), char_class("N"), SPACES
PATTERN = re.compile("'s|'t|'re|'ve|'m|'ll|'d| ?[%s]+| ?[%s]+| ?[^%s%s%s]+|[%s]+(?![^%s])|[%s]+"
                     % (L, N, S, L, N, S, S, S))


def alphabet():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in own}
    for i, b in enumerate(b for b in range(256) if b not in own):
        table[b] = chr(256 + i)
    return table


LETTERS = alphabet()


def words(text):
    return ["".join(LETTERS[b] for b in w.encode()) for w in PATTERN.findall(text)]


def join(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def learn(text, n):
    parts, merges = [list(w) for w in words(text)], []
    while len(merges) < n:
        count = {}
        for p in parts:
            for pair in zip(p, p[1:]):
                count[pair] = count.get(pair, 0) + 1
        best = max(count, key=lambda pair: (count[pair], pair))
        merges.append(best)
        parts = [join(p, best) for p in parts]
    return merges


def encode(text, vocab, rank):
    """The end of text is one token, and what stands around it is cut on its own."""
    ids = []
    for i, part in enumerate(text.split("<|endoftext|>")):
        ids += ([vocab["<|endoftext|>"]] if i else []) + encode_part(part, vocab, rank)
    return ids


def encode_part(text, vocab, rank):
    ids = []
    for w in words(text):
        symbols = list(w)
        while True:
            pairs = [p for p in zip(symbols, symbols[1:]) if p in rank]
            if not pairs:
                break
            symbols = join(symbols, min(pairs, key=rank.get))
        ids += [vocab[s] for s in symbols]
    return ids


def texts():
    yield from ["Hello world", " Hello world", "", "a", "  a", "   ", " \n b", "\n\nc\t\td  ",
                "it's", "IT'S we'll they've I'd I'm 'tis ''s '", "x'", "don't  'LL'll",
                "1st 2nd 33", "½²³٣४ a1b2", "naïve café", "日本語の文章", "Привет, мир!", "🙂🎵 🙂",
                "<|endoftext|>", "a\u00a0b", "\u3000x\u2003\u2003y", "e\u0301te\u0301",
                "...!!! ?!", "a_b-c", "the" * 30, "\x00\x1c\x7f\u200b\ufeff", "x" * 100,
                "ab" * 80, " " * 70, "\U0001D7D8\U00010330"]
    draw = random.Random(7)
    pool = list("abehst 'ldm19.,!\n\t ") + [" ", " ", "th", "'s", "é", "ß", "мир", "日本", "🙂", "½",
                                           "\u00a0", "\u2003", "\u0301", "\r\n"]
    for _ in range(48):
        yield "".join(draw.choice(pool) for _ in range(draw.randrange(1, 60)))


def c_text(data):
    out = ""
    for b in data:
        plain = 32 <= b < 127 and chr(b) not in '"\\?'
        out += chr(b) if plain else '\\"' if b == 34 else "\\%03o" % b
    return out


def c_lines(text, indent="    "):
    """A string literal in lines of at most 96 columns, cut between escapes."""
    pieces = re.findall(r'\\[0-7]{3}|\\"|.', text)
    lines, now = [], ""
    for p in pieces:
        if len(now) + len(p) > 90 - len(indent):
            lines.append(now)
            now = ""
        now += p
    return "\n".join(indent + '"' + line + '"' for line in lines + [now])


def main():
    merges = learn(TEXT, N_MERGES)
    order = sorted(LETTERS.values()) + ["".join(m) for m in merges] + ["<|endoftext|>"]
    vocab = {symbol: i for i, symbol in enumerate(order)}
    rank = {m: i for i, m in enumerate(merges)}
    assert len(vocab) == 257 + N_MERGES
    print("/* bpe_cases.h - made by tests/golden/make_bpe.py: a vocabulary, its merges, and the")
    print(" * tokens that a plain implementation of GPT-2's tokenizer gives. */")
    print("#ifndef TTI_TESTS_BPE_CASES_H\n#define TTI_TESTS_BPE_CASES_H\n\n#include <stddef.h>")
    print("#include <stdint.h>\n\n/* clang-format off */")
    print("static const char bpe_vocab_json[] =")
    print(c_lines(c_text(json.dumps(vocab, ensure_ascii=False).encode())) + ";\n")
    print("static const char bpe_merges_txt[] =")
    text = "#version: 0.2\n" + "".join("%s %s\n" % m for m in merges)
    print(c_lines(c_text(text.encode())) + ";\n")
    print("enum { BPE_SIZE = %d, BPE_END = %d };\n" % (len(vocab), vocab["<|endoftext|>"]))
    print("typedef struct bpe_case {\n    const char *text;\n    size_t n_bytes, n_tokens;")
    print("    int32_t token[256];\n} bpe_case;\n\nstatic const bpe_case bpe_cases[] = {")
    for t in texts():
        ids = encode(t, vocab, rank)
        assert len(ids) <= 256
        print("    {%s," % c_lines(c_text(t.encode()), "     ").lstrip())
        print("     %d, %d, {" % (len(t.encode()), len(ids)))
        for i in range(0, len(ids), 18):
            print("      " + " ".join("%d," % x for x in ids[i:i + 18]))
        print("      0}}," if not ids else "     }},")
    print("};\n/* clang-format on */\n\n#endif /* TTI_TESTS_BPE_CASES_H */")


if __name__ == "__main__":
    main()
