"""cmd_profile_test.py - `tutti profile`: the table and the trace of a step, and nothing left; of
a model in tensor shards and stages too; all parallelism strategies: profile_ways_slow_test.py."""

import os
import re
import sys

import runs
from profiles import collectives_of, count, lies_in, profile, spans_of

JOB = ["model.name=mlp", "model.hidden=[32]", "data.n_train=200", "data.n_test=20",
       "train.batch=32", "parallel.shards=2"]


def test_table():
    ended = runs.tutti("profile", *JOB, "--steps", "2").expect(0, "linear", "cross_entropy")
    shares = [float(x) for x in re.findall(r"(\d+\.\d) ?%", ended.out)]
    if not shares or max(shares) > 100:
        raise AssertionError(ended.out)
    if os.path.exists("runs"):
        raise AssertionError("left: %s" % os.listdir("runs"))


def test_all_rows():
    """25 rows of many, unless all are asked for."""
    job = ["model.name=gpt2", "model.layers=1", "model.width=16", "model.heads=2",
           "data.format=random_tokens", "data.vocabulary=32", "data.context=8", "data.n_train=64",
           "data.n_test=8", "train.batch=8", "parallel.shards=1"]
    short = runs.tutti("profile", *job, "--steps", "1").expect(0, "more (--all)", "waiting for sam")
    long = runs.tutti("profile", *job, "--steps", "1", "--all").expect(0, "(update)")
    rows = [len(re.findall(r"^ +[\d.]+ +[\d.]+% +\d+ ", e.out, re.M)) for e in (short, long)]
    more = int(re.search(r"(\d+) more", short.out).group(1))
    if rows[0] != 25 or rows[1] != 25 + more or "more" in long.out:
        raise AssertionError("%s rows, %d more" % (rows, more))


def test_trace():
    """A process for each worker; what it waits for, computes and sends has a line each."""
    runs.tutti("profile", *JOB, "-n", "2", "--steps", "3", "--trace", "trace.json").expect(0)
    for rank in (0, 1):
        rows = spans_of("trace.json", rank)
        thread, sums = rows["host: first compute thread"], rows["host: sums between workers"]
        reported = [count(rows["host: waits"], "waiting for samples"),
                count(rows["host: waits"], "waiting for sums"), count(thread, "linear"),
                count(thread, "update"), count(sums, "report")]
        if reported != [3, 3, 6, 3, 3] or count(sums, "reduce_scatter of gradients") < 3:
            raise AssertionError("rank %d: %s" % (rank, reported))
        if {span["args"]["shard"] for span in thread if span["name"] == "linear"} != {rank}:
            raise AssertionError("rank %d has shards of others" % rank)
        if {span["args"]["step"] for span in thread} != {0, 1, 2}:
            raise AssertionError("rank %d: not all steps" % rank)
    if spans_of("trace.json", 2):
        raise AssertionError("a third rank")
    runs.tutti("profile", *JOB, "--trace", "alone.json").expect(0)
    if list(spans_of("alone.json", 0)) != ["host: waits", "host: first compute thread"]:
        raise AssertionError("alone: %s" % list(spans_of("alone.json", 0)))


def test_workers_by_weights():
    """Shares say how many workers there are, and who has which shards."""
    runs.tutti("profile", *JOB, "parallel.load_weights=3,1", "parallel.shards=4", "--trace",
               "trace.json").expect(0)
    shards = [{span["args"]["shard"]
               for span in spans_of("trace.json", rank)["host: first compute thread"]
               if span["name"] == "linear"} for rank in range(2)]
    if not shards[0] or not shards[0] <= {0, 1, 2} or shards[1] != {3}:
        raise AssertionError("shards %s" % shards)


def test_joined_statistics():
    """Shards that wait for each other inside a step are timed too."""
    runs.tutti("profile", *runs.NARROW, "data.n_train=16", "data.n_test=4", "train.batch=4",
               "parallel.sync_batch_norm=true", "parallel.shards=2", "-n", "2", "--steps", "1",
               "--trace", "trace.json").expect(0, "conv2d", "a step as training runs it")
    sums = spans_of("trace.json", 0)["host: sums between workers"]
    if not any("layer" in span["args"] for span in sums):
        raise AssertionError("no joins")


def test_tensor_shards_and_stages():
    """Collectives and messages have rows of their own, segments lie over their kernels; on the host
    nothing hides what a thread does itself."""
    out, traffic, rows = profile(4, "parallel.tensor=2", "parallel.pipeline=2",
                                 "parallel.place=processes")
    spans, ms, hidden = traffic["TP collectives"]
    if spans < 4 or hidden > 0.02 * ms or traffic["values between stages"][0] < 1:
        raise AssertionError(str(traffic))
    if not re.search(r"stages waited for each other [\d.]+ % of the time, [\d.]+ % expected", out):
        raise AssertionError(out)
    worked = re.findall(r"^  rank (\d), stage (\d), tensor shard (\d): "
                        r"works [\d.]+ ms a step, waits "
                        r"[\d.]+ ms \(for ", out, re.M)
    if sorted(worked) != [("0", "0", "0"), ("1", "0", "1"), ("2", "1", "0"), ("3", "1", "1")]:
        raise AssertionError(out)
    for each in rows:
        segments, thread = each["segments of the stage"], each["host: first compute thread"]
        n = count(segments, "forward") # one span for each shard of a micro-batch group
        if n not in (2, 4, 8) or count(segments, "backward") != n:
            raise AssertionError("segments: %s" % segments)
        if not all(lies_in(s, segments) for s in thread if "layer" in s["args"]):
            raise AssertionError("kernels outside of segments")
        if not collectives_of(each) or not count(thread, "waiting for another stage"):
            raise AssertionError("a worker has no wait time")


def test_wrong_usage():
    for rank in ("-1", "4096", "two"):
        runs.tutti("profile", *JOB, "--rank", rank).expect(2, "--rank expects a number from 0")
    runs.tutti("profile", *JOB, "--rank", "2", "-n", "2").expect(2, "there is no rank 2 of 2")
    runs.tutti("profile", *JOB, env=dict(os.environ, RANK="0", WORLD_SIZE="2")).expect(
        2, "starts its own workers")
    runs.tutti("profile", "--help").expect(0, "usage: tutti profile")
    runs.tutti("profile", *JOB, "--steps", "0").expect(2, "--steps expects a number from 1 to 1000")
    runs.tutti("profile", *JOB, "--steps", "many").expect(2, "got 'many'")
    runs.tutti("profile", *JOB, "train.stesp=4").expect(2, "unknown key")
    runs.tutti("profile", *JOB, "--trace", "/nowhere/t.json").expect(1, "/nowhere/t.json")
    runs.tutti("profile", *JOB, "parallel.devices=gpu").expect(2, "no GPU can be used")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
