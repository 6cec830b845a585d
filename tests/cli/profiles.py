"""profiles.py - for the scripts of this folder that look at `tutti profile`: its trace and the
lines below its table."""

import json
import os
import re

import runs

GPT2 = ["model.name=gpt2", "model.layers=2", "model.width=16", "model.heads=2", "model.dropout=0.1",
        "data.format=random_tokens", "data.vocabulary=32", "data.context=8", "data.n_train=64",
        "data.n_test=8", "train.batch=8", "parallel.shards=4"]
LINE = re.compile(r"^  (.+?) +([\d.]+) ms a step in ([\d.e+]+), overlapped with compute "
                  r"([\d.]+) ms \(([\d.]+) %\)$", re.M)


def spans_of(path, rank):
    """{name of a row: its spans in order}; they follow each other."""
    with open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["pid"] == rank]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {}
    for span in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        row = rows.setdefault(names[span["tid"]], [])
        if row and span["ts"] < row[-1]["ts"] + row[-1]["dur"] - 0.01:
            raise AssertionError("%s begins before the one before it ends" % span)
        if not span["name"] or span["dur"] < 0 or span["ts"] < 0:
            raise AssertionError(str(span))
        row.append(span)
    return rows


def count(spans, name):
    return sum(span["name"] == name for span in spans)


def traffic_of(out):
    """{kind of traffic: (spans, ms, ms hidden)} of the lines below the table."""
    kinds = {}
    for name, ms, spans, hidden, share in LINE.findall(out):
        if not 0 <= float(hidden) <= float(ms) or not 0 <= float(share) <= 100:
            raise AssertionError("hidden more than there is: %s" % out)
        kinds[name] = (float(spans), float(ms), float(hidden))
    return kinds


def profile(n, *arguments):
    """The reported traffic, and the rows of each rank."""
    ended = runs.tutti("profile", *GPT2, *arguments, "--steps", "2", "--all", "--trace",
                       "trace.json").expect(0, "between %d workers" % n, "ceilings")
    rows = [spans_of("trace.json", rank) for rank in range(n)]
    if not all(rows) or spans_of("trace.json", n):
        raise AssertionError("not %d ranks: %s" % (n, [list(r) for r in rows]))
    return ended.out, traffic_of(ended.out), rows


def profile_devices(n, *arguments, says="peers=1,devices=4"):
    """The same on devices for tests; says: what they do, as in device_module.c."""
    ended = runs.tutti("profile", *GPT2, "optimizer.name=sgd", "train.precision=f32",
                       "parallel.devices=gpu", *arguments, "--steps", "2", "--all", "--trace",
                       "trace.json", env=dict(os.environ, TUTTI_TEST_DEVICE=says)).expect(
                           0, "between %d workers" % n)
    return ended.out, traffic_of(ended.out), [spans_of("trace.json", rank) for rank in range(n)]


def lies_in(span, spans):
    """A span of the list is there for as long as this one."""
    return any(s["ts"] - 0.01 <= span["ts"] and
               span["ts"] + span["dur"] <= s["ts"] + s["dur"] + 0.01 for s in spans)


def collectives_of(rows):
    """Of a worker on the host; meanwhile its thread waits for them."""
    spans = rows["TP collectives"]
    waits = [s for s in rows["host: first compute thread"]
             if s["name"] == "waiting for a collective"]
    if not all("layer" in s["args"] for s in spans):
        raise AssertionError("collectives of no layer")
    if not all(lies_in(s, waits) for s in spans):
        raise AssertionError("the thread computes in a collective")
    return spans
