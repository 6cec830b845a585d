#!/usr/bin/env python3
"""make_pt2.py [NAME]...: writes pt2/NAME.pt2, models that PyTorch exported, pt2.json, PyTorch's
results, and the seed of the fuzz target of the reader; only those that are named, if any are.

Needs PyTorch 2.8 or newer (the files here are of 2.15); the tests need only the files.  For each
model: a batch, the losses of five SGD steps (lr 0.05) in f64 and f32, the loss and the first logits
in evaluation before training; of "routed" also the losses of AdamW with weight decay 0.5.  Archives
are written anew without example inputs, stack traces and the types of values inside the graph
(TYPED have them), which makes them much smaller; all entries stay uncompressed.
"""

import copy
import io
import json
import os
import sys
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F

from pt2_shared import Fixed, Gathered, Hidden, Matched, Put, Resized, Shared
from pt2_writes import Made, Moved, Positions, Returned, Rounded, Strided, Terms, Written

HERE = os.path.dirname(os.path.abspath(__file__))
N_ROWS = 4
TYPED = ("positions",)


class Cnn(nn.Module):
    """Batch norm, dropout, in-place activations, kernels by dimension, pooling, concatenation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, (1, 3), padding=(0, 1), bias=False),
                                  nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
        self.wide = nn.Conv2d(8, 8, 3, 2, 1, groups=4)
        self.norm = nn.BatchNorm2d(8, momentum=0.2)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.wide(x))
        y += F.max_pool2d(x, 3, 2, 1)
        y = F.relu_(y)
        z = torch.cat([F.avg_pool2d(self.up(y), 2), y], 1)
        return self.head(self.drop(torch.flatten(F.adaptive_avg_pool2d(z, 1), 1)))


class Tokens(nn.Module):
    """A decoder by hand: a padding row, positions by arange, a mask by triu, tied weights."""

    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(12, 8, padding_idx=0)
        self.p = nn.Embedding(6, 8)
        self.n1, self.n2 = nn.LayerNorm(8), nn.LayerNorm(8, eps=1e-6)
        self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8, bias=False)
        self.m = nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 8))

    def forward(self, i):
        x = self.t(i) + self.p(torch.arange(i.shape[1]))
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        heads = [z.reshape(z.shape[0], z.shape[1], 2, 4) for z in (q, k, v)]
        w = torch.einsum("bthd,bshd->bhts", heads[0], heads[1]) / 2
        hidden = torch.triu(torch.ones(i.shape[1], i.shape[1], dtype=torch.bool), 1)
        w = w.masked_fill(hidden, float("-inf")).softmax(-1)
        x = x + self.o(torch.einsum("bhts,bshd->bthd", w, heads[2]).flatten(2))
        return (x + self.m(self.n2(x))) @ self.t.weight.T


class Encoder(nn.Module):
    """PyTorch's own encoder layer, a class token, a mask as a buffer."""

    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.randn(1, 1, 8) * 0.1)
        self.t = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.register_buffer("bias", torch.tensor([[0.0, -1.0, 0.5]] * 3).T.contiguous())
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8), persistent=False)
        self.o = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.cat([self.c.expand(x.shape[0], -1, -1), x * self.scale], 1)
        x = self.t(x) + F.pad(x, (0, 0, 0, 0)).roll(1, 1)
        a = F.scaled_dot_product_attention(x, x, x, attn_mask=F.pad(self.bias, (0, 2, 0, 2)))
        return self.o(a[:, 0] + x[:, ::2].mean(1))


class Zoo(nn.Module):
    """1-D convolution, group norm, recurrent layers, functions that are composed of others."""

    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(3, 8, 3, padding=2, dilation=2)
        self.g = nn.GroupNorm(2, 8)
        self.l, self.u = nn.LSTM(8, 6, 2, batch_first=True), nn.GRU(6, 4, batch_first=True)
        self.b = nn.BatchNorm1d(4)
        self.o = nn.Linear(4, 5)

    def forward(self, x):
        y = F.max_pool1d(F.leaky_relu(self.g(self.c(x)), 0.1), 2)
        y, _ = self.l(F.elu(y).transpose(1, 2))
        y, _ = self.u(F.hardswish(y) + F.softplus(y) * y.pow(3) - y.clamp(min=-0.3, max=0.4))
        y = self.b(y[:, -1])
        return self.o(F.silu(y) / (1 + y.norm(dim=1, keepdim=True)) + (1 - y).abs().sqrt())


class Frozen(nn.Module):
    """A batch norm and a dropout in evaluation mode beside a batch norm that trains."""

    def __init__(self):
        super().__init__()
        self.n, self.m, self.d = nn.BatchNorm1d(6), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.a, self.o = nn.Linear(6, 4), nn.Linear(4, 5)
        self.n.running_mean.normal_()
        self.n.running_var.uniform_(0.5, 2)

    def train(self, mode=True):
        super().train(mode)
        self.n.eval()
        self.d.eval()
        return self

    def forward(self, x):
        return self.o(self.d(torch.tanh(self.m(self.a(self.n(x))))))


class Norms(nn.Module):
    """Instance norm, PReLU, statistics of a sample."""

    def __init__(self):
        super().__init__()
        self.c, self.i = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)
        self.p, self.q, self.o = nn.PReLU(4), nn.PReLU(), nn.Linear(4, 5)

    def forward(self, x):
        x = self.q(self.p(self.i(self.c(x)) * 1.5 + 0.1) - 0.2)
        flat = x.flatten(1)
        return (self.o(x.amax((2, 3)) + x.mean((2, 3))) + flat.std(1, keepdim=True) +
                flat.var(1, keepdim=True))


class Standardized(nn.Module):
    """Weights that a batch norm without running statistics standardizes."""

    def __init__(self):
        super().__init__()
        self.c, self.d = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 2, bias=False)
        self.gain, self.w, self.o = nn.Parameter(torch.rand(4) + 0.5), nn.Linear(6, 4), nn.Linear(
            4, 5)

    def forward(self, x):
        rows = self.c.weight.reshape(1, 4, -1)
        w = F.batch_norm(rows, None, None, weight=self.gain, training=True, momentum=0.0, eps=1e-6)
        x = torch.tanh(F.conv2d(x, w.reshape_as(self.c.weight), self.c.bias))
        w = F.batch_norm(self.d.weight, None, None, bias=self.gain, training=True)
        x = torch.tanh(F.conv2d(x, w)).mean((2, 3))
        w = F.batch_norm(self.w.weight.t(), None, None, training=True, momentum=0.0).t()
        return self.o(F.linear(x, w, self.w.bias))


class Choices(nn.Module):
    """Masks and comparisons of data, powers, bounds, padding, resizing, rounded-up windows."""

    def __init__(self):
        super().__init__()
        self.c, self.d = nn.Conv2d(3, 4, (2, 3), padding="same"), nn.Conv2d(4, 8, 1)
        self.o = nn.Linear(8, 5)

    def forward(self, x):
        y = F.pad(self.c(x), (1, 2, 1, 1), mode="reflect")
        y = F.pixel_shuffle(self.d(y), 2).repeat(1, 2, 1, 1)
        means = F.avg_pool2d(y, 3, 2, 1, ceil_mode=True)
        y = F.max_pool2d(y, 3, 2, 1, ceil_mode=True) + 0.5 * means
        y = F.interpolate(y, size=(5, 7), mode="bicubic", align_corners=False)
        y = F.interpolate(y, scale_factor=1.3, mode="nearest")
        y = torch.where(y > 0, torch.log(y + 0.5), 0.1 * y).clamp(-1.5, 1.25)
        z = (y.abs() + 0.3) ** 1.7 + torch.sin(3 * y) * torch.erf(y) + (y <= 0.2).float()
        z = z.masked_fill(torch.isnan(z) | (z > 2.5), 0.5).mean((2, 3)).repeat(1, 2)
        return self.o(z) + torch.logsumexp(z, 1, keepdim=True) + z.norm(dim=1, keepdim=True)


class Places(nn.Module):
    """Sorting, places that depend on data, running sums, writes to parts, a norm over merged rows,
    a network in both directions."""

    def __init__(self):
        super().__init__()
        self.r, self.n = nn.GRU(6, 3, batch_first=True, bidirectional=True), nn.BatchNorm1d(4)
        self.o = nn.Linear(6, 5)

    def forward(self, x):
        y = self.r(x)[0]
        y = self.n(y.unflatten(-1, (2, 3)).flatten(0, 1).repeat(1, 2, 1)).unflatten(0, (-1, 5))
        y = y.mean(-1).repeat(1, 1, 2)[..., :6]
        w = y.cumsum(1).clone()
        w[:, 1:3] += x[:, 1:3]
        w[:, 0] = 0
        top = torch.topk(w, 2, dim=1)[0].sum(1) + w.sort(1)[0][:, 2]
        one = w[torch.arange(w.shape[0]), x[:, :, 0].argmax(1)]
        picked = w.gather(2, (x[..., :1] > 0).long().expand(-1, -1, 6)).mean(1)
        windows = w.unfold(1, 3, 2).amax(-1).max(1)[0]
        return self.o(top + one + picked + windows)


class Heads(nn.Module):
    """Attention to other positions with shared key heads and a learned bias, within a window, with
    masks that depend on data, with values of another width."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(6, 4)
        self.wide, self.o = nn.Linear(6, 12), nn.Linear(8, 5)
        self.bias = nn.Parameter(torch.randn(1, 4, 5, 3) * 0.5)
        ahead = torch.arange(5)[None] - torch.arange(5)[:, None]
        self.register_buffer("near", ahead.abs() < 2, persistent=False)
        self.register_buffer("last", (ahead <= 0) & (ahead > -3), persistent=False)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (4, 2)).transpose(1, 2)
        k, v = (m(x[:, 1:4]).unflatten(-1, (2, 2)).transpose(1, 2) for m in (self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias, enable_gqa=True)
        seen = (x[:, :, 0] > -0.5)[:, None, None, :]
        z = F.scaled_dot_product_attention(q, q, y, attn_mask=seen, scale=0.9)
        wide = self.wide(x).unflatten(-1, (4, 3)).transpose(1, 2)
        z = z + F.scaled_dot_product_attention(q, q, wide, attn_mask=self.near)[..., :2]
        z = z + F.scaled_dot_product_attention(q, q, wide, attn_mask=self.last)[..., 1:]
        z = z + F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(z.transpose(1, 2).flatten(2).mean(1))


class Windows(nn.Module):
    """Attention within windows: queries, keys and values of five dimensions, and masks for them."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(6, 8)
        self.bias, self.o = nn.Parameter(torch.randn(2, 1, 3, 3) * 0.5), nn.Linear(8, 5)
        here = torch.arange(3)
        self.register_buffer("near", (here[:, None] - here).abs() < 2, persistent=False)
        self.register_buffer("open", torch.arange(18).reshape(2, 3, 3) % 4 != 1, persistent=False)

    def forward(self, x):
        q, k, v = (m(x).reshape(-1, 2, 3, n, 4).permute(0, 3, 1, 2, 4)
                   for m, n in ((self.q, 2), (self.k, 1), (self.v, 2)))  # [N,heads,windows,3,4]
        f = F.scaled_dot_product_attention
        y = f(q, v, v) + f(q, v, q, attn_mask=self.bias) + f(q, q, v, attn_mask=self.open)
        seen = (x[:, :, 0] > -1.5).reshape(-1, 1, 2, 1, 3)
        y = y + f(q, q, v, attn_mask=seen) + f(q, q, v, attn_mask=self.near, scale=0.7)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        z = f(q, k, k, is_causal=True, enable_gqa=True).transpose(1, 2)
        return self.o((y + z).transpose(1, 3).flatten(3).mean((1, 2)))


class Volume(nn.Module):
    """Convolutions, norms and pooling over three dimensions; windows with a dilation."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv3d(4, 6, (3, 2, 3), stride=(2, 1, 1), padding=(1, 0, 2),
                           dilation=(1, 2, 1), groups=2)
        self.n, self.s = nn.BatchNorm3d(6), nn.Conv3d(6, 6, (3, 2, 1), padding="same")
        self.t = nn.ConvTranspose3d(6, 4, (3, 2, 2), stride=(2, 2, 1), padding=(1, 0, 1),
                                    output_padding=(1, 1, 0), groups=2, dilation=(1, 1, 2))
        self.o = nn.Linear(4 * 7, 5)

    def forward(self, x):
        y = self.t(self.s(F.relu(self.n(self.a(x)))))
        p = F.max_pool3d(y, (2, 3, 2), stride=(2, 2, 1), padding=(1, 1, 0), ceil_mode=True)
        q = F.avg_pool3d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        d = F.max_pool3d(y, 2, 1, dilation=(1, 2, 2))
        w = F.max_pool2d(y[:, :, 0], (3, 2), stride=(2, 1), padding=1, dilation=(2, 1),
                         ceil_mode=True)
        v = F.max_pool1d(y[:, :, 0, 0], 3, stride=2, padding=1, dilation=2)
        m = p.mean((2, 3, 4)) + q.mean((2, 3, 4)) + d.mean((2, 3, 4)) + w.mean((2, 3)) + v.mean(2)
        return self.o(torch.cat([F.adaptive_avg_pool3d(y, (2, 1, 3)).flatten(1), m], 1))


class Equations(nn.Module):
    """einsum of one, two, three and four operands, with repeated letters and an ellipsis."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4, 3, 5))
        self.c, self.o = nn.Parameter(torch.randn(3, 6)), nn.Linear(5, 5)

    def forward(self, x):
        y = torch.einsum("btk,kd,dmo->btmo", x, self.a, self.b)
        y = torch.einsum("b...o->bo...", y).flatten(2).mean(2)
        z = torch.einsum("...k,mk,kd,dmo->...o", x, self.c, self.a, self.b)
        w = torch.einsum("bti,bsi->bts", x, x)
        u = torch.einsum("bii->bi", w) + torch.einsum("bij->bj", w) * 0.1
        t = torch.einsum("bi,bj,bk->b", u, u, u)[:, None] * 1e-3
        return self.o(y + z.sum(1) + u + t)


class Composed(nn.Module):
    """Operators that are formulas of others."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 6), nn.Linear(6, 5)
        self.w = nn.Parameter(torch.randn(3, 6, 6) * 0.3)

    def forward(self, x):
        x = torch.tanh(self.a(x))  # [N,4,6]
        y = torch.erfc(x) + torch.sinh(x) - torch.cosh(x) + torch.asinh(x) + torch.atanh(0.9 * x)
        y = y + torch.acosh(x.abs() + 1.5) + torch.logit(torch.sigmoid(x), eps=1e-6)
        y = y + torch.hypot(x, x + 1) + torch.logaddexp(x, -x) + torch.clip(x, -0.5, 0.5)
        y = y + torch.clamp(x, -x.detach().abs() * 0.5, torch.full((6,), 0.3))
        y = y + torch.nan_to_num(1 / (x > 0), posinf=0.5) + F.rrelu(x, training=False)
        y = y + x * torch.isclose(x, x + 1e-9) + ((x * 10).long() << 1) * x
        y = y + x * torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.5]))
        y = y + x.median(1, keepdim=True).values + x.kthvalue(2, dim=-1)[0].unsqueeze(-1)
        y = y + torch.aminmax(x, dim=1)[1].unsqueeze(1) + torch.count_nonzero(
            x > 0, dim=2)[..., None] * x
        y = y + F.cosine_similarity(x, x.flip(1), dim=-1)[..., None] + F.pairwise_distance(
            x, x.roll(1, 1))[..., None] + torch.linalg.vector_norm(x, 3, dim=-1, keepdim=True)
        y = y + torch.cdist(x, x + 1.0).sum(-1, keepdim=True) + torch.baddbmm(
            x, x @ x.transpose(1, 2), x, beta=0.5, alpha=2.0)
        y = y + x.transpose(0, 1).mean(0)[:, None] + x.permute(2, 0, 1)[:4].sum(0)[..., None]
        y = torch.cat([y[..., :3], torch.cross(y[..., :3], x[..., 3:], dim=-1)], -1)
        y = y[..., :3].repeat(1, 1, 2) + F.bilinear(x, y, self.w, None).repeat(1, 1, 2)
        return self.o(torch.diag_embed(y.sum(1)).sum(-1) * 0.02 + (torch.mv(y[:, 0], y.new_ones(
            6)))[:, None] * 0.01)


class Parts(nn.Module):
    """Parts of tensors, repeated elements, writes to constants, weight norm, cells, sampling."""

    def __init__(self):
        super().__init__()
        self.c = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 6, 3))
        self.r = nn.RNN(6, 6, bidirectional=True, batch_first=True)
        self.l, self.g, self.n = nn.LSTMCell(12, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6)
        self.t, self.o = nn.Linear(6, 6), nn.Linear(6, 5)
        self.b = nn.EmbeddingBag(7, 6, mode="mean")

    def forward(self, x):
        y = self.c(x)  # [N,6,6,6]
        theta = self.t(y.mean((2, 3))).view(-1, 2, 3)
        row, column = torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(-1, 1, 5),
                                     indexing="ij")
        grid = torch.stack([column, row, torch.ones_like(row)], -1).view(-1, 3)
        grid = (grid.to(x) @ theta.transpose(1, 2)).view(-1, 4, 5, 2)
        y = F.grid_sample(y, grid, align_corners=False) + F.grid_sample(
            y, grid, align_corners=True, padding_mode="border")  # [N,6,4,5]
        y = y.flatten(2).moveaxis((0, 1), (0, 2))[:, :6]  # [N,6,6]
        first, second = y.tensor_split(2, 1)
        y = torch.cat([first.repeat_interleave(2, 1), second.repeat_interleave(
            torch.tensor([1, 0, 2]), 1)], 1)[:, :6]
        y = y + torch.diagonal(y, 1, 1, 2).prod(1)[:, None, None] + torch.eye(6) + y.cumprod(1)
        z = torch.zeros_like(y)
        for k in range(1, 6):
            z[:, k] = y[:, k] + 0.5 * z[:, k - 1]
        z = torch.slice_scatter(z, y[:, :2], 1, 2, 4)
        z = torch.select_scatter(z, y[:, 0] * 3, 1, 1).index_fill(1, torch.tensor([4]), 0.5)
        z = z.index_copy(1, torch.tensor([5, 0]), y[:, :2]).roll(2, 1).tile((1, 1))
        z, last = self.r(torch.tanh(z))
        h = c = x.new_zeros(x.shape[0], 6)
        for k in range(3):
            h, c = self.l(z[:, k], (h, c))
            h = self.n(self.g(h, c), h)
        ids = (y[:, 0] * 3).abs().long() % 7
        with torch.no_grad():
            still = torch.sigmoid(self.t(h))
        return self.o(h * still + c + last.sum(0) + self.b(ids))


def grouped_product(x, w, ends):
    """Rows of x up to ends[0] with w[0], and so on; PyTorch has no such product of f64."""
    if x.dtype != torch.float64:
        return F.grouped_mm(x, w, offs=ends)
    parts, start = [], 0
    for i, end in enumerate(ends.tolist()):
        parts.append(x[start:end] @ w[i])
        start = end
    return torch.cat(parts)


class Experts(nn.Module):
    """A mixture of experts as transformers writes it, rows sorted by expert and put back; another
    one whose results are added; writes to places that depend on data."""

    def __init__(self):
        super().__init__()
        self.n, self.k = 3, 2
        self.gate, self.other = nn.Linear(8, 3, bias=False), nn.Linear(8, 3)
        self.up = nn.Parameter(torch.randn(3, 24, 8) * 0.4)
        self.bias = nn.Parameter(torch.randn(3, 24) * 0.1)
        self.down = nn.Parameter(torch.randn(3, 8, 12) * 0.4)
        self.single = nn.Parameter(torch.randn(3, 8, 8) * 0.4)
        self.o = nn.Linear(8, 5)

    def route(self, x, layer):
        weights, experts = torch.topk(layer(x).softmax(-1, dtype=torch.float), self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        ids, places = torch.sort(experts.reshape(-1))
        counts = torch.histc(ids.float(), bins=self.n, min=0, max=self.n - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        return weights.reshape(-1).to(x.dtype), ids, places, ends

    def mix(self, x):
        weights, ids, places, ends = self.route(x, self.gate)
        y = grouped_product(x[places // self.k], self.up.transpose(-2, -1), ends)
        a, b = y.add_(self.bias[ids]).chunk(2, -1)
        y = grouped_product(F.silu(a) * b, self.down.transpose(-2, -1), ends)
        y = y * weights[places].unsqueeze(-1)
        back = torch.empty_like(places)
        back[places] = torch.arange(places.shape[0])
        return y[back].view(x.shape[0], self.k, 8).sum(1)

    def add(self, x):
        weights, _, places, ends = self.route(x, self.other)
        rows = places // self.k
        y = torch.tanh(grouped_product(x[rows], self.single, ends)) * weights[places, None]
        return torch.zeros_like(x).index_add_(0, rows, y)

    def forward(self, x):
        flat = x.reshape(-1, 8)
        y = (flat + self.mix(flat) + self.add(flat)).view(x.shape)
        y[y > 1.5] = 1.5
        y = y.clone()
        y[:, torch.tensor([1, 3])] = x[:, :2] * 2
        return self.o(y.mean(1))


class Seed(nn.Module):
    """For the fuzz target of the reader: a little of everything that its JSON may hold."""

    def __init__(self):
        super().__init__()
        self.a, self.n = nn.Linear(2, 3), nn.BatchNorm1d(3)
        self.register_buffer("m", torch.tensor([1.0, 0.0, 2.0]), persistent=False)

    def forward(self, x):
        y, z = torch.cat([self.n(self.a(x)) * self.m, x.new_zeros(x.shape[0], 1)], 1).chunk(2, 1)
        return F.relu_(y + z)


class Functions(nn.Module):
    """Remainders, angles, functions of gamma, statistics of elements, shapes that join; a layer
    that no result needs, and a block without gradients that is given a size."""

    def __init__(self):
        super().__init__()
        self.a, self.o, self.unused = nn.Linear(6, 6), nn.Linear(6, 5), nn.Linear(6, 6)
        self.w = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        n = x.shape[0]
        self.unused(x).tanh()
        y, s = self.a(x), torch.tanh(self.a(x)) * 0.95
        with torch.no_grad():
            level = y.abs().reshape(n, -1).mean(1)
        fixed = y.detach()
        rest = torch.fmod(y, 0.3) + torch.remainder(y, self.w) + y * torch.floor_divide(fixed, 0.4)
        rest = rest + y * torch.div(y, self.w, rounding_mode="floor") - torch.fmod(-y, self.w)
        angles = torch.asin(s) + torch.acos(s) * s + torch.atan(3 * y) + torch.atan2(y, s.flip(-1))
        gamma = torch.lgamma(y.abs() + 0.3) + torch.digamma(y.abs() + 0.6) + torch.sinc(y)
        logs = torch.xlogy(F.relu(y), y.abs() + 1) + torch.special.entr(y.abs())
        rows, columns = torch.tril_indices(4, 6, 1)
        some = (y * torch.isin(columns[:6], torch.tensor([1, 4])).float()).diff(dim=1).sum(1, True)
        alike = y[:, :, None, :2].repeat(1, 1, 1, 3)
        alike = F.cosine_similarity(y[:, None, :, :], alike, dim=-2)
        z = rest + 0.1 * angles + 0.1 * gamma + logs + some + 0.2 * alike.mean(1, True)
        z = z + torch.copysign(y, s) + torch.heaviside(fixed, fixed) + torch.fmax(y, s)
        z = z + torch.logaddexp2(y, s) + torch.trapezoid(y, dx=0.5, dim=1)[:, None]
        z = z + y[:, rows].mean(1, True)
        z = z + F.mish(8 * y - 6) + F.softplus(5 * y - 9)
        z = z.index_fill(2, torch.tensor([4, 1, 4]), 0.7)  # repeated places
        z = z + torch.zeros_like(z).scatter(2, (y > 0).long() + 2 * (y > 1).long(), 0.3)
        return self.o(z.mean(1) * 0.3 / (1 + level[:, None]))


class Signs(nn.Module):
    """Signs of NaN, which are 0: of an input's function and of a constant."""

    def __init__(self):
        super().__init__()
        self.o = nn.Linear(6, 5)
        self.register_buffer("lost", torch.tensor([float("nan"), -2.0, 0.0, 3.0, 1.0, -1.0]))

    def forward(self, x):
        y = torch.sign(torch.log(x)) + torch.sgn(torch.sqrt(x)) + torch.sign(self.lost)
        return self.o(y + torch.sign(torch.full((6,), float("nan"))))


class Phases(nn.Module):
    """Complex numbers: rotary positions, products of two that depend on inputs, views; and bits of
    an integer and a boolean."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)
        self.size = nn.Parameter(torch.rand(4) + 0.5)
        self.angle = nn.Parameter(torch.randn(4))
        self.o = nn.Linear(16, 5)

    def forward(self, x):
        places = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.5, 0.1, 0.01])
        turn = torch.polar(torch.ones_like(places), places) * 1.5
        q = torch.view_as_complex(self.q(x).reshape(*x.shape[:-1], -1, 2))
        k = torch.view_as_complex(self.k(x).reshape(*x.shape[:-1], -1, 2)) * turn[None, :, :]
        q = q * turn.view(1, 5, 4)
        y = torch.view_as_real(q * k * torch.polar(self.size, self.angle)).flatten(2)
        z = torch.view_as_real((q[..., 1:3] * self.size[1:3]).unsqueeze(-1).to(torch.complex64))
        later = torch.arange(x.shape[1]) % 3
        chosen = x[:, :, 0] > 0
        bits = (later & chosen) + 2 * (later | chosen) + 4 * ((x[:, :, 1] * 3).int() ^ chosen)
        y = y * (1 + 0.1 * bits.float()).unsqueeze(-1)
        y = torch.cat([y, z.flatten(2), x[:, :, :4]], -1)
        return self.o(torch.tanh(y).mean(1))


class Routed(nn.Module):
    """Parameters without a gradient: a bias that only chooses experts, a layer behind no_grad, one
    that only decides a condition, and one behind a step function, whose gradient is zeros."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.gate = nn.Linear(8, 4, bias=False)
        self.bias = nn.Parameter(torch.tensor([0.3, -0.2, 0.1, 0.0]))
        self.experts = nn.Parameter(torch.randn(4, 8, 8) * 0.4)
        self.target = nn.Linear(8, 8)
        self.limit = nn.Parameter(torch.full((8,), 0.2))
        self.level = nn.Parameter(torch.full((8,), 0.31))
        self.o = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        scores = torch.sigmoid(self.gate(x))
        _, places = torch.topk(scores + self.bias, 2, dim=-1)
        weights = scores.gather(-1, places)
        weights = torch.zeros_like(scores).scatter(-1, places, weights / weights.sum(-1, True))
        y = torch.einsum("nte,ntd,edf->ntf", weights, x, self.experts)
        with torch.no_grad():
            target = self.target(x)
        y = torch.where(y > self.limit, y, target * y) + torch.round(self.level * 100) / 100
        return self.o(y.mean(1) + self.first.weight.detach().mean(0))


class Taken(nn.Module):
    """The same elements of each sample, by the sample's number and places in two dimensions; the
    largest of constants put to one place."""

    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(8, 8), nn.Linear(6, 5)

    def forward(self, x):
        rows = torch.arange(x.shape[0])[:, None, None]
        x = torch.tanh(self.a(x))
        x = x[rows, torch.tensor([0, 3, 4])[:, None], torch.tensor([6, 1])].flatten(1)
        most = x.new_zeros(6).scatter_reduce(0, torch.tensor([1, 4, 4]),
                                             x.new_tensor([1.0, 3.0, 2.0]), "amax")
        steps = torch.arange(6.0).floor_divide_(torch.tensor(2.0)).to(x.dtype)
        return self.o(x + most + 0.1 * steps)


class Columns(nn.Module):
    """Samples along dimension 1: constants and parameters that are repeated for them, in products,
    sums and joined with values of samples; constants put to places."""

    def __init__(self):
        super().__init__()
        self.r, self.m = nn.Parameter(torch.randn(8, 2, 4) * 0.4), nn.Parameter(
            torch.randn(8, 8) * 0.3)
        self.query, self.shift = nn.Parameter(torch.randn(5, 1, 8) * 0.5), nn.Parameter(
            torch.randn(8))
        self.w, self.o = nn.Linear(8, 8), nn.Linear(8, 5)
        self.register_buffer("ids", torch.tensor([[0, 2, 2, 4]]))
        self.register_buffer("terms", torch.tensor([[3.0, 1.0, -1.0, 2.0]]))

    def places(self, n):
        flat = (torch.arange(n)[:, None] * 5 + self.ids).reshape(-1)
        terms = self.terms.expand(n, -1)
        least = terms.new_zeros(n * 5).scatter_reduce(0, flat, terms.reshape(-1), "amin",
                                                  include_self=False).view(n, 5)
        most, ids = terms.new_zeros(n, 5), self.ids.expand(n, -1)
        most = most.scatter_reduce(1, ids, terms, "mean").scatter_reduce(1, ids, terms, "amax")
        return least + most.scatter(1, ids[:, :1], 0.5).scatter_add(1, ids, terms)

    def forward(self, x):
        x = x.transpose(0, 1)
        n = x.shape[1]
        place = torch.sin(torch.arange(5.0)[:, None, None] * torch.arange(1, 9) * 0.3)
        place = place.to(x.dtype).expand(-1, n, -1)
        k = torch.einsum("ibh,hnd->ibnd", place, self.r)
        q = self.w(x).unflatten(-1, (2, 4))
        scores = torch.einsum("ibnd,jbnd->bnij", q, k).softmax(-1)
        y = torch.einsum("bnij,jbnd->ibnd", scores, q).flatten(2)
        y = y + place @ self.m + F.linear(place, self.m, self.shift)
        y = y + F.linear(torch.zeros_like(x), self.m, self.shift) * x
        y = y + torch.tanh(torch.cos(place).permute(2, 1, 0).unsqueeze(0).squeeze(0).permute(
            2, 1, 0) * self.shift) + self.query.expand_as(x)
        z = torch.cat([self.query.repeat(1, n, 1), place, x], 0)
        return self.o(torch.tanh(y).mean(0) + torch.tanh(z).mean(0)) + 0.1 * self.places(n)


MODELS = {
    "written": (Written, lambda: torch.randn(N_ROWS, 5, 6),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "made": (Made, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "returned": (Returned, lambda: torch.randn(N_ROWS, 6),
                 lambda: torch.randint(0, 5, (N_ROWS,))),
    "moved": (Moved, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "cnn": (Cnn, lambda: torch.randn(N_ROWS, 3, 6, 7), lambda: torch.randint(0, 5, (N_ROWS,))),
    "tokens": (Tokens, lambda: torch.randint(0, 12, (N_ROWS, 6)),
               lambda: torch.randint(0, 12, (N_ROWS, 6))),
    "encoder": (Encoder, lambda: torch.randn(N_ROWS, 4, 8), lambda: torch.randint(0, 5, (N_ROWS,))),
    "frozen": (Frozen, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "norms": (Norms, lambda: torch.randn(N_ROWS, 3, 5, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "standardized": (Standardized, lambda: torch.randn(N_ROWS, 3, 5, 6),
                     lambda: torch.randint(0, 5, (N_ROWS,))),
    "windows": (Windows, lambda: torch.randn(N_ROWS, 6, 6),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "choices": (Choices, lambda: torch.randn(N_ROWS, 3, 5, 6),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "places": (Places, lambda: torch.randn(N_ROWS, 5, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "volume": (Volume, lambda: torch.randn(N_ROWS, 4, 4, 5, 6),
               lambda: torch.randint(0, 5, (N_ROWS,))),
    "equations": (Equations, lambda: torch.randn(N_ROWS, 5, 6),
                  lambda: torch.randint(0, 5, (N_ROWS,))),
    "heads": (Heads, lambda: torch.randn(N_ROWS, 5, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "experts": (Experts, lambda: torch.randn(N_ROWS, 5, 8),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "composed": (Composed, lambda: torch.randn(N_ROWS, 4, 6),
                 lambda: torch.randint(0, 5, (N_ROWS,))),
    "parts": (Parts, lambda: torch.randn(N_ROWS, 3, 8, 8), lambda: torch.randint(0, 5, (N_ROWS,))),
    "functions": (Functions, lambda: torch.randn(N_ROWS, 4, 6),
                  lambda: torch.randint(0, 5, (N_ROWS,))),
    "signs": (Signs, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "phases": (Phases, lambda: torch.randn(N_ROWS, 5, 8),
               lambda: torch.randint(0, 5, (N_ROWS,))),
    "routed": (Routed, lambda: torch.randn(N_ROWS, 5, 8),
               lambda: torch.randint(0, 5, (N_ROWS,))),
    "taken": (Taken, lambda: torch.randn(N_ROWS, 5, 8),
              lambda: torch.randint(0, 5, (N_ROWS,))),
    "columns": (Columns, lambda: torch.randn(N_ROWS, 5, 8),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "shared": (Shared, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "fixed": (Fixed, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "hidden": (Hidden, lambda: torch.randn(N_ROWS, 5, 6),
               lambda: torch.randint(0, 5, (N_ROWS,))),
    "matched": (Matched, lambda: torch.randn(N_ROWS, 5, 6),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "gathered": (Gathered, lambda: torch.randn(N_ROWS, 7, 6),
                 lambda: torch.randint(0, 5, (N_ROWS,))),
    "resized": (Resized, lambda: torch.randn(N_ROWS, 2, 2, 3, 4),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "put": (Put, lambda: torch.randn(N_ROWS, 5, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "strided": (Strided, lambda: torch.randn(N_ROWS, 5, 6),
                lambda: torch.randint(0, 5, (N_ROWS,))),
    "terms": (Terms, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "rounded": (Rounded, lambda: torch.randn(N_ROWS, 6), lambda: torch.randint(0, 5, (N_ROWS,))),
    "positions": (Positions, lambda: torch.randn(N_ROWS, 5, 6),
                  lambda: torch.randint(0, 5, (N_ROWS,))),
    "zoo": (Zoo, lambda: torch.randn(N_ROWS, 3, 10), lambda: torch.randint(0, 5, (N_ROWS,))),
}


def loss_of(logits, y):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def train(model, x, y, dtype, decay=0, left=None):
    """The losses of five steps: of SGD, or of AdamW with a weight decay.  left: takes the buffers
    after them."""
    model = copy.deepcopy(model).to(dtype).train()
    x = x.to(dtype) if x.is_floating_point() else x
    step = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=decay) if decay else \
        torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        step.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        step.step()
        losses.append(loss.item())
    if left is not None:
        left.update((name, b.tolist()) for name, b in model.named_buffers())
    return losses


def drop(value, key):
    """Takes the members of that name out of all objects inside."""
    if isinstance(value, dict):
        value.pop(key, None)
    for item in value.values() if isinstance(value, dict) else value if isinstance(
            value, list) else ():
        drop(item, key)


def save(program, path, typed=False):
    whole = io.BytesIO()
    torch.export.save(program, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if "/sample_inputs/" in name:
                continue
            if name.endswith("/model.json"):
                data = json.loads(data)
                graph = data["graph_module"]["graph"]
                drop(graph["nodes"], "stack_trace")
                named = {i["as_tensor"]["name"] for i in graph["inputs"]}
                graph["tensor_values"] = {k: v for k, v in graph["tensor_values"].items()
                                          if typed or k in named}
                data["graph_module"]["module_call_graph"] = []
                data = json.dumps(data).encode()
            target.writestr(zipfile.ZipInfo(name), data)


def main():
    results, names = {}, sys.argv[1:] or list(MODELS)
    os.makedirs(os.path.join(HERE, "pt2"), exist_ok=True)
    if sys.argv[1:]:
        with open(os.path.join(HERE, "pt2.json")) as file:
            results = json.load(file)
    for name in names:
        make, make_x, make_y = MODELS[name]
        torch.manual_seed(3)
        model, x, y = make(), make_x(), make_y()
        rows = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(model.train(), (x,), strict=False,
                                      dynamic_shapes=({0: rows},))
        save(program, os.path.join(HERE, "pt2", name + ".pt2"), name in TYPED)
        wide = copy.deepcopy(model).double().eval()
        with torch.no_grad():
            logits = wide(x.double() if x.is_floating_point() else x)
        results[name] = {"x": x.tolist(), "y": y.tolist(),
                         "losses": train(model, x, y, torch.float64),
                         "losses_f32": train(model, x, y, torch.float32),
                         "eval_loss": loss_of(logits, y).item(),
                         "logits": logits.reshape(-1, logits.shape[-1])[0].tolist(),
                         "names": sorted(model.state_dict())}
        if name in ("moved", "shared"):
            results[name]["left"] = {}
            train(model, x, y, torch.float64, left=results[name]["left"])
        if name == "routed":
            results[name]["losses_decayed"] = train(model, x, y, torch.float64, 0.5)
            results[name]["losses_decayed_f32"] = train(model, x, y, torch.float32, 0.5)
    if not sys.argv[1:]:
        rows = torch.export.Dim("batch", min=1, max=9)
        program = torch.export.export(Seed(), (torch.ones(2, 2),), strict=False,
                                      dynamic_shapes=({0: rows},))
        save(program, os.path.join(HERE, "../fuzz/seeds/pt2/model"))
    with open(os.path.join(HERE, "pt2.json"), "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
