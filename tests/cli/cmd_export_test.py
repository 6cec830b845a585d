"""cmd_export_test.py - runs as files of other programs, and back: `tutti export`, model.init.

What is written is read here by a reader of its own, a dozen lines of Python."""

import json
import os
import struct
import sys

import runs

GPT2 = ["model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=16", "model.context=24",
        "data.format=text", "data.dir=text", "data.context=16", "data.tokenizer=bytes",
        "train.batch=8", "train.steps=3", "optimizer.name=adamw", "parallel.shards=2"]
RESNET = ["model.name=resnet18", "model.stem=cifar", *runs.small_images(), "data.n_train=4",
          "data.n_test=2", "train.batch=4", "train.steps=1", "parallel.shards=2"]
FROZEN = ["optimizer.freeze=*", "train.steps=1"]


def read(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__")
    return {name: (info["dtype"], info["shape"],
                   data[8 + n + info["data_offsets"][0]:8 + n + info["data_offsets"][1]])
            for name, info in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def expect_equal(a, b):
    if a != b:
        raise AssertionError("tensors differ: %s" % [n for n in a if a[n] != b.get(n)])


def text_data():
    os.mkdir("text")
    with open("text/input.txt", "w") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 60)


def train(folder, *more):
    return runs.tutti("train", "run.dir=" + folder, *more)


def export(run, form, out, *more):
    return runs.tutti("export", run, "--format", form, "--out", out, *more)


def test_gpt2_goes_to_hugging_face_and_back():
    text_data()
    train("run", *GPT2).expect(0)
    export("run", "hf", "hf").expect(0, "28 tensors")
    export("run", "safetensors", "own").expect(0)
    export("run", "hf", "split", "--max-shard-bytes", "9000").expect(0, "files")
    with open("hf/config.json") as file:
        config = json.load(file)
    want = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 24, "vocab_size": 256}
    if {key: config[key] for key in want} != want:
        raise AssertionError("config.json: %s" % config)
    theirs, ours = read("hf/model.safetensors"), read("own/model.safetensors")
    name = "transformer.h.1.attn.c_attn.weight"
    if theirs[name][1] != [16, 48] or ours[name][1] != [48, 16]:
        raise AssertionError("not transposed: %s" % theirs[name][1])
    rows = [struct.unpack_from("<16f", ours[name][2], 64 * i) for i in range(48)]
    if theirs[name][2] != b"".join(struct.pack("<48f", *column) for column in zip(*rows)):
        raise AssertionError("the transposed elements differ")
    for source in ("hf", "own", "split", "hf/model.safetensors"):
        back = source.replace("/", "-") + "-back"
        train(back + "-run", *GPT2, *FROZEN, "model.init=" + source).expect(0)
        export(back + "-run", "hf", back).expect(0)
        expect_equal(theirs, read(back + "/model.safetensors"))


def test_names_of_the_hub():
    """No prefix, buffers that are no parameters, the tied head."""
    text_data()
    train("run", *GPT2).expect(0)
    export("run", "hf", "hf").expect(0)
    wanted = read("hf/model.safetensors")
    hub = {name[len("transformer."):]: tensor for name, tensor in wanted.items()}
    hub["h.0.attn.bias"] = ("U8", [1, 1, 2, 2], b"\1\0\1\1")
    hub["h.1.attn.masked_bias"] = ("F32", [], b"\0\0\0\0")
    hub["lm_head.weight"] = wanted["transformer.wte.weight"]
    os.mkdir("hub")
    write("hub/model.safetensors", hub)
    hashes = set()
    for workers in ("1", "2"):
        run = "hub-run-" + workers
        train(run, *GPT2, *FROZEN, "model.init=hub", "-n", workers).expect(0)
        hashes.add(runs.records(run)[-1]["params_hash"])
    export("hub-run-2", "hf", "back").expect(0)
    expect_equal(wanted, read("back/model.safetensors"))
    if len(hashes) != 1:
        raise AssertionError("workers differ: %s" % hashes)


def test_weights_that_do_not_fit():
    text_data()
    train("run", *GPT2).expect(0)
    export("run", "hf", "hf").expect(0)
    for key, value, said in (("layers", 3, '"n_layer" is 2'), ("width", 8, '"n_embd" is 16'),
                             ("context", 20, '"n_positions" is 24'), ("heads", 4, '"n_head" is 2')):
        given = "model.%s=%d" % (key, value)
        train("a", *GPT2, "model.init=hf", given).expect(
            2, "hf/config.json: " + said, "the job says " + given)
    os.remove("hf/config.json")
    train("b", *GPT2, "model.init=hf", "model.layers=1").expect(2, "the tensors have n_layer = 2")
    with open("hf/config.json", "w") as file:
        json.dump({"n_layer": 3}, file)
    job = [a for a in GPT2 if a != "model.layers=2"]
    train("c", *job, "model.init=hf").expect(
        4, "hf: does not match", "(12 tensors)", "h.2.ln_2.weight is missing", "; ...")
    with open("hf/config.json", "w") as file:
        json.dump({"n_layer": 1}, file)
    train("d", *job, "model.init=hf").expect(4, "is not in the model")
    train("e", *GPT2, "model.init=nothing").expect(4, "nothing")
    with open("hf/model.safetensors", "r+b") as file:
        file.truncate(20000)
    train("f", *GPT2, "model.init=hf").expect(4, "truncated")


def test_resnet_has_torchvision_names_and_a_new_head():
    train("run", *RESNET).expect(0)
    export("run", "torchvision", "tv").expect(0, "122 tensors")
    export("run", "hf", "made").expect(2, "cannot describe a resnet with model.stem=cifar")
    tensors = read("tv/model.safetensors")
    counter = tensors["layer4.1.bn2.num_batches_tracked"]
    if counter != ("I64", [], struct.pack("<q", 1)):
        raise AssertionError("num_batches_tracked: %s" % (counter,))
    train("back", *RESNET, *FROZEN, "model.init=tv", "model.init_except=fc.*").expect(0)
    export("back", "torchvision", "tv2").expect(0)
    again = read("tv2/model.safetensors")
    for name in tensors:
        kept = "running" not in name and not name.startswith("fc.")
        if kept and tensors[name] != again[name]:
            raise AssertionError("%s differs" % name)
    if tensors["fc.bias"] == again["fc.bias"]:
        raise AssertionError("fc.bias was taken, though excepted")


def test_resnet_goes_to_hugging_face():
    """A model that transformers has run, and the way back: tests/golden/exchange_golden_test.c."""
    job = [a for a in RESNET if a != "model.stem=cifar"]
    train("run", *job).expect(0)
    export("run", "hf", "hf").expect(0, "122 tensors")
    export("run", "torchvision", "tv").expect(0)
    ours, theirs = read("tv/model.safetensors"), read("hf/model.safetensors")
    for a, b in {"layer2.0.downsample.1.running_var":
                 "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_var",
                 "bn1.num_batches_tracked":
                 "resnet.embedder.embedder.normalization.num_batches_tracked"}.items():
        if ours[a] != theirs[b]:
            raise AssertionError("%s is not %s" % (a, b))
    with open("hf/config.json") as file:
        config = json.load(file)
    if (config["depths"], config["hidden_sizes"], config["num_channels"], config["layer_type"]) != (
            [2, 2, 2, 2], [64, 128, 256, 512], 1, "basic"):
        raise AssertionError("config.json: %s" % config)
    config["downsample_in_bottleneck"] = True
    with open("hf/config.json", "w") as file:
        json.dump(config, file)
    train("refused", *job, "model.init=hf").expect(
        2, 'hf/config.json: "downsample_in_bottleneck" is true', "supports: false")


def test_bert_goes_to_hugging_face_and_back():
    text_data()
    job = [a for a in GPT2 if not a.startswith("model.name")] + ["model.name=bert"]
    train("run", *job).expect(0)
    export("run", "hf", "hf").expect(0)
    with open("hf/config.json") as file:
        if json.load(file)["architectures"] != ["BertForMaskedLM"]:
            raise AssertionError("architectures")
    tensors = read("hf/model.safetensors")
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                                                                    "LayerNorm.beta"): t
           for n, t in tensors.items()}
    old["bert.embeddings.position_ids"] = ("I64", [1], b"\0" * 8)
    write("old.safetensors", old)
    train("back", *job, *FROZEN, "model.init=old.safetensors").expect(0)
    export("back", "hf", "again").expect(0)
    expect_equal(tensors, read("again/model.safetensors"))


def varint(data, at):
    x = shift = 0
    while True:
        x |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return x, at


def fields(data):
    """The (number, value) pairs of a protobuf message."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            n, at = varint(data, at) if key & 7 == 2 else (4, at)
            value, at = data[at:at + n], at + n
        found.append((key >> 3, value))
    return found


def check_onnx(path, weights):
    """Every value is made before it is used, parameters have their bytes; gives the ops used."""
    with open(path, "rb") as file:
        model = dict(fields(file.read()))
    graph = fields(model[7])
    tensors = {dict(fields(value))[8].decode(): dict(fields(value))[9]
               for number, value in graph if number == 5}
    known = set(tensors) | {dict(fields(value))[1].decode() for n, value in graph if n == 11}
    for name, (_, _, data) in weights.items():
        if name in tensors and tensors[name] != data:
            raise AssertionError("%s differs" % name)
    ops = set()
    for node in (fields(value) for number, value in graph if number == 1):
        for number, value in node:
            if number == 1 and value and value.decode() not in known:
                raise AssertionError("%s is used before it is made" % value)
        known |= {value.decode() for number, value in node if number == 2}
        ops.add(dict(node)[4].decode())
    if "logits" not in known or not set(weights) & set(tensors):
        raise AssertionError("no logits, or no parameters")
    return ops


def test_onnx_has_every_model():
    text_data()
    languages = {"gpt2": "Softmax", "bert": "LayerNormalization", "lstm": "LSTM"}
    for model, op in languages.items():
        train(model, *GPT2, "model.name=" + model).expect(0)
    train("resnet18", *RESNET).expect(0)
    for model, op in {"resnet18": "BatchNormalization", **languages}.items():
        export(model, "onnx", model + ".onnx").expect(0)
        export(model, "safetensors", model + "-own").expect(0)
        ops = check_onnx(model + ".onnx", read(model + "-own/model.safetensors"))
        if op not in ops:
            raise AssertionError("%s has no %s: %s" % (model, op, ops))


SWIN = ["model.name=swin", "model.width=8", "model.window=4", "model.depths=[2,2,1,1]"]


def compare_with_onnxruntime(run, keys):
    import numpy
    import onnx
    import onnxruntime
    train(run, *keys, "data.n_train=64", "data.n_test=8", "train.batch=16",
          "train.steps=8", "data.mean=0.5", "data.std=0.25").expect(0)
    export(run, "onnx", run + ".onnx").expect(0)
    onnx.checker.check_model(run + ".onnx", full_check=True)
    pixels = numpy.random.default_rng(1).integers(0, 256, (5, 28, 28), dtype=numpy.uint8)
    with open("images", "wb") as file:
        file.write(struct.pack(">4BIII", 0, 0, 8, 3, 5, 28, 28) + pixels.tobytes())
    lines = runs.tutti("predict", run, "images").expect(0).out.splitlines()
    session = onnxruntime.InferenceSession(run + ".onnx")
    logits = session.run(None, {"x": pixels[:, None]})[0]  # raw: the graph normalizes
    p = numpy.exp(logits) / numpy.exp(logits).sum(1, keepdims=True)
    for row, line in zip(p, lines):
        said = json.loads(line)
        if abs(said["probability"] - row.max()) > 1e-5:
            raise AssertionError("%s instead of %s" % (row.max(), line))


def test_onnx_computes_the_same():
    """Where onnxruntime is installed: probabilities of images as `tutti predict` gives them."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return
    compare_with_onnxruntime("lenet", ["model.name=lenet"])
    compare_with_onnxruntime("swin", SWIN)
    # Shards of one sample, and of as many as a constant has rows: the batch is free all the same.
    compare_with_onnxruntime("swin-1", [*SWIN, "parallel.shards=16"])
    compare_with_onnxruntime("swin-2", [*SWIN, "parallel.shards=1"])


def test_usage():
    train("run", *runs.SMALL, "train.steps=1").expect(0)
    export("run", "hf", "made").expect(2, "format hf is for gpt2, bert and resnet")
    export("run", "torchvision", "made").expect(2, "names (convnext, densenet", "swin, vgg, vit)")
    export("run", "pickle", "made").expect(2, "--format must be")
    runs.tutti("export", "run", "--format", "safetensors").expect(2, "--out PATH is missing")
    export("run", "safetensors", "made", "--max-shard-bytes", "-1").expect(2, "from 0")
    if os.path.exists("made"):
        raise AssertionError("a refused export has made a folder")
    os.mkdir("full")
    with open("full/file", "w"):
        pass
    export("run", "safetensors", "full").expect(1, "is not empty")
    export("nowhere", "safetensors", "made").expect(2, "nowhere")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
