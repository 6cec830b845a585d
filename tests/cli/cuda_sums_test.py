"""cuda_sums_test.py - how gradients of several workers on GPUs are added: on one device, between
devices, compressed.  On the host and by servers: cuda_servers_test.py.  Exit code 77 without a
GPU."""

import sys

import runs
from gpus import GPT, JOINED, LENET, near, train, way_of_sums


def test_workers_that_share_a_device():
    """Nothing connects them: the host adds, says so, and gives the same bits."""
    for name, job in (("lenet", LENET), ("joined", JOINED)):
        train(name, job, "-n", "1")
        train(name + "2", job, "-n", "2", devices="0")
        runs.same_story(runs.story(name), name + "2")
        if not way_of_sums(name + "2").startswith("through the host"):
            raise AssertionError(way_of_sums(name + "2"))
        train(name + "3", job, "-n", "2", "parallel.algorithm=direct", devices="0")
        runs.same_story(runs.story(name), name + "3")
        if way_of_sums(name + "3") != "through the host: ranks 0 and 1 share a device":
            raise AssertionError(way_of_sums(name + "3"))


def test_small_products_that_share_a_device():
    """Threads launch one kernel with sizes of their own: none takes shared memory from another."""
    job = LENET + ["parallel.shards=8", "train.batch=128", "train.precision=tf32"]
    train("small", job, "-n", "1")
    for i in range(3):
        train("small%d" % i, job, "-n", "8", devices="0")
        runs.same_story(runs.story("small"), "small%d" % i)


def test_ways_of_sums():
    """On several GPUs, by kernels over each other's memory and by NCCL, even shards or not."""
    if runs.n_devices() < 2:
        return
    for name, job in (("lenet", LENET), ("joined", JOINED), ("gpt", GPT)):
        train(name, job, "-n", "1")
        for place in ("threads", "processes"):
            for algorithm, way in (("direct", "over peers' memory"), ("tree", "NCCL ")):
                run = "_".join((name, place, algorithm))
                train(run, job, "-n", "2", "parallel.place=" + place,
                      "parallel.algorithm=" + algorithm)
                runs.same_story(runs.story(name), run)
                if not way_of_sums(run).startswith(way):
                    raise AssertionError("%s: %s" % (run, way_of_sums(run)))
    if runs.n_devices() > 2:
        train("three", LENET, "-n", "3")
        runs.same_story(runs.story("lenet"), "three")


def test_rounded_partial_sums():
    """parallel.wire=bf16 in exact mode: the same bits on 1, 2 and 4 GPUs, by every way of sums, in
    partitions, and near the host, whose products are added in another order."""
    wire = "parallel.wire=bf16"
    for name, job in (("lenet", LENET), ("gpt", GPT + ["parallel.shards=4"])):
        train("r_" + name, job, wire, "-n", "1")
        train("f_" + name, job, "-n", "1")
        if runs.story("r_" + name) == runs.story("f_" + name):
            raise AssertionError("nothing is rounded")
        train("h_" + name, job, wire, "-n", "2", devices="cpu")
        near("h_" + name, "r_" + name, 0.05)
        train("s_" + name, job, wire, "-n", "2", devices="0")  # through the host
        runs.same_story(runs.story("r_" + name), "s_" + name)
        # Every way with either model, and with 2 and 4 GPUs where there are so many.
        n = 4 if name == "gpt" and runs.n_devices() >= 4 else 2
        if runs.n_devices() < n:
            continue
        for i, more in enumerate((["parallel.algorithm=direct"], ["parallel.algorithm=tree"],
                                  ["parallel.place=processes"], ["parallel.zero=1"],
                                  ["parallel.zero=2"], ["parallel.zero=3"],
                                  ["parallel.sync=parameter-server"])):
            run = "r_%s%d_%d" % (name, n, i)
            train(run, job, wire, "-n", str(n), *more)
            runs.same_story(runs.story("r_" + name), run)


def test_compressed_between_devices():
    """Where GPUs reach each other they compress in the recorded step, in threads and processes, by
    their memory and by NCCL: near the host, since products are added in another order.  Training
    with PowerSGD multiplies a rounding error by 20 every three steps, so it has 12 steps."""
    if runs.n_devices() < 2:
        return
    for name, job, compress in (("lenet", LENET + ["train.steps=12"], "powersgd"),
                            ("gpt", GPT, "powersgd"),
                            ("gpt_pairs", GPT + ["parallel.compress_after=3"], "topk")):
        job = job + ["train.precision=f32", "optimizer.name=sgd", "optimizer.lr=0.05", "-n", "2",
                     "parallel.mode=fast", "parallel.compress=" + compress, "parallel.topk=0.05"]
        train(name, job, devices="cpu")
        for place, algorithm in (("threads", "direct"), ("threads", "tree"),
                                 ("processes", "direct")):
            run = "_".join((name, place, algorithm))
            train(run, job, "parallel.place=" + place, "parallel.algorithm=" + algorithm)
            if not way_of_sums(run).endswith("compressed there"):
                raise AssertionError("%s: %s" % (run, way_of_sums(run)))
            near(run, name, 2e-3 if name == "lenet" else 2e-2)


def test_unequal_shares():
    """The order of sums depends on the shards, not on their workers."""
    if runs.n_devices() < 2:
        return
    for name, job in (("lenet", LENET), ("joined", JOINED)):
        train(name, job, "-n", "1")
        for run, shares in (("given", "3,1"), ("measured", "measured")):
            train(name + "_" + run, job, "-n", "2", "parallel.load_weights=" + shares)
            runs.same_story(runs.story(name), name + "_" + run)


if __name__ == "__main__":
    runs.need_gpus(1)
    runs.main(sys.modules[__name__])
