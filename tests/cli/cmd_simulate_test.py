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
    reported = points("-n", "6", "--network", "net.yaml", "--step-ms", "100")
    if [p["workers"] for p in reported] != [1, 2, 4, 6]:
        raise AssertionError(reported)
    if abs(reported[0]["step_s"] - 0.1) > 1e-9 or reported[0]["sent_bytes"] != [0, 0, 0]:
        raise AssertionError(reported[0])
    for a, b in zip(reported, reported[1:]):
        if b["step_s"] < a["step_s"] or b["efficiency"] > a["efficiency"] + 1e-12:
            raise AssertionError("%s then %s" % (a, b))
    two, four = reported[1]["sent_bytes"], reported[2]["sent_bytes"]
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
    reported = json.loads(ended.out)
    if [p["workers"] for p in reported["points"]] != [4, 8, 16]:
        raise AssertionError(reported)
    if abs(reported["bubble"] / (3 / 11) - 1) > 0.1 or reported["model_parallel_s"] <= 0:
        raise AssertionError(reported)
    batch = 32 * width * 4  # bytes that an inner stage sends forward, and as many back
    alone = reported["points"][0]
    if not 2 * batch <= alone["sent_bytes"][1] <= 2 * batch + 1000:
        raise AssertionError(alone)
    # Measured here: a model that computes in no time, lest a fast machine tries the one above.
    job[1] = "model.hidden=[64,64,64,64]"
    runs.tutti("simulate", *job, "-n", "8", "--step-ms", "3").expect(0, "bubble", "one copy")
    runs.tutti("simulate", *job, "-n", "6").expect(2, "multiple", "4 workers")


WIDE = "host: {size: 8, gb_s: 1, latency_us: 0}\nrack: {size: 8, gb_s: 0.1, latency_us: 0}\n" \
       "spine: {gb_s: 0.01, latency_us: 0}\n"


def four(*arguments):
    """Step time and bytes sent for four neighbours, without the bytes of the last sums."""
    reported = points("-n", "4", "--device", "h200", "--network", "wide.yaml", "--step-ms", "1000",
                  *arguments)[-1]
    return reported, reported["sent_bytes"][0] - 2 * 3 / 4 * 4 * 4 * 8


def expect_bytes(got, whole, share):
    if abs(got / whole - share) > 1e-3:
        raise AssertionError("%g of %g, expected %g" % (got, whole, share))


def test_parts():
    """The bytes of plain sums, also with 3, where the parameters of this small model stay gathered
    until the backward pass; partitioned updates."""
    write("wide.yaml", WIDE)
    plain, whole = four()
    for zero, share in (("1", 1), ("2", 1), ("3", 1)):
        reported, sent = four("parallel.zero=" + zero)
        expect_bytes(sent, whole, share)
        if not 0 < reported["step_s"] < plain["step_s"] + reported["sums_s"]:
            raise AssertionError("%s %s" % (reported, plain))
    runs.tutti("simulate", *JOB, "-n", "4", "--device", "h200", "parallel.zero=3").expect(
        0, "zero 3: gradients to the owners")


def test_less_on_the_wire():
    """Half the bytes, a hundredth twice (index and value) to each other, a mean now and then."""
    write("wide.yaml", WIDE)
    plain, whole = four()
    for less in (["parallel.wire=bf16"], ["parallel.mode=fast", "parallel.compress=f16"]):
        expect_bytes(four(*less)[1], whole, 0.5)
    reported, sent = four("parallel.mode=fast", "parallel.wire=bf16")
    expect_bytes(sent, whole, 0.5)
    if not reported["exposed_s"] < plain["exposed_s"]:
        raise AssertionError("%s %s" % (reported, plain))
    sent = four("parallel.mode=fast", "parallel.compress=topk", "parallel.topk=0.01")[1]
    if not 3 * 0.02 * 0.99 < sent / (whole / 1.5) < 3 * 0.02 + 0.02:  # and vectors, whole
        raise AssertionError("%g of %g" % (sent, whole))
    sent = four("parallel.mode=fast", "parallel.compress=powersgd", "parallel.rank=2")[1]
    if not 0 < sent < 0.05 * whole:
        raise AssertionError("%g of %g" % (sent, whole))
    local = ["parallel.mode=fast", "parallel.sync=local", "parallel.average_every=8"]
    reported = four(*local)[0]
    expect_bytes(reported["sent_bytes"][0], whole + 2 * 3 / 4 * 4 * 4 * 8, 1 / 8)
    reported = four(*local, "parallel.average=all")[0]
    if reported["sent_bytes"][0] <= 1.9 * whole / 8:
        raise AssertionError(reported)


SERVER = ["parallel.sync=parameter-server", "parallel.mode=fast"]
SPREAD = "host: {size: 1}\nrack: {size: 64, gb_s: %s, latency_us: 10}\n"


def served(n, *arguments):
    """The prediction for n workers on n hosts."""
    return points("-n", str(n), "--device", "cpu", "--network", "spread.yaml", *SERVER, *arguments)


def test_servers_that_all_wait_for():
    """Everything comes over the links of the servers: so many more halve and quarter it."""
    write("spread.yaml", SPREAD % 0.001)
    one, two, four = (served(4, "parallel.servers=%d" % n)[-1] for n in (1, 2, 4))
    if not (abs(one["sums_s"] / two["sums_s"] - 2) < 0.01 and
            abs(one["sums_s"] / four["sums_s"] - 4) < 0.01):
        raise AssertionError("%s %s %s" % (one, two, four))
    if abs(one["sent_bytes"][1] / four["sent_bytes"][1] - 4) > 0.01:
        raise AssertionError("%s %s" % (one, four))
    runs.tutti("simulate", *JOB, *SERVER, "-n", "4", "--device", "cpu").expect(
        0, "1 synchronous server")
    # Half of the gradients, and parameters come back as they are.
    less = served(4, "parallel.wire=bf16", "parallel.place=processes")[-1]
    if abs(less["sums_s"] / one["sums_s"] - 0.75) > 0.01:
        raise AssertionError("%s %s" % (less, one))


def test_servers_that_nobody_waits_for():
    """A slow worker holds the others back where all wait, a little where it may lag, or not."""
    write("spread.yaml", SPREAD % 100)
    slow = ["--speeds", "1,1,1,0.2", "--step-ms", "100"]
    rates = [served(4, *slow, *more)[-1] for more in
             ([], ["parallel.staleness=4"], ["parallel.staleness=unbounded"])]
    shares = [p["efficiency"] for p in rates]
    if not (shares[0] < 0.3 and 0.8 < shares[1] < 0.97 < shares[2] < 1.03):
        raise AssertionError(shares)
    bound = rates[1]["server"]
    if not 3 < bound["staleness_most"] <= 5 * 3 or abs(sum(bound["staleness"]) - 1) > 1e-9:
        raise AssertionError(bound)
    dropped = served(4, *slow, "parallel.backup_workers=1")[-1]["server"]["dropped"]
    if not 0.05 < dropped < 0.1:
        raise AssertionError(dropped)


def test_servers_as_text():
    ended = runs.tutti("simulate", *JOB, *SERVER, "-n", "8", "--device", "cpu",
                       "parallel.staleness=4", "parallel.servers=2", "parallel.replay=gone",
                       "parallel.place=processes").expect(0, "2 servers, staleness 4", "link busy",
                                                          "updates that gradients of 8 workers")
    if "       8 " not in ended.out:
        raise AssertionError(ended.out)
    runs.tutti("simulate", *JOB, *SERVER, "-n", "8", "--device", "cpu", "parallel.pipeline=2",
               "parallel.data=2", "parallel.shards=4", "parallel.staleness=unbounded").expect(
                   0, "2 workers with one copy", "staleness unbounded")
    runs.tutti("simulate", *JOB, *SERVER, "-n", "8192", "--device", "cpu",
               "parallel.staleness=4").expect(2, "one by one", "4096")
    runs.tutti("simulate", *JOB, "-n", "4", "--speeds", "1,fast").expect(2, "speeds", "1,1,1,0.2")


def test_buckets_as_the_network_wants_them():
    """Long where messages take long, short where bytes do; not as this machine's memory would."""
    counts = []
    for gb_s, latency_us in (("10", "1000"), ("0.1", "1")):
        write("net.yaml", "host: {size: 4, gb_s: %s, latency_us: %s}\n" % (gb_s, latency_us))
        reported = runs.tutti("simulate", *JOB, "parallel.bucket_mb=auto", "-n", "4", "--json",
                          "--device", "h200", "--network", "net.yaml").expect(0)
        counts.append(json.loads(reported.out)["buckets"])
    if counts[0] != 1 or counts[1] <= 1:
        raise AssertionError("%s buckets" % counts)


def test_table_and_devices():
    ended = runs.tutti("simulate", *JOB, "-n", "4096", "--device", "h200").expect(0, "of n x 1")
    if "    4096 " not in ended.out:
        raise AssertionError(ended.out)
    if [p["workers"] for p in points("--device", "h200")] != [1, 2, 4, 8, 16, 32, 64]:
        raise AssertionError("the default is not 64 workers")
    one, same = (points("-n", "1", "--device", "h200", "parallel.devices=" + given)
                 for given in ("auto", "0,1"))
    if one != same:  # whether this machine has them or not
        raise AssertionError("%s, %s" % (one, same))


def test_cores():
    """By the figures of one; a job that says how many copies there are is no hindrance."""
    ended = runs.tutti("simulate", *JOB, "-n", "8", "--device", "cpu", "parallel.data=2",
                       "parallel.pipeline=2", "--json").expect(0)
    if [p["workers"] for p in json.loads(ended.out)["points"]] != [2, 4, 8]:
        raise AssertionError(ended.out)
    core, device = (points("-n", "1", "--device", name)[0]["step_s"] for name in ("cpu", "h200"))
    if not 0 < device < core:
        raise AssertionError("%g s on a device, %g on a core" % (device, core))


def test_measured_here():
    if not 0 < points("-n", "2")[0]["step_s"] < 60:
        raise AssertionError("no time")


def test_bad_input():
    write("bad.yaml", "host: {size: 0}\nrack: {speed: 3}\n")
    runs.tutti("simulate", *JOB, "--network", "bad.yaml").expect(2, "bad.yaml:1", "bad.yaml:2",
                                                                 "unknown key")
    runs.tutti("simulate", *JOB, "--network", "nothing.yaml").expect(2, "nothing.yaml")
    runs.tutti("simulate", *JOB, "-n", "1000000").expect(2, "the network has at most")
    runs.tutti("simulate", *JOB, "-n", "4x").expect(2, "-n", "4x")
    runs.tutti("simulate", *JOB, "--step-ms", "1e999").expect(2, "--step-ms")
    runs.tutti("simulate", *JOB, "-n", "0").expect(2, "-n")
    runs.tutti("simulate", *JOB, "--step-ms", "-3").expect(2, "--step-ms")
    runs.tutti("simulate", *JOB, "--device", "h200", "parallel.offload=optimizer").expect(
        2, "parallel.offload=optimizer", "describes only GPUs")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
