"""PyTorch peer: a GPT-2 too large for its state to be on every GPU, with FSDP2 (fully_shard) or DDP.

bf16 compute, f32 master weights and gradients, fused AdamW, clip 1.0, blocks and loss compiled.  All
blocks have one compilation, which is theirs alone: hooks of fully_shard stay outside.  Prints one JSON
line from rank 0: tokens/s over all ranks, ms, peak memory, time to first step.
Launch with torch.distributed.run; torch 2.6 or later.
"""
import time; T0 = time.time()
import argparse, json, os
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint


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


def loss_of(h, weight, y):
    logits = F.linear(h, weight)
    return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), y.reshape(-1))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, vocabulary=50304, context=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.recompute, self.loss_of = False, loss_of
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.recompute else block(h)
        return self.loss_of(self.ln_f(h), self.wte.weight, y)


def wrap(model, a, local):
    """What is trained, and what gradients are clipped of."""
    model.recompute = a.recompute
    if a.compile:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = torch.compile(block)
        model.loss_of = torch.compile(loss_of)
    if a.zero_like == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[local],
                                                   gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=not a.keep)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return model


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--zero-like", choices=("fsdp", "ddp"), default="fsdp")
    p.add_argument("--layers", type=int, default=48)
    p.add_argument("--dim", type=int, default=1600)
    p.add_argument("--heads", type=int, default=25)
    p.add_argument("--batch", type=int, default=8, help="of one GPU")
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--recompute", action="store_true", help="each block in the backward pass")
    p.add_argument("--keep", action="store_true", help="fsdp: parameters stay from forward to back")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--warmup", type=int, default=3)
    return p.parse_args()


def make_step(model, a, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    g = torch.Generator(device="cuda").manual_seed(rank)
    x = torch.randint(0, 50257, (a.batch, a.seq + 1), device="cuda", generator=g)
    x, y = x[:, :-1].contiguous(), x[:, 1:].contiguous()
    by_autocast = a.zero_like == "ddp"  # fully_shard casts by its policy

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=by_autocast):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    return step


def main():
    a = arguments()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = GPT(a.layers, a.dim, a.heads, context=a.seq)
    n_params = sum(p.numel() for p in model.parameters())
    step = make_step(wrap(model, a, local), a, rank)
    step()
    torch.cuda.synchronize()
    first = time.time() - T0
    for _ in range(a.warmup):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(a.steps):
        loss = step()
    torch.cuda.synchronize()
    took = (time.perf_counter() - start) / a.steps
    if rank == 0:
        mode = a.zero_like + ("+compile" if a.compile else "")
        mode += "+recompute" if a.recompute else ""
        print(json.dumps({
            "what": "gpt2", "mode": mode, "gpus": world, "batch": a.batch, "nparam": n_params,
            "ms": round(1e3 * took, 2),
            "tok_s": round(a.batch * a.seq * world / took),
            "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
            "first_step_s": round(first, 2), "loss": round(loss.item(), 4)}), flush=True)
    dist.destroy_process_group()


main()
