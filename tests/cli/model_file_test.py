#!/usr/bin/env python3
"""tutti train model.file=FILE.pt2: models that PyTorch exported have PyTorch's losses, one hash for
any number of workers, and their own names; a run needs the file no longer."""

import array
import atexit
import functools
import json
import os
import shutil
import struct
import sys
import tempfile
import zipfile

import runs

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
NAMES = ("cnn", "tokens", "encoder", "experts", "heads", "volume", "equations", "zoo", "frozen",
         "norms", "standardized", "windows", "choices", "places", "composed", "parts", "functions",
         "signs", "phases", "routed", "columns", "taken", "moved", "made", "returned", "written",
         "shared", "fixed", "hidden", "matched", "gathered", "resized", "put", "strided",
         "positions", "terms", "rounded")


def flat(values):
    return [x for v in values for x in flat(v)] if isinstance(values, list) else [values]


def shape_of(values):
    return (len(values),) + shape_of(values[0]) if isinstance(values, list) else ()


def save_npy(path, values):
    numbers = flat(values)
    kind = "f" if isinstance(numbers[0], float) else "i"
    head = "{'descr': '<%s4', 'fortran_order': False, 'shape': (%s), }" % (
        kind, "".join("%d," % n for n in shape_of(values)))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                   array.array(kind, numbers).tobytes())


def golden(name):
    with open(os.path.join(GOLDEN, "pt2.json")) as file:
        return json.load(file)[name]


def job(name, *more, data="data", rows=1):
    """The arguments of a job that trains on the golden batch, `rows` times."""
    g = golden(name)
    os.makedirs(data, exist_ok=True)
    for split in ("train", "test"):
        save_npy("%s/x_%s.npy" % (data, split), g["x"] * rows)
        save_npy("%s/y_%s.npy" % (data, split), g["y"] * rows)
    return ["model.file=" + os.path.join(GOLDEN, "pt2", name + ".pt2"), "data.format=npy",
            "data.dir=" + data, "data.classes=%d" % len(g["logits"]),
            "train.batch=%d" % (len(g["x"]) * rows), "train.steps=5", "parallel.shards=1",
            "optimizer.name=sgd", "optimizer.lr=0.05", "optimizer.momentum=0",
            "optimizer.weight_decay=0", "schedule.warmup_steps=0", "run.log_every=1", *more]


def events(run, kind):
    with open(run + "/metrics.jsonl") as file:
        return [e for e in map(json.loads, file) if e["event"] == kind]


def near(got, want, tolerance):
    assert len(got) == len(want), (got, want)
    for x, y in zip(got, want):
        assert abs(x - y) <= tolerance * max(1, abs(y)), (got, want)


@functools.lru_cache(maxsize=None)
def trained(name):
    """The run of the golden batch, once for all tests of a script."""
    folder = tempfile.mkdtemp(prefix="tutti-once-", dir=runs.folder_in_memory())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run = os.path.join(folder, name)
    runs.tutti("train", *job(name, "run.dir=" + run, data=run + "-data")).expect(0)
    return run


def test_losses_are_pytorchs():
    for name in NAMES:
        wide, own = golden(name)["losses"], golden(name)["losses_f32"]
        error = max(abs(x - y) for x, y in zip(wide, own))  # how far a correct f32 may be off
        near([e["loss"] for e in events(trained(name), "step")], wide, max(2e-6, 10 * error))


def test_evaluation_is_pytorchs():
    """In evaluation mode, whatever mode was exported; parameters are those of the file."""
    for name in NAMES:
        args = job(name, "run.dir=" + name, "optimizer.lr=1e-12", "train.steps=1",
                   "optimizer.freeze=[\"*\"]", data="data-" + name)
        if name not in ("tokens", "encoder", "norms", "standardized", "windows"):
            continue  # the step moves running statistics
        result = runs.tutti("train", *args)
        assert result.code == 0, result.err
        near([events(name, "end")[0]["loss"]], [golden(name)["eval_loss"]], 2e-6)


LAYOUTS = (["-n", "2", "parallel.zero=3"], ["-n", "4", "parallel.place=processes"])


def one_hash(layouts_of):
    """layouts_of(number): those in which the model of that number trains, besides one worker."""
    for number, name in enumerate(NAMES):
        hashes = set()
        base = job(name, "parallel.shards=4", "train.steps=2", data="data-" + name, rows=2)
        for i, more in enumerate(([], *layouts_of(number))):
            run = "%s-%d" % (name, i)
            result = runs.tutti("train", *base, "run.dir=" + run, *more)
            assert result.code == 0, result.err
            hashes.add(events(run, "end")[0]["params_hash"])
        assert len(hashes) == 1, (name, hashes)


def test_one_hash_for_all_workers():
    """One of the layouts for each model; model_file_slow_test.py has all of them."""
    one_hash(lambda number: [LAYOUTS[number % 2]])


def test_devices_start_with_the_parameters_of_the_file():
    """With averages, and where the state is whole on a device, partitioned or on the host."""
    program, runs.PROGRAM = runs.PROGRAM, runs.program_with("device")
    try:
        base = job("encoder", "parallel.shards=4", "train.steps=2", "train.ema=0.9",
                   "train.precision=f32", rows=2)
        hashes = set()
        for i, more in enumerate((["parallel.devices=cpu"], ["parallel.devices=gpu"],
                                  ["parallel.devices=gpu", "-n", "2"],
                                  ["parallel.devices=gpu", "-n", "2", "parallel.zero=1"],
                                  ["parallel.devices=gpu", "parallel.offload=optimizer"])):
            result = runs.tutti("train", *base, "run.dir=%d" % i, *more,
                                env=dict(os.environ, TUTTI_TEST_DEVICE="peers=1,devices=2"))
            assert result.code == 0, result.err
            end = events("%d" % i, "end")[0]
            hashes.add((end["params_hash"], end["loss"]))  # the loss is that of the averages
        assert len(hashes) == 1, hashes
    finally:
        runs.PROGRAM = program


def test_buffers_that_a_model_changes():
    """Vectors of a spectral norm, a running mean, a batch norm of several calls: the same bits in
    all layouts, also on devices; a pipeline is refused by the buffer's name, and what a run leaves
    is what PyTorch leaves."""
    for name in ("moved", "shared"):
        state = exported(trained(name), "state-dict", "left-" + name)
        for key, values in golden(name)["left"].items():
            kind, data = state[key]
            if key.endswith("num_batches_tracked"):
                continue
            got = list(struct.unpack("<%d%s" % (len(data) // 4 if kind == "F32" else 1,
                                                "f" if kind == "F32" else "q"), data))
            near(got, flat([values]) if kind == "F32" else [0], 2e-6)  # a counter stays
    for name, refusal in (("moved", "a step reads and changes the buffer 'center'"),
                          ("shared", "several calls of a batch norm share the buffer ")):
        base = job(name, "parallel.shards=4", "train.steps=3", data="layouts-" + name, rows=2)
        check_layouts(name, base)
        runs.tutti("train", *base, "run.dir=cut-" + name, "-n", "2",
                   "parallel.pipeline=2").expect(2, refusal)


def check_layouts(name, base):
    program = runs.PROGRAM
    try:
        for kind, env in ((None, None), ("device", dict(os.environ,
                                                        TUTTI_TEST_DEVICE="peers=1,devices=2"))):
            runs.PROGRAM = runs.program_with(kind) if kind else program
            hashes = set()
            more = ["parallel.devices=gpu"] if kind else []
            for i, layout in enumerate((["-n", "1"], ["-n", "2"], ["-n", "2", "parallel.zero=3"],
                                        ["-n", "2", "parallel.sync=parameter-server"])):
                run = "%s-%s-%d" % (name, kind, i)
                runs.tutti("train", *base, *more, *layout, "run.dir=" + run, env=env).expect(0)
                hashes.add(events(run, "end")[0]["params_hash"])
            assert len(hashes) == 1, (name, kind, hashes)
    finally:
        runs.PROGRAM = program


def test_parameters_without_requires_grad_stay():
    """They are frozen, from the file and from a folder that tutti import wrote."""
    fixed = ("a.bias", "a.weight", "n.weight", "place")
    args = job("fixed", "optimizer.weight_decay=0.5", data="fixed")
    runs.tutti("import", args[0].split("=", 1)[1], "--out", "folder").expect(0)
    hashes, states = set(), []
    for more in ([], ["model.file=folder"], ["train.steps=1", "optimizer.lr=1e-30"]):
        run = "fixed-%d" % len(states)
        runs.tutti("train", *args, "run.dir=" + run, *more).expect(0)
        hashes.add(events(run, "end")[0]["params_hash"])
        states.append(exported(run, "state-dict", run + "-state"))
    after, _, before = states
    assert len(hashes) == 2, hashes
    assert {name for name in before if before[name] == after[name]} == set(fixed), after
    listed = runs.tutti("inspect", "folder").out
    assert listed.count("frozen (requires_grad=False)") == len(fixed), listed


KEPT = ("bias", "limit", "target.bias", "target.weight")


def test_parameters_that_no_gradient_reaches_stay():
    """As in PyTorch: no decay, no state; one with a gradient of zeros decays.  They are named once,
    saved and exported, and all layouts agree."""
    args = job("routed", "run.dir=once", "optimizer.name=adamw", "optimizer.weight_decay=0.5",
               data="routed")
    result = runs.tutti("train", *args)
    assert result.code == 0, result.err
    g = golden("routed")
    error = max(abs(x - y) for x, y in zip(g["losses_decayed"], g["losses_decayed_f32"]))
    near([e["loss"] for e in events("once", "step")], g["losses_decayed"], max(2e-6, 10 * error))
    said = [e["text"] for e in events("once", "warning") if "no gradient" in e["text"]]
    assert len(said) == 1 and "reaches 4 parameters" in said[0], said
    assert all(name in said[0] for name in KEPT) and "level" not in said[0], said
    after = exported("once", "state-dict", "after")
    assert set(after) == set(g["names"]), set(after)
    start = job("routed", "run.dir=start", "train.steps=1", "optimizer.lr=1e-30", data="routed")
    assert runs.tutti("train", *start).code == 0
    before = exported("start", "state-dict", "before")
    assert {name for name in before if before[name] == after[name]} == set(KEPT), after
    hashes = set()
    for i, more in enumerate(([], ["-n", "2", "parallel.zero=3"], ["-n", "2", "parallel.zero=1"],
                              ["-n", "2", "parallel.pipeline=2"],
                              ["-n", "4", "parallel.place=processes"],
                              ["-n", "2", "parallel.sync=parameter-server"])):
        run = "layout-%d" % i
        base = job("routed", "parallel.shards=4", "train.steps=3", "optimizer.name=adamw",
                   "optimizer.weight_decay=0.5", "train.clip_norm=0.1", data="layouts", rows=2)
        result = runs.tutti("train", *base, "run.dir=" + run, *more)
        assert result.code == 0, (more, result.err)
        hashes.add(events(run, "end")[0]["params_hash"])
        state = exported(run, "state-dict", run + "-state")
        assert all(state[name] == before[name] for name in KEPT), more
    assert len(hashes) == 1, hashes


def test_a_run_needs_the_file_no_longer():
    name = "tokens"
    args = job(name, "run.dir=run")
    shutil.copy(os.path.join(GOLDEN, "pt2", name + ".pt2"), "my model.pt2")
    args[0] = "model.file=my model.pt2"
    assert runs.tutti("train", *args).code == 0
    before = runs.tutti("eval", "run")
    assert before.code == 0, before.err
    os.rename("my model.pt2", "gone")
    os.rename("run", "moved")
    after = runs.tutti("eval", "moved")
    assert after.code == 0, after.err
    assert [line for line in after.out.splitlines() if line.startswith("loss")] == \
        [line for line in before.out.splitlines() if line.startswith("loss")]
    assert runs.tutti("train", "--resume", "moved", "train.steps=6").code == 0


def exported(run, form, folder):
    """Tensors of an exported run by name: (dtype, bytes)."""
    result = runs.tutti("export", run, "--format", form, "--out", folder)
    assert result.code == 0, result.err
    with open(folder + "/model.safetensors", "rb") as file:
        whole = file.read()
    n, = struct.unpack("<Q", whole[:8])
    head = json.loads(whole[8:8 + n])
    head.pop("__metadata__", None)
    return {name: (t["dtype"], whole[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in head.items()}


def test_a_state_dict_is_whole():
    """Counters of batch norms too, and what the graph knows has the run's values."""
    for name in NAMES:
        state, own = (exported(trained(name), form, name + form)
                      for form in ("state-dict", "safetensors"))
        assert set(state) == set(golden(name)["names"]), set(state)
        for key, tensor in state.items():
            if key in own:
                assert tensor == own[key], key
            elif key.endswith("num_batches_tracked"):
                n = 0 if (name, key[:2]) == ("frozen", "n.") else 5
                assert tensor == ("I64", struct.pack("<q", n)), (key, tensor)
    result = runs.tutti(*runs.small("built-in"))
    assert result.code == 0, result.err
    result = runs.tutti("export", "built-in", "--format", "state-dict", "--out", "none")
    assert result.code == 2 and "for models of model.file" in result.err, result.err


def test_what_cannot_be_honored_is_refused():
    def refused(code, text, *args):
        result = runs.tutti("train", *args, "run.dir=none")
        assert result.code == code and text in result.err, (code, text, result.err)
        assert not os.path.exists("none"), text

    cnn = job("cnn")
    refused(2, "not from both", *cnn, "model.plugin=x.so")
    refused(2, "describes a built-in model", *cnn, "model.name=mlp")
    refused(2, "describes a built-in model", *cnn, "model.dropout=0.1")
    refused(4, "cannot open", *cnn, "model.file=nowhere.pt2")
    tokens = job("tokens", data="tokens")
    refused(2, "input 'x' has 4 dimensions", *tokens, cnn[0])
    with open(cnn[0].split("=")[1], "rb") as file:
        whole = file.read()
    for n in (0, 10, len(whole) // 2, len(whole) - 1):
        with open("cut.pt2", "wb") as file:
            file.write(whole[:n])
        refused(4, "zip archive", *cnn, "model.file=cut.pt2")
    for old, new, code, text in (
            (b'"major": 8', b'"major": 9', 4, "checksum"),):
        with open("bad.pt2", "wb") as file:
            file.write(whole.replace(old, new))
        refused(code, text, *cnn, "model.file=bad.pt2")


def rewritten(name, path, change):
    """A copy of a model whose JSON went through change."""
    with zipfile.ZipFile(os.path.join(GOLDEN, "pt2", name + ".pt2")) as source, \
            zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            if entry.endswith("/model.json"):
                model = json.loads(data)
                change(model)
                data = json.dumps(model).encode()
            target.writestr(zipfile.ZipInfo(entry), data)


def test_graphs_that_are_not_supported():
    def refused(change, code, *texts):
        rewritten("cnn", "changed.pt2", change)
        result = runs.tutti("train", *job("cnn", "model.file=changed.pt2", "run.dir=none"))
        assert result.code == code, (texts, result.err)
        for text in texts:
            assert text in result.err, (text, result.err)

    def version(model):
        model["schema_version"]["major"] = 9
    refused(version, 2, "schema version 9.", "only 8")

    def unknown(model):
        for node in model["graph_module"]["graph"]["nodes"]:
            if "conv2d" in node["target"] or "cat" in node["target"]:
                node["target"] += "x"
    refused(unknown, 2, "2 operators are not supported",
            "aten.cat.defaultx (1, first in 'the model')",
            "aten.conv2d.defaultx (2, first in 'stem.0')")

    def argument(model):
        model["graph_module"]["graph"]["nodes"][0]["inputs"].append(
            {"name": "odd", "arg": {"as_int": 1}, "kind": 1})
    refused(argument, 2, "aten.conv2d.default of 'stem.0'", "an argument that is not supported")

    def dangling(model):
        model["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"]["as_tensor"]["name"] = "odd"
    refused(dangling, 4, "value 'odd' is used before it is defined")

    def twice(model):
        nodes = model["graph_module"]["graph"]["nodes"]
        nodes[1]["outputs"] = nodes[0]["outputs"]
    refused(twice, 4, "is defined twice")

    def dynamic(model):
        sizes = model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[2] = {"as_expr": {"expr_str": "s5", "hint": None}}
    refused(dynamic, 2, "dimension 2 of input 'x' is dynamic (s5)")

    def fixed(model):
        model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_int": 3}
    rewritten("cnn", "changed.pt2", fixed)  # the batch all the same: every operator allows it
    runs.tutti("train", *job("cnn", "model.file=changed.pt2", "run.dir=fixed")).expect(0)
    runs.tutti("train", *job("cnn", "run.dir=free")).expect(0)
    assert events("fixed", "end")[0]["params_hash"] == events("free", "end")[0]["params_hash"]

    def own_statistics(model):
        """The mean that a batch norm reads is written by the model first."""
        graph = model["graph_module"]["graph"]
        name = next(n["inputs"][3]["arg"]["as_tensor"]["name"] for n in graph["nodes"]
                    if "batch_norm" in n["target"])
        graph["nodes"].insert(0, {
            "target": "torch.ops.aten.mul_.Tensor", "metadata": {}, "is_hop_single_tensor_return":
            None, "outputs": [{"as_tensor": {"name": "written"}}],
            "inputs": [{"name": "self", "arg": {"as_tensor": {"name": name}}, "kind": 1},
                       {"name": "other", "arg": {"as_tensor": {"name": name}}, "kind": 1}]})
        graph["tensor_values"]["written"] = graph["tensor_values"][name]
    refused(own_statistics, 2, "aten.batch_norm.default of 'stem.1'",
            "the model itself changes these running statistics")

    def of_complex(model):
        node = next(n for n in model["graph_module"]["graph"]["nodes"]
                    if "view_as_real" in n["target"])
        node["target"] = "torch.ops.aten.relu.default"
    rewritten("phases", "changed.pt2", of_complex)
    result = runs.tutti("train", *job("phases", "model.file=changed.pt2", "run.dir=none"))
    assert result.code == 2 and "aten.relu.default" in result.err and \
        "complex numbers are not supported" in result.err, result.err

    def no_object(model):
        model["graph_module"]["graph"]["nodes"] = 7
    refused(no_object, 4, '"nodes" is an integer')


def test_equal_constants_are_computed_once():
    """Forty tables of four million elements, each scaled and averaged: more steps than the limit
    for one model, unless equal calls are computed once."""
    def tables(model):
        graph = model["graph_module"]["graph"]
        last, nodes = "x", []

        def call(target, name, **args):
            nodes.append({"target": "torch.ops.aten." + target, "metadata": {},
                          "is_hop_single_tensor_return": None,
                          "outputs": [{"as_tensor": {"name": name}}],
                          "inputs": [{"name": key, "arg": value, "kind": 1}
                                     for key, value in args.items()]})
        for i in range(40):
            table, scaled, mean, own = ("%s_%d" % (n, i) for n in ("t", "scaled", "mean", "own"))
            call("arange.default", table, end={"as_int": 1 << 22})
            call("mul.Scalar", scaled, self={"as_tensor": {"name": table}},
                 other={"as_float": 2 / ((1 << 22) - 1)})
            call("mean.default", mean, self={"as_tensor": {"name": scaled}})
            call("mul.Tensor", own, self={"as_tensor": {"name": last}},
                 other={"as_tensor": {"name": mean}})
            last = own
        for node in graph["nodes"]:
            for item in node["inputs"]:
                if item["arg"].get("as_tensor", {}).get("name") == "x":
                    item["arg"]["as_tensor"]["name"] = last
        graph["nodes"] = nodes + graph["nodes"]
    rewritten("signs", "tables.pt2", tables)
    runs.tutti("train", *job("signs", "model.file=tables.pt2", "run.dir=tables")).expect(0)
    near([e["loss"] for e in events("tables", "step")], golden("signs")["losses"], 1e-5)


def test_inspect_lists_what_a_file_holds():
    result = runs.tutti("inspect", os.path.join(GOLDEN, "pt2", "tokens.pt2"))
    assert result.code == 0, result.err
    for text in ("exported by PyTorch", "i  int64[", "t.weight  float32[12,8]",
                 "aten.einsum.default", "0 not supported"):
        assert text in result.out, (text, result.out)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
