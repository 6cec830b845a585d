#!/usr/bin/env python3
"""make_optim.py: what PyTorch's optimizers and schedules do, as two headers.

Usage: python3 tests/golden/make_optim.py tests/golden

optim_steps.h      20 steps of each optimizer in float32 on a quadratic with noise:
                   gradient = a * (w - c) + noise(step), elementwise; a, c, noise are fractions
                   that float32 holds exactly (problem(), and make_gradient() in
                   tests/backend/cpu/optim_test.c)
optim_schedules.h  the learning rate of each of 30 steps, 3 to the epoch, in double

Lion, LAMB and LARS are not in PyTorch.  They are written here from the papers (arXiv 2302.06675
algorithm 2, 1904.00962 algorithm 2, 1708.03888 with the learning rate outside the momentum), in
float32.  Neither is warm-up, stable, decay, nor a warm-up that is exponential or cosine.
"""

import math
import sys

import torch
from torch.optim import lr_scheduler

N, STEPS = 24, 20
CURVE, PER_EPOCH = 30, 3


def fraction(i, salt):
    return ((i * 7919 + salt * 104729 + 13) % 1021) / 512 - 1


def problem():
    a = torch.tensor([0.25 + (i * 37 % 64) / 64 for i in range(N)])
    c = torch.tensor([fraction(i, 101) for i in range(N)])
    w = torch.tensor([fraction(i, 202) for i in range(N)])
    return a, c, w


def noise(step):
    return torch.tensor([fraction(i, step) / 4 for i in range(N)])


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                b1, b2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["step"] += 1
                b1, b2 = group["betas"]
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                m = s["m"] / (1 - b1 ** s["step"])
                v = s["v"] / (1 - b2 ** s["step"])
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                trust = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1
                p.sub_(group["lr"] * trust * u)


class Lars(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, trust, eps, weight_decay):
        super().__init__(params, dict(lr=lr, momentum=momentum, trust=trust, eps=eps,
                                      weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                wn, gn, wd = p.norm(), p.grad.norm(), group["weight_decay"]
                rate = group["trust"] * wn / (gn + wd * wn + group["eps"])
                rate = rate if wn > 0 and gn > 0 else 1
                m.mul_(group["momentum"]).add_(rate * (p.grad + wd * p))
                p.sub_(group["lr"] * m)


# name of the op, attributes with "lr", PyTorch's optimizer
OPTIMIZERS = [
    ("sgd", dict(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    ("sgd", dict(lr=0.05, momentum=0.9, decay=0.01),
     lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)),
    ("sgd", dict(lr=0.05, momentum=0.9, nesterov=1, decay=0.01),
     lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("adam", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.01),
     lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.01)),
    ("adamw", dict(lr=0.05, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1),
     lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.9, 0.95), weight_decay=0.1)),
    ("rmsprop", dict(lr=0.02, alpha=0.9, eps=1e-8),
     lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9)),
    ("rmsprop", dict(lr=0.01, alpha=0.99, eps=1e-6, momentum=0.8, decay=0.01),
     lambda p: torch.optim.RMSprop(p, lr=0.01, eps=1e-6, momentum=0.8, weight_decay=0.01)),
    ("adagrad", dict(lr=0.1, eps=1e-10), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    ("adagrad", dict(lr=0.2, eps=1e-6, decay=0.02),
     lambda p: torch.optim.Adagrad(p, lr=0.2, eps=1e-6, weight_decay=0.02)),
    ("lion", dict(lr=0.01, beta1=0.9, beta2=0.99, decay=0.1),
     lambda p: Lion(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)),
    ("lamb", dict(lr=0.02, beta1=0.9, beta2=0.999, eps=1e-6, decay=0.01),
     lambda p: Lamb(p, lr=0.02, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)),
    ("lars", dict(lr=1.0, momentum=0.9, trust=0.02, eps=1e-8, decay=0.001),
     lambda p: Lars(p, lr=1.0, momentum=0.9, trust=0.02, eps=1e-8, weight_decay=0.001)),
]


def run_optimizer(make):
    a, c, w = problem()
    w.requires_grad_()
    optimizer = make([w])
    for step in range(STEPS):
        with torch.no_grad():
            w.grad = a * (w - c) + noise(step)
        optimizer.step()
    return w.detach().tolist()


def rows(values, form, per_row, indent):
    lines = [", ".join(form % v for v in values[i:i + per_row])
             for i in range(0, len(values), per_row)]
    return (",\n" + " " * indent).join(lines)


def write_steps(out):
    keys = ["lr", "momentum", "nesterov", "beta1", "beta2", "alpha", "eps", "trust", "decay"]
    out.write("""/* optim_steps.h - %d steps of each optimizer by PyTorch %s in float32.
 *
 * Generated: python3 tests/golden/make_optim.py tests/golden; that script has the problem. */
#ifndef TTI_TESTS_GOLDEN_OPTIM_STEPS_H
#define TTI_TESTS_GOLDEN_OPTIM_STEPS_H

enum { GOLDEN_OPTIM_N = %d, GOLDEN_OPTIM_STEPS = %d };

typedef struct golden_optim {
    const char *op;
    /* lr, and attributes */
    double %s;
    double w[GOLDEN_OPTIM_N]; /* after the last step */
} golden_optim;

/* clang-format off */
static const golden_optim golden_optims[] = {
""" % (STEPS, torch.__version__, N, STEPS, ", ".join(keys)))
    for name, attrs, make in OPTIMIZERS:
        assert set(attrs) <= set(keys)
        given = ", ".join(".%s = %r" % (k, attrs[k]) for k in keys if k in attrs)
        out.write("    {\"%s\", %s,\n     .w = {%s}},\n"
                  % (name, given, rows(run_optimizer(make), "%.9g", 6, 11)))
    out.write("};\n/* clang-format on */\n\n#endif /* TTI_TESTS_GOLDEN_OPTIM_STEPS_H */\n")


# ---- schedules ----

LR = 0.4


def sgd():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)


def curve(make, n, each=1):
    """The learning rates of n steps of a scheduler that is stepped every so many of them."""
    optimizer = sgd()
    scheduler, out = make(optimizer), []
    for t in range(n):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (t + 1) % each == 0:
            scheduler.step()
    return out


def wsd(n, share, low, shape):
    start = n - share * n
    def at(t):
        p = min(max((t - start) / (n - start), 0), 1)
        left = dict(cosine=(1 + math.cos(math.pi * p)) / 2, linear=1 - p, sqrt=1 - math.sqrt(p))
        return low + (LR - low) * left[shape]
    return [at(t) for t in range(n)]


def cyclic(mode, **more):
    return lambda o: lr_scheduler.CyclicLR(o, base_lr=0.1, max_lr=LR, mode=mode,
                                           cycle_momentum=False, **more)


def one_cycle(n, **more):
    return lambda o: lr_scheduler.OneCycleLR(o, max_lr=LR, total_steps=n, cycle_momentum=False,
                                             **more)


def sequential(o):
    start = 0.2 + 0.8 / 6  # share 0.2 before the first of 6 steps
    return lr_scheduler.SequentialLR(o, [
        lr_scheduler.LinearLR(o, start_factor=start, end_factor=1, total_iters=5),
        lr_scheduler.CosineAnnealingLR(o, T_max=CURVE - 6, eta_min=0.01)], milestones=[6])


def warmed(factors, rest):
    return [LR * f for f in factors] + rest


P6 = [(t + 1) / 6 for t in range(6)]

# name, other fields of tti_lr_desc, learning rates
SCHEDULES = [
    ("constant", "", [LR] * CURVE),
    ("step", ".step_size = 2, .gamma = 0.5",
     curve(lambda o: lr_scheduler.StepLR(o, 2, 0.5), CURVE, PER_EPOCH)),
    ("step", ".by_steps = true, .step_size = 7, .gamma = 0.1",
     curve(lambda o: lr_scheduler.StepLR(o, 7, 0.1), CURVE)),
    ("multi_step", ".milestones = {3, {2, 3, 8}}, .gamma = 0.3",
     curve(lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 8], 0.3), CURVE, PER_EPOCH)),
    ("multi_step", ".by_steps = true, .milestones = {2, {5, 29}}, .gamma = 0.1",
     curve(lambda o: lr_scheduler.MultiStepLR(o, [5, 29], 0.1), CURVE)),
    ("exponential", ".gamma = 0.9",
     curve(lambda o: lr_scheduler.ExponentialLR(o, 0.9), CURVE, PER_EPOCH)),
    ("exponential", ".by_steps = true, .gamma = 0.9",
     curve(lambda o: lr_scheduler.ExponentialLR(o, 0.9), CURVE)),
    ("polynomial", ".power = 2", curve(lambda o: lr_scheduler.PolynomialLR(o, 24, 2), CURVE)),
    ("polynomial", ".power = 0.5", curve(lambda o: lr_scheduler.PolynomialLR(o, 24, 0.5), CURVE)),
    ("cosine", ".min_lr = 0.01",
     curve(lambda o: lr_scheduler.CosineAnnealingLR(o, 24, 0.01), 25) + [0.01] * 5),
    ("linear", ".min_lr = 0.1",
     curve(lambda o: lr_scheduler.LinearLR(o, 1, 0.25, 24), CURVE)),
    ("cyclic", ".min_lr = 0.1, .cycle_steps = 10, .rise = 0.5, .cycle = \"triangular\"",
     curve(cyclic("triangular", step_size_up=5), CURVE)),
    ("cyclic", ".min_lr = 0.1, .cycle_steps = 9, .rise = 1.0 / 3, .cycle = \"triangular2\"",
     curve(cyclic("triangular2", step_size_up=3, step_size_down=6), CURVE)),
    ("cyclic", ".min_lr = 0.1, .cycle_steps = 8, .rise = 0.5, .gamma = 0.95, "
     ".cycle = \"exp_range\"", curve(cyclic("exp_range", step_size_up=4, gamma=0.95), CURVE)),
    ("one_cycle", ".rise = 0.3, .div = 25, .final_div = 1e4", curve(one_cycle(24), 24)),
    ("one_cycle", ".rise = 0.45, .div = 10, .final_div = 100, .anneal = \"linear\"",
     curve(one_cycle(24, pct_start=0.45, div_factor=10, final_div_factor=100,
                     anneal_strategy="linear"), 24)),
    ("wsd", ".decay_fraction = 0.25, .min_lr = 0.01", wsd(24, 0.25, 0.01, "cosine")),
    ("wsd", ".decay_fraction = 0.2, .anneal = \"linear\"", wsd(24, 0.2, 0, "linear")),
    ("wsd", ".decay_fraction = 0.5, .anneal = \"sqrt\"", wsd(24, 0.5, 0, "sqrt")),
    ("cosine", ".min_lr = 0.01, .warmup_steps = 6, .warmup_start = 0.2, .n_steps = 30",
     curve(sequential, CURVE)),
    ("constant", ".warmup_steps = 6, .warmup = \"constant\", .warmup_start = 0.3",
     curve(lambda o: lr_scheduler.ConstantLR(o, 0.3, 6), CURVE)),
    ("constant", ".warmup_steps = 6, .warmup = \"exponential\", .warmup_start = 0.01",
     warmed([0.01 ** (1 - p) for p in P6], [LR] * 24)),
    ("constant", ".warmup_steps = 6, .warmup = \"cosine\", .warmup_start = 0.1",
     warmed([0.1 + 0.9 * (1 - math.cos(math.pi * p)) / 2 for p in P6], [LR] * 24)),
    ("polynomial", ".power = 1, .warmup_steps = 6, .n_steps = 30",
     warmed(P6, curve(lambda o: lr_scheduler.PolynomialLR(o, 24, 1), 24))),
    ("one_cycle", ".rise = 0.3, .div = 25, .final_div = 1e4, .warmup_steps = 6, .n_steps = 30",
     [f / 25 for f in warmed(P6, [])] + curve(one_cycle(24), 24)),
]

LOSSES = [2.0, 1.5, 1.4, 1.395, 1.41, 1.39, 1.3, 1.31, 1.32, 1.33, 1.2, 1.25, 1.19, 1.26, 1.24,
          1.21, 1.22, 1.23, 1.2, 1.4, 1.3, 1.25, 1.3, 1.4, 1.3, 1.3, 0.5, 0.6, 0.6, 0.6]


def plateau():
    optimizer, out = sgd(), []
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2, threshold=0.01,
                                               cooldown=1, min_lr=0.02)
    for loss in LOSSES:
        scheduler.step(loss)
        out.append(optimizer.param_groups[0]["lr"])
    return out


def write_schedules(out):
    out.write("""/* optim_schedules.h - learning rates of schedules by PyTorch %s in double.
 *
 * Generated: python3 tests/golden/make_optim.py tests/golden.
 * The peak is %g; n_steps is 24 where it is not given; %d steps make an epoch. */
#ifndef TTI_TESTS_GOLDEN_OPTIM_SCHEDULES_H
#define TTI_TESTS_GOLDEN_OPTIM_SCHEDULES_H

#include "train/job/lr_schedule.h"

enum { GOLDEN_CURVE = %d };

typedef struct golden_schedule {
    tti_lr_desc desc;
    int n; /* learning rates known */
    double lr[GOLDEN_CURVE];
} golden_schedule;

/* clang-format off */
static const golden_schedule golden_schedules[] = {
""" % (torch.__version__, LR, PER_EPOCH, CURVE))
    for name, fields, rates in SCHEDULES:
        n_steps = "" if "n_steps" in fields else ", .n_steps = 24"
        out.write("    {{.name = \"%s\", .lr = %r, .steps_per_epoch = %d%s%s%s}, %d,\n     {%s}},\n"
                  % (name, LR, PER_EPOCH, n_steps, ",\n      " if fields else "", fields,
                     len(rates), rows(rates, "%.15g", 4, 6)))
    out.write("};\n\n/* ReduceLROnPlateau(factor 0.3, patience 2, threshold 0.01, cooldown 1, "
              "min_lr 0.02): losses of\n * evaluations, and the learning rate after each. */\n"
              "static const double golden_losses_seen[] = {\n    %s};\n"
              "static const double golden_plateau[] = {\n    %s};\n/* clang-format on */\n\n"
              "#endif /* TTI_TESTS_GOLDEN_OPTIM_SCHEDULES_H */\n"
              % (rows(LOSSES, "%g", 12, 4), rows(plateau(), "%.15g", 4, 4)))


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1] + "/optim_steps.h", "w") as out:
        write_steps(out)
    with open(sys.argv[1] + "/optim_schedules.h", "w") as out:
        write_schedules(out)


if __name__ == "__main__":
    main()
