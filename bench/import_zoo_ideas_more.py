"""import_zoo_ideas_more.py - the second half of the group ideas: images, diffusion, detection,
self-supervision, sequences with a memory, discrete values."""

import math

import torch
import torch.nn.functional as F
from import_zoo_group import f, i
from import_zoo_ideas import case
from torch import nn

# ---- images and diffusion ----


class DiTBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.n2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU("tanh"), nn.Linear(2 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        s1, g1, o1, s2, g2, o2 = self.ada(c).unsqueeze(1).chunk(6, -1)
        b, n, d = x.shape
        h = self.n1(x) * (1 + g1) + s1
        q, k, v = self.qkv(h).reshape(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + o1 * self.proj(h)
        return x + o2 * self.mlp(self.n2(x) * (1 + g2) + s2)


@case(x=f(3, 4, 8, 8), t=i(1000, 3), y=i(6, 3))
class dit(nn.Module):
    """A diffusion transformer: conditions scale and shift each norm; patches put together again."""

    def __init__(self, d=16):
        super().__init__()
        self.patch, self.label = nn.Conv2d(4, d, 2, 2), nn.Embedding(7, d)
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        p = torch.arange(16.0)[:, None] * torch.exp(torch.arange(0, d, 2) * -0.5)
        self.register_buffer("pos", torch.cat([p.sin(), p.cos()], -1))
        self.blocks = nn.ModuleList(DiTBlock(d) for _ in range(2))
        self.ada, self.last = nn.Linear(d, 2 * d), nn.Linear(d, 2 * 2 * 8)

    def forward(self, x, t, y):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        rates = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
        args = t[:, None].float() * rates[None]
        c = self.time(torch.cat([torch.cos(args), torch.sin(args)], -1)) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.ada(F.silu(c)).chunk(2, 1)
        x = self.last(F.layer_norm(x, (16,)) * (1 + scale[:, None]) + shift[:, None])
        x = torch.einsum("nhwpqc->nchpwq", x.reshape(-1, 4, 4, 2, 2, 8))
        return x.reshape(-1, 8, 8, 8)


@case(x1=f(4, 6), x0=f(4, 6), t=lambda: torch.rand(4))
class flow_matching(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 16), nn.Mish(), nn.Linear(16, 16), nn.Mish(),
                                 nn.Linear(16, 6))

    def forward(self, x1, x0, t):
        t = t[:, None]
        xt = (1 - (1 - 1e-4) * t) * x0 + t * x1
        v = self.net(torch.cat([xt, t], -1))
        return ((v - (x1 - (1 - 1e-4) * x0)) ** 2).mean(-1)


@case(x=f(2, 3, 16, 16))
class attention_unet(nn.Module):
    """Gated skips, transposed convolutions, deep supervision."""

    def __init__(self):
        super().__init__()
        def double(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.InstanceNorm2d(
                b, affine=True), nn.LeakyReLU(0.1), nn.Conv2d(b, b, 3, padding=1), nn.ELU())
        self.a, self.b, self.c = double(3, 8), double(8, 12), double(12, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, 2), nn.ConvTranspose2d(12, 8, 4, 2, 1)
        self.g2, self.x2, self.p2 = nn.Conv2d(12, 4, 1), nn.Conv2d(12, 4, 1), nn.Conv2d(4, 1, 1)
        self.d2, self.d1 = double(24, 12), double(16, 8)
        self.o2, self.o1 = nn.Conv2d(12, 2, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.avg_pool2d(b, 3, 2, 1, count_include_pad=False))
        u = self.up2(c)
        gate = torch.sigmoid(self.p2(F.relu(self.g2(u) + self.x2(b))))
        d2 = self.d2(torch.cat([u, b * gate], 1))
        d1 = self.d1(torch.cat([self.up1(d2), a], 1))
        wide = F.interpolate(self.o2(d2), size=a.shape[-2:], mode="bilinear", align_corners=True)
        return torch.stack([self.o1(d1), wide], 1)


@case(x=f(2, 1, 8, 8, 8))
class unet_3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.na = nn.Conv3d(1, 6, 3, padding=1), nn.GroupNorm(2, 6)
        self.b, self.nb = nn.Conv3d(6, 8, 3, 2, 1), nn.InstanceNorm3d(8)
        self.up, self.out = nn.ConvTranspose3d(8, 6, 2, 2), nn.Conv3d(12, 2, 1)

    def forward(self, x):
        a = F.relu6(self.na(self.a(x)))
        b = F.hardswish(self.nb(self.b(a)))
        wide = F.interpolate(b[:, :6], scale_factor=2, mode="trilinear", align_corners=False)
        return self.out(torch.cat([a + wide, self.up(b)], 1)).softmax(1)


@case(x=f(2, 3, 32, 32))
class yolo_v8_head(nn.Module):
    """Boxes as distributions over distances, anchors of three strides."""

    def __init__(self, bins=4, classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.downs = nn.ModuleList(nn.Conv2d(8, 8, 3, 2, 1) for _ in range(2))
        self.box = nn.ModuleList(nn.Conv2d(8, 4 * bins, 1) for _ in range(3))
        self.cls = nn.ModuleList(nn.Conv2d(8, classes, 1) for _ in range(3))
        self.bins, self.classes = bins, classes

    def forward(self, x):
        levels = [self.stem(x)]
        for down in self.downs:
            levels.append(F.silu(down(levels[-1])))
        found, anchors, strides = [], [], []
        for k, level in enumerate(levels):
            both = torch.cat([self.box[k](level), self.cls[k](level)], 1)
            found.append(both.view(x.shape[0], 4 * self.bins + self.classes, -1))
            h, w = level.shape[2:]
            sy, sx = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            anchors.append(torch.stack((sx, sy), -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), 4.0 * 2 ** k))
        box, cls = torch.cat(found, 2).split((4 * self.bins, self.classes), 1)
        b, _, a = box.shape
        d = box.view(b, 4, self.bins, a).transpose(2, 1).softmax(1)
        d = (d * torch.arange(self.bins, dtype=torch.float).view(1, -1, 1, 1)).sum(1)
        lt, rb = d.chunk(2, 1)
        points, strides = torch.cat(anchors).mT, torch.cat(strides).mT
        x1y1, x2y2 = points - lt, points + rb
        box = torch.cat(((x1y1 + x2y2) / 2, x2y2 - x1y1), 1) * strides
        return torch.cat((box, cls.sigmoid()), 1)


@case(heat=f(2, 6, 8, 8), target=lambda: torch.rand(2, 2, 8, 8).round(), at=i(64, 2, 3),
      size=f(2, 3, 2))
class center_net(nn.Module):
    """Penalty-reduced focal loss, and sizes taken at centers."""

    def __init__(self):
        super().__init__()
        self.heat, self.size = nn.Conv2d(6, 2, 1), nn.Conv2d(6, 2, 1)

    def forward(self, heat, target, at, size):
        p = self.heat(heat).sigmoid().clamp(1e-4, 1 - 1e-4)
        pos = target.eq(1).float()
        loss = -(torch.log(p) * (1 - p) ** 2 * pos + torch.log(1 - p) * p ** 2 *
                 (1 - target) ** 4 * (1 - pos)).sum((1, 2, 3))
        wh = self.size(heat).permute(0, 2, 3, 1).reshape(heat.shape[0], -1, 2)
        wh = wh.gather(1, at.unsqueeze(2).expand(-1, -1, 2))
        return loss / pos.sum((1, 2, 3)).clamp(min=1) + F.smooth_l1_loss(
            wh, size, reduction="none").sum((1, 2))


@case(pred=f(3, 4, 6), target=lambda: torch.rand(3, 4, 4))
class giou_boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, pred, target):
        cx, cy, w, h = self.fc(pred).sigmoid().unbind(-1)
        a = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)
        b = torch.cat([target[..., :2], target[..., :2] + target[..., 2:] + 0.1], -1)
        area = [(t[..., 2:] - t[..., :2]).prod(-1) for t in (a, b)]
        inner = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0)
        outer = torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])
        both, hull = inner.prod(-1), outer.prod(-1)
        union = area[0] + area[1] - both
        return (1 - both / union + (hull - union) / hull).mean(-1)


@case(x=f(3, 3, 16, 16))
class masked_autoencoder(nn.Module):
    """Order of the patches fixed in a buffer: shuffled, a part kept, and put back."""

    def __init__(self, d=16):
        super().__init__()
        self.patch, self.pos = nn.Linear(48, d), nn.Parameter(torch.randn(1, 16, d) * 0.1)
        self.token = nn.Parameter(torch.zeros(1, 1, d))
        order = torch.randperm(16)
        self.register_buffer("order", order)
        self.register_buffer("back", torch.argsort(order))
        self.enc = nn.TransformerEncoderLayer(d, 2, 24, 0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(d, 48)

    def forward(self, x):
        p = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 16, 48)
        h = (self.patch(p) + self.pos)[:, self.order[:6]]
        h = self.enc(h)
        h = torch.cat([h, self.token.expand(h.shape[0], 10, -1)], 1)
        h = torch.index_select(h, 1, self.back) + self.pos
        hidden = torch.ones(16).index_fill(0, self.order[:6], 0.0)
        want = (p - p.mean(-1, keepdim=True)) / (p.var(-1, keepdim=True) + 1e-6) ** 0.5
        return (((self.out(h) - want) ** 2).mean(-1) * hidden).sum(-1) / hidden.sum()


# ---- self-supervision: losses over the whole batch ----

@case(a=f(6, 8), b=f(6, 8))
class barlow_twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, a, b):
        za, zb = self.norm(self.net(a)), self.norm(self.net(b))
        c = za.T @ zb / a.shape[0]
        on = torch.diagonal(c).add(-1).pow(2).sum()
        off = c.flatten()[:-1].view(5, 7)[:, 1:].flatten().pow(2).sum()
        return on + 5e-3 * off


@case(a=f(6, 8), b=f(6, 8))
class vic_reg(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, a, b):
        x, y = self.net(a), self.net(b)
        loss = 25 * F.mse_loss(x, y)
        for z in (x, y):
            z = z - z.mean(0)
            loss = loss + 25 * F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean() / 2
            cov = z.T @ z / (z.shape[0] - 1)
            loss = loss + cov.fill_diagonal_(0).pow(2).sum() / 6
        return loss


@case(a=f(4, 8), b=f(4, 8))
class sim_clr(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 6, bias=False))

    def forward(self, a, b):
        z = F.normalize(torch.cat([self.net(a), self.net(b)]), dim=1)
        s = (z @ z.t() / 0.5).masked_fill(torch.eye(8, dtype=torch.bool), float("-inf"))
        target = torch.cat([torch.arange(4, 8), torch.arange(4)])
        return F.cross_entropy(s, target)


@case(x=f(6, 8))
class sinkhorn(nn.Module):
    """SwAV's assignment: rows and columns are scaled in turn, without gradients."""

    def __init__(self):
        super().__init__()
        self.net, self.protos = nn.Linear(8, 6), nn.Linear(6, 4, bias=False)

    def forward(self, x):
        scores = self.protos(F.normalize(self.net(x), dim=1))
        with torch.no_grad():
            q = torch.exp(scores / 0.3).t()
            q = q / q.sum()
            for _ in range(3):
                q = q / q.sum(1, keepdim=True) / 4
                q = q / q.sum(0, keepdim=True) / 6
            q = (q * 6).t()
        return -(q * F.log_softmax(scores / 0.2, 1)).sum(1).mean()


# ---- memory, structure, equations ----

@case(emissions=f(3, 5, 4), tags=i(4, 3, 5))
class crf(nn.Module):
    """The negative log-likelihood of a chain, by a loop of logsumexp."""

    def __init__(self):
        super().__init__()
        self.fc, self.start = nn.Linear(4, 4), nn.Parameter(torch.randn(4))
        self.moves, self.end = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, emissions, tags):
        e = self.fc(emissions)
        score = self.start[tags[:, 0]] + e[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = self.start + e[:, 0]
        for t in range(1, 5):
            score = score + self.moves[tags[:, t - 1], tags[:, t]]
            score = score + e[:, t].gather(1, tags[:, t, None])[:, 0]
            alpha = torch.logsumexp(alpha[:, :, None] + self.moves[None] + e[:, t, None], 1)
        return torch.logsumexp(alpha + self.end, 1) - score - self.end[tags[:, -1]]


@case(x=f(2, 5, 6))
class neural_turing(nn.Module):
    """A memory with addresses by content and by a circular shift."""

    def __init__(self):
        super().__init__()
        self.cell, self.key, self.more = nn.GRUCell(10, 8), nn.Linear(8, 4), nn.Linear(8, 5)
        self.erase, self.add = nn.Linear(8, 4), nn.Linear(8, 4)
        self.memory = nn.Parameter(torch.randn(6, 4))

    def forward(self, x):
        n = x.shape[0]
        m = self.memory.repeat(n, 1, 1)
        h, w, r, ys = x.new_zeros(n, 8), torch.full((n, 6), 1 / 6), x.new_zeros(n, 4), []
        for t in range(x.shape[1]):
            h = self.cell(torch.cat([x[:, t], r], -1), h)
            beta, gate, s = self.more(h).split([1, 1, 3], -1)
            content = F.cosine_similarity(m, self.key(h)[:, None], dim=-1)
            w = torch.lerp(w, (F.softplus(beta) * content).softmax(-1), gate.sigmoid())
            s = s.softmax(-1)
            w = sum(torch.roll(w, k - 1, 1) * s[:, k:k + 1] for k in range(3))
            w = w ** 1.5 / (w ** 1.5).sum(-1, keepdim=True)
            m = m * (1 - w[..., None] * self.erase(h).sigmoid()[:, None])
            m = torch.baddbmm(m, w[..., None], self.add(h)[:, None])
            r = torch.bmm(w[:, None], m)[:, 0]
            ys.append(r)
        return torch.stack(ys, 1)


@case(x=f(3, 4))
class neural_ode(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 12), nn.Linear(12, 4)

    def f(self, t, x):
        return self.b(torch.tanh(self.a(torch.cat([x, torch.full_like(x[:, :1], t)], -1))))

    def forward(self, x):
        h = 0.25
        for k in range(4):
            t = k * h
            k1 = self.f(t, x)
            k2 = self.f(t + h / 2, x + h / 2 * k1)
            k3 = self.f(t + h / 2, torch.add(x, k2, alpha=h / 2))
            k4 = self.f(t + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


@case(x=lambda: (torch.rand(2, 6, 5) > 0.5).float())
class spiking(nn.Module):
    """Leaky neurons that fire: the step's gradient is that of a sigmoid."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)
        self.decay = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        v, u, total = torch.zeros(x.shape[0], 8), torch.zeros(x.shape[0], 3), 0
        keep = torch.sigmoid(self.decay)
        for t in range(x.shape[1]):
            v = keep * v + self.a(x[:, t])
            soft = torch.sigmoid(4 * (v - 1))
            spike = (v > 1).float() + soft - soft.detach()
            v = torch.where(v > 1, torch.zeros_like(v), v)
            u = keep * u + self.b(spike)
            total = total + u
        return total / x.shape[1]


@case(x=f(3, 7, 5))
class set_transformer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.front, self.points = nn.Linear(5, d), nn.Parameter(torch.randn(1, 3, d))
        self.seed, self.out = nn.Parameter(torch.randn(1, 2, d)), nn.Linear(d, 2)
        self.a, self.b, self.c = (nn.MultiheadAttention(d, 2, batch_first=True) for _ in range(3))
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        x = self.front(x)
        h = self.a(self.points.repeat(x.size(0), 1, 1), x, x)[0]
        x = self.norm(x + self.b(x, h, h)[0])
        y, w = self.c(self.seed.expand(x.size(0), -1, -1), x, x)
        return self.out(y).flatten(1) + w.amax((1, 2)).unsqueeze(1)


# ---- routing and discrete values ----

@case(x=f(2, 6, 8))
class capacity_experts(nn.Module):
    """Switch routing: a place for each token within its expert's capacity, by running sums."""

    def __init__(self, experts=3, capacity=3):
        super().__init__()
        self.gate = nn.Linear(8, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, 8, 12) * 0.3)
        self.w2 = nn.Parameter(torch.randn(experts, 12, 8) * 0.3)
        self.experts, self.capacity = experts, capacity

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        top, at = p.max(-1)
        hot = F.one_hot(at, self.experts)
        place = (hot.cumsum(1) * hot).sum(-1) - 1
        kept = (place < self.capacity).float()
        slot = F.one_hot(place.clamp(max=self.capacity - 1), self.capacity).float()
        dispatch = hot.float()[..., None] * slot[:, :, None] * kept[..., None, None]
        h = torch.einsum("btec,btd->becd", dispatch, x)
        h = torch.einsum("becd,edf->becf", h, self.w1).relu()
        h = torch.einsum("becf,efd->becd", h, self.w2)
        y = torch.einsum("becd,btec->btd", h, dispatch * top[..., None, None])
        balance = (hot.float().mean(1) * p.mean(1)).sum(-1) * self.experts
        return x + y + 0.01 * balance[:, None, None]


@case(x=f(2, 6, 8))
class soft_experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi, self.scale = nn.Parameter(torch.randn(8, 3, 2)), nn.Parameter(torch.ones(1))
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))
                                     for _ in range(3))

    def forward(self, x):
        logits = torch.einsum("bnd,dep->bnep", F.normalize(x, dim=-1),
                              self.scale * F.normalize(self.phi, dim=0))
        into = logits.softmax(1)
        out = logits.flatten(2).softmax(-1).unflatten(2, (3, 2))
        slots = torch.einsum("bnep,bnd->bepd", into, x)
        ys = torch.stack([e(slots[:, k]) for k, e in enumerate(self.experts)], 1)
        return torch.einsum("bnep,bepd->bnd", out, ys)


@case(x=f(3, 5, 6))
class expert_choice(nn.Module):
    """Experts choose their tokens, and their results are added back."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 3, bias=False)
        self.w = nn.Parameter(torch.randn(3, 6, 6) * 0.3)

    def forward(self, x):
        scores = self.gate(x).softmax(-1).transpose(1, 2)
        g, at = scores.topk(2, -1)
        index = at.flatten(1)[..., None].expand(-1, -1, 6)
        chosen = x.gather(1, index).unflatten(1, (3, 2))
        y = torch.einsum("becd,edf->becf", chosen, self.w) * g[..., None]
        return torch.zeros_like(x).scatter_add(1, index, y.flatten(1, 2)) + x


@case(x=f(3, 4, 6))
class finite_scalars(nn.Module):
    """FSQ and bits: rounding with straight-through gradients."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 4), nn.Linear(4, 6)
        self.register_buffer("levels", torch.tensor([8.0, 5.0, 5.0, 3.0]))

    def forward(self, x):
        z = self.enc(x)
        half = (self.levels - 1) * (1 + 1e-3) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        bounded = torch.tanh(z + torch.atanh(offset / half)) * half - offset
        q = bounded + (torch.round(bounded) - bounded).detach()
        q = q / (self.levels // 2)
        return self.dec(q + torch.sign(z).sub(z).detach() * 0.1)


@case(x=f(4, 8))
class fake_quantized(nn.Module):
    """Quantization-aware training by hand, and binary weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4, bias=False)

    def quantize(self, x, levels):
        scale = x.detach().abs().amax() / levels
        q = torch.clamp(torch.round(x / scale), -levels, levels) * scale
        return x + (q - x).detach()

    def forward(self, x):
        w = self.quantize(self.a.weight, 127)
        h = F.hardtanh(F.linear(x, w, self.a.bias))
        w = self.b.weight
        binary = torch.sign(w) * w.abs().mean(1, keepdim=True).detach()
        return F.linear(h, w.clamp(-1, 1) + (binary - w.clamp(-1, 1)).detach())


@case(ids=i(9, 3, 6), lengths=lambda: torch.tensor([6, 4, 2]))
class packed_pooling(nn.Module):
    """Means, maxima and last states of sequences that differ in length."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(9, 8, padding_idx=0), nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, ids, lengths):
        h, _ = self.rnn(self.embed(ids))
        mask = torch.arange(6)[None] < lengths[:, None]
        mean = (h * mask[..., None]).sum(1) / lengths[:, None].clamp(min=1)
        top = h.masked_fill(~mask[..., None], torch.finfo(h.dtype).min).amax(1)
        last = h[torch.arange(ids.shape[0]), lengths - 1]
        return self.out(torch.cat([mean, top, last], 1))


@case(query=f(3, 6), keys=f(3, 5, 6), values=f(3, 5, 4), target=i(5, 3))
class pointer(nn.Module):
    """Additive attention that points; its loss, label smoothing and accuracy as outputs."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 8, bias=False), nn.Linear(8, 1)

    def forward(self, query, keys, values, target):
        s = self.v(torch.tanh(self.q(query)[:, None] + self.k(keys))).squeeze(-1)
        loss = F.cross_entropy(s, target, label_smoothing=0.1, reduction="none")
        context = (s.softmax(-1)[:, None] @ values).squeeze(1)
        return loss, context
