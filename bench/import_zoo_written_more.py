"""import_zoo_written_more.py - more models as people write them: points and graphs, losses inside the
model, parametrizations, flows, routers."""

import math

import torch
import torch.nn.functional as F
from import_zoo_group import f, i
from import_zoo_written import case
from torch import nn
from torch.nn.utils import parametrizations, parametrize


# ---- points and graphs ----

@case(x=f(3, 3, 10))
class point_net(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.tfc = nn.Linear(8, 9)
        self.mlp = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(),
                                 nn.Conv1d(8, 16, 1))
        self.seg = nn.Sequential(nn.Conv1d(24, 8, 1), nn.ReLU(), nn.Conv1d(8, 4, 1))

    def forward(self, x):
        B, _, N = x.size()
        g = torch.max(self.t(x), 2, keepdim=True)[0].view(-1, 8)
        turn = self.tfc(g).view(-1, 3, 3) + torch.eye(3).repeat(B, 1, 1)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        h = self.mlp[:3](x)
        top = self.mlp[3](h).max(2, keepdim=True)[0]
        return self.seg(torch.cat([h, top.repeat(1, 1, N)], 1)).log_softmax(1)


@case(x=f(2, 3, 9))
class dgcnn(nn.Module):
    """Edges to the k nearest points, which are found by distances and gathered by flat indices."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.LeakyReLU(0.2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        B, C, N = x.shape
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        xx = torch.sum(x ** 2, dim=1, keepdim=True)
        idx = (-xx - inner - xx.transpose(2, 1)).topk(k=4, dim=-1)[1]
        idx = (idx + torch.arange(0, B).view(-1, 1, 1) * N).view(-1)
        flat = x.transpose(2, 1).contiguous()
        near = flat.view(B * N, -1)[idx, :].view(B, N, 4, C)
        own = flat.view(B, N, 1, C).repeat(1, 1, 4, 1)
        edge = torch.cat((near - own, own), dim=3).permute(0, 3, 1, 2).contiguous()
        return self.head(self.conv(edge).max(dim=-1)[0].max(-1)[0])


@case(x=f(3, 6, 4), adj=lambda: (torch.rand(3, 6, 6) > 0.5).float())
class graph_attention(nn.Module):
    """GCN and GAT over dense adjacency matrices of each sample."""

    def __init__(self):
        super().__init__()
        self.W, self.a = nn.Parameter(torch.randn(4, 8) * 0.3), nn.Parameter(torch.randn(16, 1))
        self.gcn, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, adj):
        h = torch.matmul(x, self.W)
        e = torch.matmul(h, self.a[:8]) + torch.matmul(h, self.a[8:]).transpose(1, 2)
        e = F.leaky_relu(e, 0.2)
        near = adj + torch.eye(6)
        e = torch.where(near > 0, e, -9e15 * torch.ones_like(e)).softmax(dim=2)
        h = F.elu(torch.matmul(e, h))
        d = near.sum(-1).pow(-0.5)
        d[torch.isinf(d)] = 0.0
        h = F.relu(self.gcn(d.unsqueeze(-1) * near * d.unsqueeze(-2) @ h))
        return self.out(h.mean(1))


@case(x=f(3, 6, 4), source=i(6, 3, 10), target=i(6, 3, 10))
class message_passing(nn.Module):
    """Messages along edges by gather, sums and maxima by scatter, a GRU update."""

    def __init__(self):
        super().__init__()
        self.msg, self.cell, self.out = nn.Linear(8, 4), nn.GRUCell(8, 4), nn.Linear(4, 2)

    def forward(self, x, source, target):
        B, N, C = x.shape
        for _ in range(2):
            s = source.unsqueeze(-1).expand(-1, -1, C)
            t = target.unsqueeze(-1).expand(-1, -1, C)
            m = F.relu(self.msg(torch.cat([x.gather(1, s), x.gather(1, t)], -1)))
            total = torch.zeros_like(x).scatter_add_(1, t, m)
            most = torch.zeros_like(x).scatter_reduce(1, t, m, reduce="amax", include_self=True)
            x = self.cell(torch.cat([total, most], -1).view(B * N, -1), x.reshape(B * N, C)).view(
                B, N, C)
        return self.out(x.sum(1))


# ---- pairs, losses, parametrizations ----

@case(image=f(4, 3, 8, 8), text=i(20, 4, 6))
class clip_loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Flatten(), nn.Linear(32, 8))
        self.table, self.project = nn.Embedding(20, 8), nn.Parameter(torch.randn(8, 8) * 0.3)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, image, text):
        x = F.normalize(self.visual(image), dim=-1)
        e = self.table(text)
        y = e[torch.arange(e.shape[0]), text.argmax(dim=-1)] @ self.project
        y = y / y.norm(dim=-1, keepdim=True)
        logits = self.logit_scale.exp().clamp(max=100) * x @ y.t()
        labels = torch.arange(logits.shape[0])
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@case(a=f(4, 6), p=f(4, 6), n=f(4, 6))
class siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 4))

    def forward(self, a, p, n):
        a, p, n = self.fc(a), self.fc(p), self.fc(n)
        hinge = (torch.norm(a - p, dim=1) - torch.norm(a - n, dim=1) + 1.0).clamp(min=0)
        return hinge + 0.1 * (1 - F.cosine_similarity(a, p))


@case(x=f(3, 5, 6, 6), y=i(5, 3, 6, 6))
class segmentation_loss(nn.Module):
    """Focal, dice and Tversky losses of masks, as functions of the tensors themselves."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 5, 1)

    def forward(self, x, y):
        z = self.conv(x)
        p = z.softmax(1)
        one = F.one_hot(y, 5).permute(0, 3, 1, 2).float()
        ce = F.cross_entropy(z, y, reduction="none")
        focal = ((1 - torch.exp(-ce)) ** 2 * ce).mean((1, 2))
        inter = (p * one).sum((2, 3))
        dice = 1 - ((2 * inter + 1) / (p.sum((2, 3)) + one.sum((2, 3)) + 1)).mean(1)
        fp, fn = (p * (1 - one)).sum((2, 3)), ((1 - p) * one).sum((2, 3))
        return focal + dice + (1 - (inter / (inter + 0.3 * fp + 0.7 * fn + 1e-6))).mean(1)


@case(x=f(4, 6), teacher=f(4, 5), y=i(5, 4))
class distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.T = nn.Linear(6, 5), 3.0

    def forward(self, x, teacher, y):
        z = self.fc(x)
        soft = F.kl_div(F.log_softmax(z / self.T, 1), F.softmax(teacher / self.T, 1),
                        reduction="none").sum(1) * self.T ** 2
        eps = 0.1 / (z.size(1) - 1)
        smooth = torch.full_like(z, eps).scatter_(1, y.unsqueeze(1), 0.9)
        return 0.5 * soft - 0.5 * (smooth * z.log_softmax(1)).sum(1)


@case(x=f(4, 5), y=f(4, 2))
class mixture_density(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.mu, self.sigma = nn.Linear(5, 3), nn.Linear(5, 6), nn.Linear(5, 6)

    def forward(self, x, y):
        log_pi = self.pi(x).log_softmax(-1)
        mu, sigma = self.mu(x).view(-1, 3, 2), F.elu(self.sigma(x)).view(-1, 3, 2) + 1 + 1e-3
        log_p = -0.5 * ((y[:, None] - mu) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_pi + log_p.sum(-1), dim=1)


@case(x=f(4, 6))
class real_nvp(nn.Module):
    """Coupling layers of a normalizing flow, an invertible matrix and the log-likelihood."""

    def __init__(self):
        super().__init__()
        self.s = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
                               for _ in range(2))
        self.t = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.register_buffer("mask", torch.tensor([[0.0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]]))
        self.register_buffer("turn", torch.randperm(6))

    def forward(self, x):
        log_det = x.new_zeros(x.shape[0])
        for k in range(2):
            kept = x * self.mask[k]
            s = self.s[k](kept) * (1 - self.mask[k])
            x = kept + (1 - self.mask[k]) * (x * torch.exp(s) + self.t[k](kept))
            log_det = log_det + s.sum(dim=1)
            x = x[:, self.turn]
        return -(log_det - 0.5 * (x ** 2 + math.log(2 * math.pi)).sum(1))


@case(state=f(4, 5), action=i(3, 4), reward=f(4), other=f(4, 5), done=lambda: torch.tensor(
    [0.0, 1, 0, 0]))
class q_learning(nn.Module):
    """A dueling network, its targets without a gradient, and a Huber loss for each sample."""

    def __init__(self):
        super().__init__()
        self.body, self.adv, self.val = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def q(self, x):
        h = F.relu(self.body(x))
        a = self.adv(h)
        return self.val(h) + a - a.mean(dim=1, keepdim=True)

    def forward(self, state, action, reward, other, done):
        q = self.q(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = reward + 0.9 * (1 - done) * self.q(other).max(1)[0]
        return F.smooth_l1_loss(q, target, reduction="none")


@case(state=f(4, 5), action=f(4, 2), advantage=f(4), old=f(4), returns=f(4))
class ppo(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(5, 2), nn.Linear(5, 1)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, state, action, advantage, old, returns):
        dist = torch.distributions.Normal(torch.tanh(self.actor(state)), self.log_std.exp(),
                                          validate_args=False)
        ratio = torch.exp(dist.log_prob(action).sum(-1) - old)
        clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
        policy = -torch.min(ratio * advantage, clipped)
        value = (self.critic(state).squeeze(-1) - returns).pow(2)
        return policy + 0.5 * value - 0.01 * dist.entropy().sum(-1)


@case(x=f(4, 6))
class parametrized(nn.Module):
    """Weight norm, spectral norm, a symmetric and an orthogonal matrix."""

    def __init__(self):
        super().__init__()
        class Symmetric(nn.Module):
            def forward(self, w):
                return w.triu() + w.triu(1).transpose(-1, -2)

        self.a = parametrizations.weight_norm(nn.Linear(6, 6))
        self.b = nn.Linear(6, 6)
        parametrize.register_parametrization(self.b, "weight", Symmetric())
        self.c = nn.utils.weight_norm(nn.Linear(6, 4), dim=None)

    def forward(self, x):
        return self.c(torch.tanh(self.b(self.a(x))))


@case(x=f(4, 6))
class spectral_mlp(nn.Module):
    def __init__(self):
        super().__init__()
        norm = parametrizations.spectral_norm
        self.a, self.b = norm(nn.Linear(6, 5)), norm(nn.Linear(5, 3))

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


@case(x=f(4, 6))
class old_spectral_mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.utils.spectral_norm(nn.Linear(k, n)) for k, n in ((6, 5), (5, 3)))

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


@case(x=f(6, 5))
class centered(nn.Module):
    """The center of DINO: a running mean of the outputs, which the model updates itself."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 4)
        self.register_buffer("center", torch.zeros(1, 4))

    def forward(self, x):
        y = self.fc(x)
        out = ((y - self.center) / 0.1).softmax(-1)
        if self.training:
            with torch.no_grad():
                self.center.mul_(0.9).add_(y.detach().mean(0, keepdim=True), alpha=0.1)
        return out


@case(x=f(4, 6), h=f(4, 5), c=f(4, 5))
class own_lstm_cell(nn.Module):
    """Gates of a layer-norm LSTM with its states as inputs and outputs."""

    def __init__(self):
        super().__init__()
        self.ih, self.hh = nn.Linear(6, 20, bias=False), nn.Linear(5, 20, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(5) for _ in range(5))

    def forward(self, x, h, c):
        gates = (self.ih(x) + self.hh(h)).chunk(4, 1)
        i_, f_, g, o = (n(t) for n, t in zip(self.norms, gates))
        c = torch.sigmoid(f_ + 1) * c + torch.sigmoid(i_) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.norms[4](c))
        return h, c


@case(dense=f(4, 5), sparse=i(9, 4, 3))
class deep_fm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(27, 1), nn.Embedding(27, 4)
        self.register_buffer("offsets", torch.tensor([0, 9, 18]))
        self.dense = nn.Linear(5, 4)
        self.mlp = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.cross = nn.ParameterList(nn.Parameter(torch.randn(16) * 0.2) for _ in range(2))

    def forward(self, dense, sparse):
        idx = sparse + self.offsets
        e = torch.cat([self.second(idx), self.dense(dense).unsqueeze(1)], 1)
        square = e.sum(1).pow(2) - e.pow(2).sum(1)
        x0 = x = e.flatten(1)
        for w in self.cross:
            x = x0 * (x @ w).unsqueeze(1) + x
        y = self.first(idx).sum((1, 2)) + 0.5 * square.sum(1) + self.mlp(x).squeeze(1)
        return torch.sigmoid(y)


@case(x=f(3, 2), d=f(3, 3))
class nerf(nn.Module):
    """Samples along rays, frequencies of positions, and compositing by products of what passes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(18, 16), nn.Linear(16, 4)

    def forward(self, x, d):
        t = torch.linspace(0.1, 1, 6)
        p = torch.cat([x, x[:, :1]], 1)[:, None] + d[:, None] * t[None, :, None]
        bands = 2.0 ** torch.arange(3)
        e = (p[..., None] * bands).flatten(-2)
        y = self.b(F.relu(self.a(torch.cat([e.sin(), e.cos()], -1))))
        delta = torch.cat([t[1:] - t[:-1], torch.tensor([1e10])])
        alpha = 1 - torch.exp(-F.relu(y[..., 3]) * delta)
        left = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1)
        passed = torch.cumprod(left, -1)
        weights = alpha * passed[:, :-1]
        return (weights[..., None] * y[..., :3].sigmoid()).sum(-2), (weights * t).sum(-1)


@case(x=f(4, 3))
class kan(nn.Module):
    """B-splines of learned weights, as of Kolmogorov-Arnold networks."""

    def __init__(self):
        super().__init__()
        grid = torch.arange(-3, 9) * 0.4 - 1
        self.register_buffer("grid", grid.expand(3, -1).contiguous())
        self.base, self.spline = nn.Parameter(torch.randn(2, 3)), nn.Parameter(
            torch.randn(2, 3, 8) * 0.3)

    def bases(self, x):
        x, g = x.unsqueeze(-1), self.grid
        b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
        for k in range(1, 4):
            b = ((x - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * b[:, :, :-1]) + (
                (g[:, k + 1:] - x) / (g[:, k + 1:] - g[:, 1:(-k)]) * b[:, :, 1:])
        return b

    def forward(self, x):
        y = F.linear(F.silu(x), self.base)
        return y + F.linear(self.bases(x).view(x.size(0), -1), self.spline.view(2, -1))


@case(x=f(3, 10, 4))
class perceiver_like(nn.Module):
    """Learned queries read the inputs by cross-attention; slots compete for them."""

    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(5, 8))
        self.q, self.kv, self.out = nn.Linear(8, 8), nn.Linear(4, 16), nn.Linear(8, 2)
        self.gru, self.norm = nn.GRUCell(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        B = x.shape[0]
        k, v = self.kv(x).chunk(2, dim=-1)
        slots = self.latents[None].expand(B, -1, -1)
        for _ in range(2):
            dots = torch.einsum("bid,bjd->bij", self.q(self.norm(slots)), k) * 8 ** -0.5
            attn = dots.softmax(dim=1) + 1e-8
            attn = attn / attn.sum(dim=-1, keepdim=True)
            updates = torch.einsum("bjd,bij->bid", v, attn)
            slots = self.gru(updates.reshape(-1, 8), slots.reshape(-1, 8)).reshape(B, -1, 8)
        return self.out(slots)


@case(x=f(3, 8, 8))
class routed_experts(nn.Module):
    """A switch layer: the best expert of each token by one-hot products, and its balance loss."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.w1, self.w2 = (nn.Parameter(torch.randn(4, 8, 8) * 0.3) for _ in range(2))

    def forward(self, x):
        B, T, C = x.shape
        t = x.reshape(-1, C)
        p = self.gate(t).softmax(-1)
        top, k = p.max(-1)
        dispatch = F.one_hot(k, 4).to(x.dtype)
        place = (torch.cumsum(dispatch.view(B, T, 4), 1) - 1) * dispatch.view(B, T, 4)
        dispatch = (dispatch.view(B, T, 4) * (place < 4)).view(-1, 4)
        h = torch.einsum("te,tc,ecd->ted", dispatch, t, self.w1).relu()
        y = torch.einsum("ted,edc->tc", h, self.w2) * top[:, None]
        balance = (p.view(B, T, 4).mean(1) * dispatch.view(B, T, 4).mean(1)).sum(-1) * 4
        return y.view(B, T, C), balance


@case(x=f(2, 3, 5, 8, 8))
class video_net(nn.Module):
    """Shifts of channels over time (TSM), 2+1-D convolutions, an LSTM over frames."""

    def __init__(self):
        super().__init__()
        self.conv, self.time = nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Conv3d(
            8, 8, (3, 1, 1), padding=(1, 0, 0))
        self.bn, self.rnn = nn.BatchNorm3d(8), nn.LSTM(8, 6, batch_first=True)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        out = torch.zeros_like(x)
        out[:, :2, :-1] = x[:, :2, 1:]
        out[:, 2:4, 1:] = x[:, 2:4, :-1]
        out[:, 4:] = x[:, 4:]
        y = self.time(out).mean((3, 4)).transpose(1, 2)
        y, (h, _) = self.rnn(y)
        return y, h[-1]
