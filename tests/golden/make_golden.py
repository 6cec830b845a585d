#!/usr/bin/env python3
"""make_golden.py: ten training steps in PyTorch, written as golden_losses.h.

Usage: python3 tests/golden/make_golden.py > tests/golden/golden_losses.h

Weights, inputs and labels come from Philox4x32-10 as in src/base/philox.h, so a C test makes the
same bits without a file:
  parameter NAME  key mix64(SEED, hash(NAME)), draw element/4, lane element%4; u = unit(bits);
                  -bound + 2 * bound * u in double, rounded to float; bound = 1/sqrt(fan_in), of
                  the layer for weight and bias (src/ops/init.c)
  inputs          key mix64(7, hash("golden.x")), draw (step%2, element/4), lane element%4; 2u-1
  labels          key mix64(7, hash("golden.labels")), draw (step%2, sample/4), lane sample%4;
                  bits % 10
Weight decay applies to weights, not to biases.  Losses are means over the batch, each taken
before its update.  The computation is in float32; how far float64 goes away from it in ten steps
is printed too: a test can ask for no less.
"""

import numpy as np
import torch
import torch.nn.functional as F

SEED, DATA_SEED = 1, 7
BATCH, STEPS, CLASSES = 16, 10, 10
MASK = (1 << 64) - 1


def mix64(a, b):
    x = (a + 0x9E3779B97F4A7C15 * (b + 1)) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hash_name(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def philox(key, counter_hi, n):
    """The first n 32-bit words of draws 0, 1, ... for one key and high counter."""
    n_draws = (n + 3) // 4
    low = np.uint64(0xFFFFFFFF)
    lo = np.arange(n_draws, dtype=np.uint64)
    c = [lo & low, lo >> np.uint64(32),
         np.full(n_draws, counter_hi & 0xFFFFFFFF, np.uint64),
         np.full(n_draws, counter_hi >> 32, np.uint64)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).reshape(-1)[:n].astype(np.uint32)


def unit(bits):
    return (bits >> np.uint32(8)).astype(np.float64) * 2.0 ** -24


def check_philox():
    """The known answers of Random123 for counter and key all zero, and all one."""
    zero = philox(0, 0, 4)
    assert [hex(int(w)) for w in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def layer(shape, fan_in, name):
    bound = 1.0 / np.sqrt(float(fan_in))

    def draw(part, shape):
        n = int(np.prod(shape))
        u = unit(philox(mix64(SEED, hash_name(name + "." + part)), 0, n))
        return torch.tensor((-bound + (bound + bound) * u).astype(np.float32)).reshape(shape)
    return {name + ".weight": draw("weight", shape), name + ".bias": draw("bias", shape[:1])}


def mlp(widths):
    names = ["fc%d" % (i + 1) for i in range(len(widths) - 2)] + ["out"]
    params = {}
    for i, name in enumerate(names):
        params.update(layer((widths[i + 1], widths[i]), widths[i], name))

    def forward(p, x):
        for name in names:
            x = F.linear(x, p[name + ".weight"], p[name + ".bias"])
            x = F.relu(x) if name != "out" else x
        return x
    return params, (widths[0],), forward


def lenet():
    params = {}
    params.update(layer((32, 1, 3, 3), 9, "conv1"))
    params.update(layer((64, 32, 3, 3), 288, "conv2"))
    params.update(layer((128, 3136), 3136, "fc1"))
    params.update(layer((10, 128), 128, "fc2"))

    def forward(p, x):
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2.weight"], p["conv2.bias"], padding=1)), 2)
        x = F.relu(F.linear(x.flatten(1), p["fc1.weight"], p["fc1.bias"]))
        return F.linear(x, p["fc2.weight"], p["fc2.bias"])
    return params, (1, 28, 28), forward


MODELS = {
    "mlp_small": lambda: mlp([16, 32, 10]),
    "mlp": lambda: mlp([784, 512, 512, 10]),
    "lenet": lenet,
}

# name, keys of the job file
OPTIMIZERS = [
    ("sgd", dict(lr=0.05, momentum=0.0, nesterov=False, weight_decay=0.0)),
    ("sgd", dict(lr=0.02, momentum=0.9, nesterov=False, weight_decay=5e-4)),
    ("sgd", dict(lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)),
    ("adam", dict(lr=1e-3, weight_decay=1e-4, beta1=0.9, beta2=0.999, eps=1e-8)),
    ("adamw", dict(lr=1e-3, weight_decay=1e-2, beta1=0.9, beta2=0.999, eps=1e-8)),
]


def make_optimizer(name, keys, params):
    groups = [
        dict(params=[p for n, p in params.items() if n.endswith("weight")],
             weight_decay=keys["weight_decay"]),
        dict(params=[p for n, p in params.items() if n.endswith("bias")], weight_decay=0.0),
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=keys["lr"], momentum=keys["momentum"],
                               nesterov=keys["nesterov"])
    make = dict(adam=torch.optim.Adam, adamw=torch.optim.AdamW)[name]
    return make(groups, lr=keys["lr"], betas=(keys["beta1"], keys["beta2"]), eps=keys["eps"])


def hash_words(words):
    """FNV-1a over 32-bit words, as golden_hash in golden_data.h."""
    h = 0xCBF29CE484222325
    for word in words.tolist():
        h = ((h ^ word) * 0x100000001B3) & MASK
    return h


def inputs(step, n):
    bits = philox(mix64(DATA_SEED, hash_name("golden.x")), step % 2, n)
    return (2.0 * unit(bits) - 1.0).astype(np.float32)


def make_labels(step):
    bits = philox(mix64(DATA_SEED, hash_name("golden.labels")), step % 2, BATCH)
    return (bits % CLASSES).astype(np.int64)


def print_bits():
    """Hashes of what a C test must have made before it compares losses."""
    print("static const golden_bits golden_params[] = {")
    for model in MODELS:
        for name, p in MODELS[model]()[0].items():
            print('    {"%s", "%s", %d, 0x%016XU},' % (
                model, name, p.numel(), hash_words(p.numpy().reshape(-1).view(np.uint32))))
    print("};")
    x = hash_words(inputs(1, BATCH * 784).view(np.uint32))
    print("static const uint64_t golden_x_hash = 0x%016XU; /* of step 1, 16 x 784 */" % x)
    print("static const int golden_labels_step1[GOLDEN_BATCH] = {%s};\n"
          % ", ".join(str(v) for v in make_labels(1)))


def run(model, name, keys, dtype):
    params, in_shape, forward = MODELS[model]()
    params = {n: p.to(dtype).clone().requires_grad_() for n, p in params.items()}
    optimizer = make_optimizer(name, keys, params)
    n = BATCH * int(np.prod(in_shape))
    losses = []
    for step in range(STEPS):
        x = torch.tensor(inputs(step, n)).to(dtype)
        logits = forward(params, x.reshape((BATCH,) + in_shape))
        loss = F.cross_entropy(logits, torch.tensor(make_labels(step)))
        losses.append(float(loss))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return losses


HEAD = """\
/* golden_losses.h - losses of ten training steps, computed by PyTorch %(torch)s in float32.
 *
 * Generated: python3 tests/golden/make_golden.py > tests/golden/golden_losses.h
 * That script says how weights, inputs and labels are made from Philox; batch %(batch)d, seed \
%(seed)d.
 * Layers: fc1, fc2, ..., out; conv1, conv2, fc1, fc2 for lenet. */
#ifndef TTI_TESTS_GOLDEN_LOSSES_H
#define TTI_TESTS_GOLDEN_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum { GOLDEN_BATCH = %(batch)d, GOLDEN_STEPS = %(steps)d, GOLDEN_CLASSES = %(classes)d };
enum { GOLDEN_SEED = %(seed)d, GOLDEN_DATA_SEED = %(data_seed)d };

typedef struct golden_case {
    const char *model;     /* mlp_small: 16-32-10; mlp: 784-512-512-10; lenet */
    const char *optimizer; /* sgd, adam, adamw */
    double lr, momentum;
    bool nesterov;
    double weight_decay; /* of weights; biases have none */
    double beta1, beta2, eps;
    double spread;             /* largest relative difference to the same run in float64 */
    double loss[GOLDEN_STEPS]; /* mean over the batch, before the update */
} golden_case;

typedef struct golden_bits {
    const char *model, *param;
    int n_elems;
    uint64_t hash; /* golden_hash of the initial values */
} golden_bits;

/* clang-format off */"""

TAIL = """\
};
/* clang-format on */

#endif /* TTI_TESTS_GOLDEN_LOSSES_H */"""


def main():
    torch.set_num_threads(1)
    check_philox()
    print(HEAD % dict(torch=torch.__version__, batch=BATCH, steps=STEPS, classes=CLASSES, seed=SEED,
                      data_seed=DATA_SEED))
    print_bits()
    print("static const golden_case golden_cases[] = {")
    for model in MODELS:
        for name, keys in OPTIMIZERS:
            losses = run(model, name, keys, torch.float32)
            exact = run(model, name, keys, torch.float64)
            spread = max(abs(a - b) / b for a, b in zip(losses, exact))
            print('    {"%s", "%s", %r, %r, %s, %r, %r, %r, %r, %.1e,\n     {%s,\n      %s}},' % (
                model, name, keys["lr"], keys.get("momentum", 0.0),
                str(keys.get("nesterov", False)).lower(), keys["weight_decay"],
                keys.get("beta1", 0.0), keys.get("beta2", 0.0), keys.get("eps", 0.0), spread,
                ", ".join("%.9g" % v for v in losses[:5]),
                ", ".join("%.9g" % v for v in losses[5:])))
    print(TAIL)


if __name__ == "__main__":
    main()
