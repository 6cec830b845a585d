#!/usr/bin/env python3
"""make_contrastive.py: writes tests/golden/contrastive.json, pt2/clip.pt2 and pt2/siglip.pt2: two
encoders with a scale of their own, and a bias, and PyTorch's losses over the whole batch.

Needs PyTorch; the tests do not.
"""

import json
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
N, STEPS, LR = 16, 4, 0.1


class Encoders(torch.nn.Module):
    def __init__(self, has_bias):
        super().__init__()
        self.a = torch.nn.Linear(4, 6)
        self.b = torch.nn.Linear(3, 6)
        self.logit_scale = torch.nn.Parameter(torch.tensor(1.5))
        if has_bias:
            self.logit_bias = torch.nn.Parameter(torch.tensor(-2.0))

    def forward(self, x, other):
        a = F.normalize(torch.tanh(self.a(x)), dim=1)
        b = F.normalize(torch.tanh(self.b(other)), dim=1)
        out = a, b, self.logit_scale.exp()
        return out + (self.logit_bias,) if hasattr(self, "logit_bias") else out


def infonce(logits):
    label = torch.arange(len(logits))
    return (F.cross_entropy(logits, label) + F.cross_entropy(logits.T, label)) / 2


def sigmoid(logits):
    return -F.logsigmoid((2 * torch.eye(len(logits)) - 1) * logits).sum() / len(logits)


def similarity(out):
    return F.normalize(out[0], dim=1) @ F.normalize(out[1], dim=1).T


# name of a case: the model, keys of the job, PyTorch's loss
CASES = {
    "infonce": ("clip", [], lambda o: infonce(o[2] * similarity(o))),
    "sigmoid": ("siglip", [], lambda o: sigmoid(o[2] * similarity(o) + o[3])),
    "infonce_default": ("towers", [], lambda o: infonce(similarity(o) / 0.07)),
    "sigmoid_default": ("towers", [], lambda o: sigmoid(similarity(o) * 10 - 10)),
    "infonce_temperature": ("towers", ["train.temperature=0.5"],
                            lambda o: infonce(similarity(o) / 0.5)),
    "sigmoid_bias": ("towers", ["train.temperature=0.25", "train.logit_bias=-3"],
                     lambda o: sigmoid(similarity(o) * 4 - 3)),
}


class Towers(torch.nn.Module):
    """That of make_interface.py."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 5)
        self.b = torch.nn.Linear(3, 5)

    def forward(self, x, other):
        return self.a(x), self.b(other)


def make(name):
    return Towers() if name == "towers" else Encoders(name == "siglip")


def main():
    g = torch.Generator().manual_seed(11)
    inputs = {"x": torch.randn(N, 4, generator=g), "other": torch.randn(N, 3, generator=g)}
    golden = {"inputs": {k: v.tolist() for k, v in inputs.items()}, "cases": {}}
    batch = torch.export.Dim("batch", min=1, max=4096)
    for name in ("clip", "siglip"):
        torch.manual_seed(3)
        program = torch.export.export(make(name), tuple(inputs.values()), strict=False,
                                      dynamic_shapes={k: {0: batch} for k in inputs})
        torch.export.save(program, os.path.join(HERE, "pt2", name + ".pt2"))
    torch.set_default_dtype(torch.float64)
    for case, (name, keys, loss_fn) in CASES.items():
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(3)
        model = make(name).double()
        torch.set_default_dtype(torch.float64)
        sgd = torch.optim.SGD(model.parameters(), lr=LR)
        losses, hits = [], 0
        for _ in range(STEPS):
            out = model(*(v.double() for v in inputs.values()))
            loss = loss_fn(out)
            hits = (similarity(out).argmax(1) == torch.arange(N)).double().mean().item()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss.item())
        golden["cases"][case] = {"model": name, "keys": keys, "losses": losses, "accuracy": hits}
    # Embeddings as they are: the losses of a model of one's own.
    pair = inputs["x"][:, :3].double(), inputs["other"].double()
    golden["named"] = {"infonce": infonce(similarity(pair) / 0.5).item(),
                       "sigmoid": sigmoid(similarity(pair) * 4 - 3).item()}
    with open(os.path.join(HERE, "contrastive.json"), "w") as file:
        json.dump(golden, file)
        file.write("\n")


main()
