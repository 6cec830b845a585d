#!/usr/bin/env python3
"""ops3_make.py: what PyTorch computes for ops and their gradients, written as ops3_numbers.h.

Usage: python3 tests/golden/ops3_make.py > tests/golden/ops3_numbers.h

Everything is in float64.  The C test (tests/ops/pytorch_test.c) makes the same inputs:
  floating input i, element e   mid + half * sin(0.9 e + 1.7 i)
  integer input, element e      lo + (7 e + 3) % (hi - lo + 1)
  dy of output k, element e     cos(0.6 e + k)
A case's numbers are its outputs, then the gradients of its floating inputs, one after the other.
Where PyTorch 1.13 lacks an op (RMS norm, rotary, LION, LARS, LAMB) the formula of its paper stands
here, differentiated by PyTorch.
"""

import math

import torch
import torch.nn.functional as F

D = torch.float64


def fill(shape, i, mid=0.0, half=1.0):
    n = math.prod(shape)
    x = [mid + half * math.sin(0.9 * e + 1.7 * i) for e in range(n)]
    return torch.tensor(x, dtype=D).reshape(shape).requires_grad_()


def ints(shape, lo, hi):
    n = math.prod(shape)
    return torch.tensor([lo + (7 * e + 3) % (hi - lo + 1) for e in range(n)]).reshape(shape)


def cotangent(y, k):
    return torch.tensor([math.cos(0.6 * e + k) for e in range(y.numel())], dtype=D).reshape(y.shape)


def numbers(outputs, inputs):
    total = sum((y * cotangent(y, k)).sum() for k, y in enumerate(outputs))
    grads = torch.autograd.grad(total, inputs) if inputs else []
    return torch.cat([t.detach().reshape(-1) for t in list(outputs) + list(grads)]).tolist()


CASES = []


def case(op, types, attrs, fn, mid=0.0, half=1.0, lo=0, hi=0):
    """types as in the samples of the op table; fn gets the inputs and returns the outputs."""
    inputs = []
    for i, text in enumerate(types.split()):
        dtype, dims = text.rstrip("]").split("[")
        shape = [int(d) for d in dims.split(",")] if dims else []
        inputs.append(ints(shape, lo, hi) if dtype == "i32" else fill(shape, i, mid, half))
    outputs = fn(*inputs)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    grads = [] if op == "bn_eval" else [x for x in inputs if x.dtype == D]
    CASES.append((op, types, attrs, mid, half, lo, hi, numbers(outputs, grads)))


def rms_norm(x, gamma):
    return x * gamma / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def attention(heads, kv_heads, causal, scale=None):
    def run(qkv, lengths=None):
        b, t, width = qkv.shape
        dim = width // (heads + 2 * kv_heads)
        q, k, v = qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=-1)
        q = q.reshape(b, t, heads, dim).transpose(1, 2)
        k, v = (x.reshape(b, t, kv_heads, dim).transpose(1, 2)
                .repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        mask = torch.zeros(b, 1, t, t, dtype=D)
        if causal:
            mask = mask + torch.full((t, t), -math.inf, dtype=D).triu(1)
        if lengths is not None:
            beyond = torch.arange(t)[None, :] >= lengths[:, None]
            mask = mask.masked_fill(beyond[:, None, None, :], -math.inf)
        score = q @ k.transpose(-1, -2) * (scale or dim ** -0.5) + mask
        return (score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, heads * dim)
    return run


def sdpa(heads, kv_heads, causal=False, window=0, scale=None, softcap=0, bias=False,
         segments=False):
    def run(q, k, v, *more):
        more = list(more)
        dim = q.shape[-1] // heads
        q, k, v = (x.unflatten(-1, (n, -1)).transpose(1, 2)
                   for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        score = q @ k.transpose(-1, -2) * (scale or dim ** -0.5)
        if softcap:
            score = softcap * torch.tanh(score / softcap)
        if bias:
            score = score + more.pop(0)
        ahead = torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None]
        hidden = torch.zeros_like(ahead, dtype=torch.bool)[None, None]
        if causal:
            hidden = hidden | (ahead > 0)
        if window:
            hidden = hidden | (ahead.abs() >= window)
        if segments:
            hidden = hidden | (more[0][:, None, :, None] != more[1][:, None, None, :])
        none = hidden.all(-1, keepdim=True)
        weights = score.masked_fill(hidden & ~none, -math.inf).softmax(-1).masked_fill(none, 0.0)
        return (weights @ v).transpose(1, 2).flatten(2)
    return run


def grouped(trans):
    def run(x, w, ids):
        w = w.transpose(1, 2) if trans else w
        rows = [x[s] @ w[i] if 0 <= i < w.shape[0] else 0 * x[s].sum() * w[0, 0]
                for s, i in enumerate(ids.tolist())]
        return torch.stack(rows)
    return run


def rotary(heads, dim, base, start):
    def run(x):
        b, t, width = x.shape
        part = x[..., :heads * dim].reshape(b, t, heads, 2, dim // 2)
        z = torch.complex(part[..., 0, :], part[..., 1, :])
        rate = base ** (-torch.arange(0, dim, 2, dtype=D) / dim)
        angle = (start + torch.arange(t, dtype=D))[:, None] * rate
        z = z * torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
        turned = torch.stack([z.real, z.imag], dim=-2).reshape(b, t, heads * dim)
        return torch.cat([turned, x[..., heads * dim:]], dim=-1)
    return run


def recurrent(op):
    """op: torch.lstm or torch.gru; one layer, with biases, batch first."""
    def run(x, w_ih, w_hh, b_ih, b_hh, *states):
        zero = torch.zeros(x.shape[0], w_hh.shape[1], dtype=D)
        n_states = 2 if op is torch.lstm else 1
        states = [s[None] for s in (states or [zero] * n_states)]
        start = states if n_states == 2 else states[0]
        return op(x, start, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, False, False, True)[0]
    return run


def swiglu(x):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


case("layer_norm", "f64[3,5] f32[5] f32[5]", "", lambda x, g, b: F.layer_norm(x, [5], g, b))
case("rms_norm", "f64[3,5] f32[5]", "", rms_norm)
case("group_norm", "f64[2,4,3] f32[4] f32[4]", "groups=2", lambda x, g, b: F.group_norm(x, 2, g, b))
case("bn_eval", "f64[2,3,2] f32[3] f32[3] f32[3] f32[3]", "eps=0.001",
     lambda x, m, v, g, b: F.batch_norm(x, m.detach(), v.detach(), g, b, eps=0.001),
     mid=1.5, half=1.0)
case("attention", "f64[2,4,12]", "heads=2 causal=1", attention(2, 2, True))
case("attention", "f64[2,3,8] i32[2]", "heads=2 kv_heads=1 scale=0.3",
     attention(2, 1, False, 0.3), half=2.0, lo=1, hi=3)
case("attention", "f64[2,4,6] i32[2]", "heads=2 causal=1", attention(2, 2, True), lo=1, hi=3)
case("sdpa", "f64[2,3,4] f64[2,5,4] f64[2,5,6]", "heads=2", sdpa(2, 2), half=2.0)
case("sdpa", "f64[2,4,8] f64[2,4,4] f64[2,4,4] f64[1,4,4,4]",
     "heads=4 kv_heads=2 causal=1 with=1 softcap=0.7", sdpa(4, 2, True, softcap=0.7, bias=True),
     half=2.0)
case("sdpa", "f64[2,5,4] f64[2,4,4] f64[2,4,4] f64[2,1,1,4] i32[2,5] i32[2,4]",
     "heads=2 window=3 scale=0.8 with=3", sdpa(2, 2, window=3, scale=0.8, bias=True, segments=True),
     lo=0, hi=2)
case("grouped_matmul", "f64[7,3] f64[3,3,4] i32[7]", "", grouped(False), lo=0, hi=3)
case("grouped_matmul", "f64[7,3] f64[2,4,3] i32[7]", "trans_b=1", grouped(True), lo=0, hi=1)
case("rotary", "f64[1,3,10]", "heads=2 dim=4 base=100 start=5", rotary(2, 4, 100.0, 5))
case("embedding", "f64[4,3] i32[2,3]", "", lambda t, i: F.embedding(i, t), lo=0, hi=3)
case("gather", "f64[2,4,2] i32[3]", "axis=1", lambda x, i: x.index_select(1, i), lo=0, hi=3)
case("lstm", "f64[2,3,2] f64[8,2] f64[8,2] f64[8] f64[8] f64[2,2] f64[2,2]", "",
     recurrent(torch.lstm))
case("lstm", "f64[1,3,2] f64[8,2] f64[8,2] f64[8] f64[8]", "", recurrent(torch.lstm))
case("gru", "f64[2,3,2] f64[6,2] f64[6,2] f64[6] f64[6] f64[2,2]", "", recurrent(torch.gru))
case("gru", "f64[1,3,2] f64[6,2] f64[6,2] f64[6] f64[6]", "", recurrent(torch.gru))
case("mse", "f64[2,3] f64[2,3]", "", lambda x, t: F.mse_loss(x, t, reduction="sum"))
case("bce_with_logits", "f64[2,3] f64[2,3]", "",
     lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum"), mid=0.5, half=0.5)
case("kl_div", "f64[2,3] f64[2,3]", "", lambda x, t: F.kl_div(x, t, reduction="sum"),
     mid=0.6, half=0.4)
case("silu", "f64[7]", "", F.silu, half=4.0)
case("swiglu", "f64[2,6]", "", swiglu, half=3.0)
case("upsample_nearest2d", "f64[1,2,2,3]", "scale=[2,3]",
     lambda x: F.interpolate(x, scale_factor=(2, 3), mode="nearest"))
case("upsample_bilinear2d", "f64[1,1,3,2]", "out=[5,4]",
     lambda x: F.interpolate(x, size=(5, 4), mode="bilinear", align_corners=False))
case("upsample_bilinear2d", "f64[1,1,3,2]", "out=[4,5] align=1",
     lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", align_corners=True))


def batch_norm():
    """y, dx, dgamma, dbeta, then running mean and variance after one step from 0 and 1."""
    x, gamma, beta = fill([3, 2, 2], 0), fill([2], 1), fill([2], 2)
    mean, var = torch.zeros(2, dtype=D), torch.ones(2, dtype=D)
    y = F.batch_norm(x, mean, var, gamma, beta, training=True, momentum=0.1, eps=1e-3)
    return numbers([y], [x, gamma, beta]) + mean.tolist() + var.tolist()


# ---- optimizers: 20 steps on g = (i + 1) w / 4 + sin(1.3 step + 0.7 i), step from 1, lr 0.05

STEPS, N, LR = 20, 5, 0.05


def start():
    return [1 - 0.4 * i for i in range(N)]


def gradient(w, step):
    return [(i + 1) * w[i] / 4 + math.sin(1.3 * step + 0.7 * i) for i in range(N)]


def by_torch(make):
    w = torch.tensor(start(), dtype=D, requires_grad=True)
    optimizer = make([w])
    for step in range(1, STEPS + 1):
        w.grad = torch.tensor(gradient(w.tolist(), step), dtype=D)
        optimizer.step()
    return w.tolist()


def norm(x):
    return math.sqrt(sum(e * e for e in x))


def lion(b1=0.9, b2=0.99, decay=0.1):
    w, m = start(), [0.0] * N
    for step in range(1, STEPS + 1):
        g = gradient(w, step)
        for i in range(N):
            w[i] *= 1 - LR * decay
            w[i] -= LR * math.copysign(1, b1 * m[i] + (1 - b1) * g[i])
            m[i] = b2 * m[i] + (1 - b2) * g[i]
    return w


def lars(momentum=0.9, decay=0.01, trust=0.02, eps=1e-8):
    w, m = start(), [0.0] * N
    for step in range(1, STEPS + 1):
        g = gradient(w, step)
        rate = trust * norm(w) / (norm(g) + decay * norm(w) + eps)
        for i in range(N):
            m[i] = momentum * m[i] + rate * (g[i] + decay * w[i])
            w[i] -= LR * m[i]
    return w


def lamb(b1=0.9, b2=0.999, eps=1e-6, decay=0.01):
    w, m, v = start(), [0.0] * N, [0.0] * N
    for step in range(1, STEPS + 1):
        g, r = gradient(w, step), [0.0] * N
        for i in range(N):
            m[i] = b1 * m[i] + (1 - b1) * g[i]
            v[i] = b2 * v[i] + (1 - b2) * g[i] ** 2
            mhat, vhat = m[i] / (1 - b1 ** step), v[i] / (1 - b2 ** step)
            r[i] = mhat / (math.sqrt(vhat) + eps) + decay * w[i]
        ratio = norm(w) / norm(r)
        for i in range(N):
            w[i] -= LR * ratio * r[i]
    return w


O = torch.optim
OPTIMIZERS = [
    ("sgd", "momentum=0.9 decay=0.01",
     by_torch(lambda p: O.SGD(p, LR, momentum=0.9, weight_decay=0.01))),
    ("sgd", "momentum=0.9 nesterov=1",
     by_torch(lambda p: O.SGD(p, LR, momentum=0.9, nesterov=True))),
    ("adam", "decay=0.01", by_torch(lambda p: O.Adam(p, LR, weight_decay=0.01))),
    ("adamw", "decay=0.1", by_torch(lambda p: O.AdamW(p, LR, weight_decay=0.1))),
    ("rmsprop", "decay=0.01", by_torch(lambda p: O.RMSprop(p, LR, weight_decay=0.01))),
    ("rmsprop", "alpha=0.9 momentum=0.9 eps=0.001",
     by_torch(lambda p: O.RMSprop(p, LR, alpha=0.9, momentum=0.9, eps=0.001))),
    ("adagrad", "decay=0.01 lr_decay=0.1",
     by_torch(lambda p: O.Adagrad(p, LR, lr_decay=0.1, weight_decay=0.01))),
    ("lion", "decay=0.1", lion()),
    ("lars", "decay=0.01 trust=0.02", lars()),
    ("lamb", "decay=0.01", lamb()),
]


def array(name, values):
    print("static const double %s[] = {" % name)
    for i in range(0, len(values), 4):
        print("    " + " ".join("%.15g," % v for v in values[i:i + 4]))
    print("};")


def main():
    print("/* ops3_numbers.h - made by ops3_make.py with PyTorch %s; do not edit. */"
          % torch.__version__)
    print("#ifndef TTI_TESTS_OPS3_NUMBERS_H\n#define TTI_TESTS_OPS3_NUMBERS_H\n")
    for n, c in enumerate(CASES):
        array("ops3_case_%d" % n, c[-1])
    array("ops3_batch_norm", batch_norm())
    for n, c in enumerate(OPTIMIZERS):
        array("ops3_optimizer_%d" % n, c[-1])
    print("\nstatic const ops3_case ops3_cases[] = {")
    for n, (op, types, attrs, mid, half, lo, hi, values) in enumerate(CASES):
        print('    {"%s", "%s", "%s",\n     %g, %g, %d, %d, %d, ops3_case_%d},'
              % (op, types, attrs, mid, half, lo, hi, len(values), n))
    print("};\n\nstatic const ops3_optimizer ops3_optimizers[] = {")
    for n, (op, attrs, _) in enumerate(OPTIMIZERS):
        print('    {"%s", "%s", ops3_optimizer_%d},' % (op, attrs, n))
    print("};\n\n#endif")


main()
