#!/usr/bin/env python3
"""make_images.py: prints tests/golden/images_golden.h: what PIL makes of small images.

Usage: python3 tests/golden/make_images.py > tests/golden/images_golden.h  (Pillow 9.4)

Pictures are drawn by pixel() here and t_pixel() in tests/data/image_files.h; results are kept as
FNV-1a hashes of their bytes.  Random crops follow torchvision's RandomResizedCrop.get_params with
draws from Philox as in src/base/philox.h, keyed as in src/data/image/augment.c.
"""

import io
import math

from PIL import Image, ImageEnhance, ImageOps

MASK = (1 << 64) - 1


def pixel(y, x, c):
    return (x * 37 + y * 101 + c * 59 + (x * y) % 97 * 3 + (x // 5 + y // 7) % 2 * 90) & 255


def draw_image(h, w):
    return Image.frombytes("RGB", (w, h), bytes(pixel(y, x, c) for y in range(h) for x in range(w)
                                                for c in range(3)))


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def mix(a, b):
    x = (a + 0x9E3779B97F4A7C15 * (b + 1)) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def philox(key, hi, lo):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c = [lo & 0xFFFFFFFF, lo >> 32, hi & 0xFFFFFFFF, hi >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c


def unit(bits):
    return (bits >> 8) * 2.0 ** -24


def draw(name, which, seed, epoch, index):
    return philox(mix(mix(seed, fnv(name.encode())), which), epoch, index)


def random_box(h, w, min_area, seed, epoch, index):
    for i in range(10):
        d = draw("random_resized_crop", i, seed, epoch, index)
        area = h * w * (min_area + (1 - min_area) * unit(d[0]))
        ratio = math.exp(math.log(4 / 3) * (2 * unit(d[1]) - 1))
        bw, bh = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < bw <= w and 0 < bh <= h:
            return d[2] * (h - bh + 1) >> 32, d[3] * (w - bw + 1) >> 32, bh, bw
    bh, bw = h, w
    if w / h < 3 / 4:
        bh = round(w / (3 / 4))
    elif w / h > 4 / 3:
        bw = round(h * (4 / 3))
    return (h - bh) // 2, (w - bw) // 2, bh, bw


def resizes():
    print("static const t_resize t_resizes[] = {")
    for h, w, box, oh, ow in [
            (43, 61, (0, 0, 43, 61), 43, 61), (43, 61, (0, 0, 43, 61), 20, 30),
            (43, 61, (3, 5, 31, 47), 32, 32), (43, 61, (10, 20, 5, 7), 64, 64),
            (300, 200, (0, 0, 300, 200), 8, 8), (17, 1, (0, 0, 17, 1), 9, 9),
            (1, 1, (0, 0, 1, 1), 5, 3), (128, 128, (1, 2, 100, 90), 99, 33),
            (37, 500, (0, 0, 37, 500), 1, 1), (64, 64, (0, 0, 64, 64), 32, 64)]:
        y, x, bh, bw = box
        out = draw_image(h, w).crop((x, y, x + bw, y + bh)).resize((ow, oh), Image.BILINEAR)
        print("    {%d, %d, {%d, %d, %d, %d}, %d, %d, 0x%016xu},"
              % (h, w, y, x, bh, bw, oh, ow, fnv(out.tobytes())))
    print("};\n")


def jitters(size=24, strength=0.4, seed=5):
    print("static const t_jitter t_jitters[] = {")
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    kinds = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    for epoch, index in [(0, 0), (0, 1), (1, 0), (2, 7), (3, 1000000), (4, 3), (5, 4), (6, 6)]:
        d = philox(mix(seed, fnv(b"colour_jitter")), epoch, index)
        image = draw_image(size, size)
        for kind in orders[d[3] * 6 >> 32]:
            image = kinds[kind](image).enhance(1 - strength + 2 * strength * unit(d[kind]))
        print("    {%d, %d, 0x%016xu}," % (epoch, index, fnv(image.tobytes())))
    print("};\n")


def boxes():
    print("static const t_random_box t_random_boxes[] = {")
    for i, (h, w, min_area) in enumerate([(375, 500, 0.08), (500, 375, 0.08), (224, 224, 0.08),
                                          (32, 32, 0.5), (10, 1000, 0.08), (1000, 10, 0.9),
                                          (3, 3, 0.08), (1, 1, 0.08), (4000, 6000, 0.25)]):
        for index in (0, 1, 77):
            print("    {%d, %d, %g, %d, %d, {%d, %d, %d, %d}},"
                  % (h, w, min_area, i, index, *random_box(h, w, min_area, 9, i, index)))
    print("};\n")


def files():
    def save(image, **options):
        out = io.BytesIO()
        image.save(out, optimize=True, **options)
        return out.getvalue()

    exif = Image.Exif()
    base, cases = draw_image(11, 14), []
    cases.append(("baseline", save(base, format="JPEG", quality=90)))
    cases.append(("progressive", save(base, format="JPEG", quality=80, progressive=True,
                                      subsampling=0)))
    cases.append(("grey", save(base.convert("L"), format="JPEG", quality=90)))
    cases.append(("cmyk", save(base.convert("CMYK"), format="JPEG", quality=90)))
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        cases.append(("turned %d" % orientation,
                      save(base, format="JPEG", quality=90, exif=exif.tobytes())))
    cases.append(("png", save(base, format="PNG")))
    cases.append(("png grey", save(base.convert("L"), format="PNG")))
    cases.append(("png palette", save(base.quantize(16), format="PNG")))
    cases.append(("png bit", save(base.convert("1"), format="PNG")))
    rgba = base.copy()
    rgba.putalpha(base.convert("L"))
    cases.append(("png alpha", save(rgba, format="PNG")))
    cases.append(("png grey alpha", save(rgba.convert("LA"), format="PNG")))
    print("static const t_image_file t_image_files[] = {")
    for name, data in cases:
        shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        text = "".join("\\x%02x" % byte for byte in data)
        lines = '"\n     "'.join(text[i:i + 92] for i in range(0, len(text), 92))
        print('    {"%s", %d, %d, 0x%016xu, %d,\n     "%s"},'
              % (name, shown.height, shown.width, fnv(shown.tobytes()), len(data), lines))
    print("};")


def main():
    print("/* images_golden.h - made by tests/golden/make_images.py; do not edit. */")
    print("""#ifndef TTI_TESTS_IMAGES_GOLDEN_H
#define TTI_TESTS_IMAGES_GOLDEN_H

#include "data/image/image.h"

/* The part box of t_pixel's [h,w,3], resized to [to_h,to_w,3]. */
typedef struct t_resize {
    int h, w;
    tti_box box;
    int to_h, to_w;
    uint64_t hash;
} t_resize;

/* colour_jitter=0.4 of an image of side 24, seed 5. */
typedef struct t_jitter {
    uint64_t epoch, index, hash;
} t_jitter;

/* tti_random_box, seed 9. */
typedef struct t_random_box {
    int h, w;
    double min_area;
    uint64_t epoch, index;
    tti_box box;
} t_random_box;

/* An encoded image and its pixels, upright RGB. */
typedef struct t_image_file {
    const char *name;
    int h, w;
    uint64_t hash;
    size_t n_bytes;
    const char *bytes;
} t_image_file;
""")
    resizes()
    jitters()
    boxes()
    files()
    print("\n#endif /* TTI_TESTS_IMAGES_GOLDEN_H */")


main()
