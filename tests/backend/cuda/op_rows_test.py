#!/usr/bin/env python3
"""op_rows_test.py - every op of `tutti ops` has a row among the kernels for CUDA, or a reason why
it needs none.  Reads the sources, so it needs neither a GPU nor the CUDA toolkit."""

import glob
import os
import re
import subprocess
import sys

NONE = {
    "input": "a source", "param": "a source", "buffer": "a source", "constant": "a source",
    "array": "a source", "stop_gradient": "the pass simplify removes it after autodiff",
    "tensor_copy": "the executor runs collectives", "tensor_all_reduce": "the executor runs it",
    "tensor_all_gather": "the executor runs it", "tensor_reduce_scatter": "the executor runs it",
}


def rows(folder):
    """Names of the kernels' ops; some macros take a stem and add the ends of its gradients."""
    names = set()
    for path in glob.glob(folder + "/**/*.c*", recursive=True):
        with open(path) as file:
            text = file.read()
        own = set(re.findall(r'"(\w+)"', text))
        own |= set(re.findall(r"^ {4}\w+\((\w+)[,)]", text, re.M))
        ends = set(re.findall(r'op_name "(_\w+)"', text))
        names |= own | {stem + end for stem in own for end in ends}
    return names


def main():
    source = os.environ.get("TUTTI_SOURCE", ".")
    program = os.environ.get("TUTTI_PROGRAM", "build/tutti")
    reported = subprocess.run([program, "ops"], capture_output=True, text=True, check=True).stdout
    ops = [line.split()[0] for line in reported.splitlines() if line and line[0] != " "]
    assert len(ops) > 150, ops
    found = rows(os.path.join(source, "src/backend/cuda"))
    missing = [op for op in ops if op not in found and op not in NONE]
    assert not missing, "no kernel for CUDA, and no reason why: " + " ".join(missing)
    gone = [op for op in NONE if op not in ops]
    assert not gone, "no such op: " + " ".join(gone)


if __name__ == "__main__":
    sys.exit(main())
