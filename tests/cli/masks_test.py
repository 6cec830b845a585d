#!/usr/bin/env python3
"""Images with masks (data.format=masks): what a mask may be, both cut alike, one hash for any
number of workers, predicted masks, and a run that needs its data no longer."""

import json
import os
import shutil
import struct
import sys
import zlib

import runs

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/pt2")
SIDE, WIDE = 12, 16  # of the images


def png(path, rows, kind=0, depth=8, palette=None):
    """kind 0: grey, 2: RGB, 3: palette; rows of numbers, or of triples."""
    raw = b""
    for row in rows:
        flat = [v for pixel in row for v in pixel] if kind == 2 else list(row)
        if depth == 16:
            packed = b"".join(struct.pack(">H", v) for v in flat)
        elif depth == 8:
            packed = bytes(flat)
        else:
            bits = "".join(format(v, "0%db" % depth) for v in flat)
            bits += "0" * (-len(bits) % 8)
            packed = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        raw += b"\0" + packed

    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" +
                   chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), depth, kind,
                                              0, 0, 0)) +
                   (chunk(b"PLTE", bytes(palette)) if palette else b"") +
                   chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def read_grey(path):
    """The rows of an 8-bit grey PNG."""
    with open(path, "rb") as file:
        data = file.read()
    w, h, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert (depth, kind) == (8, 0), (depth, kind)
    at, packed = 8, b""
    while at < len(data):
        n, name = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + n] if name == b"IDAT" else b""
        at += n + 12
    raw, rows = zlib.decompress(packed), []
    before = [0] * w
    for y in range(h):
        how, line = raw[y * (w + 1)], list(raw[y * (w + 1) + 1:(y + 1) * (w + 1)])
        for x in range(w):
            left = line[x - 1] if x else 0
            up, corner = before[x], before[x - 1] if x else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda v: abs(guess - v))
            line[x] = (line[x] + [0, left, up, (left + up) // 2, paeth][how]) % 256
        rows.append(line)
        before = line
    return rows


def scene(i):
    """Labels: a red and a green block on black."""
    labels = [[0] * WIDE for _ in range(SIDE)]
    for label, y, x in ((1, i % 5, i % 7), (2, 5 + i % 3, 9 - i % 4)):
        for dy in range(4):
            for dx in range(5):
                labels[y + dy][x + dx] = label
    return labels


COLOURS = [(0, 0, 0), (255, 0, 0), (0, 255, 0)]


def make(folder, n=16, write=None, values=(0, 1, 2), border=None, masks="masks"):
    """Images and masks; write(path, rows) writes a mask of the values of the labels."""
    os.makedirs(folder + "/images/deep", exist_ok=True)
    os.makedirs("%s/%s/deep" % (folder, masks), exist_ok=True)
    for i in range(n):
        name = "%s%d" % ("deep/" if i % 3 == 0 else "", i)
        labels = scene(i)
        png("%s/images/%s.png" % (folder, name), [[COLOURS[v] for v in row] for row in labels], 2)
        rows = [[values[v] for v in row] for row in labels]
        if border is not None:
            rows[0] = [border] * WIDE
        (write or png)("%s/%s/%s.png" % (folder, masks, name), rows)


def job(data, *more):
    return ["data.format=masks", "data.dir=" + data, "data.image_size=8", "train.batch=4",
            "parallel.shards=2", "optimizer.name=adamw", "optimizer.lr=0.05",
            "schedule.warmup_steps=0", *more]


def segments(data, *more):
    return job(data, "model.file=%s/fields_segments.pt2" % GOLDEN, *more)


def info(data, *more):
    return runs.tutti("data", "info", "model.name=mlp", *job(data, *more))


def test_kinds_of_masks():
    palette = [0, 0, 0, 255, 0, 0, 0, 255, 0] + [9] * 759
    kinds = {"grey": png, "palette": lambda p, r: png(p, r, 3, palette=palette),
             "four bits": lambda p, r: png(p, r, 3, 4, palette[:48]),
             "two bits": lambda p, r: png(p, r, 0, 2), "wide": lambda p, r: png(p, r, 0, 16)}
    shown = {}
    for name, write in kinds.items():
        make(name, write=write)
        shown[name] = info(name).expect(0, "classes     3", "x         f32 [3,8,8]",
                                        "mask      i32 [8,8]", "0 .. 2").out
    assert len(set(shown.values())) == 1, shown
    make("border", border=255)
    info("border").expect(0, "classes     3", "0 .. 255")
    info("border", "train.ignore_index=none").expect(0, "classes     256")
    make("one bit", write=lambda p, r: png(p, r, 0, 1), values=(0, 1, 1))
    info("one bit").expect(0, "classes     2")
    make("two levels", values=(0, 255, 255))
    info("two levels").expect(0, "classes     2", "255 is class 1", "0 .. 1")
    make("grey levels", values=(0, 127, 254))
    info("grey levels").expect(0, "classes     255", "values up to 254, but 252 of these 255 "
                               "classes have no pixel")


def test_what_is_refused():
    make("colours", write=lambda p, r: png(p, [[COLOURS[v] for v in row] for row in r], 2))
    info("colours").expect(3, "colours/masks/", "its pixels are colours")
    make("few")
    os.remove("few/masks/1.png")
    info("few").expect(3, "few/images/1.png: there is no mask of that name in few/masks")
    info("few", "data.on_error=skip").expect(0, "ignored   1")
    os.remove("few/images/1.png")
    os.remove("few/images/2.png")
    info("few").expect(3, "few/masks/2.png: there is no image of that name in few/images")
    make("small")
    png("small/masks/1.png", [[0] * 5] * 5)
    text = "small/masks/1.png: 5 x 5 pixels, its image has 16 x 12"
    info("small").expect(0, "1 samples cannot be read, the first of them: " + text)
    runs.tutti("train", *segments("small", "train.epochs=1")).expect(3, text)
    make("many")
    info("many", "data.classes=2").expect(0, "many/masks/", "is 2, but the classes are")
    runs.tutti("train", *job("many", "model.file=%s/fields_question.pt2" % GOLDEN)).expect(
        2, "gives 1 logits for each pixel, but the masks have 3 classes")
    runs.tutti("train", *job("many", "model.file=%s/fields_question.pt2" % GOLDEN,
                             "train.loss=bce")).expect(2, "the masks have 3 classes")
    runs.tutti("data", "info", "model.name=mlp", "data.format=images", "data.dir=many").expect(
        3, "'images' and 'masks' are images and masks", "give data.format=masks")
    os.makedirs("empty/pictures")
    info("empty").expect(3, "it has no folders of images and masks")
    make("padded")
    info("padded", "data.augment=pad_crop", "train.ignore_index=none").expect(
        2, "pad_crop brings in pixels without a class")


def test_splits_by_folders():
    make("sets/train", 9)
    make("sets/val", 5)
    out = info("sets").expect(0).out
    assert "samples   9" in out and "samples   5" in out, out
    make("inside/train", 7, masks="annotations")
    for kind in ("images", "annotations"):
        shutil.copytree("inside/train/" + kind, "inside/%s/training" % kind)
        shutil.copytree("inside/train/" + kind, "inside/%s/validation" % kind)
    shutil.rmtree("inside/train")
    out = info("inside").expect(0).out
    assert out.count("samples   7") == 2, out


def test_both_are_cut_alike():
    """A mask of the image's own colours keeps fitting it, so what is learned without variations is
    right with them."""
    make("pairs", 24)
    runs.tutti("train", *segments("pairs", "train.steps=150", "data.augment=none",
                                  "run.dir=plain")).expect(0)
    runs.tutti("train", *segments("pairs", "train.steps=150", "run.dir=varied",
                                  "data.augment=random_resized_crop=0.5, flip")).expect(0)
    runs.tutti("train", *segments("pairs", "train.steps=150", "run.dir=shifted",
                                  "data.augment=pad_crop=3, flip")).expect(0)
    for run in ("plain", "varied", "shifted"):
        accuracy = float(runs.records(run)[-1]["accuracy"])
        assert accuracy > 0.93, (run, accuracy)


def test_one_hash_for_all_workers():
    make("hash", border=255)
    hashes = set()
    for n, *more in ((1,), (2,), (2, "parallel.place=processes"), (2, "parallel.pipeline=2")):
        run = "hash-%d%s" % (n, "".join(more))
        runs.tutti("train", "-n", str(n), *segments("hash", "train.steps=5", "run.dir=" + run,
                                                    *more)).expect(0)
        hashes.add(runs.records(run)[-1]["params_hash"])
    assert len(hashes) == 1, hashes


def predictions(*args):
    return [json.loads(line) for line in runs.tutti("predict", *args).expect(0).out.splitlines()]


def test_a_run_needs_the_data_no_longer():
    make("own data", 24, values=(0, 255, 255))
    shutil.copyfile("own data/images/1.png", "other.png")
    runs.tutti("train", *job("own data", "model.file=%s/fields_question.pt2" % GOLDEN,
                             "train.loss=bce", "train.steps=200", "run.dir=run",
                             "data.augment=none")).expect(0)
    said = runs.tutti("eval", "run", "--json").expect(0).out
    os.rename("own data", "moved")
    assert runs.tutti("eval", "run", "--json", "data.dir=moved").expect(0).out != said
    shown, = predictions("run", "other.png", "--out", "drawn")
    assert (shown["height"], shown["width"]) == (SIDE, WIDE), shown
    rows = read_grey("drawn/other.png")
    counts = {str(v): sum(row.count(v) for row in rows) for v in (0, 255)}
    assert shown["pixels"] == counts, (shown, counts)
    right = sum(a == (255 if b else 0) for x, y in zip(rows, scene(1)) for a, b in zip(x, y))
    assert right > 0.8 * SIDE * WIDE, right
    runs.tutti("predict", "run", "other.png", "--out", "drawn").expect(1, "exists already")
    runs.tutti("export", "run", "--format", "onnx", "--out", "model.onnx").expect(0)
    runs.tutti("export", "run", "--format", "state-dict", "--out", "weights").expect(0)
    shutil.copytree("run", "elsewhere/run")
    shutil.rmtree("run")
    os.chdir("elsewhere")
    assert predictions("run", "../other.png")[0]["pixels"] == counts


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
