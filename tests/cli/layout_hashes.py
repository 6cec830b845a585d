"""layout_hashes.py - checks and records the table tests/golden/layout_hashes.txt, which has the
hashes of short runs of small models under every layout of workers.  layout_hashes_test.py and
layout_hashes_slow_test.py check it.

    python3 tests/cli/layout_hashes.py [BUILD]

records it with the program and the test modules in BUILD (default: build), at every kernel level of
this machine, or only at the level in $TUTTI_KERNELS.  Other sections stay as they are.  Record only
with a program whose results are known to be right.

A hash covers the loss, the gradient norm and the parameter hash of each step, the evaluation, and
all bytes of the parameters and the optimizer state in the checkpoint.  It covers no names, so a
field or a tensor that gets another name does not change it.
"""

import concurrent.futures
import glob
import hashlib
import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

if __name__ == "__main__":  # before runs.py reads these variables
    os.environ["TUTTI_BUILD"] = os.path.abspath((sys.argv[1:] or ["build"])[0])
    os.environ["TUTTI_PROGRAM"] = os.path.join(os.environ["TUTTI_BUILD"], "tutti")

import layouts
import runs

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/layout_hashes.txt")
N_AT_ONCE = 2  # runs
LEVELS = ["generic", "avx2", "avx512", "amx"]

# Two steps, the second with a batch that leaves one of four shards without samples.
JOB = ["train.steps=2", "train.batch=8", "data.n_train=14", "data.n_test=4", "data.threads=1",
       "train.precision=f32", "train.clip_norm=0.5", "optimizer.name=sgd",
       "optimizer.momentum=0.9", "schedule.name=constant", "parallel.shards=4",
       "run.log_every=1", "run.text_samples=0"]
SMALL_BUCKETS = ["parallel.bucket_mb=0.01"]  # several of them in a small model
TRANSFORMER = ["model.layers=2", "model.heads=4", "model.width=32", "model.dropout=0.1",
               "data.format=text", "data.dir=../text.txt", "data.tokenizer=chars",
               "data.context=16", *SMALL_BUCKETS]
MODELS = {
    "lenet": ["model.name=lenet", *SMALL_BUCKETS],
    "resnet18": ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
                 "data.image_size=8", "parallel.bucket_mb=4"],
    "gpt2": ["model.name=gpt2", *TRANSFORMER],
    "bert": ["model.name=bert", "data.mask_prob=0.15", *TRANSFORMER],
    # Batch norms over the whole batch, in a network of 8 thousand parameters.
    "sync_bn": [*runs.NARROW, "parallel.sync_batch_norm=true"],
}


def divided(data=1, pipeline=1, tensor=1):
    return layouts.keys_of((data, pipeline, tensor))


REPLICAS = ["parallel.workers=3"]
FAST = ["parallel.workers=3", "parallel.mode=fast"]

# All layouts of a group have the same results to the bit.  Only the division of the model changes
# the order of sums, and in fast mode what the workers send.
GROUPS = {
    "whole": {
        "one": ["parallel.workers=1"],
        "replicas": REPLICAS,
        "zero1": [*REPLICAS, "parallel.zero=1"],
        "zero2": [*REPLICAS, "parallel.zero=2"],
        "zero3": [*REPLICAS, "parallel.zero=3"],
        "offload": [*REPLICAS, "parallel.offload=optimizer"],
        "server": [*REPLICAS, "parallel.sync=parameter-server"],
        "server2": [*REPLICAS, "parallel.sync=parameter-server", "parallel.servers=2"],
    },
    "tensor2": {
        "tensor2": divided(tensor=2),
        "data2-tensor2": divided(data=2, tensor=2),
        "zero3-tensor2": [*divided(data=2, tensor=2), "parallel.zero=3"],
        "server-tensor2": [*divided(data=2, tensor=2), "parallel.sync=parameter-server"],
    },
    "pipeline2": {
        "pipeline2": divided(pipeline=2),
        "data2-pipeline2": divided(data=2, pipeline=2),
        "zero3-pipeline2": [*divided(data=2, pipeline=2), "parallel.zero=3"],
    },
    "chunks": {"chunks": [*divided(pipeline=2), "parallel.pipeline_chunks=2"]},
    "2x2x2": {"2x2x2": divided(data=2, pipeline=2, tensor=2)},
    "mixed": {"mixed": ["parallel.workers=2", "parallel.mode=fast", "parallel.load_weights=3,1"]},
    "local": {"local": [*FAST, "parallel.sync=local", "parallel.average_every=1"]},
    "topk": {"topk": [*FAST, "parallel.compress=topk"]},
    "powersgd": {"powersgd": [*FAST, "parallel.compress=powersgd"]},
}
LAYOUTS = {name: keys for group in GROUPS.values() for name, keys in group.items()}
GROUP_OF = {name: group for group, members in GROUPS.items() for name in members}
RESNET18 = ["zero3", "pipeline2"]
PLACES = ["threads", "processes"]
DEVICES = {"host": "cpu", "device": "gpu"}
MIXED = {"host": "cpu,0", "device": "0,cpu"}  # the place of rank 0, then that of rank 1

# The simulated devices of one process read each other's memory and do their work as late as they
# may.  Workers in processes of their own send through host memory.
ENVIRONMENT = {"TUTTI_TEST_DEVICE": "peers=1,devices=8,late=1"}


def all_cases():
    """(model, layout, place, device), every combination."""
    return list(itertools.product(MODELS, LAYOUTS, PLACES, DEVICES))


def pairwise_cases():
    """A part of all_cases() in which every pair of values of two of the four occurs.  resnet18, of
    which a run computes as long as 20 of the others, has two layouts, one as threads on the host
    and one as processes on devices; sync_bn is a residual network too."""
    def pairs(case):
        return set(itertools.combinations(enumerate(case), 2))

    def is_chosen(model, layout, *where):
        return model != "resnet18" or layout in RESNET18 and where == (
            ("processes", "device") if layout == "pipeline2" else ("threads", "host"))

    cases = [case for case in all_cases() if is_chosen(*case)]
    chosen = []
    missing = set().union(*map(pairs, cases))
    while missing:
        chosen.append(max(cases, key=lambda case: len(pairs(case) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def digest(run):
    """The hash of everything that a run computed."""
    out = hashlib.sha256()
    for record in runs.records(run):
        if record["event"] in ("step", "eval", "end"):
            figures = [record.get(field) for field in ("loss", "accuracy", "grad_norm",
                                                       "params_hash")]
            out.update(repr(figures).encode())
    for name in ("model", "optimizer"):
        with open(os.path.join(runs.newest_checkpoint(run), name + ".safetensors"), "rb") as file:
            file.seek(int.from_bytes(file.read(8), "little"), os.SEEK_CUR)  # past the names
            for part in runs.parts_of(file):
                out.update(part)
    return out.hexdigest()[:16]


def command(case):
    model, layout, place, device = case
    devices = (MIXED if layout == "mixed" else DEVICES)[device]
    return ["train", *JOB, *MODELS[model], *LAYOUTS[layout], "parallel.place=" + place,
            "parallel.devices=" + devices, "run.dir=run"]


def result(case):
    """The hash of a run, or exit-2 if the program refuses it.  In a folder of its own."""
    for plugin in (key.split("=")[1] for key in command(case) if key.startswith("model.plugin=")):
        if not os.path.exists(plugin):  # else the program's refusal would be taken for a result
            raise AssertionError("%s is not built" % plugin)
    folder = tempfile.mkdtemp(prefix="-".join(case) + "-", dir=".")
    ended = subprocess.run([runs.PROGRAM, *command(case)], cwd=folder, text=True,
                           env=dict(os.environ, **ENVIRONMENT), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=runs.HANGS_S)
    if ended.returncode not in (0, 2):
        raise AssertionError("%s: exit code %d\n%s" % (" ".join(case), ended.returncode,
                                                       ended.stdout))
    outcome = "exit-2" if ended.returncode else digest(os.path.join(folder, "run"))
    shutil.rmtree(folder)
    return outcome


def results(cases):
    """{case: result}"""
    layouts.write_text()
    with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        return dict(zip(cases, pool.map(result, cases)))


def processor():
    """What oneDNN chooses the blocks of its kernels by, and with them the order of their sums."""
    with open("/proc/cpuinfo") as file:
        reported = dict(line.split(":", 1) for line in file if ":" in line)
    reported = {key.strip(): value.strip() for key, value in reported.items()}
    caches = [open(path).read().strip() for path in
              sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"))]
    return " ".join([reported.get("vendor_id", "?"), reported.get("cpu family", "?"),
                     reported.get("model", "?"), *caches])


def section():
    """The name of the section that this program, at this level on this machine, belongs to."""
    report = runs.tutti("doctor", "--quick").expect(0).out
    kernels, library = re.search(r"^ *cpu: (\w+) kernels, (no oneDNN|oneDNN [\w.]+)", report,
                                 re.M).groups()
    if library != "no oneDNN" and re.search(r"^ *cpu: .*, AMX products", report, re.M):
        kernels = "amx"  # the results in f32 are those of AVX-512 unless oneDNN chooses otherwise
    if library != "no oneDNN":
        library += " on " + processor()
    return "%s %s, %s" % (platform.machine(), kernels, library)


# ---- the table: {section: {group: {model: result}}} ----

def read_table():
    table = {}
    with open(TABLE) as file:
        for line in file:
            words = line.split()
            if line.startswith("["):
                group_rows = table[line.strip()[1:-1]] = {}
                models = []
            elif words and not line.startswith("#"):
                if words[0] == "group":
                    models = words[1:]
                else:
                    group_rows[words[0]] = dict(zip(models, words[1:]))
    return table


def write_table(table):
    with open(TABLE) as file:
        comments = [line for line in file if line.startswith("#")]
    with open(TABLE, "w") as file:
        file.writelines(comments)
        for name in sorted(table, key=lambda name: [name.split(", ")[1],
                                                    LEVELS.index(name.split()[1].strip(","))]):
            file.write("\n[%s]\n" % name)
            for group in ["group", *GROUPS]:
                words = MODELS if group == "group" else table[name][group].values()
                file.write(" ".join("%-16s" % word for word in [group, *words]).rstrip() + "\n")


def with_unrecorded(rows, outcomes):
    """A dash: the hashes changed on purpose, and this processor was not at hand to record the new
    one; the layouts are compared with each other alone."""
    rows = {group: dict(models) for group, models in rows.items()}
    for (model, layout, *_), outcome in outcomes.items():
        if rows[GROUP_OF[layout]].get(model) == "-":
            rows[GROUP_OF[layout]][model] = outcome
    return rows


def expected_of(name, outcomes):
    """{group: {model: result}}: as recorded.  oneDNN's sums depend on the processor, and users have
    other ones: where nothing is recorded for it, what the first layout of a group comes to."""
    table = read_table()
    if name in table:
        return with_unrecorded(table[name], outcomes)
    how = ("record it with a program whose results are known to be right, by "
           "python3 tests/cli/%s.py %s" % (os.path.basename(TABLE)[:-len(".txt")], runs.BUILD))
    if "no oneDNN" in name:
        raise AssertionError("tests/golden/%s has no section [%s]: %s" % (os.path.basename(TABLE),
                                                                        name, how))
    print("no section [%s]: layouts are compared with each other alone; %s" % (name, how))
    rows = {}
    for (model, layout, *_), outcome in outcomes.items():
        rows.setdefault(GROUP_OF[layout], {}).setdefault(model, outcome)
    return rows


def check(cases):
    """Compares the result of every case with the table."""
    name = section()
    outcomes = results(cases)
    expected_rows = expected_of(name, outcomes)
    wrong = []
    for case, outcome in outcomes.items():
        model, layout = case[:2]
        expected = expected_rows.get(GROUP_OF[layout], {}).get(model, "nothing recorded")
        if outcome != expected:
            wrong.append("%s: %s instead of %s\n    tutti %s" % (" ".join(case), outcome, expected,
                                                                " ".join(command(case))))
    print("%s: %d runs, %d differ" % (name, len(cases), len(wrong)))
    if wrong:
        raise AssertionError("[%s]\n%s" % (name, "\n".join(wrong)))


def record():
    """Replaces the sections of this program, unless layouts of one group disagree."""
    table = read_table()
    for level in [os.environ["TUTTI_KERNELS"]] if "TUTTI_KERNELS" in os.environ else LEVELS:
        os.environ["TUTTI_KERNELS"] = level
        name = section()
        if level != name.split()[1].strip(","):
            break  # the machine has less
        rows = {group: {} for group in GROUPS}
        for (model, layout, place, device), outcome in results(all_cases()).items():
            same = rows[GROUP_OF[layout]].setdefault(model, outcome)
            if outcome != same:
                raise SystemExit("[%s] %s %s %s %s: %s, the others of group %s have %s" % (
                    name, model, layout, place, device, outcome, GROUP_OF[layout], same))
        print("[%s]: %s" % (name, "new" if name not in table else
                            "the same" if table[name] == rows else "OTHER THAN BEFORE"), flush=True)
        table[name] = rows
        write_table(table)


if __name__ == "__main__":
    runs.use_module("device")
    with tempfile.TemporaryDirectory(prefix="tutti-", dir=runs.folder_in_memory()) as scratch:
        os.chdir(scratch)
        record()
        os.chdir("/")
