#!/usr/bin/env python3
"""make_npz.py: prints tests/golden/npz_files.h, two small archives that NumPy wrote."""

import io

import numpy as np


def show(name, save):
    rows = np.arange(12)
    out = io.BytesIO()
    save(out, x=(rows[:, None] * 10 + np.arange(2)).astype("<f4"), y=rows % 3)
    data = out.getvalue()
    print("static const uint8_t %s[] = {" % name)
    for i in range(0, len(data), 24):
        print("    " + "".join("%d," % b for b in data[i:i + 24]))
    print("};\n")


def main():
    print("/* npz_files.h - made by tests/golden/make_npz.py: numpy.savez and savez_compressed. */")
    print("#ifndef TTI_TESTS_NPZ_FILES_H\n#define TTI_TESTS_NPZ_FILES_H\n\n#include <stdint.h>\n")
    print("/* clang-format off */")
    show("npz_stored", np.savez)
    show("npz_deflated", np.savez_compressed)
    print("/* clang-format on */\n\n#endif /* TTI_TESTS_NPZ_FILES_H */")


if __name__ == "__main__":
    main()
