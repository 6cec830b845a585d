#!/usr/bin/env python3
"""imported.py [NAME]... [--device gpu|cpu] [--tutti PROGRAM] [--export-only] [--folder FOLDER]

Times training steps of models that torch.export wrote (.pt2), beside PyTorch's own (torch.compile
on a GPU, eager and torch.compile on a CPU) and, where Tutti has the model built in, beside that.
It needs torch, torchvision and, for the language models, transformers. Same batch, optimizer and
precision on both sides, random data, medians of steps after the first quarter. On a GPU: bf16
with f32 master weights; on CPUs two workers. FOLDER keeps exported models from one call to the
next.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def vision(name, **more):
    import torchvision
    return getattr(torchvision.models, name)(**more)


def vit_s(size):
    from torchvision.models import VisionTransformer
    return VisionTransformer(image_size=size, patch_size=16, num_layers=12, num_heads=6,
                             hidden_dim=384, mlp_dim=1536)


def unet(width=64, classes=21):
    import torch
    from torch import nn

    def block(n, m):
        layers = []
        for k in (n, m):
            layers += [nn.Conv2d(k, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            n = [width << i for i in range(5)]
            self.down = nn.ModuleList([block(a, b) for a, b in zip([3] + n, n)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * m, m, 2, 2) for m in n[-2::-1]])
            self.merge = nn.ModuleList([block(2 * m, m) for m in n[-2::-1]])
            self.head = nn.Conv2d(width, classes, 1)

        def forward(self, x):
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, merge, old in zip(self.up, self.merge, kept[-2::-1]):
                x = merge(torch.cat([old, up(x)], 1))
            return self.head(x)

    return UNet()


def language(kind, **more):
    import torch
    import transformers

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            config = getattr(transformers, kind + "Config")(use_cache=False, **more)
            self.model = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else
                                                       "ForCausalLM"))(config)

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    return Logits()


def lstm(width, vocabulary):
    import torch
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.lstm = nn.LSTM(width, width, 2, batch_first=True)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, ids):
            return self.head(self.lstm(self.embed(ids))[0])

    return Lstm()


def images(build, batch, size=224, classes=1000, built_in=None, optimizer="adamw"):
    return {"build": build, "batch": batch, "size": size, "classes": classes, "kind": "images",
            "built_in": built_in, "optimizer": optimizer}


def tokens(build, batch, context, vocabulary, built_in=None):
    return {"build": build, "batch": batch, "size": context, "classes": vocabulary,
            "kind": "tokens", "built_in": built_in, "optimizer": "adamw"}


GPU = {
    "resnet50": images(lambda: vision("resnet50"), 256, built_in=["resnet50"], optimizer="sgd"),
    "gpt2": tokens(lambda: language("GPT2", vocab_size=50304, resid_pdrop=0, embd_pdrop=0,
                                    attn_pdrop=0), 32, 1024, 50304,
                   ["gpt2", "model.size=124M", "model.context=1024", "model.dropout=0"]),
    "vit_b_16": images(lambda: vision("vit_b_16"), 128),
    "convnext_t": images(lambda: vision("convnext_tiny"), 128),
    "efficientnet_b0": images(lambda: vision("efficientnet_b0"), 128),
    "swin_t": images(lambda: vision("swin_t"), 128),
    "unet": dict(images(unet, 16, 256, 21), kind="masks"),
    "llama_1b": tokens(lambda: language(
        "Llama", vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=2048,
        tie_word_embeddings=True), 8, 1024, 32000),
}
CPU = {
    "mobilenet_v2": images(lambda: vision("mobilenet_v2", num_classes=100), 16, 96, 100),
    "vit_s": images(lambda: vit_s(96), 16, 96),
    "lstm": tokens(lambda: lstm(256, 1000), 16, 64, 1000),
}


def example(torch, case, batch):
    if case["kind"] == "tokens":
        return torch.randint(0, case["classes"], (batch, case["size"]))
    return torch.randn(batch, 3, case["size"], case["size"])


def target(torch, case, batch):
    shape = {"tokens": (batch, case["size"]), "images": (batch,),
             "masks": (batch, case["size"], case["size"])}[case["kind"]]
    return torch.randint(0, case["classes"], shape)


def export(name, case, folder):
    import torch
    path = os.path.join(folder, name + ".pt2")
    if not os.path.exists(path):
        torch.manual_seed(0)
        model = case["build"]().train()
        batch = torch.export.Dim("batch", min=1, max=4096)
        program = torch.export.export(model, (example(torch, case, 2),), strict=False,
                                      dynamic_shapes=({0: batch},))
        torch.export.save(program, path[:-4] + ".part.pt2")
        os.rename(path[:-4] + ".part.pt2", path)
    return path


def write_masks(folder, case):
    import numpy
    if os.path.exists(os.path.join(folder, "train.npz")):
        return
    os.makedirs(folder, exist_ok=True)
    rng = numpy.random.default_rng(0)
    for split, n in (("train", 8 * case["batch"]), ("test", case["batch"])):
        size = case["size"]
        numpy.savez(os.path.join(folder, split + ".npz"),
                    x=rng.standard_normal((n, 3, size, size), dtype=numpy.float32),
                    y=rng.integers(0, case["classes"], (n, size, size), dtype=numpy.int32))


def tutti(program, case, model, folder, device, steps, mode):
    workers = 2 if device == "cpu" else 1  # one for each core, as PyTorch has a thread for each
    args = [program, "bench", "train", *model, "train.batch=%d" % case["batch"],
            "train.steps=%d" % steps, "parallel.workers=%d" % workers,
            "parallel.shards=%d" % workers,
            "parallel.mode=" + mode, "optimizer.name=" + case["optimizer"], "run.log_every=5",
            "run.text_samples=0"]
    if device == "gpu":
        args += ["parallel.devices=gpu", "train.precision=bf16", "data.threads=8",
                 "data.prefetch=3"]
    else:
        args += ["parallel.devices=cpu"]
    if case["kind"] == "tokens":
        args += ["data.format=random_tokens", "data.context=%d" % case["size"],
                 "data.vocabulary=%d" % case["classes"], "data.n_test=32"]
    elif case["kind"] == "images":
        args += ["data.format=random_images", "data.image_size=%d" % case["size"],
                 "data.classes=%d" % case["classes"], "data.n_test=64"]
    else:
        data = os.path.join(folder, "masks")
        write_masks(data, case)
        args += ["data.format=npy", "data.dir=" + data, "data.classes=%d" % case["classes"]]
    result = subprocess.run(args, capture_output=True, text=True)
    if result.returncode:
        return None, (result.stderr.strip().splitlines() or ["?"])[-1][-300:]
    figures = json.loads(result.stdout.strip().splitlines()[-1])
    return figures, None


def peer(name, device, compile_, steps):
    """Runs in a process of its own: prints one line of JSON."""
    begin = time.time()
    import torch
    case = (GPU if device == "gpu" else CPU)[name]
    where = "cuda" if device == "gpu" else "cpu"
    torch.set_float32_matmul_precision("high" if device == "gpu" else "highest")
    torch.backends.cudnn.benchmark = True
    model = case["build"]().train().to(where)
    x, y = example(torch, case, case["batch"]).to(where), target(torch, case,
                                                                  case["batch"]).to(where)
    if case["kind"] != "tokens":
        model, x = model.to(memory_format=torch.channels_last), x.to(
            memory_format=torch.channels_last)
    more = {"fused": True} if device == "gpu" else {}
    if case["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **more)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **more)
    run = torch.compile(model) if compile_ else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(where, torch.bfloat16, enabled=device == "gpu"):
            logits = run(x)
            if case["kind"] == "tokens":
                logits = logits.flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, y.flatten() if case["kind"] ==
                                                     "tokens" else y)
        loss.backward()
        optimizer.step()
        if device == "gpu":
            torch.cuda.synchronize()

    step()
    first, times = time.time() - begin, []
    for _ in range(steps):
        at = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - at))
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "gpu" else 0
    print(json.dumps({"ms": statistics.median(times[steps // 4:]), "first_step_s": first,
                      "peak": peak}))


def run_peer(name, device, compile_, steps):
    args = [sys.executable, os.path.abspath(__file__), name, "--device", device, "--peer",
            "compile" if compile_ else "eager", "--steps", str(steps)]
    result = subprocess.run(args, capture_output=True, text=True)
    if result.returncode:
        return None, result.stderr.strip().splitlines()[-1][-200:]
    return json.loads(result.stdout.strip().splitlines()[-1]), None


def row(name, side, figures, error):
    if error:
        print("%-16s %-22s %s" % (name, side, error), flush=True)
        return
    peak = figures.get("peak", figures.get("peak_device_gb", 0))
    print("%-16s %-22s %9.2f ms  first step %6.2f s  peak %6.2f GB" %
          (name, side, figures.get("ms", figures.get("ms_per_step", 0)), figures["first_step_s"],
           peak), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--folder")
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--peer", choices=("compile", "eager"))
    args = parser.parse_args()
    cases = GPU if args.device == "gpu" else CPU
    if args.peer:
        return peer(args.names[0], args.device, args.peer == "compile", args.steps)
    folder = args.folder or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    try:
        for name in args.names or cases:
            case = cases[name]
            path = export(name, case, folder)
            if args.export_only:
                continue
            for mode in ("fast", "exact"):
                row(name, "imported, " + mode,
                    *tutti(args.tutti, case, ["model.file=" + path], folder, args.device,
                           args.steps, mode))
                if case["built_in"]:
                    row(name, "built in, " + mode,
                        *tutti(args.tutti, case, case["built_in"], folder, args.device,
                               args.steps, mode))
            for compile_ in (True,) if args.device == "gpu" else (False, True):
                if not args.no_peers:
                    row(name, "torch.compile" if compile_ else "torch eager",
                        *run_peer(name, args.device, compile_, args.steps))
    finally:
        if not args.folder:
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
