#!/usr/bin/env python3
"""make_interface.py: writes tests/golden/interface.json and pt2/interface_*.pt2: models
with several inputs, outputs and losses of their own, batches for them, and PyTorch's losses.

Needs PyTorch; the tests do not.
"""

import json
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
N, STEPS, LR = 8, 4, 0.1


class Masked(torch.nn.Module):
    """Token classification with an integer input, a boolean mask and its own loss."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, ids, keep, y):
        h = torch.tanh(self.embed(ids)) * keep.unsqueeze(-1)
        pooled = h.sum(1) / keep.sum(1, keepdim=True)
        logits = self.head(pooled)
        return F.cross_entropy(logits, y, label_smoothing=0.1), logits


class Padded(torch.nn.Module):
    """Attention with a mask of keys that is picked by sample and place, as transformers does."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, ids, mask, y):
        sample = torch.arange(ids.shape[0])[:, None, None, None]
        place = torch.arange(ids.shape[1])[None, None, None, :]
        query = torch.arange(ids.shape[1])[None, None, :, None]
        seen = mask.bool()[sample, place] & (place >= 0).expand(ids.shape[0], 1, 5, 5)
        h = self.embed(ids).unflatten(2, (2, 4)).transpose(1, 2)
        h = F.scaled_dot_product_attention(h, h, h, attn_mask=seen & (query >= 0))
        logits = self.head(h.transpose(1, 2).flatten(2).mean(1))
        return F.cross_entropy(logits, y), logits


class Language(torch.nn.Module):
    """The loss of a language model, over the tokens of all samples in one dimension."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.head = torch.nn.Linear(6, 11, bias=False)

    def forward(self, ids, y):
        logits = self.head(torch.tanh(self.embed(ids)))
        return F.cross_entropy(logits.view(-1, 11), y.view(-1)), logits


class TwoTowers(torch.nn.Module):
    """Two float inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 5)
        self.b = torch.nn.Linear(3, 5)

    def forward(self, x, other):
        return self.a(x), self.b(other)


class Regression(torch.nn.Module):
    """A loss with a term for each sample, of float targets."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x, y):
        out = self.body(x)
        return out, F.huber_loss(out, y, reduction="none").sum(1)


class Several(torch.nn.Module):
    """Every loss that the reader of .pt2 files knows, in one sum."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x, y, label, hard):
        out = self.body(x)
        loss = F.mse_loss(out, y) + F.l1_loss(out, y) + F.smooth_l1_loss(out, y, beta=0.5)
        loss = loss + F.binary_cross_entropy_with_logits(
            out, hard, pos_weight=torch.tensor([1.0, 2.0, 3.0]))
        loss = loss + F.kl_div(F.log_softmax(out, 1), F.softmax(y, 1), reduction="batchmean")
        loss = loss + F.cross_entropy(out, label, weight=torch.tensor([1.0, 2.0, 0.5]),
                                      ignore_index=-100)
        loss = loss + F.nll_loss(F.log_softmax(out, 1), label.clamp(min=0))
        return loss + (out ** 2).mean() + out.sum() * 0.01


class Linear(torch.nn.Module):
    """A single input, for the losses of jobs."""

    def __init__(self, n_out):
        super().__init__()
        self.body = torch.nn.Linear(4, n_out)

    def forward(self, x):
        return self.body(x)


class Pixels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x):
        return self.body(x)


def focal_of_questions(out, t, gamma=1.5, alpha=0.25):
    p = torch.sigmoid(out)
    ce = F.binary_cross_entropy_with_logits(out, t, reduction="none")
    rest = 1 - (p * t + (1 - p) * (1 - t))
    return ((alpha * t + (1 - alpha) * (1 - t)) * ce * rest ** gamma).mean()


def focal_of_classes(out, y, gamma=2.0):
    log_p = F.log_softmax(out, 1).gather(1, y[:, None])[:, 0]
    return (-(1 - log_p.exp()) ** gamma * log_p).mean()


def dice(out, y):
    p, hot = F.softmax(out, 1), F.one_hot(y, 3).movedim(-1, 1).to(out.dtype)
    both, total = (p * hot).sum((2, 3)), (p + hot).sum((2, 3))
    return (1 - (2 * both + 1) / (total + 1)).mean()


# name of a case: model, target, keys of the job, PyTorch's loss
LOSSES = {
    "weights": ("linear", "label", ["train.class_weights=1, 2, 0.5", "train.label_smoothing=0.1"],
                lambda o, y: F.cross_entropy(o, y, o.new_tensor([1, 2, 0.5]),
                                             label_smoothing=0.1)),
    "ignore": ("linear", "label", ["train.ignore_index=1"],
               lambda o, y: F.cross_entropy(o, y, ignore_index=1)),
    "pixels": ("pixels", "map", ["train.ignore_index=2"],
               lambda o, y: F.cross_entropy(o, y, ignore_index=2)),
    "mse": ("linear", "value", ["train.loss=mse"], F.mse_loss),
    "mae": ("linear", "value", ["train.loss=mae"], F.l1_loss),
    "huber": ("linear", "value", ["train.loss=huber", "train.huber_delta=0.7"],
              lambda o, y: F.huber_loss(o, y, delta=0.7)),
    "smooth_l1": ("linear", "value", ["train.loss=smooth_l1", "train.smooth_l1_beta=0.7"],
                  lambda o, y: F.smooth_l1_loss(o, y, beta=0.7)),
    "bce": ("linear", "question", ["train.loss=bce"], F.binary_cross_entropy_with_logits),
    "pos_weight": ("linear", "question", ["train.loss=bce", "train.pos_weight=1, 2, 3"],
                   lambda o, y: F.binary_cross_entropy_with_logits(
                       o, y, pos_weight=o.new_tensor([1, 2, 3]))),
    "focal": ("linear", "question", ["train.loss=focal", "train.focal_gamma=1.5",
                                     "train.focal_alpha=0.25"], focal_of_questions),
    "focal_classes": ("linear", "label", ["train.loss=focal"], focal_of_classes),
    "dice": ("pixels", "map", ["train.loss=dice"], dice),
    "kl": ("linear", "shares", ["train.loss=kl"],
           lambda o, y: F.kl_div(F.log_softmax(o, 1), y, reduction="batchmean")),
    "cosine": ("linear", "value", ["train.loss=cosine"],
               lambda o, y: (1 - F.cosine_similarity(o, y)).mean()),
}


def target(kind):
    g = torch.Generator().manual_seed(9)
    value = torch.randn(N, 3, generator=g)
    return {"label": torch.randint(0, 3, (N,), generator=g), "value": value,
            "question": (value > 0).float(), "shares": torch.softmax(value, 1),
            "map": torch.randint(0, 3, (N, 4, 4), generator=g)}[kind]


def export(name, model, inputs):
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(model.train(), tuple(inputs.values()), strict=False,
                                  dynamic_shapes={k: {0: batch} for k in inputs})
    torch.export.save(program, os.path.join(HERE, "pt2", "interface_%s.pt2" % name))


def add_losses(golden):
    g = torch.Generator().manual_seed(5)
    inputs = {"linear": torch.randn(N, 4, generator=g), "pixels": torch.randn(N, 2, 4, 4,
                                                                             generator=g)}
    golden["losses"] = {"inputs": {k: v.tolist() for k, v in inputs.items()}, "cases": {}}
    for name in inputs:
        torch.manual_seed(3)
        export(name, Linear(3) if name == "linear" else Pixels(), {"x": inputs[name]})
    for case, (name, kind, keys, loss_fn) in LOSSES.items():
        torch.manual_seed(3)
        model = (Linear(3) if name == "linear" else Pixels()).double()
        y = target(kind)
        wide = y.double() if y.is_floating_point() else y
        sgd = torch.optim.SGD(model.parameters(), lr=LR)
        losses = []
        for _ in range(STEPS):
            loss = loss_fn(model(inputs[name].double()), wide)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss.item())
        golden["losses"]["cases"][case] = {"model": name, "y": y.tolist(), "keys": keys,
                                           "losses": losses}


def tensors(name):
    g = torch.Generator().manual_seed(5)
    x = torch.randn(N, 4, generator=g)
    if name == "masked":
        keep = torch.rand(N, 5, generator=g) < 0.6
        keep[:, 0] = True
        return {"ids": torch.randint(0, 11, (N, 5), generator=g), "keep": keep,
                "y": torch.randint(0, 3, (N,), generator=g)}
    if name == "padded":
        n_keys = torch.randint(1, 6, (N, 1), generator=g)
        return {"ids": torch.randint(0, 11, (N, 5), generator=g),
                "mask": (torch.arange(5)[None] < n_keys).long(),
                "y": torch.randint(0, 3, (N,), generator=g)}
    if name == "language":
        y = torch.randint(0, 11, (N, 5), generator=g)
        y[torch.rand(N, 5, generator=g) < 0.3] = -100
        return {"ids": torch.randint(0, 11, (N, 5), generator=g), "y": y}
    if name == "towers":
        return {"x": x, "other": torch.randn(N, 3, generator=g)}
    if name == "regression":
        return {"x": x, "y": 2 * torch.randn(N, 2, generator=g)}
    label = torch.randint(0, 3, (N,), generator=g)
    return {"x": x, "y": torch.randn(N, 3, generator=g), "label": label,
            "hard": (torch.rand(N, 3, generator=g) < 0.5).float()}


def loss_of(name, out):
    if name in ("masked", "padded", "language"):
        return out[0]
    if name == "towers":
        return (1 - F.cosine_similarity(out[0], out[1])).mean()
    return out[1].mean() if name == "regression" else out


def main():
    golden = {}
    for name, make in (("masked", Masked), ("towers", TwoTowers), ("regression", Regression),
                       ("several", Several), ("language", Language),
                       ("padded", Padded)):
        torch.manual_seed(3)
        model = make().train()
        inputs = tensors(name)
        export(name, model, inputs)
        wide = model.double()
        batch64 = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
        sgd = torch.optim.SGD(wide.parameters(), lr=LR)
        losses = []
        for _ in range(STEPS):
            torch.set_default_dtype(torch.float64)
            loss = loss_of(name, wide(*batch64.values()))
            torch.set_default_dtype(torch.float32)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss.item())
        golden[name] = {"inputs": {k: v.tolist() for k, v in inputs.items()}, "losses": losses}
    add_losses(golden)
    with open(os.path.join(HERE, "interface.json"), "w") as file:
        json.dump(golden, file)
        file.write("\n")


main()
