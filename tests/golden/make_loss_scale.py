#!/usr/bin/env python3
"""make_loss_scale.py: a dynamic loss scale over 40000 steps, written as golden_loss_scale.h.

Usage: python3 tests/golden/make_loss_scale.py > tests/golden/golden_loss_scale.h

torch.cuda.amp.GradScaler keeps its scale on a GPU and PyTorch's kernel for it, _amp_update_scale_,
has no CPU version, so its rule stands here in float32, as in the documentation of GradScaler:
growth 2, backoff 0.5, interval 2000, from 65536, and no growth beyond the largest float.  Where a
GPU is there, the kernel itself runs beside it and must agree.

Step i overflows where one of these holds: i is in OVERFLOWS, or the scale is above 2^LIMIT(i).
The header has a row for each change: the step after which the scale is another one, and its log2.
"""

import numpy as np
import torch

OVERFLOWS = (0, 1, 2, 2002, 2003, 4004, 9999, 12000, 30000, 30001)


def limit(step):
    return 14 if 16000 <= step < 20000 else 200


def kernel_step(state, overflow):
    torch._amp_update_scale_(state[0], state[1],
                             torch.tensor([float(overflow)], device="cuda"), 2.0, 0.5, 2000)


def main():
    scale, tracker = np.float32(65536), 0
    gpu = torch.cuda.is_available()
    if gpu:
        state = (torch.tensor([65536.0], device="cuda"),
                 torch.tensor([0], dtype=torch.int32, device="cuda"))
    rows = []
    print("/* golden_loss_scale.h - made by tests/golden/make_loss_scale.py. */")
    print("static const struct {\n    int step, log2;\n} golden_scales[] = {")
    for step in range(40000):
        overflow = step in OVERFLOWS or scale > np.float32(2.0) ** limit(step)
        before = scale
        if overflow:
            scale, tracker = np.float32(scale * np.float32(0.5)), 0
        else:
            tracker += 1
            if tracker == 2000:
                grown = np.float32(scale * np.float32(2))
                scale, tracker = (grown if np.isfinite(grown) else scale), 0
        if gpu:
            kernel_step(state, overflow)
            assert state[0].item() == scale and state[1].item() == tracker
        if scale != before:
            rows.append("{%d, %d}," % (step, int(np.log2(scale))))
    for i in range(0, len(rows), 7):  # as clang-format leaves it
        print("    " + "".join(row.ljust(13) for row in rows[i:i + 7]).rstrip())
    print("};")


main()
