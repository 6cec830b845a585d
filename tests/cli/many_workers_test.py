"""many_workers_test.py - a parameter server with more workers than a word has bits: the bits of one
worker."""

import sys

import runs

JOB = ["train", "model.name=mlp", "model.hidden=[16]", "data.n_train=512", "data.n_test=128",
       "train.batch=128", "train.steps=10", "parallel.shards=128", "run.log_every=1"]


def test_66_workers_of_a_server():
    runs.tutti(*JOB, "run.dir=one", "-n", "1").expect(0)
    runs.tutti(*JOB, "run.dir=many", "-n", "66", "parallel.place=threads",
               "parallel.sync=parameter-server", "parallel.servers=2").expect(0)
    runs.same_story(runs.story("one"), "many")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
