"""many_workers_slow_test.py - 66 processes: over sockets between three hosts (names of them, in
TUTTI_TEST_HOSTS) with the bits of one worker, and as workers of an asynchronous parameter server of
which all are range servers."""

import os
import subprocess
import sys

import many_workers_test
import runs

N = 66


def test_three_hosts():
    runs.tutti(*many_workers_test.JOB, "run.dir=one", "-n", "1").expect(0)
    env = dict(os.environ, WORLD_SIZE=str(N), MASTER_ADDR="localhost",
               MASTER_PORT=str(runs.port()), TUTTI_TOKEN="sixteen characters and more",
               TUTTI_TEST_HOSTS=",".join("host-%d" % (rank * 3 // N) for rank in range(N)))
    processes = []
    for rank in range(N):
        with open("rank-%d" % rank, "w") as file:
            processes.append(subprocess.Popen(
                [runs.PROGRAM, *many_workers_test.JOB, "run.dir=many"], stdout=file, stderr=file,
                stdin=subprocess.DEVNULL, env=dict(env, RANK=str(rank))))
    for rank, process in enumerate(processes):
        code = process.wait(runs.HANGS_S)
        with open("rank-%d" % rank, errors="replace") as file:
            runs.Ended(["rank", str(rank)], code, file.read(), "").expect(0)
    runs.same_story(runs.story("one"), "many")


def test_processes_with_servers():
    runs.tutti(*many_workers_test.JOB, "run.dir=servers", "-n", str(N), "train.steps=132",
               "parallel.sync=parameter-server", "parallel.place=processes",
               "parallel.staleness=100", "parallel.mode=fast", "parallel.servers=%d" % N).expect(0)
    if len(runs.records("servers")) < 132:
        raise AssertionError("steps are missing")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
