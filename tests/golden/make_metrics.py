#!/usr/bin/env python3
"""make_metrics.py: writes tests/golden/metrics.json, pt2/counted.pt2 and onnx/counted.onnx: metrics
of scikit-learn for the outputs of small models, and a model with metrics of its own.

Needs PyTorch and scikit-learn; the tests do not.
"""

import json
import os

import numpy as np
import torch
from sklearn import metrics as sk

HERE = os.path.dirname(os.path.abspath(__file__))
N = 23


class Counted(torch.nn.Module):
    """Logits of two classes, correct predictions and their count, and the margin of each sample."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x, y):
        out = self.body(x)
        hits = (out.argmax(1) == y).float()
        return out, hits.sum(), torch.ones_like(hits).sum(), (out[:, 1] - out[:, 0]).abs()


def interface(name):
    """A model of make_interface.py."""
    torch.manual_seed(3)
    if name == "linear":
        return torch.nn.Linear(4, 3)
    return torch.nn.Conv2d(2, 3, 3, padding=1) if name == "pixels" else Counted()


def of_classes(out, y, ignore=None):
    score = np.moveaxis(out, 1, -1).reshape(-1, out.shape[1])
    label = y.reshape(-1)
    kept = label != (-1 if ignore is None else ignore)
    score, label = score[kept], label[kept]
    said = score.argmax(1)
    log_p = score - np.log(np.exp(score).sum(1, keepdims=True))
    return {"top2": sk.top_k_accuracy_score(label, score, k=2, labels=range(score.shape[1])),
            "class_accuracy": sk.balanced_accuracy_score(label, said),
            "miou": sk.jaccard_score(label, said, average="macro"),
            "perplexity": float(np.exp(-log_p[np.arange(len(label)), label].mean()))}


def of_questions(out, y):
    flat = out.ndim > 2
    score, label = (out.reshape(-1), y.reshape(-1)) if flat else (out, y)
    return {"accuracy": float(((out > 0) == (y > 0.5)).mean()),
            "auc": sk.roc_auc_score(label, score, average="macro")}


def of_values(out, y):
    return {"mae": sk.mean_absolute_error(y, out), "rmse": sk.root_mean_squared_error(y, out),
            "r2": sk.r2_score(y, out)}


def of_counted(out, y):
    return {"auc": sk.roc_auc_score(y, out[:, 1] - out[:, 0]),
            "hits": sk.accuracy_score(y, out.argmax(1)),
            "margin": float(np.abs(out[:, 1] - out[:, 0]).mean())}


CLASSES = ["train.metrics=top2, class_accuracy, miou, perplexity"]
# name of a case: model, target, keys of the job, its metrics
CASES = {
    "classes": ("linear", "label", CLASSES, of_classes),
    "ignored": ("linear", "label", [*CLASSES, "train.ignore_index=1"],
                lambda o, y: of_classes(o, y, 1)),
    "map": ("pixels", "map", ["train.metrics=miou, class_accuracy", "train.ignore_index=2"],
            lambda o, y: {k: v for k, v in of_classes(o, y, 2).items()
                          if k in ("miou", "class_accuracy")}),
    "questions": ("linear", "question", ["train.loss=bce"], of_questions),
    "masks": ("pixels", "masks", ["train.loss=bce", "train.metrics=accuracy, auc"], of_questions),
    "values": ("linear", "value", ["train.loss=mae"], of_values),
    "counted": ("counted", "two", ["train.metrics=auc", "model.metrics=hits=1/2, margin=3"],
                of_counted),
}


# The metrics that a model of one's own adds by name: predicted is the input, four logits or values.
NAMED = {
    "label": lambda o, y: {
        "accuracy": sk.accuracy_score(y, o.argmax(1)),
        "top3": sk.top_k_accuracy_score(y, o, k=3, labels=range(4)), **of_classes(o, y)},
    "question": lambda o, y: {"auc": sk.roc_auc_score(y, o, average="macro")},
    "goal": of_values,
}


def named(x):
    g = torch.Generator().manual_seed(13)
    y = {"label": torch.randint(0, 4, (N,), generator=g),
         "question": (torch.randn(N, 4, generator=g) > 0).float(),
         "goal": torch.randn(N, 4, generator=g)}
    figures = [NAMED[k](x.double().numpy(), v.double().numpy() if k == "goal" else v.numpy())
               for k, v in y.items()]
    return {"y": {k: v.tolist() for k, v in y.items()},
            "metrics": {k: float(v) for each in figures for k, v in each.items()}}


def target(kind):
    g = torch.Generator().manual_seed(9)
    value = torch.randn(N, 3, generator=g)
    return {"label": torch.randint(0, 3, (N,), generator=g), "value": value + 30,
            "two": torch.randint(0, 2, (N,), generator=g),
            "question": (value > 0).float(),
            "map": torch.randint(0, 3, (N, 4, 4), generator=g),
            "masks": (torch.randn(N, 3, 4, 4, generator=g) > 0.3).float()}[kind]


def main():
    g = torch.Generator().manual_seed(5)
    flat, maps = torch.randn(N, 4, generator=g), torch.randn(N, 2, 4, 4, generator=g)
    golden = {"inputs": {"flat": flat.tolist(), "maps": maps.tolist()}, "cases": {},
              "named": named(flat)}
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(interface("counted"), (flat, target("two")), strict=False,
                                  dynamic_shapes={"x": {0: batch}, "y": {0: batch}})
    torch.export.save(program, os.path.join(HERE, "pt2", "counted.pt2"))
    torch.onnx.export(program, (), os.path.join(HERE, "onnx", "counted.onnx"), dynamo=True,
                      optimize=False, external_data=False, verbose=False)
    for case, (name, kind, keys, figures) in CASES.items():
        y, x = target(kind), maps if name == "pixels" else flat
        model = interface(name).double()
        with torch.no_grad():
            out = model.body(x.double()) if name == "counted" else model(x.double())
        golden["cases"][case] = {"model": name, "y": y.tolist(), "keys": keys, "metrics": {
            k: float(v) for k, v in figures(out.numpy(), y.numpy()).items()}}
    with open(os.path.join(HERE, "metrics.json"), "w") as file:
        json.dump(golden, file)
        file.write("\n")


main()
