#!/usr/bin/env python3
"""make_models.py: ten training steps of model families in PyTorch, written as models_losses.h.

Usage: python3 tests/golden/make_models.py > tests/golden/models_losses.h
       with torch and torchvision

Weights and data come from Philox as in make_golden.py, so a C test makes the same bits:
  weights   key mix64(SEED, hash(name)); in double, rounded to float, with u = unit(bits):
            two dimensions or more: sqrt(3 / (elements of a row)) * (2u - 1)
            one, *.weight: 1 + 0.1 (2u - 1); other vectors: 0.1 (2u - 1)
  images  key mix64(7, hash("golden.x")), counter step % 2; 2u - 1
  tokens    key mix64(7, hash("golden.tokens")), counter step % 2; bits % vocabulary
  labels    key mix64(7, hash("golden.labels")), counter step % 2; bits % classes
bert: sample b has T - b % 5 tokens, 1 + bits % (vocabulary - 1); then padding, token 0, label -1.
Weight decay applies to what has two dimensions or more.  Losses are means over all labels, each
taken before its update; the computation is in float32.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vision_transformer import VisionTransformer

from make_golden import DATA_SEED, SEED, STEPS, hash_name, mix64, philox, unit

BATCH = 8


def draw(name, shape):
    n = int(np.prod(shape))
    u = unit(philox(mix64(SEED, hash_name(name)), 0, n))
    if len(shape) > 1:
        value = np.sqrt(3.0 / float(np.prod(shape[1:]))) * (2.0 * u - 1.0)
    else:
        value = (1.0 if name.endswith(".weight") else 0.0) + 0.1 * (2.0 * u - 1.0)
    return torch.tensor(value.astype(np.float32)).reshape(shape)


def integers(stream, step, n, below):
    bits = philox(mix64(DATA_SEED, hash_name(stream)), step % 2, n)
    return (bits % below).astype(np.int64)


class Params(dict):
    """Makes a tensor when it is first asked for, from its name and shape."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def get(self, name, *shape):
        if name not in self:
            self[name] = draw(name, shape).to(self.dtype).requires_grad_()
        assert tuple(self[name].shape) == shape, name
        return self[name]

    def linear(self, x, n_out, name):
        return F.linear(x, self.get(name + ".weight", n_out, x.shape[-1]),
                        self.get(name + ".bias", n_out))

    def layer_norm(self, x, eps, name):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self.get(name + ".weight", n), self.get(name + ".bias", n),
                            eps)


def attention(qkv, heads, causal, lengths):
    b, t, width = qkv.shape
    q, k, v = (part.reshape(b, t, heads, -1).transpose(1, 2)
               for part in qkv.split(width // 3, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
    if lengths is not None:
        beyond = torch.arange(t)[None, :] >= lengths[:, None]
        scores = scores.masked_fill(beyond[:, None, None, :], -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)


# ---- resnet18 with the first layer for small images ----

def resnet(p, x):
    def conv_norm(x, n_out, kernel, stride, conv, norm):
        w = p.get(conv + ".weight", n_out, x.shape[1], kernel, kernel)
        x = F.conv2d(x, w, stride=stride, padding=kernel // 2)
        return F.batch_norm(x, None, None, p.get(norm + ".weight", n_out),
                            p.get(norm + ".bias", n_out), training=True)

    x = F.relu(conv_norm(x, 64, 3, 1, "conv1", "bn1"))
    for stage in range(4):
        for i in range(2):
            at, width = "layer%d.%d." % (stage + 1, i), 64 << stage
            stride = 2 if stage > 0 and i == 0 else 1
            y = F.relu(conv_norm(x, width, 3, stride, at + "conv1", at + "bn1"))
            y = conv_norm(y, width, 3, 1, at + "conv2", at + "bn2")
            if stride != 1:
                x = conv_norm(x, width, 1, stride, at + "downsample.0", at + "downsample.1")
            x = F.relu(x + y)
    return p.linear(x.mean((2, 3)), 10, "fc")


def images_of(side, step, dtype):
    bits = philox(mix64(DATA_SEED, hash_name("golden.x")), step % 2, BATCH * 3 * side * side)
    x = torch.tensor((2.0 * unit(bits) - 1.0).astype(np.float32)).to(dtype)
    return x.reshape(BATCH, 3, side, side)


def images(step, dtype, side=16):
    labels = torch.tensor(integers("golden.labels", step, BATCH, 10))
    return images_of(side, step, dtype), labels


def large_images(step, dtype):
    return images(step, dtype, side=32)


def masks(step, dtype):
    labels = torch.tensor(integers("golden.labels", step, BATCH * 16 * 16, 10))
    return images_of(16, step, dtype), labels


# ---- torchvision's modules, with parameters by their names ----

def vit():
    return VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32,
                             mlp_dim=64, num_classes=10)


def convnext():
    stages = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, 32, 1), CNBlockConfig(32, 64, 2),
              CNBlockConfig(64, None, 1)]
    return ConvNeXt(stages, stochastic_depth_prob=0.0, num_classes=10)


def swin():
    return SwinTransformer([4, 4], 16, [2, 1, 1, 2], [2, 4, 8, 16], [3, 3],
                           stochastic_depth_prob=0.0, num_classes=10)


def of_module(make):
    def forward(p, x):
        module = make().to(x.dtype)
        own = {name: p.get(name, *tensor.shape) for name, tensor in module.named_parameters()}
        return torch.func.functional_call(module, own, (x,))
    return forward


# ---- U-Net with the names of milesial's Pytorch-UNet: 4 channels, 2 levels ----

def unet(p, x):
    def double_conv(x, n_out, at):
        for i in (0, 3):
            w = p.get("%sdouble_conv.%d.weight" % (at, i), n_out, x.shape[1], 3, 3)
            name = "%sdouble_conv.%d" % (at, i + 1)
            x = F.batch_norm(F.conv2d(x, w, padding=1), None, None,
                             p.get(name + ".weight", n_out), p.get(name + ".bias", n_out),
                             training=True)
            x = F.relu(x)
        return x

    def up(x, beside, at):
        n = x.shape[1]
        x = F.conv_transpose2d(x, p.get(at + "up.weight", n, n // 2, 2, 2),
                               p.get(at + "up.bias", n // 2), stride=2)
        return double_conv(torch.cat([beside, x], 1), n // 2, at + "conv.")

    a = double_conv(x, 4, "inc.")
    b = double_conv(F.max_pool2d(a, 2), 8, "down1.maxpool_conv.1.")
    c = double_conv(F.max_pool2d(b, 2), 16, "down2.maxpool_conv.1.")
    x = up(up(c, b, "up1."), a, "up2.")
    x = F.conv2d(x, p.get("outc.conv.weight", 10, 4, 1, 1), p.get("outc.conv.bias", 10))
    return x.permute(0, 2, 3, 1)


# ---- language models of 2 layers ----

VOCABULARY, TOKENS, WIDTH, HEADS = 50, 16, 32, 2


def gpt2(p, x):
    wte = p.get("transformer.wte.weight", VOCABULARY, WIDTH)
    wpe = p.get("transformer.wpe.weight", 20, WIDTH)
    x = F.embedding(x, wte) + wpe[:TOKENS]
    for i in range(2):
        at = "transformer.h.%d." % i
        y = p.linear(p.layer_norm(x, 1e-5, at + "ln_1"), 3 * WIDTH, at + "attn.c_attn")
        x = x + p.linear(attention(y, HEADS, True, None), WIDTH, at + "attn.c_proj")
        y = p.linear(p.layer_norm(x, 1e-5, at + "ln_2"), 4 * WIDTH, at + "mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + p.linear(y, WIDTH, at + "mlp.c_proj")
    return F.linear(p.layer_norm(x, 1e-5, "transformer.ln_f"), wte)


def bert(p, x):
    lengths = (x != 0).sum(1)
    words = p.get("bert.embeddings.word_embeddings.weight", VOCABULARY, WIDTH)
    at = p.get("bert.embeddings.position_embeddings.weight", TOKENS, WIDTH)
    at = at + p.get("bert.embeddings.token_type_embeddings.weight", 2, WIDTH)[0]
    x = p.layer_norm(F.embedding(x, words) + at, 1e-12, "bert.embeddings.LayerNorm")
    for i in range(2):
        at = "bert.encoder.layer.%d." % i
        qkv = torch.cat([p.linear(x, WIDTH, at + "attention.self." + part)
                         for part in ("query", "key", "value")], 2)
        y = p.linear(attention(qkv, HEADS, False, lengths), WIDTH, at + "attention.output.dense")
        x = p.layer_norm(x + y, 1e-12, at + "attention.output.LayerNorm")
        y = F.gelu(p.linear(x, 4 * WIDTH, at + "intermediate.dense"))
        x = p.layer_norm(x + p.linear(y, WIDTH, at + "output.dense"), 1e-12,
                         at + "output.LayerNorm")
    x = F.gelu(p.linear(x, WIDTH, "cls.predictions.transform.dense"))
    x = p.layer_norm(x, 1e-12, "cls.predictions.transform.LayerNorm")
    return F.linear(x, words, p.get("cls.predictions.bias", VOCABULARY))


def lstm(p, x):
    x = F.embedding(x, p.get("encoder.weight", VOCABULARY, WIDTH))
    rnn = torch.nn.LSTM(WIDTH, WIDTH, 2, batch_first=True).to(x.dtype)
    names = [name for name, _ in rnn.named_parameters()]
    weights = [p.get("rnn." + name, *tensor.shape) for name, tensor in rnn.named_parameters()]
    zeros = torch.zeros(2, x.shape[0], WIDTH, dtype=x.dtype)
    assert names[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    x = torch._VF.lstm(x, (zeros, zeros), weights, True, 2, 0.0, True, False, True)[0]
    return p.linear(x, VOCABULARY, "decoder")


def tokens(step, _dtype):
    n = BATCH * TOKENS
    return (torch.tensor(integers("golden.tokens", step, n, VOCABULARY)).reshape(BATCH, TOKENS),
            torch.tensor(integers("golden.labels", step, n, VOCABULARY)).reshape(BATCH, TOKENS))


def padded_tokens(step, _dtype):
    n = BATCH * TOKENS
    x = 1 + integers("golden.tokens", step, n, VOCABULARY - 1).reshape(BATCH, TOKENS)
    y = integers("golden.labels", step, n, VOCABULARY).reshape(BATCH, TOKENS)
    for b in range(BATCH):
        x[b, TOKENS - b % 5:], y[b, TOKENS - b % 5:] = 0, -1
    return torch.tensor(x), torch.tensor(y)


# Batch norm over few values makes a chaos of larger steps: float32 and float64 would part.
SMALL = dict(lr=2e-5, momentum=0.9, weight_decay=5e-4)
SGD = dict(lr=0.3, momentum=0.9, weight_decay=5e-4)
ADAMW = dict(lr=1e-3, weight_decay=0.01)
IMAGES = dict(lr=0.05, momentum=0.9, weight_decay=0.0)
CASES = [("resnet18", resnet, images, "sgd", SMALL), ("gpt2", gpt2, tokens, "adamw", ADAMW),
         ("bert", bert, padded_tokens, "adamw", ADAMW), ("lstm", lstm, tokens, "sgd", SGD),
         ("vit", of_module(vit), large_images, "sgd", IMAGES),
         ("convnext", of_module(convnext), large_images, "sgd", IMAGES),
         ("swin", of_module(swin), large_images, "sgd", IMAGES),
         ("unet", unet, masks, "sgd", IMAGES)]


def run(forward, data, optimizer, keys, dtype):
    p, made, losses = Params(dtype), None, []
    for step in range(STEPS):
        x, y = data(step, dtype)
        logits = forward(p, x)
        if made is None:
            keys = dict(keys)
            decay = keys.pop("weight_decay")
            groups = [dict(params=[v for v in p.values() if v.dim() > 1], weight_decay=decay),
                      dict(params=[v for v in p.values() if v.dim() == 1], weight_decay=0.0)]
            made = (torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW)(groups, **keys)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1),
                               ignore_index=-1)
        losses.append(float(loss))
        made.zero_grad(set_to_none=True)
        loss.backward()
        made.step()
    return losses, sum(v.numel() for v in p.values())


HEAD = """\
/* models_losses.h - losses of ten training steps of model families, by PyTorch %s in float32.
 *
 * Generated: python3 tests/golden/make_models.py > tests/golden/models_losses.h
 * That script says how weights and data are made from Philox. */
#ifndef TTI_TESTS_GOLDEN_MODELS_LOSSES_H
#define TTI_TESTS_GOLDEN_MODELS_LOSSES_H

enum { MODELS_BATCH = %d, MODELS_VOCABULARY = %d, MODELS_TOKENS = %d, MODELS_WIDTH = %d };
enum { MODELS_STEPS = %d };

typedef struct models_case {
    const char *model, *optimizer;
    double lr, momentum, weight_decay; /* decay: of what has two dimensions or more */
    long n_params;                     /* elements of all parameters */
    double spread;                     /* largest relative difference to the run in float64 */
    double loss[MODELS_STEPS];         /* mean over labels, before the update */
} models_case;

/* clang-format off */
static const models_case models_cases[] = {"""


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(HEAD % (torch.__version__, BATCH, VOCABULARY, TOKENS, WIDTH, STEPS))
    for model, forward, data, optimizer, keys in CASES:
        losses, n = run(forward, data, optimizer, keys, torch.float32)
        exact, _ = run(forward, data, optimizer, keys, torch.float64)
        spread = max(abs(a - b) / b for a, b in zip(losses, exact))
        print('    {"%s", "%s", %r, %r, %r, %d, %.1e,\n     {%s,\n      %s}},' % (
            model, optimizer, keys["lr"], keys.get("momentum", 0.0), keys["weight_decay"], n,
            spread, ", ".join("%.9g" % v for v in losses[:5]),
            ", ".join("%.9g" % v for v in losses[5:])))
    print("};\n/* clang-format on */\n\n#endif /* TTI_TESTS_GOLDEN_MODELS_LOSSES_H */")


if __name__ == "__main__":
    main()
