"""pt2_writes.py - models of make_pt2.py that write: to buffers, to tensors that they make, to what
a block returns, and to parts of values."""

import torch
import torch.nn as nn
import torch.nn.functional as F


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


class Strided(nn.Module):
    """Writes to every second or third element and to views of all elements, with the gradients of
    what stays; constants that are written through views, and copies of them."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x):
        h = self.a(x)
        y = x.new_zeros(x.shape[0], 5, 8)
        y[..., ::2] = h[..., ::2] * 0.3 - h[..., 1::2] * 0.7
        y[..., 1::2] = h[..., 1::2] * 0.3 + h[..., ::2] * 0.7
        y[:, 1::2, 1:8:3] += torch.tanh(h[:, :2, :3])
        z = h * 1.5
        z.view(-1, 5, 2, 4)[:, :, 1].mul_(0.5)
        z.transpose(1, 2)[:, 0].add_(0.25)
        z.unsqueeze(1)[:, :, ::4] = torch.sigmoid(h[:, None, :2])
        z = torch.slice_scatter(z, y[..., :2], 2, 1, 8, 5)
        level = x.new_zeros(4, 8)
        level[:, 2].unsqueeze(1).fill_(1)
        level.diagonal().add_(2)
        turned = level.t().contiguous()
        turned.mul_(0.5)
        level.view(32)[::3].add_(0.25)
        level.unfold(1, 2, 2)[..., 1].mul_(3)
        level.to(torch.float32, copy=True).fill_(9)
        return self.o(z * y * level.sum(0) + turned.sum(1) * h).mean(1)


class Positions(nn.Module):
    """Tables for the positions of each sample, of which only the types of values say which
    dimension counts samples: a resized mask, and a table along dimension 1; as many heads as there
    may be samples."""

    def __init__(self):
        super().__init__()
        self.a, self.p, self.o = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(16, 5)
        self.r = nn.Parameter(torch.randn(8, 2, 4) * 0.3)

    def forward(self, x):
        n = x.shape[0]
        mask = torch.nn.functional.interpolate(x.new_ones(1, n, 10, 4), size=(5, 2))[0]
        at = mask.cumsum(1) * 2 + mask.cumsum(2)
        at = torch.cat([torch.sin(at * (k + 1) / 3) for k in range(4)], -1)
        h, keys = self.a(x), self.p(at)
        both = torch.cat([h.view(n, 5, 2, 4), keys.view(n, 5, 2, 4)], -1)
        rows, columns = (torch.arange(k, dtype=x.dtype) + 1 for k in (7, 4))
        table = rows[:, None] / columns
        table = torch.cat([torch.sin(table), torch.cos(table)], -1)[:, None].expand(-1, n, -1)
        q = h.transpose(0, 1).view(5, n, 2, 4)
        r = torch.einsum("ibh,hnd->ibnd", table, self.r)
        weight = torch.tanh(torch.einsum("ibnd,jbnd->bnij", q, r)).mean(-1)
        return self.o(both.flatten(2) * weight.sum(1).unsqueeze(-1)).mean(1)


@torch.library.register_fake("aten::fake_quantize_per_tensor_affine_cachemask")
def _(x, *_):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


@torch.library.register_fake("aten::fake_quantize_per_channel_affine_cachemask")
def _(x, *_):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


class Terms(nn.Module):
    """Terms of losses for each sample, and rounding as in training for integers."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 5)
        self.register_buffer("scale", torch.linspace(0.02, 0.06, 5))
        self.register_buffer("zero", torch.tensor([0, 1, -2, 0, 3], dtype=torch.int32))
        self.register_buffer("share", torch.tensor([1.0, 2, 0.5, 1, 3]))

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        label = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
        p = torch.softmax(b, 1)
        terms = [F.cross_entropy(a, p, weight=self.share, label_smoothing=0.1, reduction="none"),
                 F.triplet_margin_loss(a, b, x[:, :5], swap=True, reduction="none"),
                 F.poisson_nll_loss(a, 2 * x[:, :5].abs(), full=True, reduction="none").mean(1),
                 F.multi_margin_loss(a, label, p=2, margin=0.5, reduction="none"),
                 F.multi_margin_loss(b, label, weight=self.share, reduction="none")]
        scale = self.scale.float()
        w = torch.fake_quantize_per_channel_affine(self.o.weight, scale, self.zero, 0, -8, 7)
        a = torch.fake_quantize_per_tensor_affine(a, 0.1, 3, -9, 10)
        y = F.linear(torch.logcumsumexp(a, 1), w, self.o.bias)
        return y + 0.1 * torch.stack(terms, 1)


class Rounded(nn.Module):
    """Training for integers, which ONNX writes as quantized and restored numbers; a parameter that
    is used through a function alone."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 5)
        self.gain = nn.Parameter(torch.randn(8))
        self.register_buffer("scale", torch.linspace(0.002, 0.006, 8))
        self.register_buffer("zero", torch.tensor([0, 1, -2, 0, 3, 0, 0, 5], dtype=torch.int32))

    def forward(self, x):
        scale = self.scale.float()
        w = torch.fake_quantize_per_channel_affine(self.a.weight, scale, self.zero, 0, -128, 127)
        h = torch.relu(F.linear(x, w, self.a.bias)) * F.softplus(self.gain)
        h = torch.fake_quantize_per_tensor_affine(h, 0.005, 20, 0, 255)
        w = torch.fake_quantize_per_tensor_affine(self.o.weight, 0.004, 0, -128, 127)
        return F.linear(h, w, self.o.bias)
