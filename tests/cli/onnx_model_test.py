#!/usr/bin/env python3
"""tutti train model.file=FILE.onnx: models of both exporters of PyTorch have its losses, those of
others onnxruntime's; folders of tutti import train to the same bits; damaged files are refused."""

import json
import os
import shutil
import struct
import sys

import runs
from model_file_test import GOLDEN, events, golden, job, near, save_npy

MODELS = ("cnn-train", "cnn-script", "tokens-train", "encoder-script", "zoo-script",
          "frozen-train", "frozen-script", "norms-train", "norms-script",
          "standardized-train", "standardized-script", "taken-train", "written-train",
          "positions-train", "rounded-train", "rounded-script")


def path_of(model):
    return os.path.join(GOLDEN, "onnx", model + ".onnx")


def onnx_job(model, *more, **options):
    """The arguments of a job that trains on the batch of the model's .pt2 file."""
    name = model.split("-")[0]
    args = job(name, *more, data="data-" + name, **options)
    return ["model.file=" + path_of(model)] + args[1:]


def layers_job(path, *more):
    with open(os.path.join(GOLDEN, "onnx.json")) as file:
        g = json.load(file)
    os.makedirs("data-layers", exist_ok=True)
    for split in ("train", "test"):
        save_npy("data-layers/x_%s.npy" % split, g["x"])
        save_npy("data-layers/y_%s.npy" % split, g["y"])
    return g, ["model.file=" + path, "data.format=npy", "data.dir=data-layers", "data.classes=5",
               "train.batch=4", "train.steps=1", "parallel.shards=1", "optimizer.name=sgd",
               "optimizer.lr=1e-30", "optimizer.momentum=0", "optimizer.weight_decay=0",
               "schedule.warmup_steps=0", *more]


def test_losses_are_pytorchs():
    for model in MODELS:
        result = runs.tutti("train", *onnx_job(model, "run.dir=" + model))
        assert result.code == 0, result.err
        g = golden(model.split("-")[0])
        error = max(abs(x - y) for x, y in zip(g["losses"], g["losses_f32"]))
        near([e["loss"] for e in events(model, "step")], g["losses"], max(1e-5, 10 * error))


def test_operators_of_other_exporters():
    """Tensors inside of the file, and in a file beside it."""
    for model, loss in (("layers", "eval_loss"), ("external", "eval_loss"),
                        ("functions", "functions_loss")):
        g, args = layers_job(path_of(model), "run.dir=" + model)
        result = runs.tutti("train", *args)
        assert result.code == 0, result.err
        near([events(model, "end")[0]["loss"]], [g[loss]], 2e-6 if model == "functions" else 1e-6)


def control_job(path, *more):
    with open(os.path.join(GOLDEN, "control.json")) as file:
        g = json.load(file)
    os.makedirs("data-control", exist_ok=True)
    for split in ("train", "test"):
        save_npy("data-control/x_%s.npy" % split, g["x"])
        save_npy("data-control/y_%s.npy" % split, g["y"])
    return g, ["model.file=" + path, "data.format=npy", "data.dir=data-control",
               "data.classes=5", "train.batch=4", "train.steps=3", "parallel.shards=1",
               "optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.momentum=0",
               "optimizer.weight_decay=0", "schedule.warmup_steps=0", "run.log_every=1", *more]


def test_branches_and_loops():
    """If, Loop and Scan whose conditions are known are unrolled, from the file and from a folder;
    weights inside of them are trained, on any number of workers."""
    assert runs.tutti("import", path_of("control"), "--out", "folder").code == 0
    assert runs.tutti("import", "folder", "--out", "again").code == 0
    with open("folder/graph.json", "rb") as a, open("again/graph.json", "rb") as b:
        assert a.read() == b.read()
    hashes = set()
    for i, path in enumerate((path_of("control"), "folder")):
        g, args = control_job(path, "run.dir=run%d" % i)
        result = runs.tutti("train", *args)
        assert result.code == 0, result.err
        near([e["loss"] for e in events("run%d" % i, "step")], g["losses"], 1e-6)
        hashes.add(events("run%d" % i, "end")[0]["params_hash"])
        shards = runs.tutti("train", *args[:-1], "parallel.shards=4", "run.dir=shards%d" % i,
                            "-n", str(1 + i))
        assert shards.code == 0, shards.err
        near([e["loss"] for e in events("shards%d" % i, "step")], g["losses"], 1e-6)
    assert len(hashes) == 1 and len({events("shards%d" % i, "end")[0]["params_hash"]
                                     for i in range(2)}) == 1
    said = runs.tutti("inspect", path_of("control")).expect(0, "parameters: 5, 72 elements")
    for name in g["names"]:
        assert "  %s  float32" % name in said.out, (name, said.out)


FRAMEWORKS = [(m, m) for m in ("keras-dense", "keras-lstm", "keras-transformer", "jax-dense",
                               "jax-conv", "jax-lstm", "jax-transformer")] + \
    [("keras-conv", "keras-conv-train")]


def frameworks_job(name, file, *more):
    with open(os.path.join(GOLDEN, "frameworks.json")) as f:
        g = json.load(f)[name]
    os.makedirs("data-" + name, exist_ok=True)
    for split in ("train", "test"):
        save_npy("data-%s/x_%s.npy" % (name, split), g["x"])
        save_npy("data-%s/y_%s.npy" % (name, split), g["y"])
    return g, ["model.file=" + path_of(file), "data.format=npy", "data.dir=data-" + name,
               "data.classes=5", "train.batch=4", "train.steps=3", "parallel.shards=1",
               "optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.momentum=0",
               "optimizer.weight_decay=0", "schedule.warmup_steps=0", "run.log_every=1", *more]


def test_keras_and_jax():
    """Losses before training are those of the framework, and so are those of three steps."""
    for name, file in FRAMEWORKS:
        g, args = frameworks_job(name, file, "run.dir=" + file)
        result = runs.tutti("train", *args)
        assert result.code == 0, (name, result.err)
        # ONNX's LSTM has biases that Keras has not, and they are trained.
        n = 1 if name == "keras-lstm" else 3
        near([e["loss"] for e in events(file, "step")][:n], g["losses"][:n], 2e-5)
        if name == "jax-conv":
            continue  # a step moves running statistics
        g, args = frameworks_job(name, name, "run.dir=eval-" + name, "optimizer.lr=1e-30",
                                 "train.steps=1", "optimizer.freeze=[\"*\"]")
        result = runs.tutti("train", *args)
        assert result.code == 0, (name, result.err)
        near([events("eval-" + name, "end")[0]["loss"]], [g["eval_loss"]], 2e-5)


def test_folders_train_to_the_same_bits():
    hashes = {}
    files = {"onnx": path_of("cnn-train"), "pt2": os.path.join(GOLDEN, "pt2/cnn.pt2"),
             "external": path_of("external")}
    for kind, path in files.items():
        folder = kind + " folder"
        result = runs.tutti("import", path, "--out", folder)
        assert result.code == 0, result.err
        again = runs.tutti("import", folder, "--out", folder + "2")
        assert again.code == 0, again.err
        for name in ("graph.json", "model.safetensors"):
            with open(folder + "/" + name, "rb") as a, open(folder + "2/" + name, "rb") as b:
                assert a.read() == b.read(), (kind, name)
        for source in (path, folder):
            args = layers_job(source)[1] if kind == "external" else \
                ["model.file=" + source] + onnx_job("cnn-train")[1:]
            shutil.rmtree("run", ignore_errors=True)
            result = runs.tutti("train", *args, "optimizer.lr=0.1", "run.dir=run")
            assert result.code == 0, result.err
            hashes.setdefault(kind, set()).add(events("run", "end")[0]["params_hash"])
            # The run needs neither the file nor the folder.
            shutil.rmtree("moved", ignore_errors=True)
            os.rename("run", "moved")
            assert runs.tutti("eval", "moved").code == 0
    assert all(len(h) == 1 for h in hashes.values()), hashes
    runs.tutti("import", files["onnx"], "--out", "onnx folder").expect(1, "is not empty")
    runs.tutti("import", files["onnx"]).expect(2, "--out DIR")
    runs.tutti("import", "--operators").expect(0, "aten.add.Tensor\n", "onnx.Conv\n")


def test_exported_again_they_compute_the_same():
    """Trained, written as ONNX, and read again; without batch norms, which a step would move."""
    for model in ("tokens-train", "encoder-script"):
        run, path = "again-" + model, "again-%s.onnx" % model
        args = onnx_job(model, "run.dir=" + run, "train.steps=2")
        result = runs.tutti("train", *args)
        assert result.code == 0, result.err
        result = runs.tutti("export", run, "--format", "onnx", "--out", path)
        assert result.code == 0, result.err
        args = ["model.file=" + path] + args[1:] + ["optimizer.lr=1e-30", "train.steps=1"]
        result = runs.tutti("train", *args, "run.dir=read-" + model)
        assert result.code == 0, result.err
        near([events("read-" + model, "end")[0]["loss"]], [events(run, "end")[0]["loss"]], 1e-6)


def test_one_hash_for_all_workers():
    for model in ("cnn-train", "encoder-script"):
        hashes = set()
        base = onnx_job(model, "parallel.shards=4", "train.steps=2", rows=2)
        for i, more in enumerate(([], ["-n", "2", "parallel.zero=3"],
                                  ["-n", "4", "parallel.place=processes"])):
            run = "%s-%d" % (model, i)
            result = runs.tutti("train", *base, "run.dir=" + run, *more)
            assert result.code == 0, result.err
            hashes.add(events(run, "end")[0]["params_hash"])
        assert len(hashes) == 1, (model, hashes)


def predicted(run, path):
    result = runs.tutti("predict", run, path)
    assert result.code == 0, (run, path, result.err)
    return [p["probability"] for line in result.out.splitlines()
            for p in json.loads(line)["top5"]]


def test_one_row_at_a_time():
    """Samples are predicted singly, in any number; and a shard of a training may be one row, which
    is no other dimension of size 1.  The first model has no running statistics of shards."""
    for model in ("encoder-script", "cnn-train", "frozen-script", "norms-train"):
        g = golden(model.split("-")[0])
        samples = [g["x"][i % len(g["x"])] for i in range(7)]
        for n in (1, 7):
            save_npy("%d samples.npy" % n, samples[:n])
        figures = {}
        for shards, rows in ((1, 1), (4, 2), (4, 1)):
            run = "%s-%d-%d" % (model, shards, rows)
            args = onnx_job(model, "run.dir=" + run, "train.steps=2", rows=rows)
            for more in ([], ["-n", "2"]) if shards > 1 else ([],):
                shutil.rmtree(run, ignore_errors=True)
                result = runs.tutti("train", *args, "parallel.shards=%d" % shards, *more)
                assert result.code == 0, (run, result.err)
                end = events(run, "end")[0]
                assert figures.setdefault((run, "hash"), end["params_hash"]) == end["params_hash"]
            figures[run] = predicted(run, "7 samples.npy")
            assert predicted(run, "1 samples.npy") == figures[run][:len(figures[run]) // 7]
            if model == "encoder-script":
                near(figures[run], figures[model + "-1-1"], 1e-5)


def test_what_an_export_lost_is_said():
    said = "exported for inference: 2 batch norms were folded into convolutions; export .pt2"
    runs.tutti("inspect", path_of("cnn-eval")).expect(0, said)
    result = runs.tutti("train", *onnx_job("cnn-eval", "run.dir=cnn-eval", "train.steps=1"))
    assert result.code == 0 and said in result.err + result.out, result.err
    result = runs.tutti("inspect", path_of("tokens-eval"))
    assert result.code == 0 and "parameters with equal values" in result.out, result.out
    # Names are the module's, and statistics are no parameters.
    result = runs.tutti("inspect", path_of("cnn-train"))
    for text in ("parameters: 11,", "stem.0.weight  float32[8,3,1,3]", "buffers: 4,",
                 "norm.running_mean  float32[8]", "0 not supported", "x  float32[batch,3,6,7]"):
        assert text in result.out, (text, result.out)
    for name in ("cnn-train", "frozen-train", "norms-train"):  # nothing was lost
        result = runs.tutti("inspect", path_of(name)).expect(0)
        assert "exported for inference" not in result.out, result.out


def varint(x):
    out = b""
    while x >= 128:
        out += bytes([x & 127 | 128])
        x >>= 7
    return out + bytes([x])


def field(number, value):
    """A field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(op, inputs, outputs, *attributes, name="a node"):
    return field(1, b"".join([field(1, i) for i in inputs] + [field(2, o) for o in outputs] +
                             [field(3, name), field(4, op)] + [field(5, a) for a in attributes]))


def tensor(name, dims, data, kind=1, *more):
    return field(5, b"".join([field(1, d) for d in dims] + [field(2, kind), field(8, name),
                                                            field(9, data), *more]))


def info(number, name, dims):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(number, field(1, name) + field(2, field(1, field(1, 1) + field(2, shape))))


def real(name, value):
    """An attribute that is a float."""
    return field(1, name) + b"\x15" + struct.pack("<f", value) + field(20, 1)


def number(name, value):
    """An attribute of a node: an integer."""
    return field(1, name) + field(3, value) + field(20, 2)


def inner(name, nodes, inputs, outputs):
    """An attribute of a node: a graph."""
    names = b"".join(field(11, field(1, i)) for i in inputs) + \
        b"".join(field(12, field(1, o)) for o in outputs)
    return field(1, name) + field(6, nodes + names) + field(20, 5)


IO = info(11, "x", ["n", 3, 6, 7]) + info(12, "y", ["n", 5])
W = tensor("w", [126, 5], struct.pack("<630f", *([0.1] * 630)))
BODY = node("Flatten", ["x"], ["f"]) + node("MatMul", ["f", "w"], ["y"]) + W + IO


def model(graph, opset=18):
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, opset))


def external(location, **more):
    entries = dict(location=location, **more)
    return field(5, field(1, 126) + field(1, 5) + field(2, 1) + field(8, "w") + b"".join(
        field(13, field(1, k) + field(2, v)) for k, v in entries.items()) + field(14, 1))


def test_extremes_of_no_elements_and_the_sign_of_nan():
    """The end of the type's range, as ONNX has it; a branch that is not taken may have any
    operator.  The sign of NaN is NaN, of constants and of inputs."""
    take = [inner("then_branch", node("Relu", ["x"], ["t"]), [], ["t"]),
            inner("else_branch", node("Odd", ["x"], ["e"]), [], ["e"])]
    leave = [inner("then_branch", node("Odd", ["x"], ["t"]), [], ["t"]),
             inner("else_branch", node("Relu", ["x"], ["e"]), [], ["e"])]
    flat = node("Flatten", ["r"], ["f"]) + node("MatMul", ["f", "w"], ["y"]) + W + IO
    axes = tensor("axes", [1], struct.pack("<q", 0), 7)
    for op, branches in (("ReduceMax", leave), ("ReduceMin", take)):
        with open("empty.onnx", "wb") as file:
            file.write(model(node(op, ["none", "axes"], ["c"], number("keepdims", 0)) +
                             node("If", ["c"], ["r"], *branches) + tensor("none", [0], b"", 9) +
                             axes + flat, 20))
        said = runs.tutti("inspect", "empty.onnx").expect(0, "parameters: 1").out
        assert "not trainable" not in said, said
    nan = tensor("nan", [], struct.pack("<f", float("nan")))
    with open("nan.onnx", "wb") as file:
        file.write(model(node("Sign", ["nan"], ["s"]) + node("IsNaN", ["s"], ["c"]) + nan +
                         node("If", ["c"], ["r"], *take) + flat))
    said = runs.tutti("inspect", "nan.onnx").expect(0).out
    assert "not trainable" not in said, said
    # Log of a negative number is NaN: the model counts the NaN among the signs of its inputs.
    with open("signs.onnx", "wb") as file:
        file.write(model(
            node("Log", ["x"], ["l"]) + node("Sign", ["l"], ["s"]) + node("IsNaN", ["s"], ["b"]) +
            node("Cast", ["b"], ["r"], number("to", 1)) + flat))
    rows = [[[[2.0 if (i + n) % (n + 2) else -1.0 for i in range(7)]] * 6] * 3 for n in range(4)]
    os.makedirs("data-signs", exist_ok=True)
    for split in ("train", "test"):
        save_npy("data-signs/x_%s.npy" % split, rows)
        save_npy("data-signs/y_%s.npy" % split, [[0.0] * 5] * 4)
    runs.tutti("train", "model.file=signs.onnx", "data.format=npy", "data.dir=data-signs",
               "data.fields=all", "data.label=y", "train.loss=mae", "train.batch=4",
               "train.steps=1", "parallel.shards=1", "optimizer.lr=1e-30", "run.log_every=1",
               "schedule.warmup_steps=0", "run.dir=signs").expect(0)
    lost = sum(v < 0 for row in rows for plane in row for line in plane for v in line)
    near([e["loss"] for e in events("signs", "step")], [0.1 * lost / 4], 1e-5)


def test_damaged_files_are_refused():
    base = onnx_job("cnn-train", "run.dir=none")[1:]

    def refused(code, bytes_, *texts):
        with open("bad.onnx", "wb") as file:
            file.write(bytes_)
        result = runs.tutti("train", "model.file=bad.onnx", *base)
        assert result.code == code, (texts, result.code, result.err)
        for text in ("bad.onnx",) + texts:
            assert text in result.err, (text, result.err)
        assert not os.path.exists("none"), texts

    with open("bad.onnx", "wb") as file:
        file.write(model(BODY))
    result = runs.tutti("train", "model.file=bad.onnx", *onnx_job("cnn-train", "run.dir=good")[1:])
    assert result.code == 0, result.err

    with open(path_of("cnn-train"), "rb") as file:
        whole = file.read()
    for n in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        refused(4, whole[:n], "cannot be read as an ONNX model")
    refused(4, b"\x08" + b"\x80" * 10 + b"\x01", "damaged or truncated")
    refused(4, model(BODY)[:-20] + b"\x3a" + b"\xff" * 8 + b"\x7f", "damaged or truncated")
    refused(4, field(1, 8), "it has no graph")
    sizes = tensor("sizes", [2], struct.pack("<2q", 1024, 1024), 7)  # 2**30 products
    refused(2, model(node("ConstantOfShape", ["sizes"], ["zeros"]) + sizes +
                     node("MatMul", ["zeros", "zeros"], ["much"], name="long") +
                     node("ReduceSum", ["much"], ["s"], number("keepdims", 0)) +
                     node("Flatten", ["x"], ["f"]) + node("MatMul", ["f", "w"], ["g"]) +
                     node("Add", ["g", "s"], ["y"]) + W + IO),
            "onnx.MatMul of 'long'", "steps to compute")
    for op, inputs in (("BatchNormalization", 4), ("InstanceNormalization", 2),
                       ("LayerNormalization", 2)):
        n = 7 if op[0] == "L" else 3
        names = ["scale", "bias", "mean", "var"][:inputs]
        refused(2, model(node(op, ["x"] + names, ["n"], real("epsilon", 0)) +
                         node("Flatten", ["n"], ["f"]) + node("MatMul", ["f", "w"], ["y"]) +
                         b"".join(tensor(name, [n], struct.pack("<f", 1) * n) for name in names) +
                         W + IO),
                op, "eps=0 is not supported; export the model with a positive one")
    refused(2, model(BODY, 12), "opset 12 is not supported, only 13 to 24")
    refused(2, model(BODY, 25), "opset 25 is not supported")
    refused(4, model(node("Relu", ["gone"], ["y"]) + IO), "'a node' (Relu)",
            "value 'gone' is used before it is defined")
    refused(4, model(node("Relu", ["y"], ["y"]) + IO), "used before it is defined")
    refused(4, model(node("Relu", ["x"], ["y"]) * 2 + IO), "value 'y' is defined twice")
    refused(4, model(node("Relu", ["x"], ["z"]) + IO), "no node computes the output 'y'")
    refused(4, model(BODY.replace(W, tensor("w", [126, 5], b"1234"))), "tensor 'w'",
            "it has 4 bytes of data, its shape needs 2520")
    refused(4, model(BODY.replace(W, tensor("w", [1 << 62, 1 << 62], b""))), "too many elements")
    refused(4, model(BODY.replace(W, tensor("w", [(1 << 64) - 1], b""))), "dimension is negative")
    refused(2, model(BODY.replace(W, tensor("w", [126, 5], b"", 8))), "string) is not supported")
    refused(2, model(node("Odd", ["x"], ["a"], name="one") + node("Odd", ["a"], ["b"], name="two") +
                     node("Rare", ["b"], ["y"], name="three") + IO),
            "2 operators are not supported", "onnx.Rare (1, first in 'three')",
            "onnx.Odd (2, first in 'one')")
    refused(2, model(node("Softmax", ["x"], ["y"], field(1, "axis") + field(3, 9) + field(20, 2)) +
                     IO), "onnx.Softmax of 'a node'", "dimension 9")
    refused(2, model(node("Relu", ["x"], ["y"]) + info(11, "x", ["n", "c", 6, 7]) +
                     info(12, "y", ["n"])), "dimension 1 of input 'x' is dynamic (c)")
    refused(2, model(node("Softmax", ["x"], ["y"], field(1, "axis") + field(3, 0) + field(20, 2)) +
                     info(11, "x", [3, 3, 6, 7]) + info(12, "y", ["n"])),
            "was exported for a batch of 3", "in module 'a node'")
    # Graphs inside nodes.
    branch = inner("then_branch", node("Relu", ["x"], ["t"]), [], ["t"])
    other = inner("else_branch", node("Odd", ["x"], ["e"]), [], ["e"])
    of_data = node("ReduceSum", ["x"], ["s"]) + node("Cast", ["s"], ["c"], number("to", 9))
    refused(2, model(of_data + node("If", ["c"], ["y"], branch, other, name="choice") + IO),
            "onnx.If of 'choice': its condition depends on the model's inputs")
    refused(2, model(node("If", ["x"], ["y"], branch, name="choice") + IO),
            "no graph 'else_branch'")
    refused(4, model(node("If", ["x"], ["y"], branch,
                          inner("else_branch", b"", [], ["gone"]), name="choice") + IO),
            "node 'choice' (If)", "no node computes the output 'gone'")
    refused(4, model(node("If", ["x"], ["y"], branch,
                          inner("else_branch", node("Relu", ["gone"], ["e"]), [], ["e"])) + IO),
            "value 'gone' is used before it is defined")
    count = tensor("m", [], struct.pack("<q", 1 << 40), 7)
    body = inner("body", node("Identity", ["lc"], ["lo"]) + node("Relu", ["v"], ["w"]),
                 ["i", "lc", "v"], ["lo", "w"])
    refused(2, model(node("Loop", ["m", "", "x"], ["y"], body, name="long") + count + IO),
            "onnx.Loop of 'long': loops are unrolled, and have more than 131072 nodes in all")
    refused(2, model(node("Loop", ["", "", "x"], ["y"], body, name="endless") + IO),
            "onnx.Loop of 'endless': loops are unrolled")
    refused(2, model(node("ReduceSum", ["x"], ["s"]) + node("Cast", ["s"], ["m"], number("to", 7)) +
                     node("Loop", ["m", "", "x"], ["y"], body, name="open") + IO),
            "onnx.Loop of 'open': the number of iterations depends on the model's inputs")
    refused(2, model(node("Loop", ["m", ""], ["y"], body, name="few") + count + IO),
            "onnx.Loop of 'few': its body does not fit the call")
    refused(2, model(node("Scan", ["x"], ["y"], inner("body", node("Relu", ["v"], ["w"]), ["v"],
                                                      ["w"]), number("num_scan_inputs", 2)) + IO),
            "onnx.Scan of 'a node': its body does not fit the call")
    deep = node("Relu", ["x"], ["y"])
    for _ in range(20):
        deep = node("If", ["x"], ["y"], inner("then_branch", deep, [], ["y"]), other)
    refused(2, model(deep + IO), "graphs inside graphs, more than 16 deep")
    # Data beside the model: inside of its folder, and as long as its shape says.
    for location in ("../data", "/etc/passwd", "a/../../data", ""):
        refused(4, model(BODY.replace(W, external(location))), "not inside of the model's folder")
    refused(4, model(BODY.replace(W, external("gone"))), "data file 'gone' is not there")
    with open("short", "wb") as file:
        file.write(b"1234")
    refused(4, model(BODY.replace(W, external("short"))), "shorter than the model says")
    refused(4, model(BODY.replace(W, external("short", length="9"))), "its data has 9 bytes")
    refused(4, model(BODY.replace(W, external("short", offset="x"))), "an offset is not a number")
    os.makedirs("elsewhere", exist_ok=True)
    with open("elsewhere/data", "wb") as file:
        file.write(bytes(2520))
    os.makedirs("inner", exist_ok=True)
    os.symlink("../elsewhere/data", "inner/link")
    with open("inner/bad.onnx", "wb") as file:
        file.write(model(BODY.replace(W, external("link"))))
    result = runs.tutti("train", "model.file=inner/bad.onnx", *base)
    assert result.code == 4 and "not inside of the model's folder" in result.err, result.err


def test_damaged_folders_are_refused():
    assert runs.tutti("import", path_of("cnn-script"), "--out", "folder").code == 0
    with open("folder/graph.json") as file:
        text = file.read()

    def refused(code, changed, *texts):
        with open("folder/graph.json", "w") as file:
            file.write(changed)
        result = runs.tutti("inspect", "folder")
        assert result.code == code, (texts, result.code, result.err)
        for part in texts:
            assert part in result.err, (part, result.err)

    refused(4, text[:100], "graph.json")
    refused(2, text.replace('"version": 1', '"version": 2'), "version 2")
    refused(4, text.replace('"path_name": "head.bias"', '"path_name": "gone"'), "'gone'")
    refused(4, text.replace('"dtype": 7', '"dtype": 8'), "in another type")
    refused(4, text.replace('"name": "x"', '"name": "odd"', 1), "folder")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
