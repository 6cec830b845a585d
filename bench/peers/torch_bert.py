"""PyTorch peer: BERT-base masked-LM step, T=512, bf16 autocast, fp32 master weights, fused AdamW, random tokens."""
import time; T0 = time.time()
import argparse, json
import torch, torch.nn as nn, torch.nn.functional as F

class Layer(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.qkv, s.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.fc, s.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        s.ln_1, s.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(s, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, s.h, C // s.h).transpose(1, 2) for t in s.qkv(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, C)
        x = s.ln_1(x + s.proj(y))
        return s.ln_2(x + s.fc2(F.gelu(s.fc(x))))

class Bert(nn.Module):
    def __init__(s, L=12, d=768, h=12, V=30528, T=512):
        super().__init__()
        s.word, s.place, s.kind = nn.Embedding(V, d), nn.Embedding(T, d), nn.Embedding(2, d)
        s.ln = nn.LayerNorm(d)
        s.layers = nn.ModuleList(Layer(d, h) for _ in range(L))
        s.dense, s.ln_head, s.bias = nn.Linear(d, d), nn.LayerNorm(d), nn.Parameter(torch.zeros(V))
        for p in s.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=0.02)
    def forward(s, x, y):
        h = s.ln(s.word(x) + s.place(torch.arange(x.size(1), device=x.device)) + s.kind.weight[0])
        for l in s.layers: h = l(h)
        logits = F.linear(s.ln_head(F.gelu(s.dense(h))), s.word.weight, s.bias)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1))

ap = argparse.ArgumentParser()
ap.add_argument("--batch", type=int, default=64); ap.add_argument("--compile", action="store_true")
ap.add_argument("--steps", type=int, default=15); ap.add_argument("--warmup", type=int, default=5)
a = ap.parse_args()
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
m = Bert().cuda()
opt = torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
if a.compile: m = torch.compile(m)
x = torch.randint(0, 30522, (a.batch, 512), device="cuda"); y = torch.randint(0, 30522, (a.batch, 512), device="cuda")
def step():
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16): loss = m(x, y)
    loss.backward(); opt.step(); return loss
loss = step(); torch.cuda.synchronize(); first = time.time() - T0
for _ in range(a.warmup): step()
torch.cuda.synchronize(); t = time.perf_counter()
for _ in range(a.steps): loss = step()
torch.cuda.synchronize(); dt = (time.perf_counter() - t) / a.steps
print(json.dumps(dict(what="bert", mode="compile" if a.compile else "eager", batch=a.batch, ms=round(1e3 * dt, 2), tok_s=round(a.batch * 512 / dt),
    peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2), first_step_s=round(first, 2), loss=round(loss.item(), 4))), flush=True)
