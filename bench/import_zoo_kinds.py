"""import_zoo_kinds.py - models of import_zoo.py: further kinds of models, most with their loss."""

import math

import torch
import torch.nn.functional as F
from import_zoo_group import Group, f, i
from torch import nn

GROUP = Group("kinds", "kind_")
GROUPS = GROUP.groups
module = GROUP.module


# ---- sound ----

@module(x=f(3, 8, 6), wave=f(3, 1, 24))
class hifi_gan(nn.Module):
    """Generator with weight norms, and a critic of periods; mel and feature losses."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.head = norm(nn.Conv1d(8, 12, 7, padding=3))
        self.ups = nn.ModuleList(norm(nn.ConvTranspose1d(12 // 2 ** k, 6 // 2 ** k, 4, 2, 1))
                                 for k in range(2))
        self.blocks = nn.ModuleList(nn.ModuleList(
            norm(nn.Conv1d(6 // 2 ** k, 6 // 2 ** k, 3, dilation=d, padding=d)) for d in (1, 3))
            for k in range(2))
        self.tail = norm(nn.Conv1d(3, 1, 7, padding=3))
        self.critic = nn.ModuleList(norm(nn.Conv2d(c, 4, (5, 1), (3, 1), (2, 0))) for c in (1, 4))

    def judge(self, x, period):
        x = F.pad(x, (0, -x.shape[-1] % period), "reflect")
        x = x.view(x.shape[0], 1, -1, period)
        features = []
        for layer in self.critic:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return features

    def forward(self, x, wave):
        x = self.head(x)
        for up, block in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(b(F.leaky_relu(x, 0.1)) + x for b in block) / 2
        x = torch.tanh(self.tail(F.leaky_relu(x)))
        loss = 45 * F.l1_loss(x, wave)
        for period in (3, 5):
            for a, b in zip(self.judge(x, period), self.judge(wave, period)):
                loss = loss + 2 * F.l1_loss(a, b) + ((1 - a) ** 2).mean()
        return loss


@module(x=f(3, 1, 64))
class sinc_net(nn.Module):
    """Band-pass filters from two frequencies each."""

    def __init__(self):
        super().__init__()
        self.low = nn.Parameter(torch.linspace(0.02, 0.2, 6))
        self.band = nn.Parameter(torch.full((6,), 0.05))
        self.register_buffer("n", torch.arange(1, 8.0))
        self.register_buffer("window", torch.hamming_window(15, periodic=False))
        self.o = nn.Linear(6, 4)

    def forward(self, x):
        low = self.low.abs()
        high = (low + self.band.abs()).clamp(max=0.5)

        def half(k):
            return torch.sin(2 * math.pi * k[:, None] * self.n) / (math.pi * self.n)
        right = half(high) - half(low)
        kernel = torch.cat([right.flip(1), 2 * (high - low)[:, None], right], 1) * self.window
        y = F.conv1d(x, kernel[:, None], stride=2, padding=7)
        return self.o(F.max_pool1d(y.abs(), 4).mean(-1))


@module(x=f(3, 10, 12))
class ecapa(nn.Module):
    """Time delays with squeeze and excitation, and pooling of weighted means and deviations."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(10, 16, 5, padding=2)
        self.parts = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=2, dilation=2) for _ in range(3))
        self.se = nn.Sequential(nn.Conv1d(16, 4, 1), nn.ReLU(), nn.Conv1d(4, 16, 1), nn.Sigmoid())
        self.at = nn.Sequential(nn.Conv1d(48, 8, 1), nn.Tanh(), nn.Conv1d(8, 16, 1))
        self.o = nn.Linear(32, 6)

    def forward(self, x):
        x = torch.relu(self.a(x))
        parts = list(x.chunk(4, 1))
        for k, layer in enumerate(self.parts):
            parts[k + 1] = F.silu(layer(parts[k + 1] + parts[k]))
        x = torch.cat(parts, 1)
        x = x * self.se(x.mean(-1, keepdim=True))
        mean, dev = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        w = self.at(torch.cat([x, mean.expand_as(x), dev.expand_as(x)], 1)).softmax(-1)
        mean = (w * x).sum(-1)
        dev = ((w * x * x).sum(-1) - mean ** 2).clamp(min=1e-6).sqrt()
        return F.normalize(self.o(torch.cat([mean, dev], 1)))


@module(x=f(2, 2, 32))
class demucs(nn.Module):
    """U-Net of waves with GLUs and a recurrent layer in the middle."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv1d(2, 8, 8, 4, 2), nn.Conv1d(8, 16, 4, 2, 1)])
        self.wide = nn.ModuleList([nn.Conv1d(8, 16, 1), nn.Conv1d(16, 32, 1)])
        self.lstm = nn.LSTM(16, 8, bidirectional=True)
        self.up = nn.ModuleList([nn.ConvTranspose1d(16, 8, 4, 2, 1),
                                 nn.ConvTranspose1d(8, 2, 8, 4, 2)])

    def forward(self, x):
        mean, dev = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        y, skips = (x - mean) / (1e-5 + dev), []
        for down, wide in zip(self.down, self.wide):
            y = F.glu(wide(torch.relu(down(y))), 1)
            skips.append(y)
        y = self.lstm(y.permute(2, 0, 1))[0].permute(1, 2, 0)
        for k, up in enumerate(self.up):
            y = up(y + skips.pop())
            y = torch.relu(y) if k == 0 else y
        return y * dev + mean


@module(x=f(2, 5, 6), text=i(9, 2, 7))
class tacotron(nn.Module):
    """Attention with the sum of its former places, step by step; frames and stop signals."""

    def __init__(self):
        super().__init__()
        self.e, self.cell = nn.Embedding(9, 8), nn.LSTMCell(14, 10)
        self.q, self.k, self.v = nn.Linear(10, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.loc = nn.Conv1d(2, 8, 3, padding=1)
        self.o, self.stop = nn.Linear(18, 6), nn.Linear(18, 1)

    def forward(self, x, text):
        e = self.e(text)
        keys, n = self.k(e), x.shape[0]
        h, c = x.new_zeros(n, 10), x.new_zeros(n, 10)
        w = total = x.new_zeros(n, 7)
        context, frames, stops = x.new_zeros(n, 8), [], []
        for t in range(5):
            h, c = self.cell(torch.cat([x[:, t - 1] if t else x[:, 0] * 0, context], 1), (h, c))
            places = self.loc(torch.stack([w, total], 1)).transpose(1, 2)
            w = self.v(torch.tanh(self.q(h)[:, None] + keys + places)).squeeze(-1).softmax(-1)
            total = total + w
            context = torch.bmm(w[:, None], e).squeeze(1)
            both = torch.cat([h, context], 1)
            frames.append(self.o(both))
            stops.append(self.stop(both))
        return F.mse_loss(torch.stack(frames, 1), x) + F.softplus(torch.cat(stops, 1)).mean()


# ---- sequences ----

@module(x=i(11, 3, 9))
class rwkv(nn.Module):
    """Time mixing with exponential decays, step by step, as RWKV 4 writes it."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(11, 8)
        self.mix = nn.ParameterList(nn.Parameter(torch.rand(1, 1, 8)) for _ in range(3))
        self.w, self.u = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))
        self.k, self.v, self.r = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.o, self.head = nn.Linear(8, 8, bias=False), nn.Linear(8, 11)
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))

    def forward(self, x):
        x = F.layer_norm(self.e(x), (8,))
        last = self.shift(x)
        k, v, r = (f(x * m + last * (1 - m))
                   for f, m in zip((self.k, self.v, self.r), self.mix))
        decay = -torch.exp(self.w)
        a = b = torch.zeros_like(k[:, 0])
        top, out = torch.full_like(k[:, 0], -1e30), []
        for t in range(k.shape[1]):
            now = torch.maximum(top, self.u + k[:, t])
            e, g = torch.exp(top - now), torch.exp(self.u + k[:, t] - now)
            out.append((e * a + g * v[:, t]) / (e * b + g))
            now = torch.maximum(top + decay, k[:, t])
            e, g = torch.exp(top + decay - now), torch.exp(k[:, t] - now)
            a, b, top = e * a + g * v[:, t], e * b + g, now
        return self.head(x + self.o(torch.sigmoid(r) * torch.stack(out, 1)))


@module(x=f(2, 12, 8))
class state_space_dual(nn.Module):
    """Mamba 2 in chunks: masks from segment sums, states carried from chunk to chunk."""

    def __init__(self):
        super().__init__()
        self.p = nn.Linear(8, 2 * 4 + 2 * 6 + 2)
        self.a = nn.Parameter(torch.rand(2))
        self.o = nn.Linear(8, 8)

    @staticmethod
    def segments(x):
        n = x.shape[-1]
        x = x[..., None].expand(*x.shape, n)
        x = x.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(-1), 0).cumsum(-2)
        return x.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf)

    def forward(self, x):
        n = x.shape[0]
        v, b, c, dt = self.p(x).split([8, 6, 6, 2], -1)
        dt = F.softplus(dt)
        a = (-torch.exp(self.a) * dt).view(n, 3, 4, 2).permute(0, 3, 1, 2)  # [B,H,C,L]
        v = (v.view(n, 12, 2, 4) * dt[..., None]).view(n, 3, 4, 2, 4)
        b, c = b.view(n, 3, 4, 6), c.view(n, 3, 4, 6)
        total = a.cumsum(-1)
        y = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, torch.exp(self.segments(a)), v)
        left = torch.exp(total[..., -1:] - total)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, left, v)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
        decay = torch.exp(self.segments(F.pad(total[..., -1], (1, 0))))
        states = torch.einsum("bhzc,bchpn->bzhpn", decay, states)[:, :-1]
        y = y + torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, torch.exp(total))
        return self.o(y.reshape(n, 12, 8)) + x


@module(x=f(2, 16, 6))
class long_convolution(nn.Module):
    """Hyena: gates around convolutions as long as the sequence, by FFT, with learned filters."""

    def __init__(self):
        super().__init__()
        self.p, self.o = nn.Linear(6, 18), nn.Linear(6, 6)
        self.short = nn.Conv1d(18, 18, 3, padding=2, groups=18)
        self.filter = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 6))
        t = torch.linspace(0, 1, 16)[:, None]
        self.register_buffer("at", torch.cat([t, *(f(2 * math.pi * k * t) for k in (1, 2)
                                                   for f in (torch.sin, torch.cos))], 1))

    def forward(self, x):
        q, k, v = self.short(self.p(x).transpose(1, 2))[..., :16].chunk(3, 1)
        h = (self.filter(self.at) * torch.exp(-3 * self.at[:, :1])).t()
        z = torch.fft.rfft(k * v, 32) * torch.fft.rfft(h, 32)
        return self.o((q * torch.fft.irfft(z, 32)[..., :16]).transpose(1, 2))


@module(x=f(3, 9, 4))
class split_net(nn.Module):
    """SCINet: even and odd steps change each other, and are interleaved again."""

    def __init__(self):
        super().__init__()
        self.f = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=1) for _ in range(4))

    def forward(self, x):
        x = x[:, :8].transpose(1, 2)
        even, odd = x[..., ::2], x[..., 1::2]
        a = odd * torch.exp(torch.tanh(self.f[0](even)))
        b = even * torch.exp(torch.tanh(self.f[1](odd)))
        y = torch.empty_like(x)
        y[..., ::2] = b + self.f[2](a)
        y[..., 1::2] = a - self.f[3](b)
        return y.transpose(1, 2)


@module(x=f(3, 6, 8), memory=f(3, 4, 8))
class transformer_xl(nn.Module):
    """Attention to a memory with positions that are shifted."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.r = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8, bias=False)
        self.u, self.v = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(2, 4))
        self.o = nn.Linear(8, 8)
        at = torch.arange(9, -1, -1.0)[:, None] / torch.tensor([1, 3, 10, 30.0])
        self.register_buffer("at", torch.cat([at.sin(), at.cos()], -1))

    def forward(self, x, memory):
        n, t = x.shape[:2]
        k, v = self.kv(torch.cat([memory, x], 1)).view(n, 10, 2, 8).chunk(2, -1)
        q, r = self.q(x).view(n, t, 2, 4), self.r(self.at).view(10, 2, 4)
        ac = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        bd = F.pad(torch.einsum("bihd,jhd->bhij", q + self.v, r), (1, 0))
        bd = bd.view(n, 2, 11, t)[:, :, 1:].reshape(n, 2, t, 10)
        mask = torch.ones(t, 10, dtype=torch.bool).triu(5)
        w = ((ac + bd) / 2).masked_fill(mask, -1e9).softmax(-1)
        return x + self.o(torch.einsum("bhij,bjhd->bihd", w, v).flatten(2))


@module(x=f(3, 8, 6))
class mixture_of_depths(nn.Module):
    """Half of the tokens of a sample go through the block, and are scattered back."""

    def __init__(self):
        super().__init__()
        self.r = nn.Linear(6, 1)
        self.f = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    def forward(self, x):
        w, at = self.r(x).squeeze(-1).topk(4, 1)
        at = at.sort(1)[0]
        w = self.r(x).squeeze(-1).gather(1, at)
        places = at[..., None].expand(-1, -1, 6)
        y = self.f(x.gather(1, places)) * torch.sigmoid(w)[..., None]
        return x.scatter_add(1, places, y)


# ---- pictures ----

@module(x=f(2, 3, 8, 8), noise=f(2, 3, 8, 8), t=i(10, 2))
class diffusion_unet(nn.Module):
    """Group norms, shifts by the time, attention in the middle; the loss of the velocity."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.stem, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, c) for c in (8, 8, 16))
        self.convs = nn.ModuleList(nn.Conv2d(c, 8, 3, padding=1) for c in (8, 8, 16))
        self.shift = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.skip = nn.Conv2d(16, 8, 1)
        self.qkv, self.p = nn.Conv2d(8, 24, 1), nn.Conv2d(8, 8, 1)
        self.o = nn.Conv2d(8, 3, 3, padding=1)
        self.register_buffer("keep", torch.cumprod(1 - torch.linspace(1e-2, 0.3, 10), 0))

    def block(self, k, x, e):
        scale, shift = self.shift[k](F.silu(e))[..., None, None].chunk(2, 1)
        y = self.convs[k](F.silu(self.norms[k](x)))
        return (x if k < 2 else self.skip(x)) + y * (1 + scale) + shift

    def forward(self, x, noise, t):
        keep = self.keep[t][:, None, None, None]
        z = keep.sqrt() * x + (1 - keep).sqrt() * noise
        e = t[:, None].float() * torch.exp(-torch.arange(4.0))
        e = self.time(torch.cat([e.sin(), e.cos()], -1).to(x.dtype))
        a = self.block(0, self.stem(z), e)
        b = self.block(1, self.down(a), e)
        q, k, v = (y.flatten(2).transpose(1, 2)[:, None] for y in self.qkv(b).chunk(3, 1))
        b = b + self.p(F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).view_as(b))
        a = self.block(2, torch.cat([a, F.interpolate(b, scale_factor=2)], 1), e)
        return F.mse_loss(self.o(F.silu(a)), keep.sqrt() * noise - (1 - keep).sqrt() * x)


@module(x=f(2, 1, 4, 8, 8), noise=f(2, 6))
class volume_autoencoder(nn.Module):
    """Variational, with transposed convolutions of three dimensions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 4, 3, 2, 1), nn.Conv3d(4, 8, 3, 2, 1)
        self.norm = nn.InstanceNorm3d(4, affine=True)
        self.stats, self.back = nn.Linear(32, 12), nn.Linear(6, 32)
        self.c = nn.ConvTranspose3d(8, 4, 4, 2, 1)
        self.d = nn.ConvTranspose3d(4, 1, (3, 4, 4), (2, 2, 2), 1, output_padding=(1, 0, 0))

    def forward(self, x, noise):
        y = torch.relu(self.b(F.elu(self.norm(self.a(x)))))
        mean, log_var = self.stats(y.flatten(1)).chunk(2, 1)
        z = mean + noise * torch.exp(0.5 * log_var)
        y = self.d(F.elu(self.c(self.back(z).view_as(y))))
        kl = -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(y, torch.sigmoid(x)) + 0.1 * kl


@module(x=f(2, 2, 8, 8), y=f(2, 2, 8, 8))
class cost_volume(nn.Module):
    """Stereo: shifted features are written into a volume, and the expected shift is read."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Conv3d(8, 1, 3, padding=1)

    def forward(self, x, y):
        x, y = self.a(x), self.a(y)
        cost = x.new_zeros(x.shape[0], 8, 4, 8, 8)
        for d in range(4):
            cost[:, :4, d, :, d:] = x[..., d:]
            cost[:, 4:, d, :, d:] = y[..., :8 - d]
        w = F.softmin(self.b(cost).squeeze(1), 1)
        return (w * torch.arange(4.0).view(1, 4, 1, 1)).sum(1)


@module(x=f(2, 3, 12, 12))
class optical_flow(nn.Module):
    """RAFT in small: all pairs of features, looked up around a flow that a GRU improves."""

    def __init__(self):
        super().__init__()
        self.f = nn.Conv2d(3, 6, 3, 2, 1)
        self.gates = nn.Conv2d(6 + 11, 18, 3, padding=1)
        self.flow = nn.Conv2d(6, 2, 3, padding=1)

    def forward(self, x):
        n = x.shape[0]
        a, b = self.f(x), self.f(x.flip(-1))
        pairs = torch.einsum("nchw,ncij->nhwij", a, b).reshape(n, 36, 1, 36) / 6 ** 0.5
        rows, columns = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
        at = torch.stack([columns, rows])[None]
        h, flow = torch.tanh(a), torch.zeros_like(a[:, :2])
        for _ in range(2):
            place = (at + flow)[:, None] + torch.tensor(
                [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [2, 0], [-2, 0]],
                dtype=x.dtype)[None, :, :, None, None]
            grid = (place / 2.5 - 1).permute(0, 3, 4, 1, 2).reshape(n, 36, 9, 2)
            image = pairs.reshape(n * 36, 1, 6, 6)
            seen = F.grid_sample(image, grid.reshape(n * 36, 1, 9, 2), align_corners=True)
            seen = seen.reshape(n, 6, 6, 9).permute(0, 3, 1, 2)
            z, r, q = self.gates(torch.cat([h, seen, flow], 1)).chunk(3, 1)
            h = (1 - torch.sigmoid(z)) * h + torch.sigmoid(z) * torch.tanh(q + torch.sigmoid(r))
            flow = flow + self.flow(h)
        return flow


@module(x=f(2, 3, 8, 8))
class sub_pixels(nn.Module):
    """Super-resolution with channel attention, and a loss on edges."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.at = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.PReLU(),
                                nn.Conv2d(2, 8, 1), nn.Sigmoid())
        self.register_buffer("edge", torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1.0]]))

    def forward(self, x):
        small = F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True)
        y = self.a(small)
        y = F.pixel_shuffle(self.b(y + y * self.at(y)), 2)
        kernel = torch.stack([self.edge, self.edge.t()])[:, None].repeat(3, 1, 1, 1)
        edges = [F.conv2d(z, kernel, padding=1, groups=3) for z in (x, y)]
        return torch.sqrt((x - y) ** 2 + 1e-6).mean() + F.l1_loss(*edges)


# ---- fields, graphs, sets ----

@module(x=f(2, 3, 8, 8))
class fourier_operator(nn.Module):
    """Products of the low frequencies with complex weights, kept as pairs."""

    def __init__(self):
        super().__init__()
        self.p, self.w, self.q = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 1, 1)
        self.r, self.i = (nn.Parameter(torch.randn(4, 4, 3, 3) * 0.2) for _ in range(2))

    def forward(self, x):
        x = self.p(x)
        z = torch.fft.rfft2(x)[:, :, :3, :3]
        a, b = z.real, z.imag
        real = torch.einsum("bixy,ioxy->boxy", a, self.r) - torch.einsum("bixy,ioxy->boxy", b,
                                                                        self.i)
        imag = torch.einsum("bixy,ioxy->boxy", a, self.i) + torch.einsum("bixy,ioxy->boxy", b,
                                                                        self.r)
        z = torch.complex(F.pad(real, (0, 2, 0, 5)), F.pad(imag, (0, 2, 0, 5)))
        return self.q(F.gelu(torch.fft.irfft2(z, s=(8, 8)) + self.w(x)))


@module(x=lambda: torch.rand(5, 3))
class hash_grid(nn.Module):
    """Tables of corners at several resolutions, found by hashes."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(32, 2) * 0.1) for _ in range(2))
        self.o = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        found = []
        for k, table in enumerate(self.tables):
            at = x * 4 * 2 ** k
            low = at.floor()
            part, y = at - low, 0
            for corner in range(8):
                c = torch.tensor([corner >> d & 1 for d in range(3)])
                p = low.long() + c
                h = (p[:, 0] ^ (p[:, 1] * 73) ^ (p[:, 2] * 151)) % 32
                w = torch.where(c.bool(), part, 1 - part).prod(-1)
                y = y + w[:, None] * table[h]
            found.append(y)
        return self.o(torch.cat(found, -1))


@module(x=f(3, 5, 4), a=lambda: (torch.rand(3, 5, 5) > 0.5).float())
class graph_isomorphism(nn.Module):
    """Sums over neighbours with a learned weight of the node, norms of nodes, and a readout."""

    def __init__(self):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(2))
        self.f = nn.ModuleList(nn.Sequential(nn.Linear(c, 8), nn.SiLU(), nn.Linear(8, 8))
                               for c in (4, 8))
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(2))
        self.o = nn.Linear(16, 3)

    def forward(self, x, a):
        a = torch.maximum(a, a.transpose(1, 2)) * (1 - torch.eye(5))
        sums = []
        for k in range(2):
            x = self.f[k]((1 + self.eps[k]) * x + a @ x)
            x = self.norms[k](x.transpose(1, 2)).transpose(1, 2)
            sums.append(x.sum(1))
        return self.o(torch.cat(sums, 1))


@module(h=i(8, 6), r=i(4, 6), t=i(8, 6, 3))
class rotated_relations(nn.Module):
    """RotatE: relations turn complex entities; negative samples weigh themselves."""

    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(8, 8), nn.Embedding(4, 4)

    def forward(self, h, r, t):
        a, b = self.e(h).chunk(2, -1)
        c, s = torch.cos(self.p(r)), torch.sin(self.p(r))
        turned = torch.stack([a * c - b * s, a * s + b * c], -2).unsqueeze(1)
        target = torch.stack(self.e(t).chunk(2, -1), -2)
        score = 6 - ((turned - target) ** 2 + 1e-9).sum(-2).sqrt().sum(-1)
        w = score[:, 1:].detach().softmax(-1)
        return -(F.logsigmoid(score[:, 0]) + (w * F.logsigmoid(-score[:, 1:])).sum(1)).mean() / 2


@module(x=f(3, 6, 5))
class slot_attention(nn.Module):
    """Slots compete for the places of a sample; three rounds of a GRU."""

    def __init__(self):
        super().__init__()
        self.slots = nn.Parameter(torch.randn(1, 3, 8))
        self.k, self.v, self.q = nn.Linear(5, 8), nn.Linear(5, 8), nn.Linear(8, 8)
        self.cell, self.norm = nn.GRUCell(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        n = x.shape[0]
        k, v, s = self.k(x), self.v(x), self.slots.expand(n, -1, -1)
        for _ in range(3):
            w = (self.q(self.norm(s)) @ k.transpose(1, 2) / 8 ** 0.5).softmax(1) + 1e-8
            y = (w / w.sum(-1, keepdim=True)) @ v
            s = self.cell(y.reshape(-1, 8), s.reshape(-1, 8)).view(n, 3, 8)
        return s


@module(x=f(2, 10, 3))
class farthest_points(nn.Module):
    """PointNet++: points far from each other, and their neighbours."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        n = x.shape[0]
        far, at, found = x.new_full((n, 10), 1e9), x[:, :1], []
        for _ in range(4):
            found.append(at)
            far = torch.minimum(far, ((x - at) ** 2).sum(-1))
            at = x.gather(1, far.argmax(1)[:, None, None].expand(-1, -1, 3))
        c = torch.cat(found, 1)
        near = torch.cdist(c, x).topk(3, largest=False)[1]
        group = x.gather(1, near.flatten(1)[..., None].expand(-1, -1, 3)).view(n, 4, 3, 3)
        return self.f(group - c[:, :, None]).amax(2)


# ---- tables and heads ----

@module(x=f(6, 8), y=i(5, 6))
class arc_face(nn.Module):
    """An angular margin for the label, and a loss of centers."""

    def __init__(self):
        super().__init__()
        self.f, self.w = nn.Linear(8, 6), nn.Parameter(torch.randn(5, 6))
        self.centers = nn.Parameter(torch.randn(5, 6))

    def forward(self, x, y):
        z = self.f(x)
        cos = F.linear(F.normalize(z), F.normalize(self.w))
        sin = (1 - cos ** 2).clamp(1e-6, 1).sqrt()
        margin = cos * math.cos(0.3) - sin * math.sin(0.3)
        margin = torch.where(cos > math.cos(math.pi - 0.3), margin, cos - 0.1)
        hot = F.one_hot(y, 5).to(x.dtype)
        loss = F.cross_entropy(16 * (hot * margin + (1 - hot) * cos), y)
        return loss + 0.1 * (z - self.centers[y]).pow(2).sum(1).mean()


@module(x=f(6, 8), y=lambda: torch.rand(6, 1) + 0.1)
class evidence(nn.Module):
    """Evidential regression: the likelihood of Student's t by gamma functions."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 4)

    def forward(self, x, y):
        mean, v, a, b = self.f(x).chunk(4, 1)
        v, a, b = F.softplus(v) + 0.1, F.softplus(a) + 1.1, F.softplus(b) + 0.1
        two = 2 * b * (1 + v)
        loss = (0.5 * torch.log(math.pi / v) - a * torch.log(two) + torch.lgamma(a)
                - torch.lgamma(a + 0.5) + (a + 0.5) * torch.log(v * (y - mean) ** 2 + two))
        return (loss + 0.1 * (y - mean).abs() * (2 * v + a)).mean()


@module(x=f(6, 8), y=i(4, 6))
class ordinal(nn.Module):
    """CORAL: one weight, several thresholds; and the pinball loss of three quantiles."""

    def __init__(self):
        super().__init__()
        self.f, self.b = nn.Linear(8, 1, bias=False), nn.Parameter(torch.zeros(3))
        self.q = nn.Linear(8, 3)
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, x, y):
        above = (y[:, None] > torch.arange(3)).to(x.dtype)
        loss = F.binary_cross_entropy_with_logits(self.f(x) + self.b, above)
        rest = y[:, None].to(x.dtype) - self.q(x)
        return loss + torch.maximum(self.levels * rest, (self.levels - 1) * rest).mean()


def losses(name, y, forward, n_out=4):
    """A linear layer with a loss of torch.nn.functional."""
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = nn.Linear(8, n_out), nn.Linear(8, n_out)

        def forward(self, x, y):
            return forward(self.f(x), self.g(x), y)
    Head.__name__ = "loss_" + name
    module(x=f(6, 8), y=y)(Head)


SIGN = lambda: torch.randint(0, 2, (6,)).float() * 2 - 1  # noqa: E731
BITS = lambda: torch.randint(0, 2, (6, 4)).float()  # noqa: E731
POSITIVE = lambda: torch.rand(6, 4) + 0.1  # noqa: E731
losses("triplet", f(6, 4), lambda a, b, y: F.triplet_margin_loss(a, b, y, margin=0.7, swap=True))
losses("triplet_distance", f(6, 4), lambda a, b, y: F.triplet_margin_with_distance_loss(
    a, b, y, distance_function=lambda p, q: 1 - F.cosine_similarity(p, q)))
losses("cosine", SIGN, lambda a, b, y: F.cosine_embedding_loss(a, b, y, margin=0.2))
losses("ranking", SIGN, lambda a, b, y: F.margin_ranking_loss(a[:, 0], b[:, 0], y, margin=0.3))
losses("hinge", SIGN, lambda a, b, y: F.hinge_embedding_loss((a - b).pow(2).sum(1), y))
losses("soft_margin", SIGN, lambda a, b, y: F.soft_margin_loss(a[:, 0] * b[:, 0], y))
losses("multi_margin", i(4, 6), lambda a, b, y: F.multi_margin_loss(a + b, y, p=2, margin=0.5))
losses("multi_label", BITS, lambda a, b, y: F.multilabel_soft_margin_loss(a * b, y))
losses("multi_label_margin", i(3, 6, 4), lambda a, b, y: F.multilabel_margin_loss(a + b, y))
losses("bits", BITS, lambda a, b, y: F.binary_cross_entropy_with_logits(
    a, y, weight=y + 0.5, pos_weight=torch.tensor([1.0, 2, 3, 4])) + F.binary_cross_entropy(
        torch.sigmoid(b), y))
losses("nll", i(4, 6, 2), lambda a, b, y: F.nll_loss(
    torch.stack([a, b], -1).log_softmax(1), y, weight=torch.tensor([1.0, 2, 0.5, 1]),
    ignore_index=1))
losses("gaussian", f(6, 4), lambda a, b, y: F.gaussian_nll_loss(a, y, b.exp(), full=True))
losses("poisson", POSITIVE, lambda a, b, y: F.poisson_nll_loss(a, y * 3, full=True)
       + F.poisson_nll_loss(b.exp(), y, log_input=False))
losses("kl", f(6, 4), lambda a, b, y: F.kl_div(a.log_softmax(1), y.softmax(1),
                                               reduction="batchmean")
       + F.kl_div(b.log_softmax(1), y.log_softmax(1), log_target=True, reduction="sum"))
losses("huber", f(6, 4), lambda a, b, y: F.huber_loss(a, y, delta=0.5)
       + F.smooth_l1_loss(b, y, beta=0.3, reduction="none").sum(1).mean())
losses("soft_labels", f(6, 4), lambda a, b, y: F.cross_entropy(
    a, y.softmax(1), label_smoothing=0.1, weight=torch.tensor([1.0, 2, 3, 4])) + b.logsumexp(1)
    .mean() * 0.1)
losses("cox", POSITIVE, lambda a, b, y: -(a[:, 0] - a[:, 0].gather(
    0, y[:, 0].argsort(descending=True)).logcumsumexp(0)).mean() + b.mean() * 0.1)
losses("ctc", i(3, 6, 2), lambda a, b, y: F.ctc_loss(
    torch.stack([a, b, a + b], 0).log_softmax(-1), y + 1, torch.full((6,), 3),
    torch.full((6,), 2)))


@module(x=f(4, 6), y=f(4, 3))
class quantized(nn.Module):
    """Training for integers: rounding of weights and activations by PyTorch's own operators."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, y):
        w = torch.fake_quantize_per_channel_affine(
            self.a.weight, torch.full((8,), 0.02), torch.zeros(8, dtype=torch.int32), 0, -128, 127)
        h = torch.relu(F.linear(x, w, self.a.bias))
        h = torch.fake_quantize_per_tensor_affine(h, 0.05, 0, 0, 255)
        w = torch.fake_quantize_per_tensor_affine(self.b.weight, 0.02, 0, -128, 127)
        return F.mse_loss(F.linear(h, w, self.b.bias), y)


@module(x=f(5, 6))
class bayes_linear(nn.Module):
    """A layer whose weights are drawn, with the distance to the prior in the loss."""

    def __init__(self):
        super().__init__()
        self.m, self.s = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.full((8, 6), -3.0))
        self.o = nn.Linear(8, 2)

    def forward(self, x):
        s = F.softplus(self.s)
        q, p = torch.distributions.Normal(self.m, s), torch.distributions.Normal(0.0, 1.0)
        y = self.o(torch.tanh(F.linear(x, self.m + 0.1 * s)))
        return y.pow(2).mean() + torch.distributions.kl_divergence(q, p).mean()


@module(x=i(7, 4, 6), answer=i(9, 4, 3))
class pointer_generator(nn.Module):
    """A mixture of a vocabulary and of words that are copied from the source."""

    def __init__(self):
        super().__init__()
        self.e, self.q = nn.Embedding(9, 8), nn.Embedding(9, 8)
        self.v, self.g = nn.Linear(8, 9), nn.Linear(16, 1)

    def forward(self, x, answer):
        k, q = self.e(x), self.q(answer)
        w = (q @ k.transpose(1, 2)).softmax(-1)
        c = w @ k
        g = torch.sigmoid(self.g(torch.cat([q, c], -1)))
        p = g * self.v(c).softmax(-1)
        p = p.scatter_add(2, x[:, None].expand(-1, 3, -1), (1 - g) * w)
        return -p.gather(2, answer[..., None]).clamp(min=1e-9).log().mean()


@module(x=f(3, 10))
class maxout_highway(nn.Module):
    """Maxout, highway gates, and weights that encoder and decoder share."""

    def __init__(self):
        super().__init__()
        self.m, self.t, self.h = nn.Linear(10, 24), nn.Linear(8, 8), nn.Linear(8, 8)
        self.w, self.b = nn.Parameter(torch.randn(4, 8) * 0.3), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        y = self.m(x).view(-1, 8, 3).amax(-1)
        t = torch.sigmoid(self.t(y) - 1)
        y = t * F.elu(self.h(y)) + (1 - t) * y
        code = torch.sigmoid(F.linear(y, self.w))
        return F.linear(code, self.w.t(), self.b) - y + 0.1 * F.lp_pool1d(y[:, None], 2, 2).sum(-1)


@module(x=f(4, 6))
class closed_form_continuous(nn.Module):
    """A liquid network: time constants from the state, and a fixed point of a tied layer."""

    def __init__(self):
        super().__init__()
        self.f, self.g, self.h, self.t = (nn.Linear(14, 8) for _ in range(4))
        self.z, self.u = nn.Linear(8, 8, bias=False), nn.Linear(8, 8)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        for k in range(3):
            y = torch.cat([x, h], 1)
            w = torch.sigmoid(-self.f(y) * (k + 1) * 0.3 + self.t(y))
            h = torch.tanh(self.g(y)) * (1 - w) + w * torch.tanh(self.h(y))
        z = torch.zeros_like(h)
        with torch.no_grad():
            for _ in range(6):
                z = torch.tanh(0.3 * self.z(z) + self.u(h))
        return torch.tanh(0.3 * self.z(z) + self.u(h))
