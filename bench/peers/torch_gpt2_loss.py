"""PyTorch peer of bench/loss.sh: the loss of GPT-2 124M over its first steps on the bytes of a text.

bf16 autocast, f32 master weights, AdamW, clip 1.  Windows that do not overlap, from the first 90 % of
the text, in a random order for each epoch.  Prints one JSON line: the mean loss of the last 20 steps.
"""
import argparse, json, math
import numpy, torch, torch.nn as nn, torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (s.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for s in self.qkv(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 as published: normal(0.02), what ends a residual branch by 1/sqrt(2 layers) smaller."""

    def __init__(self, layers=12, width=768, heads=12, vocabulary=50304, context=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() > 1:
                ends = name.endswith(("proj.weight", "fc_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if ends else 0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1))


def windows(path, context):
    text = numpy.fromfile(path, dtype=numpy.uint8)
    text = text[: len(text) * 9 // 10].astype(numpy.int64)
    n = (len(text) - 1) // context
    at = numpy.arange(n)[:, None] * context + numpy.arange(context + 1)
    return torch.from_numpy(text[at])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-4)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    samples = windows(a.text, 1024).cuda()
    model = GPT().cuda()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=a.lr, betas=(0.9, 0.95), fused=True)
    losses, order = [], torch.empty(0, dtype=torch.long)
    for _ in range(a.steps):
        if len(order) < a.batch:
            order = torch.randperm(len(samples))
        batch, order = samples[order[: a.batch].cuda()], order[a.batch:]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).tolist()
    print(json.dumps({"seed": a.seed, "first": losses[0], "middle": losses[len(losses) // 2],
                      "last": sum(losses[-20:]) / 20}))


main()
