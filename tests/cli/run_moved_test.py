"""run_moved_test.py - a run is self-contained: for every data format, a trained run gives the same
answers from another directory after its data was moved, its training files deleted or changed."""

import array
import io
import json
import os
import random
import shutil
import struct
import sys
import tarfile
import zlib

import runs

TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 40


# ---- small data of every format: each maker fills folder data, and gives what to do with it ----

def png(seed, side=12):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data))
    draw = random.Random(seed)
    rows = b"".join(b"\0" + bytes(draw.randrange(256) for _ in range(3 * side))
                    for _ in range(side))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def npy(kind, shape, values):
    head = "{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }" % (
        kind, "".join("%d," % n for n in shape))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    code = {"f4": "f", "i4": "i"}[kind]
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + \
        array.array(code, values).tobytes()


def idx(n, side=8):
    pixels = bytes((i * i + 7 * i) % 256 for i in range(n * side * side))
    return struct.pack(">BBBBIII", 0, 0, 8, 3, n, side, side) + pixels


def digits():
    write("sample.idx", idx(3, 28))
    return {"data": [], "model": ["model.name=lenet"], "sample": "sample.idx", "drawn": True}


def random_images():
    write("sample.png", png(1))
    return {"data": ["data.image_size=12"], "model": MLP, "sample": "sample.png", "drawn": True}


def idx_files():
    for split, n in (("train", 40), ("t10k", 8)):
        write("data/%s-images-idx3-ubyte" % split, idx(n))
        write("data/%s-labels-idx1-ubyte" % split,
              struct.pack(">BBBBI", 0, 0, 8, 1, n) + bytes(i % 3 for i in range(n)))
    write("sample.idx", idx(3))
    return {"data": [], "model": MLP, "sample": "sample.idx",
            "training": ["train-images-idx3-ubyte"]}


def npy_floats():
    draw = random.Random(1)
    for split, n in (("train", 40), ("test", 8)):
        write("data/x_%s.npy" % split, npy("f4", (n, 5), [draw.random() for _ in range(5 * n)]))
        write("data/y_%s.npy" % split, npy("i4", (n,), [i % 3 for i in range(n)]))
    write("sample.npy", npy("f4", (2, 5), [draw.random() for _ in range(10)]))
    return {"data": [], "model": MLP, "sample": "sample.npy", "training": ["x_train.npy"]}


def npy_tokens():
    """The largest token is in the training split alone: the model's table has a row for it."""
    for split, n, most in (("train", 40, 20), ("test", 8, 5)):
        write("data/x_%s.npy" % split, npy("i4", (n, 6), [i * i % most for i in range(6 * n)]))
        write("data/y_%s.npy" % split, npy("i4", (n,), [i % 2 for i in range(n)]))
    write("sample.npy", npy("i4", (2, 6), list(range(4, 16))))
    return {"data": [], "model": transformer("bert", "model.head=classify"), "sample": "sample.npy",
            "training": ["x_train.npy"]}


def images():
    for split, n in (("train", 8), ("val", 3)):
        for label in ("cat", "dog", "owl"):
            for i in range(n):
                write("data/%s/%s/%d.png" % (split, label, i), png(i))
    write("sample.png", png(7, 15))
    return {"data": ["data.image_size=12"], "model": MLP, "sample": "sample.png",
            "training": ["train"]}


def tar():
    os.mkdir("data")
    for split, n in (("train", 16), ("val", 4)):
        with tarfile.open("data/%s-000.tar" % split, "w") as shard:
            for i in range(n):
                for name, data in (("%d.png" % i, png(i)), ("%d.cls" % i, b"%d" % (i % 3))):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    shard.addfile(info, io.BytesIO(data))
    write("sample.png", png(7))
    return {"data": ["data.image_size=12"], "model": MLP, "sample": "sample.png",
            "training": ["train-000.tar"]}


def packed():
    tar()
    runs.tutti("data", "pack", "data.format=tar", "data.dir=data", "data.image_size=12", "--out",
               "made").expect(0)
    shutil.rmtree("data")
    os.rename("made", "data")
    return {"data": ["data.image_size=12"], "model": MLP, "sample": "sample.png",
            "training": ["train.pack"]}


def cifar(coarse, train, test):
    def make():
        draw = random.Random(1)
        for name, n in [(t, 4) for t in train] + [(test, 5)]:
            write("data/" + name, b"".join(bytes([1] * coarse + [i % 7]) +
                                           bytes(draw.randrange(256) for _ in range(3072))
                                           for i in range(n)))
        write("sample.png", png(7, 32))
        return {"data": [], "model": MLP, "sample": "sample.png", "training": [train[0]]}
    return make


def text():
    write("data/train.txt", TEXT.encode())
    write("data/val.txt", TEXT[:200].encode())
    write("sample.txt", b"the lazy fox")
    return {"data": ["data.context=8"], "model": transformer("gpt2"), "sample": "sample.txt",
            "training": ["train.txt"], "prompt": "the "}


def masked_text():
    made = text()
    made.update(model=transformer("bert", "data.mask_prob=0.3"), sample=None, prompt=None)
    return made


def tokens():
    """With a tokenizer beside the files, which goes with the training files."""
    text()
    runs.tutti("data", "pack", "data.format=text", "data.dir=data", "--out", "made").expect(0)
    shutil.rmtree("data")
    os.rename("made", "data")
    return {"data": ["data.context=8"], "model": transformer("gpt2"), "sample": "sample.txt",
            "training": ["text_train_000000.bin", "tokenizer.json"], "prompt": "the "}


def bare_tokens():
    for split, n, most in (("train", 400, 20), ("val", 60, 9)):
        write("data/%s.bin" % split, array.array("H", [i * i % most for i in range(n)]).tobytes())
    write("sample.bin", array.array("H", [1, 4, 9, 16]).tobytes())
    return {"data": ["data.context=8"], "model": transformer("gpt2"), "sample": "sample.bin",
            "training": ["train.bin"]}


def random_tokens():
    write("sample.bin", array.array("H", [1, 4, 9, 16]).tobytes())
    return {"data": ["data.context=8", "data.vocabulary=20"], "model": transformer("gpt2"),
            "sample": "sample.bin", "drawn": True}


MLP = ["model.name=mlp", "model.hidden=[8]"]


def transformer(name, *more):
    return ["model.name=" + name, "model.layers=1", "model.heads=2", "model.width=8", *more]


FORMATS = {
    "digits": digits, "random_images": random_images, "idx": idx_files, "npy": npy_floats,
    "npy-tokens": npy_tokens, "images": images, "tar": tar, "packed": packed,
    "cifar10": cifar(0, ["data_batch_%d.bin" % i for i in range(1, 6)], "test_batch.bin"),
    "cifar100": cifar(1, ["train.bin"], "test.bin"), "text": text, "text-masked": masked_text,
    "tokens": tokens, "tokens-bare": bare_tokens, "random_tokens": random_tokens,
}


# ---- answers ----

def figures(ended):
    reported = json.loads(ended.expect(0).out)
    return {key: reported[key] for key in ("loss", "accuracy", "samples") if key in reported}


def answers(case, run, sample, out, data):
    """What a run says, without its data, and of the test split in data."""
    said = {"eval": figures(runs.tutti("eval", run, "--json", *data))}
    if case["sample"]:
        lines = runs.tutti("predict", run, sample).expect(0).out.splitlines()
        said["predict"] = [{k: v for k, v in json.loads(line).items() if k != "file"}
                           for line in lines]
    if case.get("prompt"):
        said["generate"] = runs.tutti("generate", run, "--prompt", case["prompt"],
                                      "--max-tokens", "20").expect(0).out
    runs.tutti("export", run, "--format", "onnx", "--out", out).expect(0)
    with open(out, "rb") as file:
        said["export"] = file.read()
    os.remove(out)
    return said


def check(name):
    case = FORMATS[name]()
    data = [] if case.get("drawn") else ["data.dir=data"]
    small = ["data.n_train=40", "data.n_test=8"] if case.get("drawn") else []
    runs.tutti("train", "data.format=" + name.split("-")[0], *data, *small, *case["data"],
               *case["model"], "train.batch=4", "train.steps=4", "parallel.shards=2", "-n", "1",
               "run.dir=my run").expect(0)
    here = os.getcwd()
    before = answers(case, "my run", case["sample"], "a.onnx", [])
    for training in case.get("training", []):
        path = os.path.join("data", training)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    os.makedirs("other place")
    moved = []
    if not case.get("drawn"):
        os.rename("data", "other place/my data")
        moved = ["data.dir=" + os.path.join(here, "other place/my data")]
    os.mkdir("empty")
    os.chdir("empty")
    run, sample = os.path.join(here, "my run"), os.path.join(here, case["sample"] or "")
    if moved:
        runs.tutti("eval", run).expect(3, "data.dir: '%s/data' does not exist" % here,
                                       "give the folder")
    after = answers(case, run, sample, "b.onnx", moved)
    for key, said in before.items():
        assert after[key] == said, (name, key, said, after[key])
    os.chdir(here)


def add_tests():
    for name in FORMATS:
        globals()["test_" + name.replace("-", "_")] = lambda name=name: check(name)


add_tests()


def test_classes_by_name():
    """Other folders in another order, and fewer of them, keep their names; others are refused."""
    images()
    runs.tutti("train", "data.format=images", "data.dir=data", "data.image_size=12", *MLP,
               "train.batch=4", "train.steps=30", "run.dir=run", "-n", "1").expect(0)
    said = json.loads(runs.tutti("predict", "run", "sample.png").expect(0).out)
    whole = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
    write("data/train/ant/0.png", png(1))  # all numbers would move by one
    os.rename("data/train/dog", "data/train/wolf")
    again = json.loads(runs.tutti("predict", "run", "sample.png").expect(0).out)
    assert again == said, (said, again)
    for label in ("cat", "dog"):
        shutil.rmtree("data/val/" + label)
    part = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
    owl = [c for c in whole["classes"] if c["name"] == "owl"][0]
    assert part["samples"] == 3, part
    assert [c for c in part["classes"] if c["name"] == "owl"][0]["recall"] == owl["recall"], part
    os.rename("data/val/owl", "data/val/eagle")
    runs.tutti("eval", "run").expect(3, "data/val/eagle: there is no such class")


def test_resume_compares():
    images()
    train = ["train", "data.format=images", "data.dir=data", "data.image_size=12", *MLP,
             "train.batch=4", "train.steps=6", "-n", "1"]
    runs.tutti(*train, "run.dir=run").expect(0)
    os.rename("data/train/dog", "data/train/wolf")
    os.rename("data/val/dog", "data/val/wolf")
    runs.tutti("train", "--resume", "run", "train.steps=9").expect(
        3, '"class_names": "dog", and now it is "class_names": "owl"')
    os.rename("data/train/wolf", "data/train/dog")
    os.rename("data/val/wolf", "data/val/dog")
    os.remove("run/data.json")  # as an earlier version left it
    runs.tutti("predict", "run", "sample.png").expect(4, "run/data.json: is missing",
                                                      "--resume run")
    runs.tutti("train", "--resume", "run", "train.steps=9").expect(0)
    runs.tutti("predict", "run", "sample.png").expect(0)
    with open("run/data.json") as file:
        text = file.read()
    with open("run/data.json", "w") as file:
        file.write(text.replace('"dog"', '"cow"'))
    runs.tutti("predict", "run", "sample.png").expect(4, "run/data.json: damaged")


def test_resume_names_the_column():
    def write(names, row):
        with open("rows.csv", "w") as file:
            file.write(names + "\n" + "".join(row(i) + ",%s\n" % "ab"[i % 2] for i in range(40)))

    def resumes(*said):
        runs.tutti("train", "--resume", "rows", "train.steps=4").expect(3, *said)

    write("size,colour,kind", lambda i: "%d,%s" % (i * i, "rg"[i % 2]))
    runs.tutti("train", "data.format=csv", "data.dir=rows.csv", "data.label=kind", *MLP,
               "train.batch=4", "train.steps=2", "run.dir=rows", "-n", "1").expect(0)
    write("size,colour,kind", lambda i: "%d,%s" % (i * i, "rgb"[i % 3]))
    resumes('it was column "colour": "categories": "g"', 'column "colour": "categories": "b"')
    write("size,colour,kind", lambda i: "%d,%s" % (i * i + 1, "rg"[i % 2]))
    resumes('it was column "size": "mean": ')
    write("size,width,colour,kind", lambda i: "%d,%d,%s" % (i * i, i % 7, "rg"[i % 2]))
    resumes('it was "table": "label": 2, and now it is "table": "label": 3')


def test_exports_say_how_samples_are_read():
    images()
    runs.tutti("train", "data.format=images", "data.dir=data", "data.image_size=28",
               "model.name=resnet18", "train.batch=4", "train.steps=1", "run.dir=run", "-n",
               "1").expect(0)
    runs.tutti("export", "run", "--format", "safetensors", "--out", "own").expect(0)
    with open("own/data.json") as file, open("run/data.json") as kept:
        assert file.read() == kept.read()
    runs.tutti("export", "run", "--format", "hf", "--out", "hf").expect(0)
    with open("hf/config.json") as file:
        assert json.load(file)["id2label"] == {"0": "cat", "1": "dog", "2": "owl"}
    with open("hf/preprocessor_config.json") as file:
        reported = json.load(file)
    assert reported["size"] == {"shortest_edge": 32}, reported
    assert reported["crop_size"] == {"height": 28, "width": 28}, reported
    assert reported["image_mean"] == [0.485, 0.456, 0.406] and reported["do_normalize"], reported
    assert abs(reported["rescale_factor"] - 1 / 255) < 1e-12, reported


def test_keys_of_the_training():
    """How samples are read cannot be changed; a tokenizer may be added where there was none."""
    digits()
    runs.tutti(*runs.small("run"), "train.steps=2").expect(0)
    for command in (["predict", "run", "sample.idx"],
                    ["export", "run", "--format", "onnx", "--out", "a.onnx"]):
        runs.tutti(*command, "data.mean=0.9").expect(2, "command line: error: data.mean: ",
                                                     "leave this key out")
    runs.tutti("eval", "run", "data.mean=0.9").expect(2, "trained with a mean of")
    tokens()
    os.rename("data/tokenizer.json", "tokenizer.json")
    runs.tutti("train", "data.format=tokens", "data.dir=data", "data.context=8",
               *transformer("gpt2"), "train.batch=4", "train.steps=2", "run.dir=lm", "-n",
               "1").expect(0)
    refused = runs.tutti("generate", "lm", "--prompt", "the")
    assert refused.code in (1, 2) and "data.tokenizer_dir" in refused.err, refused.err
    runs.tutti("generate", "lm", "--prompt", "the", "data.tokenizer_dir=tokenizer.json").expect(0)


def test_targets_that_have_no_form():
    """Targets of the shape of x need not be the tokens that follow: nothing is printed as if."""
    for split in ("train", "test"):
        for name in ("x", "y"):
            write("data/%s_%s.npy" % (name, split), npy("i4", (20, 6), [i % 9 for i in range(120)]))
    write("sample.npy", npy("i4", (1, 6), list(range(6))))
    runs.tutti("train", "data.format=npy", "data.dir=data", *transformer("gpt2"), "train.batch=4",
               "train.steps=2", "run.dir=run", "-n", "1").expect(0)
    refused = runs.tutti("predict", "run", "sample.npy")
    assert refused.code in (1, 2) and "predicts several targets of a sample" in refused.err
    runs.tutti("eval", "run").expect(0)
    text()
    runs.tutti("train", "data.format=text", "data.dir=data/train.txt", "data.context=8",
               *transformer("bert", "data.mask_prob=0.3"), "train.batch=4", "train.steps=2",
               "run.dir=masked", "-n", "1").expect(0)
    refused = runs.tutti("predict", "masked", "sample.txt")
    assert refused.code in (1, 2) and "predicts several targets of a sample" in refused.err


def test_arrays_that_do_not_fit():
    npy_floats()
    runs.tutti("train", "data.format=npy", "data.dir=data", *MLP, "train.batch=4", "train.steps=2",
               "run.dir=run", "-n", "1").expect(0)
    write("short.npy", npy("f4", (2, 4), [0] * 8))
    write("whole.npy", npy("i4", (2, 5), [0] * 10))
    write("one.npy", npy("f4", (5,), [0] * 5))
    for bad, shape in (("short.npy", "f4 and shape [2,4]"), ("whole.npy", "i4 and shape [2,5]")):
        runs.tutti("predict", "run", bad).expect(3, bad, shape, "f32[5]")
    runs.tutti("predict", "run", "one.npy").expect(0)
    runs.tutti("eval", "run", "data.format=csv").expect(3, "trained on data.format=npy")


def test_tokens_that_do_not_fit():
    npy_tokens()
    runs.tutti("train", "data.format=npy", "data.dir=data",
               *transformer("bert", "model.head=classify"), "train.batch=4", "train.steps=2",
               "run.dir=run", "-n", "1").expect(0)
    write("high.npy", npy("i4", (1, 6), [0, 1, 2, 3, 4, 40]))
    runs.tutti("predict", "run", "high.npy").expect(3, "token 40 at position 5 is not one of 0 ..")
    text()
    runs.tutti("train", "data.format=text", "data.dir=data/train.txt", "data.context=8",
               *transformer("gpt2"), "train.batch=4", "train.steps=2", "run.dir=lm", "-n",
               "1").expect(0)
    write("other.txt", "the £".encode())
    runs.tutti("predict", "lm", "other.txt").expect(3, "other.txt", "U+00A3")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
