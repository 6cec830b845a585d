"""mixed_kernels_test.py - ranks of machines that are not alike: in exact mode all take the most
that each has, and come to the bits of a run that has no more; fast mode goes on and says so; a run
is continued with what its checkpoint was made with.  A machine that has less is one that was shown
so (TUTTI_KERNELS)."""

import sys

import hosts_test as hosts
import runs

# Convolutions: what oneDNN computes with has other bits for each instruction set.
LENET = [*runs.lenet(), "model.dropout=0", "data.n_train=48", "data.n_test=16",
         "train.batch=16", "train.steps=6", "parallel.shards=4"]


def lenet(run, *arguments):
    return runs.small(run, *LENET, *arguments)


def level():
    """What this machine has: generic, avx2, avx512, amx."""
    runs.tutti(*lenet("machine", "train.steps=1", "parallel.workers=1")).expect(0)
    backend = next(r for r in runs.records("machine") if r["event"] == "start")["backend"]
    return "amx" if "AMX" in backend else backend.split()[1]


def alone(run, kernels, *arguments):
    """One worker on a machine that has no more."""
    ended = runs.tutti(*lenet(run, "parallel.workers=1", *arguments),
                       env=hosts.environment(TUTTI_KERNELS=kernels))
    return ended.expect(0)


def two_ranks(run, kernels, *arguments):
    """Rank 1 on a machine that has no more."""
    return hosts.Ranks(2, lenet(run, *arguments), TUTTI_TEST_HOSTS="a,b",
                       before=lambda rank: ["env", "TUTTI_KERNELS=" + kernels] if rank else []
                       ).finish()


def test_exact_mode_takes_what_all_have():
    best = level()
    kernels = "generic" if best == "avx2" else "avx2"
    if best == "generic":
        return
    alone("alone", kernels)
    ended = two_ranks("two", kernels)
    ended[0].expect(0, "all ranks compute with %s kernels" % kernels, "rank 1 on", "rank 0 on",
                    best)
    ended[1].expect(0)
    runs.same_story(runs.story("alone"), "two")


def test_fast_mode_goes_on():
    if level() == "generic":
        return
    ended = two_ranks("fast", "generic", "parallel.mode=fast")
    ended[0].expect(0, "ranks compute with different kernels", "generic")
    ended[1].expect(0)


def test_a_run_goes_on_with_its_kernels():
    """Begun on the lesser machine, ended on the better one: the bits of the lesser alone.  The
    other way round they cannot be had, which is said."""
    best = level()
    if best == "generic":
        return
    alone("whole", "generic")
    alone("run", "generic", "train.steps=3", "run.checkpoint_every=3")
    ended = runs.tutti("train", "--resume", "run", "train.steps=6").expect(0)
    ended.expect(0, "the run continues with generic kernels", "this machine has " + best)
    for key, value in runs.story("whole").items():
        if key[0] == "end" and runs.story("run").get(key) != value:
            raise AssertionError("%s: %s instead of %s" % (key, runs.story("run"), value))
    runs.tutti(*lenet("more", "parallel.workers=1", "train.steps=3",
                      "run.checkpoint_every=3")).expect(0)
    ended = runs.tutti("train", "--resume", "more", "train.steps=6",
                       env=hosts.environment(TUTTI_KERNELS="generic"))
    ended.expect(0, "made with other kernels")


def test_a_name_that_is_none():
    runs.tutti(*lenet("none"), env=hosts.environment(TUTTI_KERNELS="best")).expect(
        2, "TUTTI_KERNELS is 'best'", "avx2")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
