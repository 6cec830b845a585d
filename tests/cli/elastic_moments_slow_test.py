"""elastic_moments_slow_test.py - workers of elastic runs die in chosen moments, in each layout, on
one host and on two: the bits are those of an undisturbed run, every step is recorded once, and no
step takes long."""

import os
import sys

import elastic_test
import runs
from elastic_hosts_test import Hosts

# Workers by the ranks that they were started with, on several hosts counted on each host.
MOMENTS = {
    "a member dies in the change after a death": (
        "train.save:kill@rank=1,step=90;train.take_over:kill@rank=0,1", "run.restarts=1"),
    "a member dies when it has the state": (
        "train.save:kill@rank=1,step=90;train.taken_over:kill@rank=0,1", "run.restarts=1"),
    "during a save": ("train.save:kill@rank=0,step=90", "run.restarts=1"),
    "during evaluations": (
        "train.evaluated:kill@rank=0,step=45;train.evaluated:kill@rank=1,step=90",
        "run.restarts=2"),
    "a new worker dies in the change that it joins in": (
        "train.save:kill@rank=1,step=90;train.take_over:kill@rank=1", "run.restarts=2"),
    "a new worker dies when it has the state": (
        "train.save:kill@rank=1,step=90;train.taken_over:kill@rank=1", "run.restarts=2"),
    "the first worker dies while a new one joins": (
        "train.save:kill@rank=1,step=90;train.taken_over:kill@rank=0,2", "run.restarts=3"),
    "a spare dies when it has the state": (
        "train.save:kill@rank=1,step=90;train.taken_over:kill@rank=%d", "run.restarts=3",
        "parallel.spares=1"),
}
LAYOUTS = ([], ["parallel.zero=1"], ["parallel.zero=3"],
           ["parallel.sync=parameter-server", "parallel.servers=2"], ["parallel.tensor=2"],
           ["parallel.pipeline=2"], ["parallel.pipeline=2", "parallel.zero=1"])
LONGEST_S = 2


def undisturbed(layout):
    divided = [option for option in layout if "tensor" in option or "pipeline" in option]
    ended = runs.train_once("whole", *elastic_test.LONG, "optimizer.name=adam", *divided, "-n", "4")
    return elastic_test.hash_of(ended), "2" if divided else "1"


def check(folder, text, expected):
    assert elastic_test.hash_of(text) == expected, text
    steps = runs.records(folder, "step")
    assert [r["step"] for r in steps] == list(range(1, elastic_test.N_STEPS + 1)), text
    gaps = [(b["time"] - a["time"], b["step"]) for a, b in zip(steps, steps[1:])]
    assert max(gaps)[0] < LONGEST_S, (max(gaps), text)


def each(layouts, run):
    for i, layout in enumerate(layouts):
        expected, least = undisturbed(layout)
        for j, (what, (faults, *options)) in enumerate(MOMENTS.items()):
            folder = "run-%d-%d" % (i, j)
            print(layout, what, flush=True)
            text = run(folder, faults, "optimizer.name=adam", *layout, *options,
                       "parallel.min_workers=" + least)
            check(folder, text, expected)


def on_one_host(folder, faults, *options):
    faults = "train.data:delay_ms=3;" + (faults % 4 if "%d" in faults else faults)
    run = elastic_test.Run(folder, *options, env=dict(os.environ, TUTTI_FAULT=faults))
    code, text = run.end()
    assert code == 0, text
    return text


def on_host(node):
    def run(folder, faults, *options):
        faults = ";" + (faults % 2 if "%d" in faults else faults)
        hosts = Hosts(folder, "2,2", *options, delay_ms=3,
                      faults_of=lambda k: faults if k == node else "")
        assert hosts.end() == [0, 0], hosts.texts()
        return hosts.texts()
    return run


def test_one_host():
    each(LAYOUTS, on_one_host)


def test_on_the_first_of_two_hosts():
    each(LAYOUTS, on_host(0))


def test_on_the_second_of_two_hosts():
    each(LAYOUTS, on_host(1))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
