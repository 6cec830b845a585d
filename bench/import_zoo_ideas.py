"""import_zoo_ideas.py - models of import_zoo.py as papers describe them, by hand and small: tables,
graphs of edges, time series, sound, diffusion, self-supervision and detection.  The group ideas."""

import math

import torch
import torch.nn.functional as F
from import_zoo_group import Group, f, i
from torch import nn

GROUP = Group("ideas", "idea_")
GROUPS, case = GROUP.groups, GROUP.module


# ---- tables ----

@case(x_num=f(4, 5), x_cat=i(6, 4, 3))
class ft_transformer(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(5, d)), nn.Parameter(torch.randn(8, d))
        self.cls = nn.Parameter(torch.randn(d))
        self.register_buffer("offsets", torch.tensor([0, 6, 12]))
        self.table = nn.Embedding(18, d)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "n1": nn.LayerNorm(d), "att": nn.MultiheadAttention(d, 4, batch_first=True),
            "n2": nn.LayerNorm(d), "w1": nn.Linear(d, 48), "w2": nn.Linear(24, d)})
            for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 3))

    def forward(self, x_num, x_cat):
        x = torch.cat([self.weight[None] * x_num[..., None], self.table(x_cat + self.offsets)], 1)
        x = x + self.bias
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
        for k, block in enumerate(self.blocks):
            last = k + 1 == len(self.blocks)
            h = x if k == 0 else block["n1"](x)
            x = (x[:, :1] if last else x) + block["att"](h[:, :1] if last else h, h, h)[0]
            a, gate = block["w1"](block["n2"](x)).chunk(2, -1)
            x = x + block["w2"](a * F.relu(gate))
        return self.head(x[:, 0])


def sparsemax(z):
    ordered, _ = torch.sort(z, dim=-1, descending=True)
    total = ordered.cumsum(-1)
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    support = 1 + k * ordered > total
    n = support.sum(-1, keepdim=True)
    tau = (total.gather(-1, n - 1) - 1) / n.to(z.dtype)
    return torch.clamp(z - tau, min=0)


@case(x=f(8, 6))
class tab_net(nn.Module):
    """With sparsemax and ghost batch norms."""

    def __init__(self, d=8):
        super().__init__()
        self.first = nn.BatchNorm1d(6)
        self.shared, self.norm = nn.Linear(6, 4 * d), nn.BatchNorm1d(4 * d)
        self.steps = nn.ModuleList(nn.Linear(2 * d, 4 * d) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(4 * d) for _ in range(2))
        self.attend = nn.ModuleList(nn.Linear(d, 6, bias=False) for _ in range(2))
        self.out, self.d = nn.Linear(d, 3), d

    def ghost(self, norm, x):
        return torch.cat([norm(part) for part in x.chunk(2, 0)]) if self.training else norm(x)

    def forward(self, x):
        x = self.first(x)
        prior, masked, a, total, entropy = torch.ones_like(x), x, None, 0, 0
        for k in range(2):
            h = F.glu(self.norm(self.shared(masked)))
            h = (h + F.glu(self.norms[k](self.steps[k](h)))) * math.sqrt(0.5)
            decision, a = h.split([self.d, self.d], -1)
            total = total + F.relu(decision)
            mask = sparsemax(self.attend[k](a) * prior)
            entropy = entropy + (mask * torch.log(mask + 1e-10)).sum(1, keepdim=True)
            prior, masked = prior * (1.3 - mask), mask * x
        return self.out(total) + 0.01 * entropy


@case(x=f(5, 6))
class oblivious_trees(nn.Module):
    """NODE: trees of which each level compares one chosen feature."""

    def __init__(self, trees=4, depth=3):
        super().__init__()
        self.choice = nn.Parameter(torch.rand(6, trees, depth))
        self.thresholds, self.scale = (nn.Parameter(torch.randn(trees, depth)) for _ in range(2))
        self.response = nn.Parameter(torch.randn(trees, 2, 2 ** depth))
        bits = torch.arange(2 ** depth)[None] // 2 ** torch.arange(depth)[:, None] % 2
        self.register_buffer("codes", torch.stack([bits, 1 - bits], -1).float())

    def forward(self, x):
        features = torch.einsum("bi,itd->btd", x, self.choice.softmax(0))
        logits = (features - self.thresholds) * torch.exp(-self.scale)
        bins = torch.sigmoid(torch.stack([-logits, logits], -1))
        match = torch.einsum("btds,dcs->btdc", bins, self.codes)
        return torch.einsum("bnd,ncd->bnc", match.prod(-2), self.response).flatten(1)


@case(ids=i(5, 4, 4))
class x_deep_fm(nn.Module):
    """Compressed interactions, and attention between fields (AutoInt)."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5, 6) for _ in range(4))
        self.cin = nn.ModuleList(nn.Conv1d(n, 6, 1) for n in (16, 24))
        self.q, self.k, self.v = (nn.Linear(6, 8, bias=False) for _ in range(3))
        self.res, self.out = nn.Linear(6, 8), nn.Linear(12 + 32, 1)

    def forward(self, ids):
        x0 = torch.stack([t(ids[:, k]) for k, t in enumerate(self.tables)], 1)
        h, found = x0, []
        for conv in self.cin:
            pairs = (x0.unsqueeze(2) * h.unsqueeze(1)).reshape(x0.shape[0], -1, 6)
            h = F.relu(conv(pairs))
            found.append(h.sum(-1))
        q, k, v = (m(x0).unflatten(-1, (2, 4)).transpose(1, 2) for m in (self.q, self.k, self.v))
        a = torch.softmax(torch.matmul(q, k.mT), -1) @ v
        a = F.relu(a.transpose(1, 2).flatten(2) + self.res(x0))
        return self.out(torch.cat([*found, a.flatten(1)], 1)).squeeze(-1)


# ---- graphs of edges: each sample has nodes and edges of its own ----

def rows(index, d):
    return index[..., None].expand(-1, -1, d)


@case(x=f(3, 6, 5), source=i(6, 3, 9), target=i(6, 3, 9))
class gat_v2(nn.Module):
    """Softmax over the edges that reach a node, with its maximum by scatter_reduce."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 8), nn.Linear(5, 8)
        self.score = nn.Linear(8, 1)

    def forward(self, x, source, target):
        a, b = self.left(x), self.right(x)
        a, b = a.gather(1, rows(source, 8)), b.gather(1, rows(target, 8))
        e = self.score(F.leaky_relu(a + b, 0.2)).squeeze(-1)
        top = torch.full(x.shape[:2], -1e9).scatter_reduce(1, target, e.detach(), "amax")
        w = torch.exp(e - top.gather(1, target))
        total = torch.zeros(x.shape[0], 6).scatter_add(1, target, w)
        w = w / (total.gather(1, target) + 1e-16)
        return torch.zeros(x.shape[0], 6, 8).scatter_add(1, rows(target, 8), w[..., None] * a)


@case(x=f(3, 6, 5), source=i(6, 3, 9), target=i(6, 3, 9))
class pna(nn.Module):
    """Aggregates by mean, maximum, minimum and deviation."""

    def __init__(self):
        super().__init__()
        self.pre, self.post = nn.Linear(10, 5), nn.Linear(25, 4)

    def forward(self, x, source, target):
        s, t = rows(source, 5), rows(target, 5)
        m = self.pre(torch.cat([x.gather(1, s), x.gather(1, t)], -1))
        zero = torch.zeros_like(x)
        mean = zero.scatter_reduce(1, t, m, "mean", include_self=False)
        top = zero.scatter_reduce(1, t, m, "amax", include_self=False)
        low = zero.scatter_reduce(1, t, m, "amin", include_self=False)
        square = zero.scatter_reduce(1, t, m * m, "mean", include_self=False)
        deviation = (F.relu(square - mean * mean) + 1e-5).sqrt()
        return self.post(torch.cat([x, mean, top, low, deviation], -1))


@case(h=f(3, 5, 6), x=f(3, 5, 3))
class egnn(nn.Module):
    """All pairs; coordinates and features move each other."""

    def __init__(self):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(13, 12), nn.SiLU(), nn.Linear(12, 12), nn.SiLU())
        self.node = nn.Sequential(nn.Linear(18, 12), nn.SiLU(), nn.Linear(12, 6))
        self.coord = nn.Sequential(nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 1, bias=False))

    def forward(self, h, x):
        n = h.shape[1]
        for _ in range(2):
            d = x[:, :, None] - x[:, None]
            r = d.pow(2).sum(-1, keepdim=True)
            pair = torch.cat([h[:, :, None].expand(-1, -1, n, -1),
                              h[:, None].expand(-1, n, -1, -1), r], -1)
            m = self.edge(pair) * (1 - torch.eye(n)[None, :, :, None])
            x = x + (d / ((r + 1e-6).sqrt() + 1)).mul(self.coord(m)).mean(2)
            h = h + self.node(torch.cat([h, m.sum(2)], -1))
        return h, x


@case(z=i(8, 2, 6), xyz=f(2, 6, 3))
class sch_net(nn.Module):
    """Filters of radial functions, on neighbours within a distance."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 12)
        self.register_buffer("centers", torch.linspace(0, 5, 8))
        self.filter = nn.Sequential(nn.Linear(8, 12), nn.Softplus(), nn.Linear(12, 12))
        self.a, self.b = nn.Linear(12, 12, bias=False), nn.Linear(12, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, z, xyz):
        x, d = self.embed(z), torch.cdist(xyz, xyz + 1e-3)
        rbf = torch.exp(-2.0 * (d[..., None] - self.centers) ** 2)
        cut = 0.5 * (torch.cos(d * math.pi / 5) + 1) * (d < 5)
        w = self.filter(rbf) * cut[..., None]
        for _ in range(2):
            x = x + self.b(F.softplus((w * self.a(x)[:, None]).sum(2)) - math.log(2.0))
        return self.out(x).sum(1)


@case(x=f(3, 8, 5))
class graph_unet(nn.Module):
    """Top-k pooling of nodes, and their way back."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(5, 6), nn.Linear(6, 4)
        self.p = nn.Parameter(torch.randn(6))

    def forward(self, x):
        h = F.relu(self.down(x)) + x.mean(1, keepdim=True)[..., :1]
        score = (h @ self.p) / self.p.norm()
        value, at = score.topk(4, dim=1)
        small = h.gather(1, rows(at, 6)) * torch.tanh(value)[..., None]
        wide = torch.zeros_like(h).scatter(1, rows(at, 6), small + small.mean(1, keepdim=True))
        return self.up(h + wide)


# ---- time series ----

@case(x=f(3, 24, 2))
class n_hits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stacks = nn.ModuleList(nn.Sequential(
            nn.Linear(24 // k, 16), nn.ReLU(), nn.Linear(16, 24 // k + 8 // k)) for k in (4, 2, 1))

    def forward(self, x):
        x, total = x.transpose(1, 2), 0
        for k, stack in zip((4, 2, 1), self.stacks):
            theta = stack(F.max_pool1d(x, k, k, ceil_mode=True))
            back, ahead = theta.split([24 // k, 8 // k], -1)
            x = x - F.interpolate(back, size=24, mode="linear")
            total = total + F.interpolate(ahead, size=8, mode="linear")
        return total.transpose(1, 2)


@case(x=f(3, 16, 4))
class d_linear(nn.Module):
    """Trend by a moving average with repeated ends; reversible instance norm around it."""

    def __init__(self):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        self.season, self.trend = nn.Linear(16, 6), nn.Linear(16, 6)

    def forward(self, x):
        mean = x.mean(1, keepdim=True).detach()
        std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = (x - mean) / std * self.gain + self.shift
        padded = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], 1)
        trend = F.avg_pool1d(padded.permute(0, 2, 1), 5, 1).permute(0, 2, 1)
        y = self.season((x - trend).mT).mT + self.trend(trend.mT).mT
        return (y - self.shift) / (self.gain + 1e-10) * std + mean


@case(x=f(3, 12, 5))
class i_transformer(nn.Module):
    """Each variable is a token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), False)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x.permute(0, 2, 1)))).permute(0, 2, 1)


@case(past=f(3, 10), dynamic=f(3, 14, 2), static=f(3, 3))
class tide(nn.Module):
    def __init__(self):
        super().__init__()
        self.shrink, self.encode = nn.Linear(2, 1), nn.Linear(10 + 14 + 3, 16)
        self.decode, self.skip = nn.Linear(16, 4 * 3), nn.Linear(10, 4)
        self.last, self.norm = nn.Linear(3 + 1, 1), nn.LayerNorm(16)

    def forward(self, past, dynamic, static):
        d = self.shrink(dynamic).flatten(1)
        h = self.norm(F.relu(self.encode(torch.cat([past, d, static], -1))))
        g = self.decode(h).view(-1, 4, 3)
        return self.last(torch.cat([g, d[:, 10:, None]], -1)).squeeze(-1) + self.skip(past)


@case(x=f(2, 12, 3))
class state_space(nn.Module):
    """S4D by its kernel: a causal convolution as long as the sequence, as a Toeplitz matrix."""

    def __init__(self, h=3, n=4):
        super().__init__()
        self.log_dt, self.a = nn.Parameter(torch.rand(h) - 3), nn.Parameter(torch.rand(h, n))
        self.c, self.d = nn.Parameter(torch.randn(h, n)), nn.Parameter(torch.randn(h))
        self.out = nn.Linear(h, 2 * h)

    def forward(self, x):
        length, dt = x.shape[1], torch.exp(self.log_dt)
        a = -torch.exp(self.a) * dt[:, None]
        k = (self.c[..., None] * (torch.exp(a[..., None] * torch.arange(length)))).sum(1)
        lag = torch.arange(length)[:, None] - torch.arange(length)[None]
        toeplitz = k[:, lag.clamp(min=0)] * (lag >= 0)
        y = torch.einsum("hts,bsh->bth", toeplitz, x) + x * self.d
        return F.glu(self.out(F.gelu(y)), -1)


@case(x=f(2, 6, 4))
class selective_scan(nn.Module):
    """Mamba's recurrence as a loop that stacks its steps."""

    def __init__(self, d=4, n=3):
        super().__init__()
        self.a_log, self.d = nn.Parameter(torch.rand(d, n)), nn.Parameter(torch.ones(d))
        self.x_proj, self.dt = nn.Linear(d, 2 + 2 * n, bias=False), nn.Linear(2, d)
        self.conv, self.n = nn.Conv1d(d, d, 3, groups=d, padding=2), n

    def forward(self, x):
        length = x.shape[1]
        u = F.silu(self.conv(x.transpose(1, 2))[..., :length]).transpose(1, 2)
        dt, b, c = self.x_proj(u).split([2, self.n, self.n], -1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(torch.einsum("bld,dn->bldn", dt, -torch.exp(self.a_log)))
        drive = torch.einsum("bld,bln,bld->bldn", dt, b, u)
        h, ys = x.new_zeros(x.shape[0], 4, self.n), []
        for t in range(length):
            h = decay[:, t] * h + drive[:, t]
            ys.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
        return torch.stack(ys, 1) + u * self.d


@case(x=f(2, 8, 16))
class retention(nn.Module):
    """RetNet: attention that decays, normed by groups."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.qkv, self.gate, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, d)
        self.norm, self.heads = nn.GroupNorm(heads, d, affine=False), heads
        decay = torch.log(1 - 2 ** (-5 - torch.arange(heads, dtype=torch.float)))
        lag = torch.arange(8)[:, None] - torch.arange(8)[None]
        mask = torch.exp(lag * decay[:, None, None]).masked_fill(lag < 0, 0)
        self.register_buffer("mask", mask / mask.sum(-1, keepdim=True).sqrt())

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        s = q @ k.transpose(-1, -2) * self.mask
        s = s / s.detach().abs().sum(-1, keepdim=True).clamp(min=1)
        y = (s @ v).transpose(1, 2).reshape(b * t, d)
        return self.out(F.silu(self.gate(x)) * self.norm(y).view(b, t, d))


# ---- sound ----

@case(x=f(2, 1, 96))
class conv_tas_net(nn.Module):
    def __init__(self, n=12):
        super().__init__()
        self.encode = nn.Conv1d(1, n, 8, 4, bias=False)
        self.norm = nn.GroupNorm(1, n, eps=1e-8)
        self.blocks = nn.ModuleList(nn.Sequential(
            nn.Conv1d(n, 16, 1), nn.PReLU(), nn.GroupNorm(1, 16),
            nn.Conv1d(16, 16, 3, padding=2 ** k, dilation=2 ** k, groups=16), nn.PReLU(),
            nn.GroupNorm(1, 16), nn.Conv1d(16, n, 1)) for k in range(3))
        self.mask, self.decode = nn.Conv1d(n, 2 * n, 1), nn.ConvTranspose1d(n, 1, 8, 4, bias=False)

    def forward(self, x):
        w = F.relu(self.encode(x))
        h = self.norm(w)
        for block in self.blocks:
            h = h + block(h)
        m = torch.sigmoid(self.mask(h)).view(x.shape[0], 2, -1, w.shape[-1])
        parts = (m * w.unsqueeze(1)).flatten(0, 1)
        return self.decode(parts).view(x.shape[0], 2, -1)


@case(mel=f(2, 16, 8))
class squeezeformer(nn.Module):
    """Relative positions by the shift of Transformer-XL, convolutions, halved and doubled time."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.front = nn.Linear(8, d)
        self.q, self.kv, self.pos, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(
            d, d, bias=False), nn.Linear(d, d)
        self.u, self.v = nn.Parameter(torch.randn(heads, 8)), nn.Parameter(torch.randn(heads, 8))
        self.conv, self.norm = nn.Conv1d(d, d, 5, padding=2, groups=d), nn.BatchNorm1d(d)
        self.a, self.b, self.ln = nn.Linear(d, 2 * d), nn.Linear(d, d), nn.LayerNorm(d)
        self.down, self.heads = nn.Conv1d(d, d, 3, 2, 1), heads
        p = torch.arange(7, -8, -1.0)[:, None] * torch.exp(torch.arange(0, d, 2) * -0.5)
        self.register_buffer("table", torch.cat([p.sin(), p.cos()], -1))

    def attend(self, x):
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.heads, -1)
        k, v = self.kv(x).view(b, t, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = self.pos(self.table).view(-1, self.heads, d // self.heads).transpose(0, 1)
        ac = (q + self.u).transpose(1, 2) @ k.transpose(-2, -1)
        bd = (q + self.v).transpose(1, 2) @ p.transpose(-2, -1)
        bd = F.pad(bd, (1, 0)).view(b, self.heads, -1, t)[:, :, 1:].view(b, self.heads, t, -1)
        s = (ac + bd[..., :t]) / math.sqrt(d // self.heads)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))

    def forward(self, mel):
        full = self.front(mel)
        x = self.down(full.mT).mT
        x = self.ln(x + self.attend(x))
        h = F.glu(self.a(x), -1).transpose(1, 2)
        x = x + self.b(F.silu(self.norm(self.conv(h))).transpose(1, 2))
        return full + x.repeat_interleave(2, dim=1)


@case(sound=f(2, 5, 8), text=i(9, 2, 4))
class transducer(nn.Module):
    """RNN-T: the joint network of all frames and all prefixes."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.embed, self.predictor = nn.Embedding(10, 8), nn.GRU(8, 12, batch_first=True)
        self.joint = nn.Linear(12, 10)

    def forward(self, sound, text):
        text = F.pad(text + 1, (1, 0))
        a, b = self.encoder(sound)[0], self.predictor(self.embed(text))[0]
        return self.joint(torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))).log_softmax(-1)


@case(wave=f(2, 64))
class mel_net(nn.Module):
    """Frames by unfold, a DFT as a product with tables, mel bands, decibels."""

    def __init__(self):
        super().__init__()
        n = torch.arange(16.0)
        angle = 2 * math.pi * n[:, None] * torch.arange(9.0) / 16
        self.register_buffer("re", torch.cos(angle) * torch.hann_window(16)[:, None])
        self.register_buffer("im", torch.sin(angle) * torch.hann_window(16)[:, None])
        self.bands = nn.Parameter(torch.rand(9, 6))
        self.out = nn.Conv1d(6, 4, 3, padding=1)

    def forward(self, wave):
        x = F.pad(wave[:, None], (8, 8), mode="reflect").squeeze(1)
        frames = x.unfold(-1, 16, 8)
        power = (frames @ self.re).square() + (frames @ self.im).square()
        db = 10 * torch.log10(torch.clamp(power @ self.bands.abs(), min=1e-5))
        db = torch.maximum(db, db.amax((1, 2), keepdim=True) - 80)
        return self.out((db / 20).transpose(1, 2))
