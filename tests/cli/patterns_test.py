#!/usr/bin/env python3
"""Layers that exporters spell out are recognized, near misses are not, and both have PyTorch's
results and gradients: tests/golden/patterns, which make_patterns.py wrote."""

import json
import os
import struct
import subprocess
import sys
import tempfile

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
BUILD = os.environ["TUTTI_BUILD"]

# What inspect counts in files of both exporters; in ONNX files a layer's bias is an addition, so
# that gate and value of a SwiGLU are no linear layers.
RECOGNIZED = {
    "norms": {"layer norm": 2, "RMS norm": 2},
    "gates": {"GELU": 1, "GELU (tanh)": 2, "GELU (quick)": 1, "SwiGLU": 1},
    "attention": {"attention": 5, "grouped-query attention": 1, "rotary positions": 2},
    "biases": {"attention": 5},
    "fills": {"attention": 5},
}
NOT = {
    "norms": ["it has none of the known forms", "it does not run over the last axis"],
    "gates": ["gate and value are not linear layers of the same input"],
    "attention": [],
    "biases": [],
    "fills": [],
}


def write(path, tensors):
    head, data = {}, b""
    for name, (shape, values) in tensors.items():
        more = struct.pack("<%df" % len(values), *values)
        ends = [len(data), len(data) + len(more)]
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": ends}
        data += more
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        head, data = json.loads(file.read(n)), file.read()
    return {name: struct.unpack("<%df" % ((e["data_offsets"][1] - e["data_offsets"][0]) // 4),
                                data[slice(*e["data_offsets"])])
            for name, e in head.items() if name != "__metadata__" and e["dtype"] == "F32"}


def near(got, want, what):
    scale = max(max(map(abs, want)), 1e-3)
    assert len(got) == len(want), what
    worst = max(abs(a - b) for a, b in zip(got, want)) / scale
    assert worst <= 1e-5, "%s deviates by %.1e" % (what, worst)


def check_results(model, g, *more):
    tensors = {"in.0": (g["shape"], g["x"])}
    for i, factors in enumerate(g["factors"]):
        tensors["cot.%d" % i] = (g["shapes"][i], factors)
    write("in.safetensors", tensors)
    subprocess.run([os.path.join(BUILD, "tests", "import_run"), model, "in.safetensors",
                    "out.safetensors", *more], check=True)
    got = read("out.safetensors")
    for i, want in enumerate(g["outputs"]):
        near(got["out.%d" % i], want, "%s: output %d" % (model, i))
    for name, want in g["gradients"].items():
        if not more:
            near(got["grad." + name], want, "%s: gradient of %s" % (model, name))


def check_report(name, model):
    text = subprocess.run([os.path.join(BUILD, "tutti"), "inspect", model], check=True,
                          capture_output=True, text=True).stdout
    done, _, stayed = text.partition("\nnot recognized")
    counts = {}
    for line in done.partition("\nrecognized")[2].splitlines()[1:]:
        n, kind = line.strip().split("  ")[:2]
        counts[kind] = counts.get(kind, 0) + int(n)
    for kind, n in RECOGNIZED[name].items():
        if kind == "SwiGLU" and model.endswith(".onnx"):
            kind = "SiLU"
        assert counts.get(kind) == n, "%s: %s in\n%s" % (model, kind, text)
    for why in NOT[name]:
        assert why in stayed, "%s: %s in\n%s" % (model, why, text)


def main():
    with open(os.path.join(GOLDEN, "patterns.json")) as file:
        golden = json.load(file)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name in RECOGNIZED:
            for kind in (".pt2", ".onnx"):
                model = os.path.join(GOLDEN, "patterns", name + kind)
                check_report(name, model)
                check_results(model, golden[name])
                check_results(model, golden[name], "eval")


if __name__ == "__main__":
    sys.exit(main())
