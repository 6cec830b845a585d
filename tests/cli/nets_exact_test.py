"""nets_exact_test.py - convolutional families with stochastic depth and dropout: one story for
replicas, ZeRO-3 and a pipeline; torchvision's names of weights, and a new head on loaded ones."""

import atexit
import functools
import json
import re
import shutil
import struct
import sys
import tempfile

import runs

FAMILIES = ("mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121",
            "regnet_y_400mf")
SMALL = ["model.width_multiplier=0.25", "model.stem=cifar", "data.format=random_images",
         "data.image_size=16", "data.n_train=32", "data.n_test=8", "train.batch=16",
         "train.steps=2", "optimizer.name=sgd", "optimizer.lr=1e-4", "parallel.shards=4",
         "run.log_every=1", "run.checkpoint_every=-1"]
RANDOM = ["model.dropout=0.2", "model.drop_path=0.3"]
LAYOUTS = (("2",), ("4", "parallel.zero=3"), ("4", "parallel.pipeline=2"))


def train(run, model, *arguments):
    return runs.tutti("train", "run.dir=" + run, "model.name=" + model, *SMALL, *arguments)


def one_story(layouts_of):
    """layouts_of: those of family number i."""
    for number, model in enumerate(FAMILIES):
        train(model, model, "-n", "1", *RANDOM).expect(0)
        story = runs.story(model)
        for i, (n_workers, *keys) in enumerate(layouts_of(number)):
            run = "%s-%d" % (model, i)
            train(run, model, "-n", n_workers, "parallel.place=threads", *RANDOM, *keys).expect(0)
            runs.same_story(story, run)


def test_one_story():
    """Pipelines of 4 workers have replicas too: replicas alone for one family, and one of the other
    layouts for each.  All of them: families_slow_test.py."""
    one_story(lambda number: LAYOUTS[:1] * (number == 0) + LAYOUTS[1 + number % 2:][:1])


@functools.lru_cache(maxsize=None)
def exported(model):
    """The folder that has the weights of a run, which all tests of a script share."""
    folder = tempfile.mkdtemp(prefix="tutti-once-", dir=runs.folder_in_memory())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    train(folder + "/run", model).expect(0)
    runs.tutti("export", folder + "/run", "--format", "torchvision", "--out",
               folder + "/tv").expect(0)
    return folder + "/tv"


def test_weights_come_back():
    """Exported and loaded: the same first loss; another head is left out by its name."""
    for model, head in (("mobilenet_v2", "classifier.1"), ("regnet_y_400mf", "fc")):
        init = ["model.init=" + exported(model), "train.steps=0"]
        more = ["data.classes=7"]
        train(model + "-back", model, *init).expect(0)
        train(model + "-other", model, *init, *more).expect(4, head + ".weight has f32[1000,")
        train(model + "-new", model, *init, *more, "model.init_except=%s.*" % head).expect(0)
    train("wrong", "mobilenet_v3_small", "model.init=" + exported("mobilenet_v2")).expect(
        4, "is missing")


PARTS = {"mobilenet_v2": {r"\.conv\.0\.0\.": ".conv_pw.", r"\.conv\.0\.1\.": ".bn1.",
                          r"\.conv\.1\.0\.": ".conv_dw.", r"\.conv\.1\.1\.": ".bn2.",
                          r"\.conv\.2\.": ".conv_pwl.", r"\.conv\.3\.": ".bn3.",
                          r"features\.0\.0": "conv_stem", r"features\.0\.1": "bn1",
                          r"features\.18\.0": "conv_head", r"features\.18\.1": "bn2",
                          r"classifier\.1": "classifier"},
         "regnet_y_400mf": {r"\.f\.a\.": ".conv1.", r"\.f\.b\.": ".conv2.", r"\.f\.c\.": ".conv3.",
                            r"\.f\.se\.": ".se.", r"\.proj\.": ".downsample.",
                            r"(conv.|stem|downsample)\.0\.": r"\1.conv.",
                            r"(conv.|stem|downsample)\.1\.": r"\1.bn.", "^fc": "head.fc"}}


def timm_name(model, name):
    """The name of a tensor in timm's files, from its own rules."""
    if model == "mobilenet_v2":
        first = {".conv.0.0.": ".conv_dw.", ".conv.0.1.": ".bn1.", ".conv.1.": ".conv_pw.",
                 ".conv.2.": ".bn2."}
        for ours, theirs in first.items():
            if name.startswith("features.1" + ours):
                return name.replace("features.1" + ours, "blocks.0.0" + theirs)
        starts = (1, 2, 4, 7, 11, 14, 17)  # of the stages
        block = re.match(r"features\.(\d+)\.conv", name)
        if block:
            stage = max(i for i, first in enumerate(starts) if first <= int(block[1]))
            name = "blocks.%d.%d%s" % (stage, int(block[1]) - starts[stage], name[block.end() - 5:])
    else:
        name = re.sub(r"trunk_output\.block(\d)\.block\d-(\d+)",
                      lambda m: "s%s.b%d" % (m[1], int(m[2]) + 1), name)
    for ours, theirs in PARTS[model].items():
        name = re.sub(ours, theirs, name)
    return name


def rename(model, path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(n)), file.read()
    header = json.dumps({timm_name(model, key): value for key, value in header.items()}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def test_weights_of_timm():
    for model in PARTS:
        run = "timm-" + model
        folder = shutil.copytree(exported(model), run + "-tv")
        init = ["model.init=" + folder, "train.steps=1", "optimizer.lr=0"]
        train(run + "-ours", model, *init).expect(0)
        rename(model, folder + "/model.safetensors")
        name = "mobilenetv2_100" if model == "mobilenet_v2" else "regnety_004"
        for architecture, code in ((name, 0), ("tf_" + name, 2)):
            with open(folder + "/config.json", "w") as file:
                json.dump({"architecture": architecture}, file)
            train(run + "-" + architecture, model, *init).expect(
                code, *(() if code == 0 else ("which model.name=%s does not compute" % model,)))
        runs.same_story(runs.story(run + "-ours"), run + "-" + name)


def test_width_of_other_models():
    runs.tutti("train", "run.dir=x", "model.name=lenet", "model.width_multiplier=0.5").expect(
        2, "model.width_multiplier: lenet has fixed widths")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
