"""plugin_test.py - a model of one's own in a shared object: the example is built and trained."""

import os
import struct
import subprocess
import sys

import runs

EXAMPLE = os.path.join(os.environ.get("TUTTI_SOURCE", "."), "examples", "plugin")
INCLUDE = os.path.join(os.environ.get("TUTTI_SOURCE", "."), "include")
SMALL = ["data.n_train=64", "data.n_test=32", "train.batch=16", "train.steps=3",
         "parallel.shards=2", "run.log_every=1"]


def build(source, name):
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Werror",
                    "-I", INCLUDE, "-o", name, source], check=True)


def test_the_example_trains_the_same_by_any_number_of_workers():
    build(os.path.join(EXAMPLE, "my_model.c"), "my_model.so")
    hashes = set()
    for workers in ("1", "2"):
        for place in ("threads", "processes"):
            folder = "run-%s-%s" % (workers, place)
            runs.tutti("train", os.path.join(EXAMPLE, "plugin.yaml"), "-n", workers, *SMALL,
                       "parallel.place=" + place, "run.dir=" + folder).expect(0)
            hashes.add(runs.records(folder)[-1]["params_hash"])
    if len(hashes) != 1:
        raise AssertionError("workers differ: %s" % hashes)


OWN_LOSS = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    (void)params;
    tutti_value *y = tutti_linear(g, x, 2, "body");
    y = tutti_sub(g, y, tutti_stop_gradient(g, y)); /* 0, with a gradient */
    tutti_value *target = tutti_find_field(g, "goal");
    tutti_value *scaled = tutti_mul(g, target, tutti_find_field(g, "scale"));
    tutti_set_loss(g, tutti_loss_named(g, "huber", y, scaled, tutti_find_present(g), NULL));
    return y;
}
"""


def save_array(path, rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (
        len(rows), len(rows[0]))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode())
        file.write(b"".join(struct.pack("<f", v) for row in rows for v in row))


def test_a_loss_of_its_own_over_fields():
    """The loss reads fields by name, leaves padding out, and gives one hash for 1 and 2 workers."""
    with open("own_loss.c", "w") as file:
        file.write(OWN_LOSS)
    build("own_loss.c", "own_loss.so")
    os.makedirs("fields")
    for split in ("train", "test"):
        save_array("fields/x_%s.npy" % split, [[1, 2, 3]] * 6)
        save_array("fields/goal_%s.npy" % split, [[3, 0.5]] * 6)
        save_array("fields/scale_%s.npy" % split, [[1, 2]] * 6)
    hashes = set()
    for workers in ("1", "2"):
        run = "own-" + workers
        runs.tutti("train", "model.plugin=./own_loss.so", "data.format=npy", "data.dir=fields",
                   "data.fields=all", "train.batch=8", "train.steps=2", "parallel.shards=2",
                   "run.log_every=1", "run.dir=" + run, "-n", workers).expect(0)
        hashes.add(runs.records(run)[-1]["params_hash"])
        loss = [r["loss"] for r in runs.records(run) if r["event"] == "step"][0]
        assert loss == ((3 - 0.5) + 0.5) / 2, loss  # huber of 3 and of 1
    assert len(hashes) == 1, hashes
    runs.tutti("predict", "own-1", "fields/x_test.npy", "--allow-plugin").expect(0, "values")
    runs.tutti("train", "model.plugin=./own_loss.so", "data.format=npy", "data.dir=fields",
               "data.fields=x, goal", "run.dir=lost").expect(2, "samples have no field 'scale'")


def test_it_may_refuse():
    build(os.path.join(EXAMPLE, "my_model.c"), "my_model.so")
    with open("table.csv", "w") as file:
        file.write("a,b,label\n" + "1,2,0\n2,1,1\n" * 20)
    runs.tutti("train", "model.plugin=./my_model.so", "data.format=csv", "data.dir=table.csv",
               "train.batch=4").expect(2, "my_model: wants images")


def test_a_run_folder_must_be_trusted():
    """The plugin of a run folder is code of whoever made it.  Whoever names a job file or a plugin
    on the command line has chosen it."""
    build(os.path.join(EXAMPLE, "my_model.c"), "my_model.so")
    small = SMALL + ["run.dir=run", "train.steps=2"]
    runs.tutti("train", os.path.join(EXAMPLE, "plugin.yaml"), *small).expect(0)
    runs.write_idx("images", size=28)
    image = "images/t10k-images-idx3-ubyte"
    commands = [["eval", "run"], ["predict", "run", image], ["report", "run"],
                ["export", "run", "--format", "safetensors", "--out", "exported"],
                ["train", "--resume", "run", "train.steps=4"], ["plan", "--check", "run"],
                ["train", "run/job.yaml", "run.dir=other"]]
    for command in commands:
        runs.tutti(*command).expect(2, "my_model.so", "--allow-plugin", "model.plugin=PATH")
    for command in commands:
        seconds = ["--seconds", "0.1"] if command[0] == "plan" else []
        runs.tutti(*command, *seconds, "--allow-plugin").expect(0)
    runs.tutti("eval", "run", "model.plugin=./my_model.so").expect(0)
    runs.tutti("train", os.path.join(EXAMPLE, "plugin.yaml"), "--resume", "run", *SMALL,
               "train.steps=5").expect(0)
    for command in ("eval", "predict", "report", "export", "generate"):
        runs.tutti(command, "--help").expect(0, "--allow-plugin")


def test_a_plugin_that_changed():
    """A run knows the file that it was trained with, from any directory."""
    build(os.path.join(EXAMPLE, "my_model.c"), "my_model.so")
    runs.tutti("train", os.path.join(EXAMPLE, "plugin.yaml"), *SMALL, "run.dir=run").expect(0)
    here = os.getcwd()
    os.mkdir("empty")
    os.chdir("empty")
    runs.tutti("eval", "../run", "--allow-plugin").expect(0)
    with open("../my_model.so", "ab") as file:
        file.write(b"x")
    again = "model.plugin=../my_model.so"
    runs.tutti("eval", "../run", "--allow-plugin").expect(
        2, here + "/my_model.so has changed since the training")
    runs.tutti("eval", "../run", again).expect(0)
    os.rename("../my_model.so", "../elsewhere.so")
    runs.tutti("eval", "../run", "--allow-plugin").expect(2, "can no longer be read",
                                                          "model.plugin=FILE")
    os.chdir(here)


def test_what_is_no_plugin():
    with open("other.c", "w") as file:
        file.write("int tutti_build_modell(void) { return 1; }\n")
    build("other.c", "other.so")
    for path, why in (("./none.so", "No such file"), ("libm.so.6", "No such file"),
                      ("./other.so", "exports no function tutti_build_model"),
                      ("./other.c", "other.c")):
        runs.tutti("train", "model.plugin=" + path).expect(2, "model.plugin", why)
    if os.path.exists("runs") and os.listdir("runs"):
        raise AssertionError("left a folder")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
