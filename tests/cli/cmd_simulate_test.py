"""cmd_simulate_test.py - `tutti simulate`: the scaling curve of a described cluster."""

import json
import sys

import runs

JOB = ["model.name=mlp", "model.hidden=[512]", "data.n_train=200", "data.n_test=20",
       "train.batch=32", "parallel.bucket_mb=0.25"]
SLOW = "host: {size: 2, gb_s: 1, latency_us: 0}\nrack: {size: 2, gb_s: 0.1, latency_us: 0}\n" \
       "spine: {gb_s: 0.01, latency_us: 0}\n"


def points(*arguments):
    ended = runs.tutti("simulate", *JOB, "--json", *arguments).expect(0)
    return json.loads(ended.out)["points"]


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def test_curve():
    """A worker alone is what it is said to be; more never make a step shorter; bytes as known."""
    write("net.yaml", SLOW)
    told = points("-n", "6", "--network", "net.yaml", "--step-ms", "100")
    if [p["workers"] for p in told] != [1, 2, 4, 6]:
        raise AssertionError(told)
    if abs(told[0]["step_s"] - 0.1) > 1e-9 or told[0]["sent_bytes"] != [0, 0, 0]:
        raise AssertionError(told[0])
    for a, b in zip(told, told[1:]):
        if b["step_s"] < a["step_s"] or b["efficiency"] > a["efficiency"] + 1e-12:
            raise AssertionError("%s then %s" % (a, b))
    two, four = told[1]["sent_bytes"], told[2]["sent_bytes"]
    if abs(four[0] - two[0]) > 64 or abs(four[1] * 2 - two[0]) > 64 or two[1] or four[2]:
        raise AssertionError("%s %s" % (two, four))


def test_sums_are_hidden_behind_computing():
    """Slow links cost at least what cannot be hidden, and never more than all of the sums."""
    write("net.yaml", SLOW)
    for p in points("-n", "8", "--network", "net.yaml", "--step-ms", "50")[1:]:
        if not 0 < p["exposed_s"] <= p["sums_s"] + 1e-3:
            raise AssertionError(p)
        if abs(p["step_s"] - 0.05 - p["exposed_s"]) > 1e-9:
            raise AssertionError(p)


def test_stages():
    """Four like stages wait as the formula says; copies of four workers follow each other."""
    write("net.yaml", SLOW)
    width = 3 * 64 * 64  # so large that what a kernel takes to begin is nothing
    job = ["model.name=mlp", "model.hidden=[%s]" % ",".join(16 * [str(width)]),
           "data.format=random_images", "data.image_size=64", "data.n_train=64", "data.n_test=8",
           "train.batch=32", "train.precision=f32", "parallel.pipeline=4", "parallel.shards=8"]
    ended = runs.tutti("simulate", *job, "-n", "16", "--device", "h200", "--network", "net.yaml",
                       "--json").expect(0)
    told = json.loads(ended.out)
    if [p["workers"] for p in told["points"]] != [4, 8, 16]:
        raise AssertionError(told)
    if abs(told["bubble"] / (3 / 11) - 1) > 0.1 or told["exchange_s"] <= 0:
        raise AssertionError(told)
    batch = 32 * width * 4  # bytes that an inner stage sends forward, and as many back
    alone = told["points"][0]
    if not 2 * batch <= alone["sent_bytes"][1] <= 2 * batch + 1000:
        raise AssertionError(alone)
    runs.tutti("simulate", *job, "-n", "8", "--step-ms", "3").expect(0, "bubble", "one copy")
    runs.tutti("simulate", *job, "-n", "6").expect(2, "multiple", "4 workers")


def test_table_and_devices():
    ended = runs.tutti("simulate", *JOB, "-n", "4096", "--device", "h200").expect(0, "of n x 1")
    if "    4096 " not in ended.out:
        raise AssertionError(ended.out)


def test_measured_here():
    if not 0 < points("-n", "2")[0]["step_s"] < 60:
        raise AssertionError("no time")


def test_bad_input():
    write("bad.yaml", "host: {size: 0}\nrack: {speed: 3}\n")
    runs.tutti("simulate", *JOB, "--network", "bad.yaml").expect(2, "bad.yaml:1", "bad.yaml:2",
                                                                 "unknown key")
    runs.tutti("simulate", *JOB, "--network", "nothing.yaml").expect(2, "nothing.yaml")
    runs.tutti("simulate", *JOB, "-n", "1000000").expect(2, "room for")
    runs.tutti("simulate", *JOB, "-n", "4x").expect(2, "-n", "4x")
    runs.tutti("simulate", *JOB, "--step-ms", "1e999").expect(2, "--step-ms")
    runs.tutti("simulate", *JOB, "-n", "0").expect(2, "-n")
    runs.tutti("simulate", *JOB, "--step-ms", "-3").expect(2, "--step-ms")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
