"""bindings_test.py - the generated bindings have the sizes, offsets and constants of C, and the
library has every function."""

import ctypes
import os
import subprocess
import sys

from package import FOLDER, runs

from tutti import _c
from tutti._library import c, library_path


def test_layout():
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-I", os.path.join(os.environ["TUTTI_SOURCE"], "include"),
                    os.path.join(FOLDER, "layout.c"), "-o", "layout"], check=True)
    done = subprocess.run(["./layout"], check=True, capture_output=True, text=True)
    lines = done.stdout.split("\n")
    seen = {"struct": 0, "field": 0, "constant": 0}
    for name, *values in (line.split() for line in lines if line):
        struct, _, field = name.partition(".")
        if field:
            at = getattr(getattr(_c, struct), field)
            found, kind = [at.offset, at.size], "field"
        elif isinstance(getattr(_c, name), int):
            found, kind = [getattr(_c, name)], "constant"
        else:
            found, kind = [ctypes.sizeof(getattr(_c, name))], "struct"
        if found != [int(v) for v in values]:
            raise AssertionError("%s is %s in C and %s in Python" % (name, values, found))
        seen[kind] += 1
    if seen["struct"] < 40 or seen["field"] < 300 or seen["constant"] < 60:
        raise AssertionError("too little was compared: %s" % seen)


def test_every_function():
    out = subprocess.run(["nm", "-D", "--defined-only", library_path()], check=True,
                         capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in out.split("\n") if line}
    exported = {name for name in exported if name.startswith("tutti_")}
    if exported != set(_c.FUNCTIONS):
        raise AssertionError("the library and the bindings differ: %s" %
                             sorted(exported ^ set(_c.FUNCTIONS)))
    for name in _c.FUNCTIONS:
        getattr(c, name)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
