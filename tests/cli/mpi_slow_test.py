"""mpi_slow_test.py - more ranks of mpirun than send to each other: the bits of one worker, and a
rank that fails.  Without Open MPI or MPICH, or their modules, nothing is tested."""

import os
import shutil
import sys

import hosts_test
import runs

FAULTS = os.path.join(runs.BUILD, "tests", "tutti_faults")


def test_a_sparse_group():
    """Each sends to a few others only; when one fails, all hear of it, through their hosts."""
    n_ranks, fault = 66, "exec.compute:fail@rank=41,step=4"
    hosts = ",".join("host%d" % (rank // 8) for rank in range(n_ranks))
    job = runs.small("wide", "parallel.shards=128", "train.batch=128", "train.steps=10")
    for name, start in list(hosts_test.mpis())[:1]:
        runs.tutti(*runs.small("narrow", "parallel.shards=128", "train.batch=128",
                               "train.steps=10", "-n", "1")).expect(0)
        ended = hosts_test.reported(hosts_test.mpirun(start, n_ranks, job, TUTTI_TEST_HOSTS=hosts))
        ended.expect(0, "rank 0 of 66, by", "9 hosts, over mpi-" + name)
        runs.same_story(runs.story("narrow"), "wide")
        shutil.rmtree("wide")
        ended = hosts_test.reported(hosts_test.mpirun(
            start, n_ranks, job, program=FAULTS, TUTTI_TEST_HOSTS=hosts, TUTTI_FAULT=fault,
            TUTTI_MODULE_PATH=runs.BUILD))
        if ended.code not in (1, 5) or ended.out.count("worker 41 cannot compute") < n_ranks // 2:
            raise AssertionError("%d\n%s" % (ended.code, ended.out))
        if "Signal:" in ended.out:  # Open MPI's report of a crash
            raise AssertionError(ended.out)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
