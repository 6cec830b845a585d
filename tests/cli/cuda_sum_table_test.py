"""cuda_sum_table_test.py - training between GPUs goes by the table of sums that doctor keeps: with
kernels for some buckets and NCCL for others in one step, the bits of kernels alone.  The table is
measured here, and then shown that NCCL is the fastest for large sums.  Exit code 77 with fewer than
two GPUs."""

import os
import re
import struct
import sys

import gpus
import runs

JOB = ["model.name=mlp", "model.hidden=[512,512]", "data.n_train=2000", "data.n_test=100",
       "train.batch=64", "train.steps=40", "parallel.shards=4", "run.log_every=1",
       "parallel.bucket_mb=0.5", "-n", "2"]
LARGE = 1500000  # bytes: of the buckets the one with the first layer


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def say_that_the_library_is_fast(path, from_bytes):
    """The rows of the table: bytes, and microseconds of direct, tree and ring."""
    head = struct.Struct("<12sIIIQ")
    with open(path, "rb") as file:
        raw = file.read()
    magic, version, n_key, crc, n_bytes = head.unpack(raw[:head.size])
    key, text = raw[head.size:head.size + n_key], raw[head.size + n_key:]
    if crc32c(text) != crc or len(text) != n_bytes:
        raise AssertionError("%s is of another form" % path)
    rows = text.decode().split("\n")[:2] + ["%d 5 9 9" % (from_bytes - 1), "%d 9 5 5" % from_bytes]
    text = ("\n".join(rows) + "\n").encode()
    with open(path, "wb") as file:
        file.write(head.pack(magic, version, n_key, crc32c(text), len(text)) + key + text)


def train(run, cache, *arguments):
    os.environ["TUTTI_CACHE"] = os.path.abspath(cache)
    gpus.train(run, JOB, *arguments)
    return gpus.way_of_sums(run)


def test_two_ways_in_one_step():
    os.environ["TUTTI_CACHE"] = os.path.abspath("cache")
    runs.tutti("doctor").expect(0, "sums between 2 devices, us",
                                               "parallel.algorithm=auto uses it")
    say_that_the_library_is_fast("cache/sums-of-2-devices", LARGE)
    train("direct", "none")
    for run, option in (("threads", []), ("processes", ["parallel.place=processes"]),
                      ("fed", ["data.resident=no"]), ("ahead", ["parallel.ahead=4"])):
        way = train(run, "cache", *option)
        if not re.search(r", 1 of [2-9] buckets by NCCL .*, by the table of tutti doctor$", way):
            raise AssertionError("%s: %s" % (run, way))
        runs.same_story(runs.story("direct"), run)
    train("fast", "cache", "parallel.mode=fast")
    gpus.falls("fast", gpus.losses("direct")[0])


if __name__ == "__main__":
    runs.need_gpus(2)
    runs.main(sys.modules[__name__])
