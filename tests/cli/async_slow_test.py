"""async_slow_test.py - what asynchronous workers learn when one of four is five times slower: MNIST
to 98.5 %, with any staleness and with at most 4.

The order of arrivals is written here, by a clock of its own, and replayed: so it is the same on
every machine, however busy, and each run comes to one hash.  $TUTTI_DATA is the folder that has
mnist (data beside the sources, as in the examples); without it the test is skipped."""

import os
import sys

import arrivals
import runs

DATA = os.path.join(os.environ.get("TUTTI_DATA", os.path.join(os.environ.get(
    "TUTTI_SOURCE", "."), "data")), "mnist")
N_STEPS, N_WORKERS, BATCH = 1500, 4, 64
TIMES = (1.0, 1.01, 1.02, 5.0)  # of a batch, by worker
JOB = ["model.name=lenet", "data.format=idx", "data.dir=" + DATA, "train.batch=%d" % BATCH,
       "train.epochs=2", "train.steps=%d" % N_STEPS, "train.eval_every=0", "optimizer.name=adam",
       "schedule.name=cosine", "parallel.shards=4", "parallel.devices=cpu", "parallel.mode=fast",
       "parallel.sync=parameter-server", "run.checkpoint_every=-1", "-n", str(N_WORKERS)]


def learns(staleness, bound, least_of_the_slow, most):
    reported = arrivals.by_clock(TIMES, N_STEPS, bound)
    slow = sum(worker == 3 for _, worker, _ in reported)
    if not least_of_the_slow <= slow <= N_STEPS / 10:
        raise AssertionError("the slow worker made %d of %d updates" % (slow, N_STEPS))
    arrivals.write("order-" + staleness, reported, N_WORKERS, BATCH, 4)
    hashes = []
    for run, order in (("run-" + staleness, "order-" + staleness),
                       ("again-" + staleness, "run-" + staleness)):
        runs.tutti("train", "run.dir=" + run, *JOB, "parallel.staleness=" + staleness,
                   "parallel.replay=" + order, timeout_s=900).expect(0)
        end = runs.records(run)[-1]
        hashes.append(end["params_hash"])
        print("staleness %s: %.2f %%, of %.2f in the mean and at most %d, hash %s" % (
            staleness, 100 * end["accuracy"], end["staleness_mean"], end["staleness_max"],
            end["params_hash"]), flush=True)
        if end["accuracy"] < 0.985 or not 1 < end["staleness_max"] <= most:
            raise AssertionError(end)
    if hashes[0] != hashes[1]:
        raise AssertionError("a replay of what was replayed has another hash: %s" % hashes)


def test_unbounded():
    learns("unbounded", N_STEPS, 80, 20)


def test_at_most_four():
    learns("4", 4, 80, (4 + 1) * (N_WORKERS - 1))


if __name__ == "__main__":
    if not os.path.isdir(DATA):
        print("skipped: there is no folder %s (TUTTI_DATA has mnist)" % DATA)
        sys.exit(77)
    runs.main(sys.modules[__name__])
