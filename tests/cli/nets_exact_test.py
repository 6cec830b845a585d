"""nets_exact_test.py - convolutional families with stochastic depth and dropout: one story for
replicas, ZeRO-3 and a pipeline; torchvision's names of weights, and a new head on loaded ones."""

import sys

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


def test_one_story():
    layouts = LAYOUTS[1:2] if runs.sanitized() else LAYOUTS
    for model in FAMILIES:
        train(model, model, "-n", "1", *RANDOM).expect(0)
        story = runs.story(model)
        for i, (n_workers, *keys) in enumerate(layouts):
            run = "%s-%d" % (model, i)
            train(run, model, "-n", n_workers, "parallel.place=threads", *RANDOM, *keys).expect(0)
            runs.same_story(story, run)


def test_weights_come_back():
    """Exported and loaded: the same first loss; another head is left out by its name."""
    for model, head in (("mobilenet_v2", "classifier.1"), ("regnet_y_400mf", "fc")):
        train(model, model).expect(0)
        runs.tutti("export", model, "--format", "torchvision", "--out", model + "-tv").expect(0)
        init = ["model.init=" + model + "-tv", "train.steps=0"]
        more = ["data.classes=7"]
        train(model + "-back", model, *init).expect(0)
        train(model + "-other", model, *init, *more).expect(4, head + ".weight has f32[1000,")
        train(model + "-new", model, *init, *more, "model.init_except=%s.*" % head).expect(0)
    train("wrong", "mobilenet_v3_small", "model.init=mobilenet_v2-tv").expect(4, "is missing")


def test_width_of_other_models():
    runs.tutti("train", "run.dir=x", "model.name=lenet", "model.width_multiplier=0.5").expect(
        2, "model.width_multiplier: lenet has fixed widths")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
