#!/usr/bin/env python3
"""make_exchange.py: what transformers and onnxruntime make of small models, for
exchange_golden_test.c.

Usage: python3 tests/golden/make_exchange.py build/tests/exchange_golden_test
       with torch, transformers, safetensors, onnx, onnxruntime;
       then tools/check-format --fix, and build again

1. exchange/gpt2, exchange/bert: random models as transformers saves them, and their logits.
2. The test program leaves our own ONNX files, our folder of a resnet18 and its inputs in a
   temporary folder: they are checked, run, and hashed as they are.
3. exchange_numbers.h: all of these numbers.

A resnet50 of ours must load in transformers too, every tensor in its place; no numbers are kept.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS, TOKENS, VOCABULARY = 2, 10, 40
SIDE = 28


def tokens():
    i = np.arange(ROWS * TOKENS)
    return ((7 * i * i + 3 * i + 1) % VOCABULARY).reshape(ROWS, TOKENS)


def logits_of(model, x):
    with torch.no_grad():
        return model.eval()(torch.tensor(x)).logits.numpy()


def make_model(name, model):
    """Weights large enough for logits of about 1, saved as save_pretrained does it.  A folder that
    is there is kept: it shows that files of older versions are read, too."""
    folder = os.path.join(HERE, "exchange", name)
    if os.path.exists(folder):
        return logits_of(type(model).from_pretrained(folder), tokens())
    with torch.no_grad():
        for key, p in model.named_parameters():
            norm = "ln_" in key or "LayerNorm" in key
            middle = 1.0 if norm and key.endswith("weight") else 0.0
            p.copy_(middle + 0.25 * torch.randn(p.shape))
    model.save_pretrained(folder, safe_serialization=True)
    for extra in set(os.listdir(folder)) - {"config.json", "model.safetensors"}:
        os.remove(os.path.join(folder, extra))
    again = type(model).from_pretrained(folder)
    return logits_of(again, tokens())


def from_transformers():
    torch.manual_seed(1)
    gpt2 = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2,
                                   n_head=2, bos_token_id=None, eos_token_id=None)
    bert = transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=16,
                                   hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                   intermediate_size=64)
    return {"hf_gpt2": make_model("gpt2", transformers.GPT2LMHeadModel(gpt2)),
            "hf_bert": make_model("bert", transformers.BertForMaskedLM(bert))}


def load_resnet(folder):
    model, info = transformers.ResNetForImageClassification.from_pretrained(
        folder, output_loading_info=True)
    assert not any(info.values()), info
    return model


def from_our_files(program):
    numbers, hashes = {}, {}
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([program], check=True, env=dict(os.environ, TUTTI_EXCHANGE_OUT=out))
        raw = np.fromfile(out + "/bytes", np.uint8).reshape(ROWS, 1, SIDE, SIDE)
        pixels = np.fromfile(out + "/pixels", np.float32).reshape(ROWS, 1, SIDE, SIDE)
        assert (np.fromfile(out + "/tokens", np.int32) == tokens().ravel()).all()
        for name in ("lenet", "resnet18", "gpt2"):
            path = "%s/%s.onnx" % (out, name)
            onnx.checker.check_model(path, full_check=True)
            x = tokens().astype(np.int64) if name == "gpt2" else raw
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            numbers["onnx_" + name] = session.run(None, {"x": x})[0]
            if name == "gpt2":  # the length of sequences is free
                part = session.run(None, {"x": x[:1, :6]})[0]
                assert np.abs(part - numbers["onnx_gpt2"][:1, :6]).max() < 1e-5
            hashes[name] = fnv(path)
        numbers["hf_resnet18"] = logits_of(load_resnet(out + "/hf_resnet18"), pixels)
        hashes["hf_resnet18"] = fnv(out + "/hf_resnet18/model.safetensors")
        hashes["hf_config"] = fnv(out + "/hf_resnet18/config.json")
    return numbers, hashes


def fnv(path):
    """FNV-1a of a file; a 45 MB one takes some seconds."""
    h = 0xCBF29CE484222325
    with open(path, "rb") as file:
        for byte in file.read():
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def check_resnet50(tutti):
    with tempfile.TemporaryDirectory() as out:
        run, folder = out + "/run", out + "/hf"
        subprocess.run([tutti, "train", "run.dir=" + run, "model.name=resnet50", "data.n_train=2",
                        "data.n_test=2", "train.batch=2", "train.steps=1", "parallel.shards=1",
                        "-n", "1"], check=True, capture_output=True)
        subprocess.run([tutti, "export", run, "--format", "hf", "--out", folder], check=True,
                       capture_output=True)
        load_resnet(folder)


def main():
    program = os.path.abspath(sys.argv[1])
    numbers = from_transformers()
    ours, hashes = from_our_files(program)
    numbers.update(ours)
    check_resnet50(os.path.join(os.path.dirname(os.path.dirname(program)), "tutti"))
    versions = "transformers %s, torch %s, onnxruntime %s" % (
        transformers.__version__, torch.__version__, onnxruntime.__version__)
    with open(os.path.join(HERE, "exchange_numbers.h"), "w") as out:
        out.write("/* exchange_numbers.h - made by tests/golden/make_exchange.py with\n"
                  " * %s. */\n" % versions)
        out.write("#include <stdint.h>\n\nenum { EXCHANGE_ROWS = %d, EXCHANGE_TOKENS = %d, "
                  "EXCHANGE_VOCABULARY = %d };\n" % (ROWS, TOKENS, VOCABULARY))
        for name, value in hashes.items():
            out.write("\nstatic const uint64_t exchange_hash_%s = 0x%016xu;" % (name, value))
        out.write("\n")
        for name, value in numbers.items():
            out.write("\n/* %s */\nstatic const float exchange_%s[] = {" % (value.shape, name))
            for i, x in enumerate(value.ravel()):
                out.write("%s%#.7gf," % ("\n    " if i % 6 == 0 else " ", float(x)))
            out.write("\n};\n")


if __name__ == "__main__":
    main()
