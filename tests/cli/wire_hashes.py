"""wire_hashes.py - checks and records tests/golden/wire_hashes.txt, as layout_hashes.py does its
table, of runs with parallel.wire=bf16.  wire_hashes_test.py and wire_hashes_slow_test.py check it.

    python3 tests/cli/wire_hashes.py [BUILD]

The table has sections of machines as layout_hashes.txt has.  A dash, or no section: the layouts
of a group are compared with each other alone.
"""

import os
import sys
import tempfile

if __name__ == "__main__":  # before runs.py reads these variables
    os.environ["TUTTI_BUILD"] = os.path.abspath((sys.argv[1:] or ["build"])[0])
    os.environ["TUTTI_PROGRAM"] = os.path.join(os.environ["TUTTI_BUILD"], "tutti")

import layout_hashes as table
import runs
from layout_hashes import REPLICAS, divided

WIRE = ["parallel.wire=bf16"]
SERVER = "parallel.sync=parameter-server"

# Layouts of a group have the same results to the bit: each worker rounds every partial sum.
GROUPS = {
    "whole": {
        "one": ["parallel.workers=1"],
        "replicas": REPLICAS,
        "replicas4": ["parallel.workers=4", "parallel.algorithm=tree"],
        "uneven": ["parallel.workers=2", "parallel.load_weights=3,1"],
        "zero1": [*REPLICAS, "parallel.zero=1"],
        "zero2": [*REPLICAS, "parallel.zero=2"],
        "zero3": [*REPLICAS, "parallel.zero=3"],
        "offload": [*REPLICAS, "parallel.offload=optimizer"],
        "server": [*REPLICAS, SERVER],
        "server2": [*REPLICAS, SERVER, "parallel.servers=2"],
        "former": [*REPLICAS, "parallel.wire=auto", "parallel.compress=bf16"],
    },
    "tensor2": {
        "tensor2": divided(tensor=2),
        "data2-tensor2": divided(data=2, tensor=2),
        "zero3-tensor2": [*divided(data=2, tensor=2), "parallel.zero=3"],
        "server-tensor2": [*divided(data=2, tensor=2), SERVER],
    },
    "pipeline2": {
        "pipeline2": divided(pipeline=2),
        "data2-pipeline2": divided(data=2, pipeline=2),
        "zero3-pipeline2": [*divided(data=2, pipeline=2), "parallel.zero=3"],
    },
    "2x2x2": {"2x2x2": divided(data=2, pipeline=2, tensor=2)},
    "fast": {"fast": table.FAST},
}


def with_wire(members):
    return {name: [*WIRE, *keys] for name, keys in members.items()}


table.TABLE = os.path.join(os.path.dirname(table.TABLE), "wire_hashes.txt")
table.MODELS = {name: table.MODELS[name] for name in ("lenet", "gpt2", "sync_bn")}
table.GROUPS = {group: with_wire(members) for group, members in GROUPS.items()}
table.LAYOUTS = {name: keys for group in table.GROUPS.values() for name, keys in group.items()}
table.GROUP_OF = {name: group for group, members in table.GROUPS.items() for name in members}


if __name__ == "__main__":
    runs.use_module("device")
    with tempfile.TemporaryDirectory(prefix="tutti-", dir=runs.folder_in_memory()) as scratch:
        os.chdir(scratch)
        table.record()
        os.chdir("/")
