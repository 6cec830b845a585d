"""profile_ways_slow_test.py - `tutti profile` of every way to be parallel, by threads and by
processes: what goes between workers, who waits for it, and how much of it is hidden."""

import os
import re
import sys

import runs
from profiles import GPT2, collectives_of, count, lies_in, profile, spans_of

PROCESSES = "parallel.place=processes"


def test_pieces_of_layers():
    """Exchanges have a row of their own; on the host nothing hides them."""
    for place in ("parallel.place=threads", PROCESSES):
        _, traffic, rows = profile(2, "parallel.tensor=2", place)
        spans, ms, hidden = traffic["TP collectives"]
        if spans < 8 or hidden > 0.02 * ms or "gradients" in traffic:
            raise AssertionError(str(traffic))
        for each in rows:
            if len(collectives_of(each)) != 2 * spans:
                raise AssertionError("not all collectives of two steps")
            shards = {s["args"]["shard"] for s in each["host: first compute thread"]
                      if s["name"] == "attention"}
            if 0 not in shards or len(shards) not in (1, 2, 4):
                raise AssertionError("a worker with tensor shards has all shards: %s" % shards)


def test_stages():
    """Parts of shards over their kernels, messages beside them, and how long stages waited."""
    for place in ("parallel.place=threads", PROCESSES):
        out, traffic, rows = profile(2, "parallel.pipeline=2", place)
        if not re.search(r"stages waited for each other [\d.]+ % of the time, [\d.]+ % expected",
                         out):
            raise AssertionError(out)
        if traffic["values between stages"][0] < 1:
            raise AssertionError(str(traffic))
        for each in rows:
            segments = each["segments of the stage"]
            n = count(segments, "forward") # one span for each shard of a micro-batch group
            if n not in (2, 4, 8) or count(segments, "backward") != n:
                raise AssertionError("segments: %s" % segments)
            nodes = [s for s in each["host: first compute thread"] if "layer" in s["args"]]
            if not nodes or not all(lies_in(s, segments) for s in nodes):
                raise AssertionError("kernels outside of segments")
            if count(each["host: first compute thread"], "waiting for another stage") < n:
                raise AssertionError("a stage reads nothing")
            if count(each["values to other stages"], "send to another stage") < n:
                raise AssertionError("a stage sends nothing")
    first, second = [runs.tutti("profile", *GPT2, "parallel.pipeline=2", "--steps", "1", "--rank",
                                rank).expect(0, "rank %s, stage %s" % (rank, rank)).out
                     for rank in ("0", "1")]
    if "cross_entropy" in first or "cross_entropy" not in second:
        raise AssertionError("the table is of another stage")


def test_hybrid():
    """All axes at once: a process for each of eight workers, each with the rows of what it does."""
    _, traffic, rows = profile(8, "parallel.data=2", "parallel.tensor=2", "parallel.pipeline=2",
                               "parallel.zero=1", PROCESSES)
    if set(traffic) != {"TP collectives", "values between stages", "gradients",
                        "parameters", "sums and joins of a step"}:
        raise AssertionError(sorted(traffic))
    for each in rows:
        if not set(each) >= {"TP collectives", "values to other stages",
                             "segments of the stage", "host: sums between workers"}:
            raise AssertionError(list(each))


def test_parts():
    """Partitioned state, gradients and parameters: what comes and goes, and waits for it."""
    for zero in ("1", "2", "3"):
        place = [PROCESSES] if zero == "3" else []
        _, traffic, rows = profile(2, "-n", "2", "parallel.zero=" + zero, *place)
        for each in rows:
            sums = each["host: sums between workers"]
            if count(sums, "reduce_scatter of gradients") < 2:
                raise AssertionError("zero %s: no sums" % zero)
            if count(sums, "all_gather of parameters") < 2:
                raise AssertionError("zero %s: no parameters" % zero)
        if traffic["parameters"][0] < 1 or traffic["gradients"][0] < 1:
            raise AssertionError(str(traffic))


def test_server():
    """The step of a server: its sum and update, and its parameters, while the workers wait."""
    _, traffic, rows = profile(2, "-n", "2", "parallel.sync=parameter-server")
    for each in rows:
        thread = each["host: first compute thread"]
        reported = [count(each["server: for this worker"], "sum and update"),
                count(thread, "waiting for the server"), count(thread, "waiting for parameters"),
                count(each["host: sums between workers"], "pull of parameters"),
                count(thread, "update")]
        if reported != [2, 2, 2, 2, 0]:
            raise AssertionError("reported %s" % reported)
    if "gradients" in traffic or traffic["parameters"][0] != 1:
        raise AssertionError(str(traffic))
    _, traffic, _ = profile(2, "-n", "2", "parallel.sync=parameter-server", PROCESSES)
    if not traffic["gradients"][0] >= 1 or not traffic["parameters"][0] >= 1:
        raise AssertionError("as processes: %s" % traffic)


def test_server_that_does_not_wait():
    """Who takes how many batches is up to the workers; all of them are there."""
    free = ["parallel.sync=parameter-server", "parallel.mode=fast"]
    for more in (["-n", "2", "parallel.staleness=2"], ["-n", "3", "parallel.backup_workers=1"],
                 ["-n", "2", "parallel.staleness=2", PROCESSES]):
        n = int(more[1])
        ended = runs.tutti("profile", *GPT2, *free, *more, "--steps", "3", "--trace",
                           "trace.json").expect(0, "between %d workers" % n)
        threads = [spans_of("trace.json", rank).get("host: first compute thread", [])
                 for rank in range(n)]
        n_updates = sum(count(thread, "waiting for the server") for thread in threads)
        if n_updates < 6 or ("backup" not in more[2] and n_updates != 6):
            raise AssertionError("%d gradients: %s" % (n_updates, ended.out))
        if sum(count(thread, "waiting for parameters") for thread in threads) < n_updates:
            raise AssertionError("not as many parameters as gradients")
    runs.tutti("profile", *GPT2, *free, "-n", "2", "parallel.staleness=1",
               "parallel.replay=none").expect(2, "leave out parallel.replay")


def test_local():
    """Parameters are averaged when they are due, and gradients do not travel."""
    _, traffic, rows = profile(2, "-n", "2", "parallel.sync=local", "parallel.mode=fast",
                               "parallel.average_every=2")
    if "gradients" in traffic or traffic["parameters"][0] != 0.5:
        raise AssertionError(str(traffic))
    if count(rows[0]["host: first compute thread"], "waiting for parameters") != 1:
        raise AssertionError("no wait")


def test_table_in_a_file():
    """From threads, and from processes, which leave nothing else."""
    for place in ("parallel.place=threads", PROCESSES):
        out = runs.tutti("profile", *GPT2, "-n", "2", place, "--table", "table").expect(0).out
        with open("table") as file:
            if file.read() != out or "linear" not in out:
                raise AssertionError("another table in the file")
    scratch = os.path.abspath("scratch")
    os.mkdir(scratch)
    runs.tutti("profile", *GPT2, "-n", "2", PROCESSES, env=dict(os.environ, TMPDIR=scratch)).expect(
        0, "between 2 workers")
    if os.listdir(scratch) or os.path.exists("runs"):
        raise AssertionError("left: %s" % os.listdir(scratch))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
