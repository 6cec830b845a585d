"""cuda_servers_test.py - workers on GPUs whose steps end on the host: optimizer state there, sums
there, parameter servers.  Exit code 77 without a GPU."""

import sys

import runs
from gpus import GPT, LENET, falls, losses, near, train


def test_steps_that_end_on_the_host():
    """A state that the host has and server threads: a GPU's bits, since the update rounds as the
    host's does.  What is compressed or averaged there learns."""
    several = ["-n", str(min(runs.n_devices(), 2))]
    for name, job in (("lenet", LENET), ("gpt", GPT)):
        job = job + ["train.precision=f32"]
        train(name, job, "-n", "1")
        shown = runs.story(name)
        for run, option in (("state", ["-n", "1", "parallel.offload=optimizer"]),
                          ("streams", ["-n", "1", "parallel.offload=optimizer",
                                       "parallel.bucket_mb=0.02"]),
                          ("states", [*several, "parallel.offload=optimizer"]),
                          ("server", [*several, "parallel.sync=parameter-server"])):
            train(name + "_" + run, job, *option)
            runs.same_story(shown, name + "_" + run)
    for option in ("parallel.compress=topk", "parallel.compress=powersgd", "parallel.sync=local"):
        train(option, LENET, *several, option, "parallel.mode=fast")
        falls(option, losses("lenet")[0])


def updates(run):
    with open(run + "/arrivals.txt") as file:
        return [[int(x) for x in line.split()] for line in file.readlines()[1:]]


def test_asynchronous_servers():
    """Workers on GPUs that wait for nobody, for those who are far behind, or for all: every batch
    makes one update and the model learns, no gradient lacks more updates than it may, and what has
    run comes again, in threads and processes, up to the kernels of fast mode."""
    n = min(runs.n_devices(), 2)
    plain = LENET + ["train.precision=f32", "optimizer.name=sgd", "optimizer.momentum=0",
                     "optimizer.lr=0.05"]  # however late gradients come
    job = plain + ["-n", str(n), "parallel.sync=parameter-server", "parallel.mode=fast"]
    train("alone", plain, "-n", "1")
    train("stale_0", job, "parallel.staleness=0")
    near("stale_0", "alone", 2e-3)
    for staleness in ("2", "unbounded"):
        run = "stale_" + staleness
        train(run, job, "parallel.staleness=" + staleness)
        if sum(losses(run)[-8:]) >= sum(losses(run)[:8]):
            raise AssertionError("%s learns nothing: %s" % (run, losses(run)))
        shown = updates(run)
        if [u[0] for u in shown] != list(range(1, 25)) or sorted(u[1] for u in shown) != list(
                range(24)) or {u[2] for u in shown} - set(range(n)):
            raise AssertionError("%s: %s" % (run, shown))
        most = [r["staleness_max"] for r in runs.records(run) if r["event"] == "end"][-1]
        if most != max(u[0] - 1 - u[3] for u in shown) or most > 3 * (n - 1) and staleness == "2":
            raise AssertionError("%s: a gradient lacked %d updates: %s" % (run, most, shown))
        for place in ("threads", "processes"):
            again = "%s_%s" % (run, place)
            train(again, job, "parallel.staleness=" + staleness, "parallel.replay=" + run,
                  "parallel.place=" + place)
            near(again, run, 2e-3)
            if updates(again) != shown:
                raise AssertionError("%s: other updates: %s" % (again, updates(again)))


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
