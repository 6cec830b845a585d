#!/usr/bin/env python3
"""make_hf_losses.py: the losses that transformers computes for the folders of hf_folders_test.py.

Usage: python3 tests/golden/make_hf_losses.py, with torch, transformers and safetensors."""

import json
import os
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cli"))
import hf_folders_test as made  # noqa: E402


def windows():
    """The last tenth of the text in windows, as data.format=text cuts it."""
    alphabet = sorted(made.ALPHABET)
    text = made.text()
    tokens = [alphabet.index(c) for c in text[len(text) - len(text) // 10:]]
    starts = range(0, len(tokens) - made.CONTEXT, made.CONTEXT)
    x = [tokens[i:i + made.CONTEXT] for i in starts]
    y = [tokens[i + 1:i + made.CONTEXT + 1] for i in starts]
    return torch.tensor(x), torch.tensor(y)


def main():
    losses = {}
    x, y = windows()
    with tempfile.TemporaryDirectory() as out:
        for name, (config, tensors, how) in made.folders().items():
            folder = os.path.join(out, name)
            made.save(folder, config, tensors, **how)
            kind = (transformers.GPT2LMHeadModel if name.startswith("gpt2") else
                    transformers.BertForMaskedLM)
            if name == "gpt2-alias":  # safetensors.torch.load_model follows it
                model = kind(transformers.GPT2Config(**config))
                state = load_file(folder + "/model.safetensors")
                state["transformer.wte.weight"] = state["lm_head.weight"]
                model.load_state_dict(state)
            else:
                model = kind.from_pretrained(folder, dtype=torch.float32)
            with torch.no_grad():
                logits = model.double().eval()(x).logits
            losses[name] = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), y.reshape(-1)).item()
    with open(os.path.join(HERE, "hf_losses.json"), "w") as file:
        json.dump({name: round(loss, 7) for name, loss in losses.items()}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
