#!/usr/bin/env python3
"""Samples with several fields: models with several inputs, masks, float targets and losses of their
own have PyTorch's losses and one hash for any number of workers; bad arrays are named."""

import json
import math
import os
import shutil
import struct
import subprocess
import sys
import zipfile

import model_file_test as model_file
import plugin_test as plugin
import runs

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
EXTRA = {"regression": ["model.loss=1"], "towers": ["train.loss=cosine"]}
NAMES = ("masked", "towers", "regression", "several", "language", "padded")


def flat(values):
    return [x for v in values for x in flat(v)] if isinstance(values, list) else [values]


def shape_of(values):
    return (len(values),) + shape_of(values[0]) if isinstance(values, list) else ()


def npy(values, descr=None, fortran=False):
    """The bytes of a .npy file."""
    numbers = flat(values)
    if descr is None:
        first = numbers[0]
        descr = "|b1" if isinstance(first, bool) else "<i8" if isinstance(first, int) else "<f4"
    code = {"b1": "?", "i8": "q", "i4": "i", "f4": "f", "f8": "d", "f2": "e"}[descr[1:]]
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (
        descr, fortran, "".join("%d," % n for n in shape_of(values)))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    order = ">" if descr[0] == ">" else "<"
    return (b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
            struct.pack("%s%d%s" % (order, len(numbers), code), *numbers))


def save(folder, arrays):
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(folder + "/data.npz", "w") as file:
        for name, values in arrays.items():
            content = values if isinstance(values, bytes) else npy(values)
            file.writestr(name + ".npy", content)


def golden(name):
    with open(os.path.join(GOLDEN, "interface.json")) as file:
        return json.load(file)[name]


def both(arrays, n=None):
    return {"%s_%s" % (k, s): v[:n] for k, v in arrays.items() for s in ("train", "test")}


def job(name, *more, data=None, n=None):
    data = data or "data-" + name
    if not os.path.exists(data):
        save(data, both(golden(name)["inputs"], n))
    return ["model.file=%s/pt2/interface_%s.pt2" % (GOLDEN, name), "data.format=npy",
            "data.dir=" + data, "train.batch=8", "train.steps=4", "parallel.shards=1",
            "optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.momentum=0",
            "optimizer.weight_decay=0", "schedule.name=constant", "schedule.warmup_steps=0",
            "run.log_every=1", *EXTRA.get(name, []), *more]


def events(run, kind):
    with open(run + "/metrics.jsonl") as file:
        return [e for e in map(json.loads, file) if e["event"] == kind]


def train(*args, code=0):
    result = runs.tutti("train", *args)
    assert result.code == code, (result.code, result.err)
    return result


def near(got, want, tolerance):
    assert len(got) == len(want), (got, want)
    for x, y in zip(got, want):
        assert abs(x - y) <= tolerance * max(1, abs(y)), (got, want)


def test_built_in_models():
    """The width of the output is that of a target of values or questions, or data.classes."""
    rows = [[float((3 * i + k) % 7 - 3) for k in range(4)] for i in range(64)]
    questions = [[float(row[0] > 0), float(row[1] > row[2])] for row in rows]
    save("columns", both({"x": rows, "y": questions}))
    save("kinds", both({"x": rows, "y": [int(row[0] > 0) for row in rows]}))
    given = ["model.name=mlp", "model.hidden=[16]", "data.format=npy", "data.fields=all",
             "train.batch=16", "train.epochs=20", "optimizer.lr=0.02", "parallel.shards=4"]
    hashes = []
    for n in ("1", "2"):
        train(*given, "data.dir=columns", "train.loss=bce", "run.dir=q" + n, "-n", n)
        hashes += [events("q" + n, "end")[-1]["params_hash"]]
        figures = events("q" + n, "eval")[-1]["metrics"]
        assert figures["accuracy"] > 0.95 and figures["auc"] > 0.95, figures
    assert hashes[0] == hashes[1], hashes
    train(*given, "data.dir=kinds", "data.classes=3", "run.dir=k", "-n", "1")
    result = runs.tutti("inspect", "k/job.yaml").expect(0)
    assert "[3,16]" in result.out, result.out
    error = train(*given, "data.dir=kinds", "run.dir=none", "-n", "1", code=2).err
    assert "with labels data.classes" in error, error


def test_losses_are_pytorchs():
    for name in NAMES:
        train(*job(name, "run.dir=" + name))
        near([e["loss"] for e in events(name, "step")], golden(name)["losses"], 2e-6)
        assert "accuracy" not in events(name, "step")[0], "the loss counts nothing"


def test_rows_that_pad_a_batch_have_no_loss():
    """Eight rows in a shard of 16: the mean is that over the tokens of the eight."""
    train(*job("language", "run.dir=short", "train.batch=16", "train.steps=4"))
    near([e["loss"] for e in events("short", "step")], golden("language")["losses"], 2e-6)


def test_losses_of_jobs_are_pytorchs():
    """Four steps, so their gradients too; and one hash for 1, 2 and 4 workers."""
    g = golden("losses")
    for case, want in g["cases"].items():
        data = "loss-" + case
        save(data, both({"x": g["inputs"][want["model"]], "y": want["y"]}))
        base = job(want["model"], "data.fields=all", *want["keys"], data=data)
        train(*base, "run.dir=" + case)
        near([e["loss"] for e in events(case, "step")], want["losses"], 3e-6)
        result, last = runs.tutti("eval", case, "--json"), events(case, "eval")[-1]
        assert result.code == 0, (case, result.err)
        shown = json.loads(result.out)
        assert abs(shown["loss"] - last["loss"]) < 1e-6, case
        counts = case in ("ignore", "pixels", "focal_classes")
        assert counts == ("accuracy" in last), case
        assert shown.get("accuracy") == last.get("accuracy"), case  # of the targets that count
        hashes = set()
        for n in (1, 2, 4):
            run = "%s-%d" % (case, n)
            train(*base, "run.dir=" + run, "parallel.shards=4", "train.steps=1", "-n", str(n))
            hashes.add(events(run, "end")[0]["params_hash"])
        assert len(hashes) == 1, (case, hashes)


# A plugin, and a program of the C API, with the loss that the environment names.
C_LOSSES = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static const double three[] = {1, 2, 3}, classes[] = {1, 2, 0.5};
static const struct {
    const char *name, *loss;
    tutti_loss_desc desc;
} cases[] = {
    {"weights", "cross_entropy", {.smoothing = 0.1, .weight = classes, .n_weights = 3}},
    {"ignore", "cross_entropy", {.ignores = true, .ignore = 1}},
    {"pixels", "cross_entropy", {.ignores = true, .ignore = 2}},
    {"mse", "mse", {0}},
    {"mae", "mae", {0}},
    {"huber", "huber", {.delta = 0.7}},
    {"smooth_l1", "smooth_l1", {.delta = 0.7}},
    {"bce", "bce", {0}},
    {"pos_weight", "bce", {.weight = three, .n_weights = 3}},
    {"focal", "focal", {.gamma = 1.5, .alpha = 0.25}},
    {"focal_classes", "focal", {0}},
    {"dice", "dice", {0}},
    {"kl", "kl", {0}},
    {"cosine", "cosine", {0}},
};

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    (void)params;
    int i = 0;
    while (strcmp(cases[i].name, getenv("LOSS_CASE")) != 0) i++;
    const tutti_conv2d_desc conv = {.n_out = 3, .kernel = 3, .pad = 1};
    tutti_value *y = tutti_value_type(x).shape.n_dims == 4 ? tutti_conv2d(g, x, &conv, "body")
                                                            : tutti_linear(g, x, 3, "body");
    tutti_value *goal = tutti_find_field(g, "y"), *present = tutti_find_present(g);
    tutti_set_loss(g, tutti_loss_named(g, cases[i].loss, y, goal, present, &cases[i].desc));
    return y;
}

int main(int argc, char **argv) {
    tutti_job *job;
    tutti_train_result result;
    tutti_status st = tutti_job_create(&job);
    for (int i = 1; st == TUTTI_OK && i < argc; i++) tutti_job_set(job, argv[i], "test");
    if (st == TUTTI_OK) tutti_job_set_model(job, tutti_build_model, NULL);
    if (st == TUTTI_OK) st = tutti_train(job, NULL, &result);
    if (st != TUTTI_OK) fprintf(stderr, "%s", tutti_last_error());
    tutti_job_destroy(job);
    return st != TUTTI_OK;
}
"""


def test_losses_of_plugins_and_of_c_are_pytorchs():
    """With the weights of the exported modules; a plugin is code as a program's model is."""
    with open("losses.c", "w") as file:
        file.write(C_LOSSES)
    plugin.build("losses.c", "losses.so")
    links = not runs.sanitized()  # that library needs the sanitizer's flags
    if links:
        subprocess.run([os.environ.get("CC", "cc"), "-I", plugin.INCLUDE, "-o", "losses",
                        "losses.c", "-L", runs.BUILD, "-ltutti", "-Wl,-rpath," + runs.BUILD],
                       check=True)
    g = golden("losses")
    for model in ("linear", "pixels"):
        runs.tutti("import", "%s/pt2/interface_%s.pt2" % (GOLDEN, model), "--out", model).expect(0)
    for case, want in g["cases"].items():
        data = "c-loss-" + case
        save(data, both({"x": g["inputs"][want["model"]], "y": want["y"]}))
        base = [a for a in job(want["model"], "data.fields=all", data=data)
                if not a.startswith("model.file")]
        base.append("model.init=%s/model.safetensors" % want["model"])
        env = dict(os.environ, LOSS_CASE=case)
        runs.tutti("train", *base, "model.plugin=./losses.so", "run.dir=plugin-" + case,
                   env=env).expect(0)
        if links:
            subprocess.run(["./losses", *base, "run.dir=c-" + case], env=env, check=True)
        for run in ("plugin-", "c-") if links else ("plugin-",):
            near([e["loss"] for e in events(run + case, "step")], want["losses"], 3e-6)


def test_keys_of_other_models_are_not_printed():
    """A run of a model file has no name of a built-in model, nor its sizes."""
    train(*job("masked", "run.dir=printed", "train.steps=1"))
    with open("printed/job.yaml") as file:
        model = file.read().split("data:")[0]
    names = [line.split(":")[0].strip() for line in model.splitlines()[1:]]
    assert names == ["plugin", "file", "inputs", "loss", "metrics", "init", "init_except"], names
    shown = runs.tutti("config", "show", "model.name=mlp").expect(0).out
    assert "name: mlp" in shown and "hidden: [512, 512]" in shown, shown


def test_classes_of_pixels_without_fields():
    """Logits [N,C,H,W] of a file of arrays x and y without names of fields."""
    g = golden("losses")
    want = g["cases"]["pixels"]
    save("plain", both({"x": g["inputs"][want["model"]], "y": want["y"]}))
    train(*job(want["model"], *want["keys"], "data.classes=3", data="plain"), "run.dir=plain-run")
    near([e["loss"] for e in events("plain-run", "step")], want["losses"], 3e-6)


def test_labels_are_classes_of_the_output():
    """Of both splits, before the first step; the job names a label that does not count."""
    g = golden("losses")
    case = g["cases"]["focal_classes"]
    for split in ("train", "test"):
        for wrong in (-1, 100):
            run = "%s%d" % (split, wrong)
            arrays = both({"x": g["inputs"][case["model"]], "y": case["y"]})
            arrays["y_" + split] = [case["y"][0], wrong, *case["y"][2:]]
            save("data-" + run, arrays)
            base = job(case["model"], "data.fields=all", "train.loss=cross-entropy",
                       data="data-" + run)
            result = train(*base, "run.dir=bad-" + run, code=3)
            assert "label %d of row " % wrong in result.err, result.err
            assert "train.ignore_index" in result.err, result.err
            train(*base, "run.dir=ignored-" + run, "train.ignore_index=%d" % wrong)
            train(*base, "run.dir=skipped-" + run, "data.on_error=skip")
            with open("skipped-%s/metrics.jsonl" % run) as file:
                assert "label %d" % wrong in file.read()


def test_labels_of_a_model_with_a_loss():
    """As in PyTorch: -100 is left out, every other label that is no class is an error."""
    inputs = golden("masked")["inputs"]
    for split in ("train", "test"):
        for wrong in (-1, 3, -99):
            run = "own-%s%d" % (split, wrong)
            arrays = both(inputs)
            arrays["y_" + split] = [inputs["y"][0], wrong, *inputs["y"][2:]]
            save(run + "-data", arrays)
            result = train(*job("masked", "run.dir=" + run, data=run + "-data"), code=3)
            assert "y_%s.npy: label %d of row 1 is out of range, 0 .. 2" % (split, wrong) \
                in result.err and "ignores only label -100" in result.err, result.err
    rest = {k: v[:1] + v[2:] for k, v in inputs.items()}
    save("left-out", both({**inputs, "y": [inputs["y"][0], -100, *inputs["y"][2:]]}))
    save("rest", both(rest))
    one = ["train.steps=1", "train.batch=8"]
    train(*job("masked", "run.dir=left-out-run", *one, data="left-out"))
    train(*job("masked", "run.dir=rest-run", *one, "train.batch=7", data="rest"))
    near([e["loss"] for e in events("left-out-run", "step")],
         [e["loss"] for e in events("rest-run", "step")], 1e-6)


def test_labels_that_a_model_computes():
    """They cannot be checked before the run: the loss is infinite if one is no class."""
    def change(model):
        nodes = model["graph_module"]["graph"]["nodes"]
        at = [i for i, n in enumerate(nodes) if "cross_entropy" in n["target"]][0]
        target = nodes[at]["inputs"][1]["arg"]["as_tensor"]
        args = [{"name": "self", "arg": {"as_tensor": dict(target)}, "kind": 1},
                {"name": "other", "arg": {"as_int": 0}, "kind": 1}]
        nodes.insert(at, {"target": "torch.ops.aten.add.Tensor", "inputs": args,
                          "outputs": [{"as_tensor": {"name": "computed"}}], "metadata": {}})
        target["name"] = "computed"
    model_file.rewritten("interface_masked", "computed.pt2", change)
    base = job("masked", "model.file=computed.pt2")
    train(*base, "run.dir=computed")
    near([e["loss"] for e in events("computed", "step")], golden("masked")["losses"], 2e-6)
    inputs = golden("masked")["inputs"]
    for wrong in (-1, 3):
        save("wrong%d" % wrong, both({**inputs, "y": [inputs["y"][0], wrong, *inputs["y"][2:]]}))
        result = train(*base, "run.dir=wrong%d-run" % wrong, "data.dir=wrong%d" % wrong, code=7)
        assert "finite" in result.err, result.err


def test_keys_without_effect_are_refused():
    g = golden("losses")
    save("plain", both({"x": g["inputs"]["linear"], "y": g["cases"]["ignore"]["y"]}))
    for more, text in ((["train.loss=bce"], "needs samples with fields"),
                       (["train.pos_weight=2"], "is for train.loss=bce"),
                       (["train.ignore_index=x"], "is not a label"),
                       (["data.fields=all", "train.class_weights=1, 2"], "a weight for each class"),
                       (["data.fields=all", "train.class_weights=0, 0"], "all weights are 0"),
                       (["data.fields=all", "train.loss=kl"], "probabilities of the same shape")):
        result = train(*job("linear", "run.dir=refused", *more, data="plain"), code=2)
        assert text in result.err, result.err
    train(*job("linear", "run.dir=classes", "train.loss=focal", data="plain"))
    near([e["loss"] for e in events("classes", "step")],
         g["cases"]["focal_classes"]["losses"], 3e-6)


def test_one_hash_for_all_workers():
    for name in NAMES:
        hashes = set()
        for i, more in enumerate(([], ["-n", "2", "parallel.zero=3"],
                                  ["-n", "4", "parallel.place=processes"])):
            run = "%s-%d" % (name, i)
            train(*job(name, "parallel.shards=4", "train.steps=2", "run.dir=" + run, *more))
            hashes.add(events(run, "end")[0]["params_hash"])
        assert len(hashes) == 1, (name, hashes)


def test_padding_counts_in_no_loss():
    """A batch of 8 with 5 samples has the losses of a batch of 5, but for means over a shard of
    what samples do not have in equal number."""
    for name in NAMES:
        own = job(name, "run.dir=%s-own" % name, "train.batch=5", data="five-" + name, n=5)
        train(*own)
        train(*own, "run.dir=%s-padded" % name, "train.batch=8", "parallel.shards=2")
        near([e["loss"] for e in events(name + "-padded", "step")],
             [e["loss"] for e in events(name + "-own", "step")],
             0.2 if name in ("several", "language", "padded") else 1e-5)


def padding(name, *more):
    with open(os.path.join(GOLDEN, "padding.json")) as file:
        golden_ = json.load(file)
    if not os.path.exists("data-padding"):
        save("data-padding", both(golden_["inputs"]))
    own = job("masked", "model.file=%s/pt2/padding_%s.pt2" % (GOLDEN, name),
              "data.dir=data-padding", "optimizer.lr=0.05", *more)
    return own, golden_["losses"][name]


def test_padding_is_left_out_of_what_joins_samples():
    """Five samples in a batch of eight have PyTorch's losses of five, whatever a loss computes over
    the batch, wherever the samples lie; what cannot leave rows out is refused by name."""
    for name in ("statistics", "products", "pairs", "time", "terms"):
        more = ["model.loss=0"] if name == "terms" else []
        own, losses = padding(name, "run.dir=padding-" + name, *more)
        train(*own)
        near([e["loss"] for e in events("padding-" + name, "step")], losses, 1e-5)
    own, _ = padding("pairs", "train.batch=12", "parallel.shards=4")  # 3, 2, 0 and 0 samples
    train(*own, "run.dir=padding-empty")
    assert all(math.isfinite(e["loss"]) for e in events("padding-empty", "step"))
    own, losses = padding("sorted")
    assert "sort" in train(*own, "run.dir=none", code=2).err
    train(*own, "run.dir=padding-whole", "train.batch=5")
    near([e["loss"] for e in events("padding-whole", "step")], losses, 1e-5)


def test_a_run_needs_the_data_no_longer():
    train(*job("masked", "run.dir=run"))
    inputs = golden("masked")["inputs"]
    os.makedirs("elsewhere")
    save("new", {k: inputs[k] for k in ("ids", "keep")})  # without the target
    before = runs.tutti("predict", "run", "new/data.npz")
    assert before.code == 0, before.err
    shutil.rmtree("data-masked")
    os.rename("run", "elsewhere/run")
    after = runs.tutti("predict", "elsewhere/run", "new/data.npz")
    assert after.out == before.out and len(after.out.splitlines()) == 8, after.err
    assert len(json.loads(after.out.splitlines()[0])["values"]) == 3
    missing = runs.tutti("predict", "elsewhere/run", "new/data.npz", "data.dir=new")
    assert missing.code == 0, missing.err
    save("partial", {"ids": inputs["ids"]})
    refused = runs.tutti("predict", "elsewhere/run", "partial/data.npz")
    assert refused.code == 3 and "the array 'keep'" in refused.out + refused.err, refused.err


def test_types_and_orders_of_arrays():
    """f2, f8, big-endian and Fortran arrays have the values of plain ones."""
    inputs = golden("regression")["inputs"]
    columns = [[row[k] for row in inputs["x"]] for k in range(4)]
    fortran = npy(columns, "<f4", True)  # the transposed values in C order, with the shape of x
    fortran = fortran.replace(b"(4,8,), }", b"(8,4,), }")
    swapped = npy(inputs["y"], ">f8")
    save("orders", {"x_train": fortran, "x_test": fortran, "y_train": swapped, "y_test": swapped})
    train(*job("regression", "run.dir=orders-run", data="orders"))
    near([e["loss"] for e in events("orders-run", "step")], golden("regression")["losses"], 2e-6)


def test_data_info_has_fields():
    result = runs.tutti("data", "info", *job("masked"))
    assert result.code == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    for want in ("keep i32[5] 0 .. 1", "y i32[] 0 .. 2"):
        assert want.split() in lines, result.out


def test_export_has_the_names_of_the_module():
    train(*job("masked", "run.dir=to-export"))
    result = runs.tutti("export", "to-export", "--format", "state-dict", "--out", "weights")
    assert result.code == 0, result.err
    with open("weights/model.safetensors", "rb") as file:
        assert b'"embed.weight"' in file.read(4096)
    runs.tutti("export", "to-export", "--format", "onnx", "--out", "masked.onnx").expect(0)
    with open("masked.onnx", "rb") as file:
        content = file.read()
    assert b"ids" in content and b"keep" in content and b"field." not in content


def test_labels_of_minus_one_and_one():
    """They are classes like 0 and 1: the same weights, but other names."""
    zero_one = [1, 0, 0, 1, 1, 0, 1, 0]
    x = golden("towers")["inputs"]["x"]
    base = ["model.name=mlp", "data.format=npy", "train.batch=4", "train.steps=3",
            "parallel.shards=1"]
    for name, labels in (("zero", zero_one), ("signs", [2 * v - 1 for v in zero_one])):
        save(name, both({"x": x, "y": labels}))
        train(*base, "data.dir=" + name, "run.dir=run-" + name)
    ends = [events("run-" + name, "end")[0] for name in ("zero", "signs")]
    assert ends[0]["params_hash"] == ends[1]["params_hash"], ends
    assert ends[0]["loss"] == ends[1]["loss"], ends
    runs.tutti("data", "info", *base, "data.dir=signs").expect(0, "classes     2", "-1")
    os.rename("signs", "signs moved")
    with open("rows.npy", "wb") as file:
        file.write(npy(x))
    shown = runs.tutti("predict", "run-signs", "rows.npy").expect(0).out.splitlines()
    assert {json.loads(line)["class"] for line in shown} <= {"-1", "1"}, shown
    runs.tutti("eval", "run-signs", "data.dir=signs moved").expect(0, "-1")
    save("other", {"x_test": x, "y_test": [1, 3] * 4})
    runs.tutti("eval", "run-signs", "data.dir=other").expect(3, "label 3 of row 1")
    runs.tutti("data", "info", *base, "data.dir=signs moved", "data.classes=2").expect(
        3, "is negative")


def weights_of(run):
    """The tensors of a run, as lists of rows."""
    runs.tutti("export", run, "--format", "state-dict", "--out", run + "-weights").expect(0)
    with open(run + "-weights/model.safetensors", "rb") as file:
        content = file.read()
    n = struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, line in json.loads(content[8:8 + n]).items():
        if name == "__metadata__":
            continue
        first, last = (8 + n + x for x in line["data_offsets"])
        values = struct.unpack("<%df" % ((last - first) // 4), content[first:last])
        width = line["shape"][-1]
        tensors[name] = [values[i:i + width] for i in range(0, len(values), width)]
    return tensors


def linear(x, weight, bias):
    return [sum(a * b for a, b in zip(x, row)) + c for row, c in zip(weight, bias[0])]


HEADS = os.path.join(GOLDEN, "pt2/fields_heads.pt2")


def heads(run, *more, model=HEADS):
    """A run of a model whose outputs are called logits, features and size; and its rows of x."""
    x = [[((7 * i + 3 * k) % 11 - 5) / 5 for k in range(4)] for i in range(6)]
    save("data-heads", both({"x": x, "y": [0, 1, 2, 0, 1, 2]}))
    save("rows", {"x": x})
    train("model.file=" + model, "data.format=npy", "data.dir=data-heads", "train.batch=4",
          "train.steps=2", "parallel.shards=2", "run.dir=" + run, *more)
    return x


def test_all_outputs_have_their_names():
    names = ["logits", "features", "size"]
    runs.tutti("inspect", HEADS).expect(0, "outputs: 3\n  logits\n  features\n  size\n")
    runs.tutti("import", HEADS, "--out", "heads folder").expect(0)
    for run, more, model in (("plain", [], HEADS), ("fields", ["data.fields=all"], HEADS),
                             ("folder", [], "heads folder")):
        x = heads(run, *more, model=model)
        w, found = weights_of(run), {name: [] for name in names}
        shown = runs.tutti("predict", run, "rows/data.npz").expect(0).out.splitlines()
        for row, line in zip(x, shown):
            features = [math.tanh(v) for v in linear(row, w["body.weight"], w["body.bias"])]
            logits = linear(features, w["head.weight"], w["head.bias"])
            prediction = json.loads(line)
            outputs = prediction["outputs"]
            assert list(outputs) == names, line
            near(outputs["features"], features, 1e-5)
            near(outputs["logits"], logits, 1e-5)
            near([outputs["size"]], [sum(v * v for v in features)], 1e-5)
            assert prediction["class"] == logits.index(max(logits)), line
            for name in names:
                found[name] += flat([outputs[name]])
        result = json.loads(runs.tutti("eval", run, "--json").expect(0).out)["outputs"]
        assert {k: v["shape"] for k, v in result.items()} == {
            "logits": [3], "features": [5], "size": []}
        for name, values in found.items():
            mean = sum(values) / len(values)
            deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
            near([result[name][k] for k in ("mean", "std", "least", "most")],
                 [mean, deviation, min(values), max(values)], 1e-5)
        runs.tutti("eval", run).expect(0, "features             f32[5] ")
        runs.tutti("export", run, "--format", "onnx", "--out", run + ".onnx").expect(0)
        listed = runs.tutti("inspect", run + ".onnx").expect(0).out
        assert "outputs: 3\n  logits\n  features\n  size\n" in listed, listed


def test_outputs_are_called_by_the_structure_of_the_result():
    """As torch.export writes dicts, dataclasses and tuples; a damaged text leaves numbers."""
    leaf = {"type": None, "context": None, "children_spec": []}

    def node(kind, context, *children):
        return {"type": kind, "context": context, "children_spec": list(children)}
    pair = node("builtins.list", "null", leaf, leaf)
    cases = ((node("D", '[["a", "b", "c"], ["d"]]', leaf, leaf, leaf), ["a", "b", "c"]),
             (node("builtins.tuple", "null", leaf, node("builtins.dict", '["a", 3]', leaf, leaf)),
              ["output_0", "output_1.a", "output_1.3"]),
             (node("builtins.dict", '["a", "b"]', leaf, pair), ["a", "b.0", "b.1"]),
             (node("builtins.dict", '["a", "a", ""]', leaf, leaf, leaf),
              ["a", "output_1", "output_2"]),
             (node("builtins.dict", "no JSON", leaf, leaf, leaf),
              ["output_0", "output_1", "output_2"]),
             (node("builtins.dict", '["a", "b"]', leaf, leaf),
              ["output_0", "output_1", "output_2"]),
             ("damaged", ["output_0", "output_1", "output_2"]))
    for tree, names in cases:
        def change(model):
            signature = model["graph_module"]["module_call_graph"][0]["signature"]
            signature["out_spec"] = json.dumps([1, tree])
        model_file.rewritten("fields_heads", "renamed.pt2", change)
        runs.tutti("inspect", "renamed.pt2").expect(
            0, "outputs: 3\n" + "".join("  %s\n" % name for name in names))


def test_outputs_that_need_other_arrays_are_left_out():
    """The towers of images and texts: with images alone, only the outputs of images."""
    inputs = golden("towers")["inputs"]
    save("pairs", both({k: inputs[k] for k in ("x", "other")}))
    clip = ["model.file=%s/pt2/clip.pt2" % GOLDEN, "data.format=npy", "data.dir=pairs",
            "train.loss=infonce", "train.batch=8", "train.steps=1", "parallel.shards=1"]
    train(*clip, "run.dir=clip")
    save("whole", {k: inputs[k] for k in ("x", "other")})
    save("half", {"x": inputs["x"]})
    all_of = runs.tutti("predict", "clip", "whole/data.npz").expect(0)
    half = runs.tutti("predict", "clip", "half/data.npz").expect(
        0, "the output 'output_1' is left out, because it needs the array 'other'")
    assert "left out" not in all_of.err, all_of.err
    for a, b in zip(all_of.out.splitlines(), half.out.splitlines()):
        a, b = json.loads(a)["outputs"], json.loads(b)["outputs"]
        assert list(a) == ["output_0", "output_1", "output_2"], a
        assert b == {k: a[k] for k in ("output_0", "output_2")}, b
        assert isinstance(a["output_2"], float), "the scale has no rows"
    whole = json.loads(runs.tutti("eval", "clip", "--json").expect(0).out)["outputs"]
    assert whole["output_2"]["shape"] == [] and whole["output_2"]["std"] == 0, whole
    both_files = runs.tutti("predict", "clip", "half/data.npz", "whole/data.npz").expect(0).out
    assert both_files == half.out + all_of.out


def test_outputs_that_samples_share():
    """A weight among the outputs has no rows, though it has as many elements as a shard."""
    def change(model):
        graph = model["graph_module"]["graph"]
        for outputs in (graph["outputs"][2], model["graph_module"]["signature"]["output_specs"][2]
                        ["user_output"]["arg"]):
            outputs["as_tensor"]["name"] = "p_head_bias"
    model_file.rewritten("fields_heads", "shared.pt2", change)
    heads("shared", "train.batch=6", model="shared.pt2")  # 3 rows to a shard
    bias = weights_of("shared")["head.bias"][0]
    shown = json.loads(runs.tutti("eval", "shared", "--json").expect(0).out)["outputs"]["size"]
    assert shown["shape"] == [3], shown
    near([shown["least"], shown["most"]], [min(bias), max(bias)], 1e-6)
    line = runs.tutti("predict", "shared", "rows/data.npz").expect(0).out.splitlines()[1]
    near(json.loads(line)["outputs"]["size"], bias, 1e-6)


def batches(name, run, *more, code=0):
    """A run of a model that was exported for a batch of 4, on 16 samples."""
    x = [[[[((5 * i + 3 * h + w) % 13 - 6) / 6 for w in range(4)] for h in range(4)]]
         for i in range(16)]
    save("data-views", both({"x": x, "y": [i * 7 % 3 for i in range(16)]}))
    return train("model.file=%s/pt2/fields_%s.pt2" % (GOLDEN, name), "data.format=npy",
                 "data.dir=data-views", "train.batch=8", "train.steps=3", "optimizer.lr=0.05",
                 "run.log_every=1", "run.dir=" + run, *more, code=code)


def test_a_fixed_batch_is_the_batch():
    """If every operator allows it: shards of 1, 2, 4 (as exported) and 8 rows."""
    batches("views", "views-4", "parallel.shards=2")
    want = [e["loss"] for e in events("views-4", "step")]
    for shards in (1, 4, 8):
        hashes = set()
        for n in ("1", "2")[:2 if shards > 1 else 1]:
            run = "views-%d-%s" % (shards, n)
            batches("views", run, "parallel.shards=%d" % shards, "-n", n)
            near([e["loss"] for e in events(run, "step")], want, 1e-6)
            hashes.add(events(run, "end")[0]["params_hash"])
        assert len(hashes) == 1, hashes
    runs.tutti("predict", "views-4", "data-views/data.npz").expect(0)  # one row at a time
    runs.tutti("import", "%s/pt2/fields_views.pt2" % GOLDEN, "--out", "views").expect(0)
    batches("views", "views-folder", "parallel.shards=1", "model.file=views")
    batches("views", "views-fields", "parallel.shards=1", "data.fields=all")
    for run in ("views-folder", "views-fields"):
        near([e["loss"] for e in events(run, "step")], want, 1e-6)


def test_models_that_mix_samples_are_refused_by_name():
    for shards, rows in (("1", "8 rows"), ("8", "1 row:")):
        result = batches("mixes", "refused", "parallel.shards=" + shards, code=2)
        for text in ("exported for a batch of 4, and a shard has " + rows, "so that a shard has 4",
                     "reshape of the model joins several samples in a row"):
            assert text in result.err, result.err
    result = batches("mixes", "refused", "parallel.shards=2", code=2)
    assert "gather of the model cannot be split over samples" in result.err, result.err

    def in_module(model):
        for node in model["graph_module"]["graph"]["nodes"]:
            node["metadata"]["nn_module_stack"] = "a,,M;b,blocks.0.mix,Mix"
    model_file.rewritten("fields_mixes", "mixes.pt2", in_module)
    result = batches("mixes", "refused", "parallel.shards=2", "model.file=mixes.pt2", code=2)
    assert "gather in module 'blocks.0.mix' cannot be split over samples" in result.err, result.err
    result = batches("mixes", "refused", "parallel.shards=1", "model.file=mixes.pt2", code=2)
    assert "reshape in module 'blocks.0.mix' joins several" in result.err, result.err
    result = batches("mixes", "refused", "train.batch=4", "parallel.shards=1", "-n", "2",
                     "parallel.pipeline=2", code=2)
    assert "no stage can begin after linear in module 'head'" in result.err, result.err
    result = batches("views", "refused", "-n", "7", "parallel.tensor=7", "parallel.shards=2",
                     "parallel.uneven=whole", code=2)
    assert "the largest layer that is not divided is linear in module 'head'" in result.err, (
        result.err)


def test_losses_and_metrics_by_name():
    """They are no outputs any more."""
    heads("by-name", "model.metrics=mean_size=size")
    shown = json.loads(runs.tutti("eval", "by-name", "--json").expect(0).out)
    assert list(shown["outputs"]) == ["logits", "features"], shown
    heads("by-number", "model.metrics=mean_size=2")
    other = json.loads(runs.tutti("eval", "by-number", "--json").expect(0).out)
    assert shown["metrics"] == other["metrics"] and shown["metrics"]["mean_size"] > 0, shown
    train(*job("several", "run.dir=loss", "model.loss=output_0"))
    near([e["loss"] for e in events("loss", "step")], golden("several")["losses"], 2e-6)
    result = train("model.file=" + HEADS, "data.format=npy", "data.dir=data-heads",
                   "model.loss=loss", code=2)
    assert "the model has no output loss; it has logits, features, size" in result.err, result.err


def test_resume_is_exact():
    train(*job("masked", "run.dir=whole", "parallel.shards=2"))
    train(*job("masked", "run.dir=part", "parallel.shards=2", "train.steps=2"))
    result = runs.tutti("train", "--resume", "part", "train.steps=4", "-n", "2")
    assert result.code == 0, result.err
    assert events("part", "end")[-1]["params_hash"] == events("whole", "end")[0]["params_hash"]


def test_bad_arrays_are_named():
    good = golden("regression")["inputs"]
    nan = [list(row) for row in good["x"]]
    nan[5][2] = float("nan")
    cases = (({"x": nan, "y": good["y"]}, "x.npy: row 5 has a value that is not finite", 3),
             ({"x": good["x"][:7], "y": good["y"]}, "each row is a sample", 3),
             ({"x": good["x"], "z": good["y"]}, "no field 'y' for the input 'y'", 2),
             ({"x": [[1] * 4] * 8, "y": [[2 ** 40, 1]] * 8}, "does not fit in i32", 3))
    for i, (arrays, text, code) in enumerate(cases):
        save("bad-%d" % i, arrays)
        result = train(*job("regression", "run.dir=bad", data="bad-%d" % i), code=code)
        assert text in result.err, result.err
    save("three", {"x": [[[1.0] * 4] * 2] * 8, "y": good["y"]})
    result = train(*job("regression", "run.dir=bad", data="three"), code=2)
    assert "input 'x' has 2 dimensions, the data has 3" in result.err, result.err
    result = train(*job("regression", "run.dir=bad", "data.fields=x, w"), code=3)
    assert "data.fields names 'w'" in result.err, result.err
    result = train(*job("regression", "run.dir=bad", "model.loss=7"), code=2)
    assert "the model has no output 7" in result.err, result.err
    for wrong in ("-1", "mean"):
        result = train(*job("regression", "run.dir=bad", "model.loss=" + wrong), code=2)
        assert "the model has no output " + wrong in result.err, result.err
    result = train(*job("regression", "run.dir=bad", "train.loss=mae"), code=2)
    assert "computes a loss of its own" in result.err, result.err


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
