#!/usr/bin/env python3
"""Writes patterns/*.pt2, patterns/*.onnx and patterns.json: layers that are spelled out in
PyTorch's primitive operators, and PyTorch's results and gradients in f64.  Needs torch and onnx.

    python make_patterns.py
"""
import json
import os
import warnings

import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node")
B, T, C, H, KV, D = 2, 6, 16, 4, 2, 8


def row(n=C, mean=1.0):
    return nn.Parameter(mean + 0.2 * torch.randn(n))


def matrix(n_out, n_in=C):
    return nn.Parameter(torch.randn(n_out, n_in) / n_in ** 0.5)


def others(x, n):
    """Values that have nothing in common but x."""
    return [x * (1 + 0.1 * i) for i in range(1, n + 1)]


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("a", "b", "c", "d", "e", "f"):
            setattr(self, "w_" + name, row())
        self.bias = row(mean=0.0)

    def forward(self, x):
        x, y, z, u, s, t = others(x, 6)
        d = x - x.mean(-1, keepdim=True)
        a = d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * self.w_a + self.bias
        x = y
        v = x.var(-1, unbiased=False, keepdim=True)
        b = self.w_b * ((x - x.mean(-1, keepdim=True)) * torch.rsqrt(v + 1e-6))
        x = z
        c = self.w_c * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        x = u
        e = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.w_d)
        # near misses: eps outside of the root, an unbiased deviation, another axis
        x, d = s, s - s.mean(-1, keepdim=True)
        f = d / (x.std(-1, unbiased=False, keepdim=True) + 1e-2) * self.w_e
        x, d = t, t - t.mean(-1, keepdim=True)
        g = d / torch.sqrt(x.var(-1, unbiased=True, keepdim=True) + 1e-5) * self.w_f
        over = x - x.mean(1, keepdim=True)
        h = over * torch.rsqrt(over.pow(2).mean(1, keepdim=True) + 1e-5)
        return a, b, c, e, f, g, h


class Gates(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(C, C, bias=False), nn.Linear(C, C, bias=False)
        self.gate2, self.up2, self.gate3 = nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x):
        a, b, c, d, e = others(self.gate(x), 5)
        gelu = 0.5 * a * (1.0 + torch.erf(a / 2 ** 0.5))
        new = 0.5 * b * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (b + 0.044715 * torch.pow(b, 3))))
        fast = 0.5 * c * (1.0 + torch.tanh(c * 0.7978845608 * (1.0 + 0.044715 * c * c)))
        quick = d * torch.sigmoid(1.702 * d)
        swiglu = F.silu(self.gate2(x)) * self.up2(x)
        geglu = F.gelu(self.up(x)) * self.gate3(x)
        near = e * torch.sigmoid(1.5 * e)
        return gelu, new, fast, quick, swiglu, geglu, near


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), -1)


def repeat_kv(x, n):
    b, heads, t, d = x.shape
    return x[:, :, None].expand(b, heads, n, t, d).reshape(b, heads * n, t, d)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.packed = matrix(3 * H * D), matrix(3 * H * D)
        self.q, self.k, self.v = matrix(H * D), matrix(KV * D), matrix(KV * D)
        t, s = torch.arange(T)[:, None], torch.arange(T)[None]
        self.register_buffer("causal", s <= t)
        self.register_buffer("window", (s <= t) & (s > t - 3))
        self.register_buffer("added", torch.where(s <= t, 0.0, float("-inf")))
        self.register_buffer("near", -0.1 * (t - s).abs().float())
        inv = 1.0 / 10000 ** (torch.arange(0, D, 2).float() / D)
        angle = torch.cat([t.float() * inv, t.float() * inv], -1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def heads(self, x):
        q, k, v = F.linear(x, self.qkv).split(H * D, dim=-1)
        return [y.view(x.shape[0], T, H, D).transpose(1, 2) for y in (q, k, v)]

    def by_hand(self, x, mask):
        q, k, v = self.heads(x)
        s = q @ k.transpose(-2, -1) * D ** -0.5
        s = s.masked_fill(mask == 0, float("-inf"))
        return (F.softmax(s, dim=-1) @ v).transpose(1, 2).reshape(x.shape[0], T, H * D)

    def einsum(self, x):
        q, k, v = (y.reshape(x.shape[0], T, H, D) for y in F.linear(x, self.qkv).chunk(3, -1))
        s = torch.einsum("bthd,bshd->bhts", q, k) / D ** 0.5 + self.added
        return torch.einsum("bhts,bshd->bthd", s.softmax(-1), v).flatten(2)

    def timm(self, x):
        qkv = F.linear(x, self.packed).reshape(x.shape[0], T, 3, H, D).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        return ((q * D ** -0.5 @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def grouped(self, x):
        q, k, v = (F.linear(x, w).view(x.shape[0], T, -1, D).transpose(1, 2)
                   for w in (self.q, self.k, self.v))
        q, k = (y * self.cos + rotate_half(y) * self.sin for y in (q, k))
        k, v = repeat_kv(k, H // KV), repeat_kv(v, H // KV)
        s = torch.matmul(q, k.transpose(2, 3)) * D ** -0.5 + self.added
        return torch.matmul(F.softmax(s, -1), v).transpose(1, 2).flatten(2)

    def biased(self, x):
        q, k, v = self.heads(x)
        s = q @ k.transpose(-2, -1) * D ** -0.5 + self.near
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x):
        a, b, c, d, e, f = others(x, 6)
        return (self.by_hand(a, self.causal), self.einsum(b), self.timm(c), self.grouped(d),
                self.by_hand(e, self.window), self.biased(f))


class Biases(nn.Module):
    """Attention whose scores are more than a scaled product."""

    def __init__(self):
        super().__init__()
        self.qkv, self.kv = matrix(3 * H * D), matrix(2 * H * D)
        self.by_place = nn.Parameter(torch.randn(2 * T - 1, H))
        self.by_head = nn.Parameter(torch.randn(1, H, T, T))
        t, s = torch.arange(T)[:, None], torch.arange(T)[None]
        self.register_buffer("place", s - t + T - 1)
        self.register_buffer("window", (s <= t) & (s > t - 3))
        self.register_buffer("added", torch.where(s <= t, 0.0, torch.finfo(torch.float32).min))
        half = torch.where((t < 2) == (s < 2), 0.0, -100.0)
        self.register_buffer("halves", torch.stack([torch.zeros(T, T), half])[:, :T // 2, :T // 2])

    def heads(self, x, w, n):
        return [y.reshape(x.shape[0], -1, H, D).transpose(1, 2)
                for y in F.linear(x, w).chunk(n, -1)]

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * D ** -0.5

    def merge(self, s, v, x):
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], -1, H * D)

    def relative(self, x):
        """T5: a table of distances, which holds the mask."""
        q, k, v = self.heads(x, self.qkv, 3)
        bias = F.embedding(self.place, self.by_place).permute(2, 0, 1).unsqueeze(0) + self.added
        return self.merge(q @ k.transpose(-2, -1) + bias, v, x)

    def windows(self, x):
        """Swin: each sample is two windows, with a mask of their own."""
        n = x.shape[0]
        x = x.reshape(n * 2, T // 2, C)
        q, k, v = self.heads(x, self.qkv, 3)
        s = self.scores(q, k) + self.by_head[:, :, :T // 2, :T // 2]
        s = s.view(n, 2, H, T // 2, T // 2) + self.halves.unsqueeze(1).unsqueeze(0)
        return self.merge(s.view(-1, H, T // 2, T // 2), v, x).reshape(n, T, H * D)

    def padded(self, x):
        """Keys with a negative first element do not count."""
        q, k, v = self.heads(x, self.qkv, 3)
        hidden = (x[:, :, 0] < 0)[:, None, None, :]
        return self.merge(self.scores(q, k).masked_fill(hidden, float("-1e9")), v, x)

    def capped(self, x):
        q, k, v = self.heads(x, self.qkv, 3)
        s = 1.5 * torch.tanh(self.scores(q, k) / 1.5)
        return self.merge(s.masked_fill(~self.window, float("-inf")), v, x)

    def across(self, x):
        """Queries of the first positions, keys of all."""
        q = self.heads(x[:, :2], self.qkv[:H * D], 1)[0]
        k, v = self.heads(x, self.kv, 2)
        return self.merge(torch.einsum("bhtd,bhsd->bhts", q, k) * 0.3, v, x)

    def forward(self, x):
        a, b, c, d, e = others(x, 5)
        return self.relative(a), self.windows(b), self.padded(c), self.capped(d), self.across(e)


class Fills(nn.Module):
    """Masks that follow from the input, filled in; some queries see no key."""

    def __init__(self):
        super().__init__()
        self.qkv, self.by_head = matrix(3 * H * D), nn.Parameter(torch.randn(1, H, T, T))
        self.register_buffer("later", torch.ones(T, T, dtype=torch.bool).triu(1))

    def forward(self, x):
        outputs = []
        for i, y in enumerate(others(x, 5)):
            q, k, v = (z.reshape(z.shape[0], T, H, D).transpose(1, 2)
                       for z in F.linear(y, self.qkv).chunk(3, -1))
            s = q @ k.transpose(-2, -1) * D ** -0.5
            padded = y[:, :, 1] < 0
            keys, pairs = padded[:, None, None], (padded[:, None] | padded[:, :, None])[:, None]
            if i == 0:  # of pairs
                s = (s + self.by_head).masked_fill(pairs, -1e9)
            elif i == 1:  # of later keys and of padded ones, together
                s = torch.where(self.later | keys, torch.finfo(torch.float32).min, s)
            elif i == 2:  # one after the other
                s = s.masked_fill(self.later, -1e9).masked_fill(keys, -1e9)
            elif i == 3:
                s = s.masked_fill(keys, -1e9).masked_fill(self.later, -1e9)
            else:  # a trained bias that is replaced
                s = (s + self.by_head).masked_fill(keys | (padded.sum(-1) > 3)[:, None, None, None],
                                                   -1e9)
            outputs.append((s.softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], T, H * D))
        return tuple(outputs)


def strip(path):
    """Leaves out the names of source files, which are most of the file."""
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [(p.key, p.value) for p in node.metadata_props if p.key in KEPT]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    onnx.save(model, path)


MODELS = {"norms": Norms, "gates": Gates, "attention": Attention, "biases": Biases,
          "fills": Fills}


def results(model, x, factors):
    model.zero_grad()
    outputs = model(x)
    sum((y * f).sum() for y, f in zip(outputs, factors)).backward()
    return outputs, {name: p.grad for name, p in model.named_parameters()}


def numbers(x):
    return [float("%.9g" % v) for v in x.detach().flatten().tolist()]


def main():
    warnings.simplefilter("ignore")
    golden = {}
    os.makedirs(os.path.join(HERE, "patterns"), exist_ok=True)
    for name, make in MODELS.items():
        torch.manual_seed(1)
        model, x = make().train(), torch.randn(B, T, C)
        factors = [torch.randn_like(y) for y in model(x)]
        batch = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},), strict=False)
        path = os.path.join(HERE, "patterns", name)
        torch.export.save(program, path + ".pt2")
        torch.onnx.export(model, (x,), path + ".onnx", dynamo=True, optimize=False, verbose=False,
                          dynamic_shapes=({0: batch},), external_data=False)
        strip(path + ".onnx")
        outputs, gradients = results(model.double(), x.double(), [f.double() for f in factors])
        golden[name] = {"x": numbers(x), "shape": [B, T, C],
                        "factors": [numbers(f) for f in factors],
                        "shapes": [list(f.shape) for f in factors],
                        "outputs": [numbers(y) for y in outputs],
                        "gradients": {k: numbers(g) for k, g in gradients.items() if g is not None}}
    with open(os.path.join(HERE, "patterns.json"), "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
