#!/usr/bin/env python3
"""Models of a folder against the results of the framework that exported them.

TUTTI_GRAPHS names the folder; without it the test is skipped.  Each folder NAME in it holds
model.pt2 (or model.onnx) without random layers, in.safetensors (in.0, in.1, .., and a factor cot.0,
.. of the type of each output) and want.safetensors: the outputs of training, out.0, .., the
gradients grad.NAME of the sum of the outputs times their factors, and f32.NAME of each: the same as
the framework computes it in f32, where the others are f64.  Outputs are equal to 1e-5 and gradients
to 1e-4, relative to the largest element, or to ten times the framework's own deviation."""
import json
import os
import struct
import subprocess
import sys
import tempfile

OUTPUTS, GRADIENTS, OWN = 1e-5, 1e-4, 10


def read(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    tensors = {}
    for name, entry in head.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = struct.unpack("<%df" % ((end - begin) // 4), data[begin:end])
    return tensors


def deviation(x, want, scale):
    if len(x) != len(want):
        return float("inf")
    return max((abs(a - b) for a, b in zip(x, want) if a != b), default=0) / max(scale, 1e-30)


def size(x):
    return max(map(abs, x), default=0)


def check(folder, program, out):
    model = next(m for m in ("model.pt2", "model.onnx") if os.path.exists(os.path.join(folder, m)))
    call = [program, os.path.join(folder, model), os.path.join(folder, "in.safetensors"), out]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode and "split along" in done.stderr:  # it mixes the samples: one shard
        done = subprocess.run(call, capture_output=True, text=True,
                              env={**os.environ, "IMPORT_RUN_ONE_SHARD": "1"})
    if done.returncode:
        return done.stderr.strip()
    got, want = read(out), read(os.path.join(folder, "want.safetensors"))
    largest = max((size(x) for name, x in want.items() if name.startswith("grad.")), default=0)
    for name, x in want.items():
        if not name.startswith(("out.", "grad.")):
            continue
        if name not in got:
            return name + " is missing"
        # a gradient that is zero but for rounding has no size of its own
        scale = max(size(x), 1e-3 * largest if name.startswith("grad.") else 0)
        own = deviation(want["f32." + name], x, scale) if "f32." + name in want else 0
        limit = max(OUTPUTS if name.startswith("out.") else GRADIENTS, OWN * own)
        if not deviation(got[name], x, scale) <= limit:
            return "%s deviates by %.1e, the limit is %.1e" % (
                name, deviation(got[name], x, scale), limit)
    return ""


def main():
    root = os.environ.get("TUTTI_GRAPHS")
    if not root:
        return 77
    program = os.path.join(os.environ["TUTTI_BUILD"], "tests", "import_run")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in sorted(os.listdir(root)):
            why = check(os.path.join(root, name), program, os.path.join(scratch, "out.safetensors"))
            print("%-24s %s" % (name, why or "ok"), flush=True)
            failed += why != ""
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
