"""import_zoo_written.py - models of import_zoo.py as people write them in projects of their own:
small, but with all of the usual parts."""

import math

import torch
import torch.nn.functional as F
from import_zoo_group import Group, f, i
from torch import nn
from torch.nn.utils import parametrizations, parametrize

GROUP = Group("written", "own_")
GROUPS, case = GROUP.groups, GROUP.module


# ---- language models ----

class CausalAttention(nn.Module):
    """The attention of nanoGPT with its mask in a buffer."""

    def __init__(self, width=16, heads=2, block=12):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


@case(idx=i(20, 3, 8), targets=i(20, 3, 8))
class nano_gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.h = nn.ModuleList(nn.ModuleDict({
            "ln_1": nn.LayerNorm(16), "attn": CausalAttention(), "ln_2": nn.LayerNorm(16),
            "mlp": nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))})
            for _ in range(2))
        self.ln_f = nn.LayerNorm(16)
        self.lm_head = nn.Linear(16, 20, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for b in self.h:
            x = x + b["attn"](b["ln_1"](x))
            x = x + b["mlp"](b["ln_2"](x))
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@case(idx=i(20, 3, 8))
class modded_nano_gpt(nn.Module):
    """Squared ReLU, norms of queries and keys, value embeddings, U-shaped skips, capped logits."""

    def __init__(self):
        super().__init__()
        self.embed, self.values = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.qkv = nn.ParameterList(nn.Parameter(torch.randn(3, 16, 16) * 0.2) for _ in range(4))
        self.proj = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(4))
        self.fc = nn.ModuleList(nn.Linear(16, 64, bias=False) for _ in range(4))
        self.out = nn.ModuleList(nn.Linear(64, 16, bias=False) for _ in range(4))
        self.lambdas = nn.Parameter(torch.rand(4, 2))
        self.skips = nn.Parameter(torch.ones(2))
        self.head = nn.Linear(16, 20, bias=False)

    def rotate(self, x):
        T = x.size(1)
        angle = torch.outer(torch.arange(T, dtype=torch.float32), (1 / 1024) ** torch.linspace(
            0, 1, steps=2, dtype=torch.float32))
        cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
        x1, x2, rest = x[..., :2], x[..., 2:4], x[..., 4:]
        return torch.cat((x1 * cos + x2 * sin, x2 * cos - x1 * sin, rest), -1)

    def attend(self, x, ve, k):
        B, T, C = x.shape
        q, key, v = F.linear(x, self.qkv[k].flatten(end_dim=1)).view(B, T, 6, 8).chunk(3, dim=-2)
        q, key = (self.rotate(F.rms_norm(t, (8,))) for t in (q, key))
        v = self.lambdas[k, 0] * v + self.lambdas[k, 1] * ve.view_as(v)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), key.transpose(1, 2),
                                           v.transpose(1, 2), is_causal=True, scale=0.12)
        return self.proj[k](y.transpose(1, 2).contiguous().view(B, T, C))

    def forward(self, idx):
        x, ve, kept = F.rms_norm(self.embed(idx), (16,)), self.values(idx), []
        for k in range(4):
            if k >= 2:
                x = x + self.skips[k - 2] * kept.pop()
            x = x + self.attend(F.rms_norm(x, (16,)), ve, k)
            x = x + self.out[k](F.relu(self.fc[k](F.rms_norm(x, (16,)))).square())
            if k < 2:
                kept.append(x)
        logits = self.head(F.rms_norm(x, (16,)))
        return 15 * logits * torch.rsqrt(logits.square() + 225)


@case(x=i(20, 3, 8))
class einsum_transformer(nn.Module):
    """Attention and feed-forward layers as einsum of parameters [heads, width, size]."""

    def __init__(self):
        super().__init__()
        self.W_E, self.W_pos = nn.Parameter(torch.randn(20, 16)), nn.Parameter(torch.randn(8, 16))
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(2, 16, 8) * 0.3) for _ in range(3))
        self.W_O, self.b_Q = nn.Parameter(torch.randn(2, 8, 16) * 0.3), nn.Parameter(
            torch.randn(2, 8))
        self.W_U = nn.Parameter(torch.randn(16, 20))

    def forward(self, x):
        r = self.W_E[x] + self.W_pos[:x.shape[1]]
        q = torch.einsum("bpd,hde->bphe", r, self.W_Q) + self.b_Q
        k, v = (torch.einsum("bpd,hde->bphe", r, w) for w in (self.W_K, self.W_V))
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / 8 ** 0.5
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        scores = scores.masked_fill(mask, -1e5).softmax(-1)
        z = torch.einsum("bkhe,bhqk->bqhe", v, scores)
        return torch.einsum("bqhe,hed->bqd", z, self.W_O) @ self.W_U


class Lora(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.B = nn.Parameter(torch.randn(base.out_features, rank) * 0.1)

    def forward(self, x):
        return self.base(x) + (x @ self.A.t() @ self.B.t()) * 2.0


@case(x=f(4, 5, 8))
class lora(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Lora(nn.Linear(8, 12)), Lora(nn.Linear(12, 3))

    def forward(self, x):
        return self.b(F.silu(self.a(x))).mean(1)


class LoraWeight(nn.Module):
    def __init__(self, out, inner):
        super().__init__()
        self.A, self.B = nn.Parameter(torch.randn(2, inner)), nn.Parameter(torch.randn(out, 2))

    def forward(self, w):
        return w + torch.matmul(self.B, self.A).view(w.shape) * 0.5


@case(x=f(4, 8))
class lora_parametrized(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 6), nn.Linear(6, 3)
        parametrize.register_parametrization(self.a, "weight", LoraWeight(6, 8))
        self.a.parametrizations.weight.original.requires_grad_(False)

    def forward(self, x):
        return self.b(self.a(x).tanh())


@case(x=i(20, 3, 8))
class gated_linear_attention(nn.Module):
    """A retention: decay by position in a product without a softmax."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(20, 16), nn.Linear(16, 48)
        self.norm, self.gate, self.out = nn.GroupNorm(2, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        self.register_buffer("decay", torch.log(1 - 2 ** (-5 - torch.arange(2.0))))

    def forward(self, x):
        x = self.embed(x)
        B, T, C = x.shape
        q, k, v = (t.view(B, T, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        n = torch.arange(T)
        mask = torch.where(n[:, None] >= n[None], torch.exp(
            (n[:, None] - n[None])[None] * self.decay[:, None, None]), torch.zeros(()))
        mask = mask / mask.sum(-1, keepdim=True).sqrt()
        scores = (q @ k.mT) * mask * 8 ** -0.5
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1)
        y = (scores @ v).transpose(1, 2).reshape(B * T, C)
        return self.out(self.norm(y).view(B, T, C) * F.silu(self.gate(x)))


@case(src=i(12, 3, 6), tgt=i(12, 3, 5))
class seq2seq_attention(nn.Module):
    """Bahdanau's attention over a GRU, decoded step by step with the targets as inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8, padding_idx=0)
        self.encoder = nn.GRU(8, 6, batch_first=True, bidirectional=True)
        self.bridge, self.query, self.keys = nn.Linear(12, 6), nn.Linear(6, 6), nn.Linear(12, 6)
        self.v, self.cell, self.out = nn.Linear(6, 1), nn.GRUCell(20, 6), nn.Linear(6, 12)

    def forward(self, src, tgt):
        e = self.embed(src)
        y, h = self.encoder(e)
        h = torch.tanh(self.bridge(torch.cat([h[0], h[1]], 1)))
        keys, pad, outs = self.keys(y), src == 0, []
        for t in range(tgt.shape[1]):
            score = self.v(torch.tanh(self.query(h)[:, None] + keys)).squeeze(2)
            w = score.masked_fill(pad, -1e9).softmax(1)
            context = torch.bmm(w.unsqueeze(1), y).squeeze(1)
            h = self.cell(torch.cat([self.embed(tgt[:, t]), context], 1), h)
            outs.append(self.out(h))
        return torch.stack(outs, 1)


# ---- images ----

def time_embedding(t, width):
    half = width // 2
    rates = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * rates[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, t):
        super().__init__()
        self.a = nn.Sequential(nn.GroupNorm(2, c_in), nn.SiLU(), nn.Conv2d(c_in, c_out, 3, 1, 1))
        self.t = nn.Sequential(nn.SiLU(), nn.Linear(t, 2 * c_out))
        self.norm = nn.GroupNorm(2, c_out)
        self.b = nn.Sequential(nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(c_out, c_out, 3, 1, 1))
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.t(t)[:, :, None, None].chunk(2, dim=1)
        h = self.norm(self.a(x)) * (1 + scale) + shift
        return self.skip(x) + self.b(h)


@case(x=f(2, 3, 8, 8), t=i(1000, 2), noise=f(2, 3, 8, 8))
class diffusion(nn.Module):
    """The loss of DDPM: x is noised by a table of the schedule, and a U-Net predicts the noise."""

    def __init__(self):
        super().__init__()
        betas = torch.linspace(1e-4, 0.02, 1000)
        self.register_buffer("alphas_bar", torch.cumprod(1 - betas, 0))
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.begin = nn.Conv2d(3, 4, 3, padding=1)
        self.down1, self.down2 = ResBlock(4, 4, 16), ResBlock(4, 8, 16)
        self.pool = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.qkv, self.proj = nn.Conv2d(8, 24, 1), nn.Conv2d(8, 8, 1)
        self.up1, self.up2 = ResBlock(12, 4, 16), ResBlock(8, 4, 16)
        self.end = nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 3, 3, padding=1))

    def attend(self, x):
        B, C, H, W = x.shape
        q, k, v = self.qkv(x).reshape(B, 3, C, H * W).unbind(1)
        w = torch.einsum("bct,bcs->bts", q * C ** -0.25, k * C ** -0.25).softmax(-1)
        return x + self.proj(torch.einsum("bts,bcs->bct", w, v).reshape(B, C, H, W))

    def forward(self, x, t, noise):
        a = self.alphas_bar[t][:, None, None, None]
        x = a.sqrt() * x + (1 - a).sqrt() * noise
        e = self.time(time_embedding(t, 8))
        h0 = self.begin(x)
        h1 = self.down1(h0, e)
        h2 = self.attend(self.down2(self.pool(h1), e))
        h = self.up1(torch.cat([h2, self.pool(h1)], 1), e)
        h = F.interpolate(h, scale_factor=2.0, mode="nearest")
        h = self.up2(torch.cat([h, h1], 1), e)
        return F.mse_loss(self.end(h), noise)


@case(z=f(3, 6), y=i(4, 3))
class gan_generator(nn.Module):
    """Conditional batch norms, as of BigGAN, and a DCGAN's transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 6)
        self.fc = nn.Linear(6, 8 * 2 * 2)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(8, 8, 4, 2, 1, bias=False),
                                  nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False)])
        self.norms = nn.ModuleList(nn.BatchNorm2d(c, affine=False) for c in (8, 4))
        self.gains = nn.ModuleList([nn.Linear(6, 16), nn.Linear(6, 8)])
        self.out = nn.ConvTranspose2d(4, 3, 3, 1, 1)

    def forward(self, z, y):
        c = self.embed(y)
        x = self.fc(z * c).view(-1, 8, 2, 2)
        for up, norm, gain in zip(self.ups, self.norms, self.gains):
            gamma, beta = gain(c).unsqueeze(2).unsqueeze(3).chunk(2, 1)
            x = F.leaky_relu((1 + gamma) * norm(up(x)) + beta, 0.2, inplace=True)
        return torch.tanh(self.out(x))


@case(x=f(4, 3, 8, 8))
class gan_critic(nn.Module):
    """Spectral norm on each layer, a standard deviation of the batch, pooling by sums."""

    def __init__(self):
        super().__init__()
        norm = parametrizations.spectral_norm
        self.a = norm(nn.Conv2d(3, 6, 4, 2, 1))
        self.b = norm(nn.Conv2d(6, 8, 4, 2, 1))
        self.c = norm(nn.Linear(8, 1))

    def forward(self, x):
        x = F.leaky_relu(self.a(x), 0.1)
        x = F.leaky_relu(self.b(x), 0.1)
        return self.c(x.sum((2, 3)))


@case(x=f(3, 3, 8, 8))
class style_generator(nn.Module):
    """Weights modulated for each sample, as of StyleGAN 2, by a grouped convolution."""

    def __init__(self):
        super().__init__()
        self.style = nn.Linear(12, 3)
        self.weight = nn.Parameter(torch.randn(1, 4, 3, 3, 3))
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        B, C, H, W = x.shape
        s = self.style(F.adaptive_avg_pool2d(x, 2).flatten(1)) + 1
        w = self.weight * s.view(B, 1, C, 1, 1)
        w = w * torch.rsqrt(w.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
        y = F.conv2d(x.reshape(1, B * C, H, W), w.view(B * 4, C, 3, 3), padding=1, groups=B)
        return y.view(B, 4, H, W) * (1 + self.strength)


@case(x=f(4, 1, 8, 8), eps=f(4, 3))
class conv_vae(nn.Module):
    """The loss is inside: reconstruction and divergence, as two outputs beside it."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1),
                                 nn.ReLU(), nn.Flatten())
        self.mu, self.logvar, self.fc = nn.Linear(32, 3), nn.Linear(32, 3), nn.Linear(3, 32)
        self.dec = nn.Sequential(nn.Unflatten(1, (8, 2, 2)), nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
                                 nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2, 1, 1), nn.Sigmoid())

    def forward(self, x, eps):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + eps * torch.exp(0.5 * logvar)
        y = self.dec(self.fc(z))
        bce = F.binary_cross_entropy(y, torch.sigmoid(x), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return (bce + kld) / x.shape[0]


@case(x=f(3, 3, 8, 8))
class vq_vae(nn.Module):
    """The nearest entry of a code book by squared distances; a straight-through gradient."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Conv2d(3, 4, 4, 2, 1), nn.ConvTranspose2d(4, 3, 4, 2, 1)
        self.book = nn.Embedding(7, 4)

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 4)
        d = (flat ** 2).sum(1, keepdim=True) + (self.book.weight ** 2).sum(1) \
            - 2 * flat @ self.book.weight.t()
        k = torch.argmin(d, dim=1).unsqueeze(1)
        one = torch.zeros(k.shape[0], 7).scatter_(1, k, 1)
        q = torch.matmul(one, self.book.weight).view(z.shape)
        loss = F.mse_loss(q.detach(), z, reduction="none").mean((1, 2, 3)) * 0.25 \
            + F.mse_loss(q, z.detach(), reduction="none").mean((1, 2, 3))
        q = z + (q - z).detach()
        return self.dec(q.permute(0, 3, 1, 2).contiguous()), loss


@case(x=f(3, 3, 8, 8))
class mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 2, 2)
        self.blocks = nn.ModuleList(nn.ModuleList([
            nn.LayerNorm(8), nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)),
            nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))])
            for _ in range(2))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for n1, tokens, n2, channels in self.blocks:
            x = x + tokens(n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(n2(x))
        return self.head(x.mean(dim=1))


@case(x=f(3, 4, 6, 6))
class capsules(nn.Module):
    """Routing by agreement, three times."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 16, 3, 2)
        self.W = nn.Parameter(torch.randn(1, 16, 3, 5, 4) * 0.3)

    @staticmethod
    def squash(s, dim=-1):
        n = (s ** 2).sum(dim=dim, keepdim=True)
        return (n / (1 + n)) * (s / (torch.sqrt(n) + 1e-8))

    def forward(self, x):
        u = self.squash(self.conv(x).view(x.size(0), 4, 4, 2, 2).permute(0, 1, 3, 4, 2)
                        .reshape(x.size(0), 16, 4))
        u_hat = torch.matmul(self.W, u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(x.size(0), 16, 3, 1)
        for k in range(3):
            c = F.softmax(b, dim=2)
            v = self.squash((c * u_hat).sum(dim=1))
            if k < 2:
                b = b + (u_hat * v.unsqueeze(1)).sum(-1, keepdim=True).detach()
        return v.norm(dim=-1)


@case(x=f(2, 3, 8, 8))
class yolo_head(nn.Module):
    """Boxes from a grid of cells and anchors; parts of one tensor are written in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2 * 7, 3, 2, 1)
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [3.0, 1.0]]))

    def forward(self, x):
        y = self.conv(x)
        B, _, H, W = y.shape
        y = y.view(B, 2, 7, H, W).permute(0, 1, 3, 4, 2).contiguous()
        gy, gx = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
        grid = torch.stack((gx, gy), 2).view(1, 1, H, W, 2).float()
        y = y.sigmoid().clone()
        y[..., 0:2] = (y[..., 0:2] * 2 - 0.5 + grid) * 8
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.anchors.view(1, 2, 1, 1, 2)
        return y.view(B, -1, 7)


@case(x=f(2, 3, 16, 16))
class ssd_multi_output(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList(nn.Sequential(
            nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU6(inplace=True))
            for a, b in ((3, 4), (4, 6)))
        self.boxes = nn.ModuleList(nn.Conv2d(c, 2 * 4, 3, padding=1) for c in (4, 6))
        self.kinds = nn.ModuleList(nn.Conv2d(c, 2 * 3, 3, padding=1) for c in (4, 6))

    def forward(self, x):
        boxes, kinds = [], []
        for body, box, kind in zip(self.body, self.boxes, self.kinds):
            x = body(x)
            boxes.append(box(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4))
            kinds.append(kind(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 3))
        return {"boxes": torch.cat(boxes, 1), "scores": torch.cat(kinds, 1).softmax(-1)}


@case(x=f(2, 3, 8, 8))
class coord_attention(nn.Module):
    """CoordConv, CBAM, blur pooling and pixel shuffle: constants and reductions of maps."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 8, 3, padding=1)
        self.mlp = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        k = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("blur", (k[:, None] * k[None] / 16).repeat(8, 1, 1, 1))

    def forward(self, x):
        B, _, H, W = x.shape
        rows = torch.linspace(-1, 1, H).view(1, 1, H, 1).expand(B, 1, H, W)
        columns = torch.linspace(-1, 1, W).view(1, 1, 1, W).expand(B, -1, H, W)
        x = self.conv(torch.cat([x, rows, columns], 1))
        g = self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3)))
        x = x * g.sigmoid()[:, :, None, None]
        m = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], 1)
        x = x * self.spatial(m).sigmoid()
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.blur, stride=2, groups=8)
        return F.pixel_shuffle(x, 2)


@case(x=f(2, 3, 6, 6))
class involution(nn.Module):
    """Kernels that are computed from the image, over patches of unfold."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 4, 1)
        self.reduce, self.span = nn.Sequential(nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2),
                                               nn.ReLU()), nn.Conv2d(2, 9 * 2, 1)

    def forward(self, x):
        x = self.a(x)
        B, C, H, W = x.shape
        w = self.span(self.reduce(x)).view(B, 2, 9, H, W).unsqueeze(2)
        u = F.unfold(x, 3, padding=1).view(B, 2, 2, 9, H, W)
        return (w * u).sum(dim=3).view(B, C, H, W)


# ---- audio and time ----

@case(x=f(2, 24, 8))
class conformer(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        ff = lambda: nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 2 * c), nn.SiLU(),
                                   nn.Dropout(0.1), nn.Linear(2 * c, c))
        self.ff1, self.ff2, self.norm, self.out = ff(), ff(), nn.LayerNorm(c), nn.LayerNorm(c)
        self.attn = nn.MultiheadAttention(c, 2, batch_first=True)
        self.cnorm, self.point1 = nn.LayerNorm(c), nn.Conv1d(c, 2 * c, 1)
        self.depth = nn.Conv1d(c, c, 7, padding=3, groups=c)
        self.bn, self.point2 = nn.BatchNorm1d(c), nn.Conv1d(c, c, 1)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        h = F.glu(self.point1(self.cnorm(x).transpose(1, 2)), dim=1)
        x = x + self.point2(F.silu(self.bn(self.depth(h)))).transpose(1, 2)
        return self.out(x + 0.5 * self.ff2(x))


@case(x=f(2, 160))
class wav2vec_like(nn.Module):
    """Raw sound: strided convolutions, a grouped position convolution with weight norm, and
    similarities with later steps."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(1, 8, 10, 5, bias=False), nn.Conv1d(8, 8, 3, 2)])
        self.norm = nn.GroupNorm(8, 8)
        self.pos = parametrizations.weight_norm(nn.Conv1d(8, 8, 4, padding=2, groups=2),
                                                name="weight", dim=2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True,
                                                activation="gelu")
        self.final = nn.Linear(8, 8)

    def forward(self, x):
        x = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True) + 1e-7)
        z = F.gelu(self.norm(self.convs[0](x[:, None])))
        z = F.gelu(self.convs[1](z)).transpose(1, 2)
        c = self.layer(z + F.gelu(self.pos(z.transpose(1, 2))[:, :, :-1].transpose(1, 2)))
        c = self.final(c)[:, :-1]
        return F.cosine_similarity(c.unsqueeze(2), z[:, 1:].unsqueeze(1), dim=-1)


@case(x=f(2, 3, 20))
class tcn(nn.Module):
    """Dilated causal convolutions with weight norm, cut at the end."""

    def __init__(self):
        super().__init__()
        self.layers, self.skips = nn.ModuleList(), nn.ModuleList()
        for k, (a, b) in enumerate(((3, 6), (6, 6), (6, 4))):
            self.layers.append(parametrizations.weight_norm(nn.Conv1d(
                a, b, 3, padding=2 * 2 ** k, dilation=2 ** k)))
            self.skips.append(nn.Conv1d(a, b, 1) if a != b else nn.Identity())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for k, (layer, skip) in enumerate(zip(self.layers, self.skips)):
            y = F.relu(layer(x)[:, :, :-2 * 2 ** k].contiguous())
            x = F.relu(y + skip(x))
        return self.head(x[:, :, -1])


@case(x=f(2, 1, 24))
class wavenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin = nn.Conv1d(1, 4, 1)
        self.gates = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=d) for d in (1, 2, 4))
        self.skips = nn.ModuleList(nn.Conv1d(4, 6, 1) for _ in range(3))
        self.rests = nn.ModuleList(nn.Conv1d(4, 4, 1) for _ in range(3))
        self.end = nn.Conv1d(6, 10, 1)

    def forward(self, x):
        x, total = self.begin(x), 0
        for gate, skip, rest, d in zip(self.gates, self.skips, self.rests, (1, 2, 4)):
            a, b = gate(F.pad(x, (d, 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(h)
            x = x + rest(h)
        return self.end(F.relu(total))


@case(x=f(2, 64))
class spectrogram_net(nn.Module):
    """A short-time Fourier transform by frames and a table, a filter bank and a logarithm."""

    def __init__(self):
        super().__init__()
        n = torch.arange(16.0)
        angle = 2 * math.pi * n[:, None] * n[None, :9] / 16
        self.register_buffer("cos", angle.cos() * torch.hann_window(16)[:, None])
        self.register_buffer("sin", angle.sin() * torch.hann_window(16)[:, None])
        self.bank, self.fc = nn.Parameter(torch.rand(9, 5)), nn.Linear(5, 3)

    def forward(self, x):
        frames = x.unfold(-1, 16, 8)
        power = (frames @ self.cos) ** 2 + (frames @ self.sin) ** 2
        mel = torch.log(power @ self.bank.abs() + 1e-6)
        mel = (mel - mel.mean((1, 2), keepdim=True)) / (mel.std((1, 2), keepdim=True) + 1e-5)
        return self.fc(mel).logsumexp(1)


@case(x=f(3, 12, 4))
class n_beats_like(nn.Module):
    """Series minus their moving mean, a Fourier basis and a trend, as DLinear and N-BEATS have."""

    def __init__(self):
        super().__init__()
        self.trend, self.season = nn.Linear(12, 6), nn.Linear(12, 6)
        self.theta = nn.Linear(12, 8)
        t = torch.arange(6.0) / 6
        self.register_buffer("basis", torch.stack(
            [torch.cos(2 * math.pi * k * t) for k in range(4)]
            + [torch.sin(2 * math.pi * k * t) for k in range(4)]))

    def forward(self, x):
        front, end = x[:, 0:1].repeat(1, 2, 1), x[:, -1:].repeat(1, 2, 1)
        mean = F.avg_pool1d(torch.cat([front, x, end], 1).permute(0, 2, 1), 5, stride=1)
        rest = x.permute(0, 2, 1) - mean
        y = self.trend(mean) + self.season(rest) + self.theta(rest) @ self.basis
        return y.permute(0, 2, 1)
