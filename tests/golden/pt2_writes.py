"""pt2_writes.py - models of make_pt2.py that write: to buffers, to tensors that they make, to what
a block returns, and to parts of values."""

import torch
import torch.nn as nn


class Moved(nn.Module):
    """Buffers that the model changes itself: the vectors of spectral norms, a running mean of the
    outputs, a counter; writes under no_grad, and to what a call in place returned."""

    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8))
        self.b = nn.utils.spectral_norm(nn.Linear(8, 5))
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.register_buffer("center", torch.zeros(1, 5))
        self.register_buffer("level", torch.ones(()))
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        h = self.a(x)
        doubled, half = torch.zeros(8), torch.empty(8)
        with torch.no_grad():
            doubled.copy_(self.scale.detach() * 2)
            torch.mul(self.scale, torch.full((8,), 0.5), out=half)
        y = h.clone()
        y.mul_(self.scale).add_(1)
        y[:, 2:4].mul_(2).add_(doubled[:2]).neg_()
        z = self.b(torch.tanh(y + h * half))
        out = (z - self.center) * self.level
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.9).add_(z.detach().mean(0, keepdim=True), alpha=0.1)
                self.n_steps += 1
            self.level = self.level * 0.9 + 0.2
        return out


class Made(nn.Module):
    """Equal tensors, made by the size of the batch, of which one is written to; and a sum that is
    made again after a write."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x):
        n = x.shape[0]
        first, same = torch.zeros(n, 8), torch.zeros(n, 8)
        first[:, 0].fill_(1)
        taken, still = torch.zeros(n, 8), torch.zeros(n, 8)
        taken.copy_(self.a(x))
        level = torch.zeros_like(x)
        before = level + 1
        level.fill_(3)
        after = level + 1
        z = first + 2 * same + taken + 3 * still
        return self.o(z * (before + 0.5 * after).mean(-1, keepdim=True))


class Returned(nn.Module):
    """A write to the result of a call in place that a block without gradients has returned; the
    block has more values than the model has outside."""

    def __init__(self):
        super().__init__()
        self.o = nn.Linear(6, 5)

    def forward(self, x):
        with torch.no_grad():
            y = x
            for i in range(40):
                y = torch.sin(y * 1.1) + 0.1 * i
            y = y.mul_(0.5)
        y[:, 1:3].add_(1)
        return self.o(x + y)


class Written(nn.Module):
    """Parts of a value that are written, rows of parameters by computed places, and a routing whose
    agreement has no gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 5)
        self.table = nn.Parameter(torch.randn(3, 8) * 0.5)
        self.pairs = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        h = self.a(x)
        y = h.clone()
        y[..., 0:2] = torch.tanh(h[..., 0:2] * 2)
        y[:, 1] = torch.sigmoid(h[:, 0])
        k = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()
        b = (y * self.table[k]).sum(-1) + self.pairs[k, k.flip(1)]
        b = b + (y * h).sum(-1).detach()
        b = b * torch.tanh(h[torch.arange(x.shape[0])[:, None], k]).mean(-1)
        return self.o((y * b.softmax(1).unsqueeze(-1)).sum(1))
