#!/usr/bin/env python3
"""make_nets.py: ten training steps and an evaluation of torchvision's small convolutional networks,
written as nets_losses.h.

Usage: python3 tests/golden/make_nets.py > tests/golden/nets_losses.h

Weights and data are those of make_models.py: drawn by the names of the parameters.  The networks
have a quarter of the width and, as for small images, a first layer without stride or pooling.
The evaluation comes after the last step and uses the running statistics of batch norms.
"""

import torch
import torch.nn.functional as F
from torchvision.models import densenet, efficientnet, mobilenet_v2, mobilenet_v3_small, regnet

from make_golden import DATA_SEED, STEPS, hash_name, mix64, philox, unit
from make_models import BATCH, draw, integers

WIDTH, CLASSES, SIDE = 0.25, 10, 32


def images(step, dtype):
    bits = philox(mix64(DATA_SEED, hash_name("golden.x")), step % 2, BATCH * 3 * SIDE * SIDE)
    x = torch.tensor((2.0 * unit(bits) - 1.0).astype("float32")).to(dtype)
    y = torch.tensor(integers("golden.labels", step, BATCH, CLASSES))
    return x.reshape(BATCH, 3, SIDE, SIDE), y


def small_regnet(se_ratio, depths, widths, group):
    widths = [max(w, 8) for w in widths]
    groups = [min(group, w) for w in widths]
    params = regnet.BlockParams(depths, widths, groups, [1.0] * 4, [2] * 4, se_ratio)
    return regnet.RegNet(params, num_classes=CLASSES, stem_width=8)


def small_efficientnet(name):
    setting, last = efficientnet._efficientnet_conf(name, width_mult=WIDTH, depth_mult=1.0)
    return efficientnet.EfficientNet(setting, 0.0, num_classes=CLASSES, last_channel=last)


def make(name):
    if name == "mobilenet_v2":
        net = mobilenet_v2(width_mult=WIDTH, num_classes=CLASSES)
        net.features[0][0].stride = (1, 1)
    elif name == "mobilenet_v3_small":
        net = mobilenet_v3_small(width_mult=WIDTH, num_classes=CLASSES)
        net.features[0][0].stride = (1, 1)
    elif name == "efficientnet_b0":
        net = small_efficientnet(name)
        net.features[0][0].stride = (1, 1)
    elif name == "densenet121":
        net = densenet.DenseNet(8, (6, 12, 24, 16), 16, num_classes=CLASSES)
        net.features.conv0 = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        net.features.pool0 = torch.nn.Identity()
    elif name == "regnet_x_400mf":
        net = small_regnet(None, [1, 2, 7, 12], [8, 16, 48, 96], 16)
        net.stem[0].stride = (1, 1)
    else:
        net = small_regnet(0.25, [1, 3, 6, 6], [16, 24, 56, 112], 8)
        net.stem[0].stride = (1, 1)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    with torch.no_grad():
        for key, value in net.named_parameters():
            value.copy_(draw(key, value.shape))
    return net


# Rates at which float32 and float64 stay together: batch norm over few values makes a chaos of
# larger steps.
RATES = {"mobilenet_v2": 2e-7, "mobilenet_v3_small": 2e-5, "efficientnet_b0": 2e-5,
         "densenet121": 2e-5, "regnet_x_400mf": 2e-8, "regnet_y_400mf": 2e-8}
MOMENTUM, DECAY = 0.9, 5e-4


def run(name, dtype):
    net = make(name).to(dtype).train()
    params = list(net.parameters())
    groups = [dict(params=[v for v in params if v.dim() > 1], weight_decay=DECAY),
              dict(params=[v for v in params if v.dim() == 1], weight_decay=0.0)]
    optimizer, losses = torch.optim.SGD(groups, lr=RATES[name], momentum=MOMENTUM), []
    for step in range(STEPS):
        x, y = images(step, dtype)
        loss = F.cross_entropy(net(x), y)
        losses.append(loss.item())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    x, y = images(0, dtype)
    losses.append(F.cross_entropy(net.eval()(x), y).item())
    return losses, sum(v.numel() for v in params)


HEAD = """\
/* nets_losses.h - losses of ten training steps and of an evaluation after them, of convolutional
 * networks by torchvision with PyTorch %s in float32.
 *
 * Generated: python3 tests/golden/make_nets.py > tests/golden/nets_losses.h
 * That script and make_models.py say how weights and data are made. */
#ifndef TTI_TESTS_GOLDEN_NETS_LOSSES_H
#define TTI_TESTS_GOLDEN_NETS_LOSSES_H

#include "golden/models_losses.h"

#define NETS_WIDTH %g
enum { NETS_SIDE = %d };

/* clang-format off */
static const models_case nets_cases[] = {"""


def main():
    torch.set_num_threads(1)
    print(HEAD % (torch.__version__, WIDTH, SIDE))
    evals = []
    for name in RATES:
        losses, n = run(name, torch.float32)
        exact, _ = run(name, torch.float64)
        spread = max(abs(a - b) / abs(b) for a, b in zip(losses, exact))
        evals.append('    {"%s", %.9g},' % (name, losses[-1]))
        half = STEPS // 2
        rows = [", ".join("%.9g" % v for v in losses[i:i + half]) for i in (0, half)]
        print('    {"%s", "sgd", %g, %g, %g, %d, %.2g,\n     {%s,\n      %s}},' %
              (name, RATES[name], MOMENTUM, DECAY, n, spread, rows[0], rows[1]))
    print("};\n\nstatic const struct {\n    const char *model;")
    print("    double loss;\n} nets_evals[] = {")
    print("\n".join(evals))
    print("};\n/* clang-format on */\n\n#endif /* TTI_TESTS_GOLDEN_NETS_LOSSES_H */")


if __name__ == "__main__":
    main()
