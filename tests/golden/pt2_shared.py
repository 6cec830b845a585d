"""pt2_shared.py - models of make_pt2.py that share or hold back: batch norms that are applied
several times, parameters without requires_grad, masks that hide all keys, heads as many as samples,
and places that several elements go to."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Shared(nn.Module):
    """Two views through one network with batch norms, three through another."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=0.3), nn.ReLU())
        self.b, self.n = nn.Linear(8, 5), nn.BatchNorm1d(5, affine=False)

    def forward(self, x):
        y, z = self.a(x), self.a(torch.cos(x))
        return self.n(self.b(y)) + self.n(self.b(z)) * 0.5 + self.n(self.b(y * z)) * x[:, :5]


class Fixed(nn.Module):
    """Parameters that are not trained: a layer, a table of positions, the weight of a norm."""

    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 5)
        self.place = nn.Parameter(torch.randn(1, 8), requires_grad=False)
        self.a.requires_grad_(False)
        self.n.weight.requires_grad = False

    def forward(self, x):
        return self.b(self.n(torch.tanh(self.a(x)) + self.place))


class Hidden(nn.Module):
    """Attention with masks of pairs and of keys that follow from the input: some queries see no
    key, in some samples none does."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(6, 24), nn.Linear(8, 5)

    def attend(self, x, low, adds, pairs=True):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        keys = (x[..., 0] > 0)
        seen = keys[:, None, None, :]
        if pairs:
            seen = keys[:, None, :, None] & seen
        if adds is None:
            mask = (~seen).to(x.dtype) * low
            return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        s = q @ k.transpose(-1, -2) / 2
        s = s + (~seen).to(s.dtype) * low if adds else s.masked_fill(~seen, low)
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x):
        y = self.attend(x, -1e9, False) + self.attend(x + 0.3, -1e9, True)
        y = y + self.attend(x - 0.3, -1e9, None) + self.attend(x - 1, -1e9, False, False)
        return self.o(y).mean(1)


class Matched(nn.Module):
    """Four heads and four experts, as many as samples: their dimension is not the batch.  A
    product of weights without its diagonal."""

    def __init__(self):
        super().__init__()
        self.q, self.p = nn.Linear(6, 8), nn.Linear(3, 8, bias=False)
        self.w = nn.Parameter(torch.randn(4, 2, 3) * 0.5)
        self.o = nn.Linear(12, 5)
        self.register_buffer("table", torch.sin(torch.arange(15.0)).view(5, 3))

    def forward(self, x):
        q = self.q(x).view(-1, 5, 4, 2).transpose(1, 2)
        p = self.p(self.table).view(5, 4, 2).transpose(0, 1)
        y = (q @ p.transpose(-1, -2)).softmax(-1) @ p
        y = torch.einsum("bhtd,hde->bthe", y, self.w).flatten(2).mean(1)
        c = (self.p.weight @ self.p.weight.T).fill_diagonal_(0)
        return self.o(y) + c.pow(2).sum()


class Gathered(nn.Module):
    """Sums, means, products and extremes of what goes to one place, with and without what was
    there; the places follow from the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x):
        m, t = torch.tanh(self.a(x)), torch.sin(x[:, :4])
        at = (x * 2).floor().clamp(0, 3).long()
        y = t
        for kind in ("sum", "mean", "prod", "amax", "amin"):
            for own in (True, False):
                y = y + t.scatter_reduce(1, at, m, kind, include_self=own).square()
        return self.b(y.mean(1))


class Resized(nn.Module):
    """Volumes at other sizes."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Conv3d(2, 3, 1), nn.Linear(3, 5)

    def forward(self, x):
        x = torch.tanh(self.a(x))
        y = F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False)
        y = y + F.interpolate(x, size=y.shape[2:], mode="trilinear", align_corners=True)
        y = y * F.interpolate(x, scale_factor=2, mode="nearest")
        y = F.interpolate(y, size=(2, 3, 4), mode="trilinear")
        return self.o(y.square().mean((2, 3, 4)))


class Put(nn.Module):
    """Elements put to places by several indices: the same in each sample, a place of each sample,
    added, into constants and into what was computed."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 5)
        self.register_buffer("i", torch.tensor([[0, 2], [-1, 1]]))
        self.register_buffer("j", torch.tensor([1, -2]))

    def forward(self, x):
        n = x.shape[0]
        y, row = torch.tanh(self.a(x)), torch.arange(n)
        z = torch.zeros(n, 3, 4, dtype=x.dtype)
        z[:, self.i, self.j] = y[:, :2, :2]
        z[:, self.i[0], 1] += y[:, 0, :2]
        at = (x[..., 0] > 0).long()[:, :2] + torch.arange(0, 4, 2)
        y = y.index_put((row[:, None], at % 3, self.j.expand(n, 2)), x[:, :2, 0], accumulate=True)
        y[row, at[:, 0]] = torch.sin(x[:, 2, :4])
        return self.b(y[:, :3] * z + torch.cos(z)).mean(1)
