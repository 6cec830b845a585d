"""cmd_predict_test.py - `tutti predict`: images of IDX and PNG files, in order; bad files."""

import fcntl
import gzip
import json
import os
import struct
import subprocess
import sys
import termios
import zipfile
import zlib

import runs


def images(n, side=28):
    """Noise with a bright bar that moves, so that predictions differ."""
    rows = []
    for i in range(n):
        rows += [bytes(255 if (x // 4 + i) % 7 == 0 else (x * y * (i + 1)) % 90
                       for x in range(side)) for y in range(side)]
    return b"".join(rows)


def write_idx(path, n, opener=open, side=28):
    with opener(path, "wb") as file:
        file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, n, side, side) + images(n, side))


def write_png(path, pixels, side=28):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[side * y:side * (y + 1)] for y in range(side))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
            ">IIBBBBB", side, side, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def lines(ended):
    return [json.loads(line) for line in ended.out.splitlines()]


def test_images():
    runs.tutti(*runs.small("run")).expect(0)
    write_idx("plain.idx", 70)
    write_idx("packed.idx.gz", 70, gzip.open)
    said = lines(runs.tutti("predict", "run", "plain.idx", "packed.idx.gz").expect(0))
    assert [p["index"] for p in said] == 2 * list(range(70))
    assert [p["file"] for p in said] == 70 * ["plain.idx"] + 70 * ["packed.idx.gz"]
    for a, b in zip(said[:70], said[70:]):
        assert a["top5"] == b["top5"] and a["class"] == a["top5"][0]["class"]
        p = [t["probability"] for t in a["top5"]]
        assert len(p) == 5 and p == sorted(p, reverse=True) and 0 < sum(p) <= 1 + 1e-9
        assert len({t["class"] for t in a["top5"]}) == 5
    assert len({p["probability"] for p in said}) > 30
    write_png("third.png", images(3)[2 * 784:])
    one = runs.tutti("predict", "run", "third.png")
    if one.code != 0 and "PNG" in one.err:
        return  # built without libpng
    assert lines(one.expect(0))[0]["top5"] == said[2]["top5"]
    write_idx("large.idx", 2, side=56)
    assert len(lines(runs.tutti("predict", "run", "large.idx").expect(0))) == 2


def test_alone_or_together():
    """The other samples of a call change no bit of a prediction, whatever kernels compute it."""
    write_idx("all.idx", 9)
    with open("all.idx", "rb") as file:
        pixels = file.read()[16:]
    for i in range(9):
        with open("%d.idx" % i, "wb") as file:
            file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, 1, 28, 28))
            file.write(pixels[i * 784:(i + 1) * 784])
    for model in ("mlp", "lenet"):
        runs.tutti(*runs.small(model, "model.name=" + model, "train.steps=20",
                               *(["data.format=digits"] if model == "lenet" else []))).expect(0)
        for kernels in ("generic", "avx2", "avx512", "amx"):  # of these, what the machine has
            environment = dict(os.environ, TUTTI_KERNELS=kernels)
            together = lines(runs.tutti("predict", model, "all.idx", env=environment).expect(0))
            for i in range(9):
                alone = lines(runs.tutti("predict", model, "%d.idx" % i, env=environment).expect(0))
                assert alone[0]["top5"] == together[i]["top5"], (model, kernels, i)


def test_bad_files():
    runs.tutti(*runs.small("run")).expect(0)
    write_idx("good.idx", 3)
    with open("good.idx", "rb") as file:
        whole = file.read()
    with open("short.idx", "wb") as file:
        file.write(whole[:-1])
    with open("empty", "wb"):
        pass
    for bad in ("short.idx", "empty", "run/job.yaml", "nowhere.png"):
        ended = runs.tutti("predict", "run", bad, "good.idx").expect(3, bad)
        assert len(lines(ended)) == 3  # the others go on
        assert "1 of 2 files cannot be predicted" in ended.err, ended.err
    runs.tutti("predict", "run").expect(2, "no file")
    runs.tutti("predict", "nowhere", "good.idx").expect(2, "nowhere/job.yaml")


def predict_sent(sent, *arguments):
    """Through a pipe, as `cat sent | tutti predict ...`."""
    with open("sent", "wb") as file:
        file.write(sent)
    with subprocess.Popen(["cat", "sent"], stdout=subprocess.PIPE) as cat:
        return runs.tutti("predict", *arguments, stdin=cat.stdout)


def test_standard_input_later():
    """A pipe that another program made non-blocking, and that is empty at first."""
    with open("t.csv", "w") as file:
        file.write("a,kind\n" + "".join("%d,%s\n" % (i % 5, "xy"[i % 2]) for i in range(40)))
    runs.tutti("train", "run.dir=table", "data.format=csv", "data.dir=t.csv", "model.name=mlp",
               "model.hidden=[4]", "train.batch=8", "train.steps=3", "-n", "1").expect(0)
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.write(writes, b"a\n")
    process = runs.start("predict", "table", "-", stdin=reads)

    def is_empty():
        n_bytes = fcntl.ioctl(reads, termios.FIONREAD, struct.pack("i", 0))
        return struct.unpack("i", n_bytes)[0] == 0
    runs.wait_until(is_empty, what="the first read")
    os.write(writes, b"1\n")
    os.close(writes)
    assert len(lines(runs.finish(process).expect(0))) == 1
    os.close(reads)


def test_tiny_numbers():
    """Values that training reads are read again, also by threads that take denormals as 0."""
    values = ["1e-310", "4.9e-324", "2e-309", "0.5", "0"]
    with open("t.csv", "w") as file:
        file.write("p,kind\n" + "".join("%s,%s\n" % (values[i % 5], "xy"[i % 2])
                                        for i in range(40)))
    runs.tutti("train", "run.dir=table", "data.format=csv", "data.dir=t.csv", "model.name=mlp",
               "model.hidden=[4]", "train.batch=8", "train.steps=3", "-n", "1").expect(0)
    assert len(lines(runs.tutti("predict", "table", "t.csv").expect(0))) == 40
    runs.tutti("eval", "table").expect(0)


def test_standard_input():
    """Tables and text; what cannot be read says so, and the other files go on."""
    with open("t.csv", "w") as file:
        file.write("a,b,kind\n" + "".join("%d,%d,%s\n" % (i % 5, i % 3, "xy"[i % 2])
                                          for i in range(40)))
    runs.tutti("train", "run.dir=table", "data.format=csv", "data.dir=t.csv", "model.name=mlp",
               "model.hidden=[4]", "train.batch=8", "train.steps=3", "-n", "1").expect(0)
    rows = b"b,a\r\n1,2\r\n2,4\r\n"
    with open("rows.csv", "wb") as file:
        file.write(rows)
    from_file = lines(runs.tutti("predict", "table", "rows.csv").expect(0))
    for sent in (rows, b"\xef\xbb\xbf" + rows, gzip.compress(rows)):
        found = lines(predict_sent(sent, "table", "-").expect(0))
        assert [p.pop("file") for p in found] == ["-", "-"]
        assert found == [{k: v for k, v in p.items() if k != "file"} for p in from_file], found
    big = b"a,b\n" + b"1,2\n" * 60000
    assert len(lines(predict_sent(big, "table", "-").expect(0))) == 60000
    predict_sent(b"A,b\n1,2\n", "table", "-").expect(
        3, "standard input: column 'a' of the training rows is missing; 'A' differs from it")
    ended = predict_sent(b"a,b\n1,x\n", "table", "rows.csv", "-")
    assert len(lines(ended.expect(3, "standard input:2: column 'b': 'x' is not"))) == 2
    predict_sent(b"", "table", "-").expect(3, "standard input: there are no rows")
    ended = predict_sent(rows, "table", "-", "-")
    assert len(lines(ended.expect(3, "standard input: was read to its end already"))) == 2
    folder = os.open(".", os.O_DIRECTORY)
    runs.tutti("predict", "table", "-", stdin=folder).expect(
        3, "standard input: cannot read: Is a directory")
    os.close(folder)
    runs.tutti("predict", "table").expect(2, "no file", "- for standard input")

    with open("t.txt", "w") as file:
        file.write("a text of some words\n" * 100)
    runs.tutti("train", "run.dir=text", "data.format=text", "data.dir=t.txt", "data.context=16",
               "model.name=gpt2", "model.layers=1", "model.width=16", "model.heads=2",
               "train.batch=4", "train.steps=2", "-n", "1").expect(0)
    for name, text in (("plain.txt", b"some words\n"), ("mark.txt", b"\xef\xbb\xbfsome words\n"),
                       ("utf16.txt", "some words\n".encode("utf-16"))):
        with open(name, "wb") as file:
            file.write(text)
    plain = lines(runs.tutti("predict", "text", "plain.txt").expect(0))[0]
    for name, sent in (("mark.txt", b""), ("-", b"some words\n")):
        found = lines(predict_sent(sent, "text", name).expect(0))[0]
        assert dict(found, file="plain.txt") == plain, found
    runs.tutti("predict", "text", "utf16.txt").expect(3, "utf16.txt: is UTF-16; convert it")

    runs.tutti(*runs.small("run")).expect(0)
    write_idx("-", 2)
    ended = predict_sent(b"", "run", "-", "./-")
    assert len(lines(ended.expect(3, "only tables and text can be read from it"))) == 2


def test_folders():
    runs.tutti(*runs.small("run")).expect(0)
    os.makedirs("files/a b")
    write_idx("files/z.idx", 1)
    write_idx("files/a b/2.idx", 2)
    write_idx("files/.hidden.idx", 1)
    with open("files/notes.md", "w") as file:
        file.write("no image")
    said = lines(runs.tutti("predict", "run", "files").expect(0))
    assert [p["file"] for p in said] == 2 * ["files/a b/2.idx"] + ["files/z.idx"], said
    with open("files/b.png", "wb") as file:
        file.write(b"no image")
    ended = runs.tutti("predict", "run", "files").expect(3, "files/b.png")
    assert len(lines(ended)) == 3
    assert "1 of 3 files cannot be predicted" in ended.err, ended.err
    os.makedirs("nothing")
    runs.tutti("predict", "run", "nothing").expect(3, "nothing: the folder has no file")
    ended = runs.tutti("predict", "run", "nothing", "files/z.idx").expect(
        3, "nothing: the folder has no file", "1 of 2 files cannot be predicted")
    assert len(lines(ended)) == 1  # the others go on


def write_npy(path, rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows),
                                                                              len(rows[0]))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for row in rows:
            file.write(struct.pack("<%df" % len(row), *row))


def test_endings_in_any_case():
    write_npy("x_train.npy", [[i % 7, i % 5, i % 3] for i in range(60)])
    with open("y_train.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118))
        file.write(b"{'descr': '<i4', 'fortran_order': False, 'shape': (60,), }".ljust(117) + b"\n")
        file.write(struct.pack("<60i", *[i % 2 for i in range(60)]))
    runs.tutti(*runs.small("run", "data.format=npy", "data.dir=.", "data.n_train=0",
                           "data.n_test=0", "train.batch=16")).expect(0)
    write_npy("new.npy", [[1, 2, 3], [4, 5, 6]])
    with zipfile.ZipFile("NEW.NPZ", "w") as archive:
        archive.write("new.npy", "x.npy")
    first, second = (lines(runs.tutti("predict", "run", name).expect(0))
                     for name in ("new.npy", "NEW.NPZ"))
    assert [p["top5"] for p in first] == [p["top5"] for p in second], (first, second)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
