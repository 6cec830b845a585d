"""import_zoo_odd.py - small hand-written modules of import_zoo.py: one idiom of Python each."""

import torch
import torch.nn.functional as F
from torch import nn

CASES = {}


def case(*inputs, name=None):
    """Registers a class of modules, with a function for each input, or a dict of them."""
    def add(kind):
        given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], dict) else dict(
            zip("xyzw", inputs))
        CASES["odd_" + (name or kind.__name__)] = lambda: (
            kind(), {k: make() for k, make in given.items()})
        return kind
    return add


def f(*shape):
    return lambda: torch.randn(*shape)


def positive(*shape):
    return lambda: torch.rand(*shape) + 0.1


def i(high, *shape, dtype=torch.int64):
    return lambda: torch.randint(0, high, shape).to(dtype)


def flags(*shape):
    return lambda: torch.rand(*shape) > 0.4


class Linear(nn.Module):
    """x -> g(linear(x)), with g of the subclass."""
    width, out = 6, 6

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(self.width, self.out)

    def forward(self, x):
        return self.run(self.fc(x))


def on_linear(name, run, *shape, width=6, out=6):
    kind = type(name, (Linear,), {"run": staticmethod(run), "width": width, "out": out})
    CASES["odd_" + name] = lambda: (kind(), {"x": torch.randn(*(shape or (4, 5, 6)))})


# ---- functions by elements, reductions, shapes ----

for _name, _run in {
        "cumsum": lambda x: torch.cumsum(x, 1) * torch.cumsum(x, -1),
        "cumprod": lambda x: torch.cumprod(torch.sigmoid(x) + 0.5, 1),
        "cummax": lambda x: torch.cummax(x, 1).values,
        "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
        "prod": lambda x: (torch.sigmoid(x) + 0.5).prod(1),
        "norms": lambda x: x.norm(dim=-1) + x.norm(p=1, dim=-1) + x.abs().pow(3).sum(-1),
        "normalize": lambda x: F.normalize(x, dim=-1) + F.normalize(x, p=1.0, dim=1),
        "cdist": lambda x: torch.cdist(x, x + 1.0),
        "std_var": lambda x: x.std(1) + x.var(1, unbiased=False) + x.std((1, 2))[:, None],
        "logsumexp": lambda x: torch.logsumexp(x, (1, 2)) + torch.logsumexp(x, 1).sum(1),
        "amax_amin": lambda x: x.amax((1, 2)) - x.amin(1).sum(1),
        "minmax": lambda x: torch.aminmax(x, dim=1)[0] + x.max(1)[0] * 2 - x.min(1).values,
        "median": lambda x: x.median(1).values + x.quantile(0.5, dim=1),
        "kthvalue": lambda x: x.kthvalue(2, dim=1).values,
        "topk": lambda x: x.topk(3, dim=1)[0].sum(1) + x.topk(2, largest=False)[0].sum(
            (1, 2))[:, None],
        "sort": lambda x: x.sort(1, descending=True)[0] * torch.arange(5.0)[:, None],
        "argsort_gather": lambda x: torch.gather(x, 1, x.argsort(1)) * torch.arange(5.0)[:, None],
        "argmax_onehot": lambda x: F.one_hot(x.argmax(-1), 6).float() * x,
        "straight_through": lambda x: (F.one_hot(x.argmax(-1), 6).float() - x.softmax(-1)).detach()
        + x.softmax(-1),
        "trig": lambda x: torch.sin(x) + torch.cos(x) + torch.tan(x * 0.2) + torch.atan(x),
        "inverse_trig": lambda x: torch.asin(torch.tanh(x) * 0.9) + torch.acos(torch.tanh(x) * 0.9)
        + torch.atan2(x, x + 3.0),
        "hyperbolic": lambda x: torch.sinh(x) + torch.cosh(x) + torch.asinh(x)
        + torch.acosh(x.abs() + 1.5) + torch.atanh(torch.tanh(x) * 0.9),
        "logs": lambda x: torch.log1p(x.abs()) + torch.log2(x.abs() + 1) + torch.log10(
            x.abs() + 2) + torch.expm1(x) + torch.exp2(x),
        "special": lambda x: torch.erf(x) + torch.erfc(x) + torch.special.expit(x)
        + torch.lgamma(x.abs() + 1) + torch.digamma(x.abs() + 1),
        "logit": lambda x: torch.logit(torch.sigmoid(x), eps=1e-6) + torch.special.xlogy(
            x.abs(), x.abs() + 1),
        "rounding": lambda x: x * torch.floor(x) + x * torch.ceil(x) + x * torch.round(x)
        + x * torch.trunc(x) + torch.frac(x) + torch.fmod(x, 0.7) + torch.remainder(x, 0.7),
        "signs": lambda x: x * torch.sign(x) + torch.copysign(x, -x),
        "clamps": lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp_max(0.2) + torch.clip(
            x, -1, 1),
        "clamp_tensor": lambda x: torch.clamp(x, -x.abs().detach() * 0.5, torch.ones(6) * 0.3),
        "pow": lambda x: x ** 2 + x.abs() ** 0.5 + 2 ** x + (x.abs() + 1) ** x + x ** 3 + x ** -2.0,
        "division": lambda x: x / 3 + 3 / (x.abs() + 1) + torch.div(x, 0.3, rounding_mode="floor")
        * x + torch.div(x, 0.3, rounding_mode="trunc") * x,
        "where": lambda x: torch.where(x > 0, x * 2, x.exp()) + torch.where(x > 0.5, x, 0.0),
        "masked_fill": lambda x: x.masked_fill(x < 0, -1e4).softmax(-1) + x.masked_fill(
            torch.eye(5, 6, dtype=torch.bool), 0.0),
        "comparisons": lambda x: (x > 0) * x + (x >= 0.1).float() + ((x < 1) & (x > -1)).to(x.dtype)
        * x + (~(x == 0)) * x + ((x > 0) ^ (x > 1)) * x,
        "isclose": lambda x: torch.isclose(x, x + 1e-9) * x + torch.isnan(x)
        + torch.isfinite(x) * x,
        "nan_to_num": lambda x: torch.nan_to_num(x / (x > 0)) .clamp(-5, 5),
        "triangles": lambda x: torch.tril(x) + torch.triu(x, 1) * 2 + torch.diagonal(
            x, dim1=1, dim2=2).sum(-1)[:, None, None],
        "diag_embed": lambda x: torch.diag_embed(x).sum(1) + torch.diag_embed(x)[:, 0],
        "trace_einsum": lambda x: torch.einsum("bii->b", x[:, :5, :5]),
        "einsum_many": lambda x: torch.einsum("bij,bkj,bkl->bil", x, x, x)
        + torch.einsum("bij->bj", x)[:, None],
        "einsum_ellipsis": lambda x: torch.einsum("...i,...i->...", x, x),
        "tensordot": lambda x: torch.tensordot(x, torch.ones(6, 3) * 0.5, dims=1),
        "outer": lambda x: x[:, :, None] * x[:, None] + torch.kron(
            x[:, :2, :2], torch.eye(2)).sum(),
        "bilinear": lambda x: F.bilinear(x, x, torch.ones(3, 6, 6) * 0.1),
        "baddbmm": lambda x: torch.baddbmm(x[:, :, :5], x, x.transpose(1, 2), beta=0.5, alpha=2.0),
        "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(
            x, x, x.abs() + 1, value=2.0),
        "lerp": lambda x: torch.lerp(x, x * x, 0.3) + torch.lerp(x, -x, torch.sigmoid(x)),
        "stack_cat": lambda x: torch.cat([x, torch.stack([x[:, 0], x[:, 1]], 1)], 1).flip(1)
        .roll(2, 1).roll((1, 2), (1, 2)),
        "roll_flat": lambda x: torch.roll(x.flatten(1), 3, 1),
        "rot90": lambda x: torch.rot90(x, 1, (1, 2)) + torch.fliplr(x).transpose(1, 2),
        "repeat": lambda x: x.repeat(1, 2, 1)[:, ::2] + x.tile((1, 1, 1)),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1)[:, 1:6] + x.repeat_interleave(
            3, dim=2)[..., ::3] + x.repeat_interleave(torch.tensor([1, 0, 2, 1, 1]), dim=1,
                                                      output_size=5),
        "expand": lambda x: x[:, :1].expand(-1, 5, -1) * x.mean(1, keepdim=True).expand_as(x),
        "split": lambda x: sum(p.sum(-1) for p in x.split([1, 2, 3], -1)) + x.chunk(2, -1)[1].sum(
            -1) + torch.tensor_split(x, 3, 2)[0].sum(-1) + x.hsplit([2])[0].sum((1, 2))[:, None],
        "unfold": lambda x: x.unfold(1, 3, 2).flatten(2),
        "unbind": lambda x: torch.stack(list(reversed(x.unbind(1))), -1),
        "movedim": lambda x: x.movedim(1, 2).swapdims(1, 2).unflatten(2, (2, 3)).permute(
            0, 3, 1, 2).contiguous().view(x.shape[0], 3, -1).mT.reshape(x.shape[0], -1),
        "as_strided_like": lambda x: x.narrow(1, 1, 3).select(1, 2).unsqueeze(1).squeeze(1).ravel()
        .view(x.shape[0], 6),
        "steps": lambda x: x[:, ::2, 1::2] * x[..., -3:].flip(-1)[:, ::2] + x[:, -1:, ..., None, 0],
        "index_list": lambda x: x[:, [0, 2, 4]] + x[:, torch.tensor([[1, 2, 0]])][:, 0],
        "index_pair": lambda x: x[:, [0, 1, 2], [3, 4, 5]] * x[:, torch.tensor(
            [[0], [1]]), torch.tensor([1, 2, 3])].sum(1),
        "index_apart": lambda x: x[:, None][:, [0, 0], :, [1, 2]],
        "index_bool": lambda x: x[:, torch.tensor([True, False, True, True, False])],
        "index_by_argmax": lambda x: x[torch.arange(x.shape[0]), x.sum(-1).argmax(1)],
        "take_along": lambda x: torch.take_along_dim(x, x.argsort(-1)[..., :2], -1),
        "index_put": lambda x: put(x),
        "index_fill": lambda x: x.index_fill(1, torch.tensor([0, 3]), 2.0) + x.index_add(
            1, torch.tensor([1, 1]), x[:, :2]) + x.index_copy(1, torch.tensor([4, 0]), x[:, :2]),
        "slice_write": lambda x: write(x),
        "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3)
        + torch.select_scatter(x, x[:, 0] * 3, 1, 2),
        "scatter": lambda x: torch.zeros_like(x).scatter(1, x.argsort(1), x) + torch.zeros(
            x.shape[0], 5, 6).scatter_add(1, (x > 0).long(), x),
        "scatter_reduce": lambda x: torch.zeros_like(x).scatter_reduce(
            1, (x > 0).long(), x, "amax") + torch.zeros_like(x).scatter_reduce(
                1, (x > 0).long(), x, "sum"),
        "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
        "searchsorted": lambda x: x * torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        "softmaxes": lambda x: x.softmax(1) + x.log_softmax(-1) + F.softmin(x, -1)
        + torch.softmax(x.double(), -1).float(),
        "gumbel_free_sparsemax": lambda x: sparsemax(x),
        "activations": lambda x: sum(g(x) for g in (
            F.relu, F.relu6, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.softsign,
            F.tanhshrink, F.hardtanh, F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink,
            F.logsigmoid, F.leaky_relu, torch.sigmoid, torch.tanh)) + F.threshold(x, 0.1, 20.0)
        + F.gelu(x, approximate="tanh") + F.rrelu(x, training=False) + F.glu(torch.cat([x, x], -1)),
        "pads": lambda x: F.pad(x, (1, 2)) [..., :6] + F.pad(x, (-1, 1, 2, -2)) + F.pad(
            x, (2, 1), mode="reflect")[..., 3:] + F.pad(x, (2, 1), mode="replicate")[..., :6]
        + F.pad(x, (2, 1), mode="circular")[..., :6],
        "interpolate": lambda x: F.interpolate(x, 11, mode="linear") + F.interpolate(
            x, scale_factor=11 / 6, mode="nearest"),
        "meshgrid": lambda x: x + torch.stack(torch.meshgrid(
            torch.arange(5.0), torch.arange(6.0), indexing="ij")).sum(0) + torch.stack(
                torch.meshgrid(torch.linspace(0, 1, 6), torch.linspace(-1, 1, 5),
                               indexing="xy")).prod(0),
        "constants": lambda x: x + torch.linspace(0, 1, 6) + torch.logspace(0, 1, 6) + torch.eye(
            5, 6) + torch.full((5, 1), 2.0) + torch.arange(0, 3, 0.5) + torch.tensor([1, 2, 3] * 2)
        + torch.hann_window(6),
        "nested_loops": lambda x: loops(x),
        "float64": lambda x: (x.double() * 1.5).float() + x.to(torch.float64).sum(1, keepdim=True)
        .to(x.dtype),
        "int_math": lambda x: x * ((x * 10).long() % 3) + ((x * 10).int() // 3) + (
            (x * 10).long() & 3) + ((x * 10).long() << 1) + ((x * 10).abs().long() >> 1),
        "complex": lambda x: torch.view_as_real(torch.view_as_complex(
            x.reshape(x.shape[0], -1, 2).contiguous()) * (1 + 2j)).flatten(1),
        "fft": lambda x: torch.fft.fft(x, dim=-1).real + torch.fft.fft2(x).real,
        "rfft": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=-1) * 0.5, n=6, dim=-1),
        "cross": lambda x: torch.cross(x[..., :3], x[..., 3:], dim=-1),
        "linalg": lambda x: torch.linalg.norm(x, dim=(1, 2)) + torch.linalg.vector_norm(
            x, 3, dim=(1, 2)) + torch.linalg.vector_norm(x, float("inf"), dim=(1, 2)),
        "inverse": lambda x: torch.linalg.inv(x[:, :5, :5] + 5 * torch.eye(5)),
        "det": lambda x: torch.linalg.det(x[:, :3, :3]),
        "cosine": lambda x: F.cosine_similarity(x[:, :3], x[:, 2:5], dim=-1) + F.pairwise_distance(
            x[:, :3], x[:, 2:5]),
        "losses": lambda x: F.mse_loss(x, x.roll(1, 1)) + F.l1_loss(x, x.roll(1, 2)),
        "scalar_out": lambda x: x.sum(),
        "attention_manual": lambda x: attend(x),
        "sdpa": lambda x: F.scaled_dot_product_attention(
            x[:, None], x[:, None], x[:, None], is_causal=True)[:, 0],
        "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        "grad_tricks": lambda x: x + (x.detach() * x) + x.clone().detach(),
        "unsqueeze_views": lambda x: inplace(x),
        "max_two": lambda x: torch.maximum(x, x.flip(1)) + torch.minimum(x, x.flip(2)) + torch.fmax(
            x, -x) + torch.fmin(x, x * 2),
        "hypot": lambda x: torch.hypot(x, x + 1) + torch.logaddexp(x, x * 2) + torch.sinc(x),
        "chebyshev": lambda x: (x[:, :, None] - x[:, None]).abs().amax(-1),
        "diff": lambda x: torch.diff(x, dim=1).sum(1) + torch.trapz(x, dim=1),
        "block_diag": lambda x: x @ torch.block_diag(torch.ones(2, 2), torch.ones(4, 4)),
        "vander": lambda x: torch.vander(x[:, 0, 0], 3),
        "any_all": lambda x: x * (x > 0).any(1, keepdim=True) + x * (x > -9).all(2, keepdim=True)
        + (x > 0).any() * x,
        "count_nonzero": lambda x: x * torch.count_nonzero(x > 0, dim=1)[:, None],
        "dist": lambda x: torch.dist(x, x.flip(1)) + torch.mean(x, (0, 1)).sum(),
        "batch_sum": lambda x: x - x.mean(0, keepdim=True),
        "batch_flip": lambda x: x * x.flip(0),
        "batch_max": lambda x: x - x.amax(0),
        "batch_sort": lambda x: x.sort(0)[0] * torch.arange(4.0)[:, None, None],
        "batch_softmax": lambda x: x.softmax(0),
        "batch_reshape": lambda x: x.reshape(-1, 6).softmax(0).reshape(x.shape),
        "batch_transpose": lambda x: (x.transpose(0, 1).softmax(-1) * 2).transpose(0, 1),
        "batch_select": lambda x: x + x[0] + x[-1:],
        "batch_cumsum": lambda x: x.cumsum(0),
        "batch_matmul": lambda x: x.flatten(1) @ x.flatten(1).T,
        "batch_roll": lambda x: x.roll(1, 0)}.items():
    on_linear(_name, _run)


for _name, _run in {
        "flat_mean": lambda x: x - x.reshape(-1, 6).mean(0),
        "flat_sum": lambda x: x - x.reshape(-1, 6).sum(0) * 0.1,
        "turned_mean": lambda x: x.transpose(0, 1).mean(0),
        "turned_sum": lambda x: (x.permute(1, 0, 2) * 2).sum(0),
        "turned_mean_relu": lambda x: torch.relu(x.permute(2, 0, 1)).mean(0),
        "turned_std": lambda x: x.transpose(0, 1).std(0),
        "turned_select": lambda x: x.transpose(0, 1)[-1] + x.transpose(0, 1)[2:4].sum(0),
        "turned_cat": lambda x: torch.cat(
            [x.transpose(0, 1), torch.zeros(1, x.shape[0], 6)]).sum(0),
        "turned_expand": lambda x: (x.transpose(0, 1) + torch.arange(8.0)[:, None, None]).amax(0)
}.items():
    on_linear(_name, _run, 4, 8, 6)


def put(x):
    y = x.clone()
    y[:, 1] = 3.0
    y[:, [0, 2]] = x[:, [2, 0]] * 2
    y[:, 3] += x[:, 4]
    y[:, :, 2:4] *= 0.5
    y[y > 1] = 1.0
    return y


def write(x):
    y = torch.zeros_like(x)
    for k in range(x.shape[1]):
        y[:, k] = x[:, k] + (y[:, k - 1] if k else 0) * 0.5
    y[:, 0, 1].fill_(2.0)
    y[..., -1].mul_(3)
    return y


def sparsemax(x):
    z = x.sort(-1, descending=True)[0]
    k = torch.arange(1, 7)
    support = 1 + k * z > z.cumsum(-1)
    n = support.sum(-1, keepdim=True)
    tau = (torch.gather(z.cumsum(-1), -1, n - 1) - 1) / n
    return (x - tau).clamp(min=0)


def loops(x):
    total = 0
    for a in range(3):
        for b in range(a, 3):
            total = total + x[:, a] * x[:, b] * (a + 1) / (b + 2)
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h = torch.tanh(h * 0.5 + x[:, t])
        total += h
    return total


def attend(x):
    scores = x @ x.transpose(-2, -1) / x.shape[-1] ** 0.5
    scores = scores + torch.full_like(scores, float("-inf")).triu(1)
    return scores.softmax(-1) @ x


def inplace(x):
    y = x.view(x.shape[0], 30).relu_()
    y.add_(1).mul_(2)
    z = x.transpose(1, 2)
    z.sub_(1)
    return x


# ---- modules ----

@case(f(3, 4, 8, 8))
class weight_norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 3))
        self.b = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5), dim=1)

    def forward(self, x):
        return self.b(self.a(x).mean((2, 3)))


@case(f(3, 6))
class old_weight_norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.weight_norm(nn.Linear(6, 5))

    def forward(self, x):
        return self.a(x)


@case(f(3, 6))
class spectral_norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5))

    def forward(self, x):
        return self.a(x)


@case(f(3, 6))
class orthogonal(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6))

    def forward(self, x):
        return self.a(x)


@case(i(11, 3, 7))
class tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


@case(f(4, 6))
class buffer_update(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("mean", torch.ones(6))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.mean(0) * 0.1)
                self.count += 1
        return y - self.mean


@case(f(4, 6))
class ema_norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        self.scale = self.scale * 0.9 + 0.1
        return self.fc(x) * self.scale


@case({"a": f(3, 4), "b": i(5, 3), "c": f(3, 2, 4)})
class several(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.embed = nn.Linear(4, 4), nn.Embedding(5, 4)

    def forward(self, a, b, *, c):
        h = self.fc(a) + self.embed(b)
        return {"sum": h, "pair": (h[:, None] * c, c.sum((1, 2)) + h.mean(1)), "max": h.amax(1)}


@case({"x": f(3, 4), "mask": flags(3, 4), "k": i(4, 3, dtype=torch.int32),
       "n": i(3, 3, 2, dtype=torch.int16), "u": i(200, 3, 4, dtype=torch.uint8)})
class input_types(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, mask, k, n, u):
        y = self.fc(x * mask) + self.fc(u.float() / 255)
        y = y.masked_fill(~mask, 0.5) + k[:, None] * y
        return y * n.sum(1, keepdim=True), torch.gather(y, 1, k[:, None].long())


@case(lambda: torch.randn(3, 4, dtype=torch.float64))
class float64_all(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4).double()

    def forward(self, x):
        return self.fc(x).tanh()


@case(f(3, 4), f(3, 4))
class unused_input(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.other = nn.Linear(4, 4), nn.Linear(3, 3)

    def forward(self, x, y):
        return self.fc(x)


@case(f(3, 5, 4))
class mha(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.a(x, x, x, need_weights=True)


@case(f(5, 3, 4), name="mha_seq_first")
class mha_seq_first(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        return self.a(x, x, x, need_weights=False)[0]


@case({"src": f(3, 5, 8), "tgt": f(3, 4, 8)})
class transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(4)
        return self.a(src, tgt, tgt_mask=mask)


@case({"x": f(3, 5, 8), "mask": flags(3, 5)})
class encoder_mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.TransformerEncoder(nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"), 2)

    def forward(self, x, mask):
        mask = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, 1:]], 1)
        return self.a(x, src_key_padding_mask=mask)


for _kind in ("LSTM", "GRU", "RNN"):
    for _more in ({}, {"bidirectional": True, "num_layers": 2}):
        def _build(kind=_kind, more=_more):
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.rnn = getattr(nn, kind)(4, 5, batch_first=True, **more)

                def forward(self, x):
                    y, h = self.rnn(x)
                    return (y, h[0].transpose(0, 1)) if kind == "LSTM" else (
                        y, h.transpose(0, 1))
            return Net(), {"x": torch.randn(3, 6, 4)}
        CASES["odd_%s%s" % (_kind.lower(), "_bi2" if _more else "")] = _build


@case(f(3, 6, 4))
class cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(4, 5), nn.GRUCell(5, 5), nn.RNNCell(5, 5)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 5)
        g = torch.ones_like(h)
        r = None
        for t in range(x.shape[1]):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
            r = self.rnn(g, r)
        return h + g + r


@case(f(3, 6, 9, 9))
class norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList([nn.GroupNorm(3, 6), nn.InstanceNorm2d(6, affine=True),
                                nn.LocalResponseNorm(3), nn.BatchNorm2d(6, momentum=0.3),
                                nn.BatchNorm2d(6, affine=False), nn.LayerNorm([6, 9, 9])])

    def forward(self, x):
        for layer in self.a:
            x = layer(x) + 0.1 * x
        return x


@case(f(3, 6, 9, 9))
class instance_stats(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.InstanceNorm2d(6, affine=True, track_running_stats=True)

    def forward(self, x):
        return self.a(x)


@case(f(4, 6))
class bn_no_stats(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(6, 6), nn.BatchNorm1d(6, track_running_stats=False)
        self.cumulative = nn.BatchNorm1d(6, momentum=None)

    def forward(self, x):
        return self.bn(self.fc(x))


@case(f(4, 6))
class bn_cumulative(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)

    def forward(self, x):
        return self.bn(self.fc(x))


@case(f(3, 4, 10, 11))
class pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        x = self.a(x)
        parts = [F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                 F.max_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, ceil_mode=True),
                 F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (3, 4)),
                 F.lp_pool2d(x.abs() + 0.1, 2, 2), F.max_pool2d(x, (3, 2), (1, 2), dilation=2),
                 F.avg_pool2d(x, 2, divisor_override=3)]
        return tuple(p.sum(1) for p in parts)


@case(f(3, 4, 10, 11))
class unpool(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        y, places = F.max_pool2d(self.a(x), 2, return_indices=True)
        return F.max_unpool2d(y, places, 2, output_size=x.shape[2:])


@case(f(3, 4, 9, 10))
class convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList([
            nn.Conv2d(4, 6, 3, padding="same", padding_mode="reflect"),
            nn.Conv2d(6, 6, (1, 5), stride=(1, 2), padding=(0, 2), groups=3),
            nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.Conv2d(4, 4, 3, dilation=2, padding="same"), nn.Conv2d(4, 8, 3, groups=4),
            nn.Conv2d(8, 4, 2, padding="same", padding_mode="circular")])

    def forward(self, x):
        for layer in self.a:
            x = layer(x)
        return x


@case(f(3, 4, 20))
class convs1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv1d(4, 6, 5, dilation=2, padding=4), nn.GELU(),
                               nn.ConvTranspose1d(6, 4, 4, 2, 1), nn.BatchNorm1d(4),
                               nn.Conv1d(4, 4, 3, groups=4, padding=1, padding_mode="replicate"),
                               nn.AvgPool1d(2), nn.MaxPool1d(3, 2), nn.AdaptiveMaxPool1d(3),
                               nn.PReLU(4))

    def forward(self, x):
        return self.a(x)


@case(f(2, 2, 6, 7, 8))
class convs3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(),
                               nn.MaxPool3d(2), nn.ConvTranspose3d(4, 2, 2, 2), nn.AvgPool3d(2),
                               nn.AdaptiveAvgPool3d(2))

    def forward(self, x):
        return self.a(x)


@case(f(2, 4, 6, 7))
class resizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        x = self.a(x)
        y = F.interpolate(x, (9, 11), mode="bilinear", align_corners=True)
        y = y + F.interpolate(x, (9, 11), mode="bicubic")
        y = y + F.interpolate(x, (9, 11), mode="nearest")
        y = y + F.interpolate(x, (9, 11), mode="area") + F.interpolate(x, (9, 11),
                                                                       mode="nearest-exact")
        z = F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
        return y, z, F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[:, :, :, :6], 2)


@case(f(2, 3, 6, 7), f(2, 4, 5, 2))
class grid_sample(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 3, 1)

    def forward(self, x, y):
        return F.grid_sample(self.a(x), y.tanh(), align_corners=False)


@case(f(2, 3, 6, 7))
class stn(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 6)

    def forward(self, x):
        theta = self.fc(x.mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.shape, align_corners=True)
        return F.grid_sample(x, grid, align_corners=True, padding_mode="border")


@case(f(2, 4, 6, 7))
class folds(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        u = F.unfold(self.a(x), 3, padding=1, stride=1)
        return F.fold(u, (6, 7), 3, padding=1), u.mean(-1)


@case(f(2, 4, 6, 8))
class deform(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.ops import DeformConv2d
        self.o, self.a = nn.Conv2d(4, 18, 3, padding=1), DeformConv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.a(x, self.o(x))


@case(i(9, 3, 6), f(3, 6))
class bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.EmbeddingBag(9, 4, mode="mean")
        self.b = nn.EmbeddingBag(9, 4, mode="sum")
        self.c = nn.Embedding(9, 4, padding_idx=0, max_norm=None)

    def forward(self, x, y):
        return self.a(x) + self.b(x, per_sample_weights=y) + self.c(x).sum(1)


@case(i(9, 3, 6))
class embedding_max_norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Embedding(9, 4, max_norm=0.5)

    def forward(self, x):
        return self.c(x)


@case({"x": f(4, 5), "y": i(5, 4)})
class own_loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)
        self.register_buffer("w", torch.tensor([1.0, 2, 1, 0.5, 3]))

    def forward(self, x, y):
        z = self.fc(x)
        return F.cross_entropy(z, y, self.w, label_smoothing=0.1) + F.nll_loss(
            z.log_softmax(-1), y) + F.multi_margin_loss(z, y), z


@case({"x": f(4, 5), "y": f(4, 5)})
class more_losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x, y):
        z = self.fc(x)
        p = torch.sigmoid(y)
        return (F.huber_loss(z, y) + F.smooth_l1_loss(z, y, beta=0.5)
                + F.binary_cross_entropy_with_logits(z, p) + F.binary_cross_entropy(z.sigmoid(), p)
                + F.kl_div(z.log_softmax(-1), y.softmax(-1), reduction="batchmean")
                + F.poisson_nll_loss(z, p) + F.gaussian_nll_loss(z, y, p + 0.1)
                + F.soft_margin_loss(z, y.sign()) + F.hinge_embedding_loss(z, y.sign())
                + F.cosine_embedding_loss(z, y, torch.ones(4))
                + F.margin_ranking_loss(z, y, y.sign()) + F.triplet_margin_loss(z, y, y.flip(1))
                + F.cross_entropy(z, y.softmax(-1)))


@case({"x": f(2, 8, 5), "y": lambda: torch.tensor([[1, 2, 1], [3, 1, 0]])})
class ctc(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x, y):
        z = self.fc(x).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(z, y, torch.tensor([8, 8]), torch.tensor([3, 2]))


@case(f(4, 6))
class checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint
        return checkpoint(lambda v: self.b(self.a(v).relu()), x, use_reentrant=False)


@case(f(4, 6))
class autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        with torch.no_grad():
            s = self.a(x).sigmoid()
        with torch.autocast("cpu", enabled=False):
            return self.a(x.float()) * s


@case(f(4, 6))
class data_condition(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.a(v), lambda v: -self.a(v), (x,))


@case(f(4, 6))
class nonzero(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        return self.a(x)[torch.nonzero(x[:, 0] > 0)[:, 0]].sum(0)


@case(f(4, 6))
class bool_mask_sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        y = self.a(x)
        return y[y > 0].sum()


@case(f(4, 6))
class moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        w, k = self.gate(x).softmax(-1).topk(2, -1)
        w = w / w.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            y = y + expert(x) * (w * (k == e)).sum(-1, keepdim=True)
        return y


@case(f(4, 7, 6))
class rotary_interleaved(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        x = self.a(x)
        angle = torch.arange(7.0)[:, None] / 100 ** (torch.arange(0, 6, 2) / 6)
        sin, cos = angle.sin().repeat_interleave(2, 1), angle.cos().repeat_interleave(2, 1)
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos + turned * sin


@case(f(4, 7, 6))
class rotary_complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        x = self.a(x)
        angle = torch.outer(torch.arange(7.0), 1 / 100 ** (torch.arange(0, 6, 2) / 6))
        turn = torch.polar(torch.ones_like(angle), angle)
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * turn).flatten(2)


@case(f(4, 3, 8, 8))
class squeeze_excite_swish(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 2, 1), nn.SiLU(),
                                nn.Conv2d(2, 6, 1), nn.Sigmoid())

    def forward(self, x):
        x = self.a(x)
        return (x * self.se(x)).flatten(1)


@case(f(3, 10, 4))
class ssm_scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.A = nn.Parameter(torch.randn(4, 3))
        self.B, self.C, self.D = nn.Linear(4, 3), nn.Linear(4, 3), nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4, 3)
        out = []
        for t in range(x.shape[1]):
            dt = F.softplus(x[:, t])
            h = h * torch.exp(-torch.exp(self.A) * dt[..., None]) + (
                dt[..., None] * self.B(x[:, t])[:, None]) * x[:, t][..., None]
            out.append((h * self.C(x[:, t])[:, None]).sum(-1) + self.D * x[:, t])
        return torch.stack(out, 1)


@case({"x": f(6, 4), "edges": i(6, 2, 12)})
class graph_net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x, edges):
        source, target = edges
        h = self.a(x)
        total = torch.zeros_like(h).index_add(0, target, h[source])
        n = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(12)).clamp(min=1)
        return self.b(F.relu(total / n[:, None]))


@case(f(3, 12))
class vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.d = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, log_var = self.e(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * log_var) * 0.3
        kl = -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum(1)
        return self.d(z), kl


@case(f(4, 6), f(5, 6))
class two_batches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x, y):
        return self.a(x) @ self.a(y).T


@case({"x": f(4, 6), "k": lambda: torch.tensor(3.0)})
class scalar_input(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x, k):
        return self.a(x) * k


@case(i(3, 4, 5), f(4, 5, 6))
class embedding_of_gathered(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 6))

    def forward(self, x, y):
        return self.table[x] * y + torch.index_select(self.table, 0, x.flatten()).view(y.shape)


@case(i(7, 4, 5), i(7, 4, 5))
class pair_index(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 7, 3))

    def forward(self, x, y):
        return self.table[x, y] + self.table[:, 0][x - 7 + 7]


@case(f(3, 5, 4), i(5, 3, 2))
class batch_pair_index(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x, y):
        x = self.a(x)
        return x[torch.arange(x.shape[0])[:, None], y], x[torch.arange(x.shape[0]), y[:, 0]]
