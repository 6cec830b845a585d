"""files_test.py - files as they are found: what `tutti` makes of them, run as a user runs it."""

import gzip
import os
import random
import struct
import sys
import zipfile
import zlib

import runs

DATA, CONFIG = 3, 2


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side=16, width=None, extra=b"", seed=1):
    width = width or side
    noise = random.Random(seed)
    rows = b"".join(b"\0" + bytes(noise.randrange(256) for _ in range(width))
                    for _ in range(side))
    head = struct.pack(">IIBBBBB", width, side, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def classes(folder, names="ab", n=4):
    for name in names:
        for i in range(n):
            write("%s/%s/%d.png" % (folder, name, i), png(seed=i))


def images(folder, *more):
    return ["data.format=images", "data.dir=" + folder, "data.image_size=8",
            "data.val_fraction=0.3", *more]


def info(*arguments):
    return runs.tutti("data", "info", *arguments)


def train(*arguments):
    return runs.tutti("train", "model.name=mlp", "model.hidden=[4]", "train.batch=4",
                      "train.epochs=2", "run.progress=false", "parallel.shards=2", "-n", "1",
                      *arguments)


def text_of(n):
    return b"".join(b"%d,%d,%d\n" % (i, i * i % 7, i % 2) for i in range(n))


def test_gzip_members():
    """All of them are read, as zcat does; padding is none of the data, other bytes are refused."""
    parts = gzip.compress(b"a,b,label\n" + text_of(50)) + gzip.compress(text_of(30))
    write("t.csv.gz", parts + b"\0" * 512)
    ended = info("data.format=csv", "data.dir=t.csv.gz").expect(0)
    if "samples   72" not in ended.out or "samples   8" not in ended.out:
        raise AssertionError(ended.out)
    write("t.csv.gz", parts + b"more")
    info("data.format=csv", "data.dir=t.csv.gz").expect(DATA, "t.csv.gz", "not a gzip member")
    write("t.csv.gz", parts[:-3])
    info("data.format=csv", "data.dir=t.csv.gz").expect(DATA, "t.csv.gz", "truncated")


def npy(descr, shape, values):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return (b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head +
            struct.pack("<%d%s" % (len(values), {"<f4": "f", "<i4": "i"}[descr]), *values))


def test_compressed_arrays():
    """.npy.gz is read like .npy, and arrays beside an archive are not left out in silence."""
    draw = random.Random(2)
    x = [draw.random() for _ in range(60)]
    y = [int(x[3 * i] > x[3 * i + 1]) for i in range(20)]
    hashes = set()
    for pack, ending in ((lambda data: data, ""), (gzip.compress, ".gz")):
        for split in "train", "test":
            write("np%s/x_%s.npy%s" % (ending, split, ending), pack(npy("<f4", (20, 3), x)))
            write("np%s/y_%s.npy%s" % (ending, split, ending), pack(npy("<i4", (20,), y)))
        ended = train("data.format=npy", "data.dir=np" + ending, "run.dir=np-run" + ending)
        ended.expect(0)
        hashes.add(ended.out.split("params_hash ")[1].split()[0])
        said = runs.tutti("predict", "np-run", "np%s/x_test.npy%s" % (ending, ending)).expect(0).out
        hashes.add(said.replace(".gz", ""))
    assert len(hashes) == 2, hashes
    os.makedirs("packed")
    for split in "train", "test":  # an archive packs its members itself
        with zipfile.ZipFile("packed/%s.npz" % split, "w") as archive:
            archive.writestr("x.npy", npy("<f4", (20, 3), x))
            archive.writestr("y.npy", npy("<i4", (20,), y))
            archive.writestr("note.npy.gz", gzip.compress(npy("<i4", (20,), y)))
    ended = info("data.format=npy", "data.dir=packed", "data.fields=all").expect(0)
    assert "note" not in ended.out, ended.out
    write("np/more.npz", b"")
    info("data.format=npy", "data.dir=np").expect(DATA, "np: has archives (.npz) and arrays (",
                                                  "data.dir='np/*.npz'")


def test_labels_that_are_no_classes():
    """One-hot rows and numbers from 1: the messages say what to do."""
    x = [i % 7 / 7 for i in range(60)]
    for split in "train", "test":
        write("odd/x_%s.npy" % split, npy("<f4", (20, 3), x))
        write("odd/y_%s.npy" % split, npy("<i4", (20, 3), [int(i % 3 == i // 3 % 3)
                                                           for i in range(60)]))
    train("data.format=npy", "data.dir=odd", "run.dir=odd-run").expect(2, "y.argmax(axis=1)",
                                                                       "train.loss=bce")
    for split in "train", "test":
        write("odd/y_%s.npy" % split, npy("<i4", (20,), [1 + i % 3 for i in range(20)]))
    said = "labels begin at 1, so no sample has a class below"
    ended = train("data.format=npy", "data.dir=odd", "run.dir=odd-run").expect(0)
    assert ended.err.count(said) == 1, ended.err
    ended = info("data.format=npy", "data.dir=odd").expect(0)
    assert said in ended.out and "classes     4" in ended.out, ended.out


def test_classes_without_training_samples():
    """The names of files divide a set, so a class of one file may be for testing alone."""
    classes("single", "abcdefghijkl", n=1)
    said = "classes have no training samples, such as '"
    ended = train(*images("single"), "run.dir=single-run").expect(0)
    assert ended.err.count(said) == 1, ended.err
    name = ended.err.split(said)[1][0]
    listed = [row.split() for row in info(*images("single")).expect(0).out.splitlines()]
    assert [row[1:3] for row in listed if row[-1:] == [name]] == [["0", "1"]], (name, listed)
    classes("double/train"), classes("double/val")
    assert said not in train(*images("double"), "run.dir=double-run").expect(0).err


def test_small_files_do_not_become_large():
    write("t.txt.gz", gzip.compress(b"a b c\n" * 700000))
    arguments = ["--text", "t.txt.gz", "data.context=16"]
    info(*arguments, "data.max_unpacked_mb=4").expect(
        DATA, "t.txt.gz: unpacks to more than 4 MiB", "data.max_unpacked_mb")
    info(*arguments).expect(0)


def test_links():
    """The cache of Hugging Face: blobs named by hashes, snapshots of links to them."""
    classes("blobs")
    for path in ("a", "b"):
        os.makedirs("snapshot/" + path)
        for i in range(4):
            os.symlink("../../blobs/%s/%d.png" % (path, i), "snapshot/%s/%d.png" % (path, i))
    write("corpus", b"the quick brown fox jumps over the lazy dog\n" * 20)
    os.symlink("corpus", "link.txt")
    info(*images("snapshot")).expect(0)
    info("--text", "link.txt", "data.context=16").expect(0)
    os.unlink("blobs/a/0.png")
    info(*images("snapshot")).expect(DATA, "snapshot/a/0.png: is a symbolic link to",
                                     "which does not exist")
    os.unlink("snapshot/a/0.png")
    os.symlink("..", "snapshot/a/up")
    ended = info(*images("snapshot"))
    ended.expect(DATA, "snapshot/a/up", "is a symbolic link to a folder above it")
    os.mkfifo("pipe.txt")
    info("--text", "pipe.txt").expect(DATA, "is not a regular file")


def test_hidden_files():
    classes("set")
    for name in ("set/a/._0.png", "set/.DS_Store", "set/__MACOSX/x.png",
                 "set/a/Thumbs.db"):
        write(name, b"x")
    ended = info(*images("set")).expect(0)
    if "classes     2" not in ended.out or "ignored   4 " not in ended.out:
        raise AssertionError(ended.out)
    train(*images("set")).expect(0)


def test_split_names():
    classes("set/Training"), classes("set/Testing")
    ended = info(*images("set")).expect(0)
    if "  a\n" not in ended.out or "Testing" in ended.out:
        raise AssertionError(ended.out)
    write("texts/Train.txt", b"abcdefgh" * 40)
    write("texts/Test.txt", b"abcdefgz" * 10)
    info("--text", "texts", "data.context=16").expect(DATA, "Test.txt", "z")
    os.rename("set/Training", "set/cats")
    info(*images("set")).expect(DATA, "'Testing' is for testing by its name")


def test_few_images():
    """Names decide the split, and may leave none for testing: the message says what helps."""
    for name in "ab":
        write("few/%s/x.png" % name, png())
    info(*images("few"), "data.val_fraction=1e-6").expect(
        DATA, "the test split has no images", "folders train/ and val/", "data.val_fraction")


def test_large_images():
    classes("set/train"), classes("set/val")
    write("set/train/a/big.png", png(40, 50))
    info(*images("set", "data.max_pixels=1999")).expect(0)
    ended = train(*images("set", "data.max_pixels=1999"))
    ended.expect(DATA, "set/train/a/big.png: 50 x 40 pixels", "data.max_pixels=1999")
    if "damaged" in ended.err:
        raise AssertionError(ended.err)
    train(*images("set", "data.max_pixels=2000")).expect(0)


def test_truncated_images_fail_in_every_epoch():
    """Random crops see the upper rows only; the end is missing."""
    classes("set/train"), classes("set/val")
    whole = png(64)
    write("set/train/a/cut.png", whole[:len(whole) - 40])
    for seed in range(3):
        ended = train(*images("set"), "train.seed=%d" % seed)
        ended.expect(DATA, "set/train/a/cut.png: damaged PNG")


def test_orientation():
    """A tall image that EXIF turns is a wide one: the packed pixels are those of the wide one."""
    noise = [[(x * 31 + y * 7) % 256 for x in range(12)] for y in range(20)]

    def image(rows, extra=b""):
        data = b"".join(b"\0" + bytes(row) for row in rows)
        head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
        return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra +
                chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))
    turned = [list(row) for row in zip(*noise[::-1])]  # clockwise, which orientation 6 asks for
    exif = b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + b"\0" * 4
    for name in ("train", "val"):
        write("raw/%s/a/1.png" % name, image(noise, chunk(b"eXIf", exif)))
        write("up/%s/a/1.png" % name, image(turned))
        write("stored/%s/a/1.png" % name, image(noise))
    packed = {}
    for name in ("raw", "up", "stored"):
        runs.tutti("data", "pack", *images(name), "--out", "packed-" + name).expect(0)
        with open("packed-%s/train.pack" % name, "rb") as file:
            packed[name] = file.read()
    if packed["raw"] != packed["up"] or packed["raw"] == packed["stored"]:
        raise AssertionError("orientation")


def test_packed_images_keep_the_names_of_their_classes():
    """Also once the packed files are gone; without the specification classes are numbers."""
    classes("set", ("ape", "big cat"))
    packed = ["data.format=packed", "data.dir=packed", "data.image_size=8"]
    runs.tutti("data", "pack", *images("set"), "--out", "packed").expect(0)
    info(*packed).expect(0, " ape\n", " big cat\n")
    train(*packed, "run.dir=run").expect(0)
    data_json = open("packed/data.json").read()
    classes("other", ("ape", "bat"))
    runs.tutti("data", "pack", *images("other"), "--out", "other-packed").expect(0)
    runs.tutti("eval", "run", "data.dir=other-packed").expect(DATA, "class 1", "bat", "big cat")
    classes("more", "abc")
    runs.tutti("data", "pack", *images("more"), "--out", "more-packed").expect(0)
    for text, said in ((data_json.replace("ape", "axe"), "packed/data.json: "),
                       (open("more-packed/data.json").read(), "describes 3 classes")):
        write("packed/data.json", text.encode())
        info(*packed).expect(DATA, said)
    os.remove("packed/data.json")
    if "big cat" in info(*packed).expect(0).out:
        raise AssertionError("a name that is in no file")
    os.rename("packed", "gone")
    runs.tutti("predict", "run", "set/ape/0.png").expect(0, '"class":"ape"', '"class":"big cat"')


def test_marks_of_editors():
    text = b"model: {name: mlp, hidden: [4]}\ndata: {n_train: 64, n_test: 16}\n"
    write("job.yaml", b"\xef\xbb\xbf" + text)
    info("job.yaml").expect(0)
    write("job.yaml", text.decode().encode("utf-16"))
    info("job.yaml").expect(CONFIG, "job.yaml: error: is UTF-16")


def test_labels_of_the_test_split():
    """They are looked at before the first step."""
    def npy(name, kind, values, code):
        head = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (kind, len(values))
        head = head.ljust(117) + "\n"
        write("arrays/" + name, b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
              struct.pack("<%d%s" % (len(values), code), *values))
    npy("X_train.npy", "<f4", [0.5] * 40, "f")
    npy("y_train.npy", "<i4", [0, 1] * 20, "i")
    npy("X_test.npy", "<f4", [0.5] * 8, "f")
    npy("y_test.npy", "<i4", [0, 1, 0, 1, 0, 2, 0, 1], "i")
    arguments = ["data.format=npy", "data.dir=arrays"]
    ended = train(*arguments)
    ended.expect(DATA, "y_test.npy: label 2 of row 5 is out of range, 0 .. 1")
    if os.path.exists("runs") and "loss" in ended.out:
        raise AssertionError(ended.out)
    npy("y_train.npy", "<i4", [0, 1 << 20] * 20, "i")
    train(*arguments).expect(DATA, "y_train.npy: label 1048576 of row 1", "data.classes=1048577")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
