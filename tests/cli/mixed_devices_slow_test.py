"""mixed_devices_slow_test.py - more of mixed_devices_test.py: precisions, joined batch norm,
profiles, more workers and algorithms."""

import sys

import hosts_test
import runs
from mixed_devices_test import PROCESSES, near, run_tutti, train, JOB


def test_precisions():
    """16 bits on the wire, and of products on both; those of GPUs alone beside f32."""
    train("host", "cpu", "-n", "1").expect(0)
    train("host16", "cpu", "-n", "1", "train.precision=bf16").expect(0)
    for run, keys, like, tolerance in (
            ("wire", ["parallel.wire=bf16"], "host", 1e-3),
            ("tf32", ["train.precision=tf32"], "host", 1e-5),
            ("bf16", ["train.precision=bf16"], "host16", 1e-3)):
        train(run, "0,cpu", "parallel.load_weights=3,1", *keys).expect(0)
        near(runs.story(like), run, tolerance)
    train("open", "0,cpu", "train.steps=1").expect(0)
    with open("open/job.yaml") as file:
        if "precision: f32" not in file.read():
            raise AssertionError("what is auto on GPUs and the host is not f32")


def test_joined_batch_norm():
    net = ["model.name=resnet18", "data.format=random_images", "data.image_size=32",
           "data.n_train=16", "data.n_test=8", "train.batch=16", "train.steps=2",
           "parallel.sync_batch_norm=true", "run.checkpoint_every=-1"]
    train("host", "cpu", "-n", "1", *net).expect(0)
    train("mixed", "cpu,0", "parallel.load_weights=1,1", *net).expect(0)
    near(runs.story("host"), "mixed", 1e-3)  # joined statistics make much of a bit


def test_hosts():
    """Several machines, each with places of its own; on some of them devices alone."""
    keys = ["parallel.load_weights=1,2,4,1"]
    train("host", "cpu", "-n", "1").expect(0)
    for hosts, places in (("a,a,b,b", [0, -1, 0, -1]), ("a,b,b,c", [0, 0, -1, 0])):
        run = hosts.replace(",", "")
        arguments = ["train", *JOB, "run.dir=" + run, "parallel.devices=0,cpu", *keys]
        for ended in hosts_test.Ranks(4, arguments, TUTTI_TEST_HOSTS=hosts).finish():
            ended.expect(0)
        near(runs.story("host"), run)
        reported = [r["devices"] for r in runs.records(run) if r["event"] == "start"]
        if reported != [places]:
            raise AssertionError("%s: %s" % (hosts, reported))


def test_profile():
    run_tutti("profile", *JOB, "parallel.devices=cpu,0", "--steps", "2", "--trace",
              "trace.json").expect(0)
    with open("trace.json") as file:
        text = file.read()
    if '"rank 0, on the host"' not in text or '"rank 1, device 0"' not in text:
        raise AssertionError("the places of workers are not reported")


def test_more_places():
    """Workers beyond the list are on the host; other algorithms, queues that are late."""
    more = ["optimizer.name=lamb", "train.clip_value=0.5", "optimizer.l1=1e-5"]
    train("host", "cpu", "-n", "1", *more).expect(0)
    for run, devices, keys, says in (
            ("two", "0,cpu", ["parallel.load_weights=3,1"], "late=1"),
            ("queues", "0,cpu", ["parallel.load_weights=3,1"], "late=3"),
            ("more", "1,cpu", ["-n", "4", "parallel.load_weights=5,1,1,1",
                              "parallel.algorithm=ring"], ""),
            ("tree", "cpu,0,1", ["parallel.load_weights=1,3,4", "parallel.algorithm=tree",
                                 PROCESSES], "peers=1"),
            ("alike", "0,cpu", ["parallel.load_weights=equal", PROCESSES], "")):
        train(run, devices, *keys, *more, says=says).expect(0)
        near(runs.story("host"), run, 1e-4)  # lamb divides by norms


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
