#!/usr/bin/env python3
"""make_padding.py: writes tests/golden/padding.json and pt2/padding_*.pt2: models whose losses join
the samples of a batch, and PyTorch's losses of five samples, which fill a batch of eight in part.

Needs PyTorch; the tests do not.
"""

import json
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
N, STEPS, LR = 5, 4, 0.05


class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(6, 6)
        self.b = torch.nn.Linear(6, 6)


class Statistics(Body):
    """Reductions over the batch, one of each kind."""

    def forward(self, x, q, y):
        a, b = self.a(x), self.b(x)
        loss = a.std(0).mean() + b.var() + torch.logsumexp(a, 0).mean()
        loss = loss + (F.softmax(a, 0) * b).sum(0).square().mean()
        loss = loss - F.log_softmax(b, 0).mean() + torch.linalg.vector_norm(a, dim=0).mean()
        loss = loss + a.amax(0).mean() - b.min(0).values.mean() + F.normalize(b, dim=0).amax()
        return loss + ((a - b) ** 2).sum() / x.shape[0] + a.mean() * (x.shape[0] - 1)


class Products(Body):
    """Products over the batch: covariances, and sums by class."""

    def forward(self, x, q, y):
        a, b = self.a(x), self.b(x)
        a = (a - a.mean(0)) / (a.std(0) + 1e-4)
        covariance = (a.t() @ b) / x.shape[0]
        sums = torch.zeros(4, 6).index_add(0, y, b)
        return covariance.square().mean() + sums.square().mean() + F.one_hot(y, 4).float().t().mm(
            a).square().mean()


class Pairs(Body):
    """All samples compared with each other, of two views one after the other too."""

    def forward(self, x, q, y):
        a, b = F.normalize(self.a(x), dim=1), F.normalize(self.b(x), dim=1)
        n = x.shape[0]
        scores = a @ b.t() * 3
        loss = F.cross_entropy(scores, torch.arange(n)) - F.log_softmax(scores, 0).diagonal().mean()
        z = torch.cat([a, b])
        both = (z @ z.t() * 2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        loss = loss + F.cross_entropy(both, torch.cat([torch.arange(n) + n, torch.arange(n)]))
        return loss + F.mse_loss(scores, x @ x.t()) - F.logsigmoid(
            (2 * torch.eye(n) - 1) * scores).sum() / n


class TimeFirst(Body):
    """Outputs [T,N,C]."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x, q, y):
        a, b = self.a(q.transpose(0, 1)), self.b(q.transpose(0, 1))
        label = y[None].expand(3, -1)
        loss = F.mse_loss(a, q.transpose(0, 1)) + b.std((0, 1)).mean()
        loss = loss + F.cross_entropy(a.flatten(0, 1), label.flatten(), label_smoothing=0.1)
        loss = loss + F.cross_entropy(b.permute(0, 2, 1), label, weight=torch.arange(6.0) + 1)
        loss = loss + F.smooth_l1_loss(a, b) + self.norm(b.flatten(0, 1)).pow(3).mean()
        return loss + F.binary_cross_entropy_with_logits(b, torch.sigmoid(a.detach()))


class Terms(Body):
    """A term for each step of each sample, [T,N]."""

    def forward(self, x, q, y):
        return (self.a(q.transpose(0, 1)) - self.b(x)).square().sum(-1)


class Sorted(Body):
    """An operator that cannot leave padding out."""

    def forward(self, x, q, y):
        return self.a(x).sort(0)[0][:2].mean() + self.b(x).mean()


MODELS = {"statistics": Statistics, "products": Products, "pairs": Pairs, "time": TimeFirst,
          "terms": Terms, "sorted": Sorted}


def tensors(n):
    g = torch.Generator().manual_seed(5)
    return {"x": torch.randn(n, 6, generator=g), "q": torch.randn(n, 3, 6, generator=g),
            "y": torch.randint(0, 4, (n,), generator=g)}


def main():
    inputs = tensors(N)
    golden = {"inputs": {k: v.tolist() for k, v in inputs.items()}, "losses": {}}
    for name, make in MODELS.items():
        torch.manual_seed(3)
        model = make().train()
        batch = torch.export.Dim("batch", min=2, max=64)
        shapes = {k: {0: batch} for k in inputs}
        program = torch.export.export(model, tuple(tensors(8).values()), strict=False,
                                      dynamic_shapes=shapes)
        torch.export.save(program, os.path.join(HERE, "pt2", "padding_%s.pt2" % name))
        sgd = torch.optim.SGD(model.parameters(), lr=LR)
        golden["losses"][name] = []
        for _ in range(STEPS):
            loss = model(**inputs).mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            golden["losses"][name].append(loss.item())
    with open(os.path.join(HERE, "padding.json"), "w") as file:
        json.dump(golden, file)
        file.write("\n")


if __name__ == "__main__":
    main()
