"""cuda_parts_test.py - models, states and parameters divided between GPUs: stages, tensor
shards, ZeRO.  Norms between shards: cuda_norms_test.py.  Exit code 77 with fewer than two GPUs."""

import sys

import runs
from gpus import GPT, JOINED, LENET, last_hash, losses, near, train, way_of_sums


def test_models_in_parts():
    """Stages and tensor shards on GPUs of their own: threads and processes have the same bits."""
    for name, job, options in (("lenet", LENET, ["pipeline=2"]),
                              ("gpt", GPT, ["pipeline=2", "tensor=2"])):
        job = job + ["train.precision=f32"]
        train(name, job, "-n", "1")
        for option in options:
            run = name + "_" + option
            train(run, job, "-n", "2", "parallel." + option)
            near(run, name, 1e-4)
            train(run + "_processes", job, "-n", "2", "parallel." + option,
                  "parallel.place=processes")
            runs.same_story(runs.story(run), run + "_processes")


def test_stages_between_devices():
    """They send from device to device, alone, with replicas, and with tensor shards:
    no copy of the model changes a bit, nor does a step that goes through the host, as every
    first one does, and every one where stages are more than GPUs."""
    job = GPT + ["train.precision=f32", "train.clip_norm=0.5", "parallel.pipeline=2",
                 "parallel.bucket_mb=0.05"]
    train("two", job, "-n", "2")
    if "between stages over peers' memory" not in way_of_sums("two"):
        raise AssertionError(way_of_sums("two"))
    train("shared", job, "-n", "2", devices="0")
    runs.same_story(runs.story("two"), "shared")
    for zero in (0, 1) if runs.n_devices() > 3 else ():
        run = "four_%d" % zero
        train(run, job, "-n", "4", "parallel.zero=%d" % zero)
        runs.same_story(runs.story("two"), run)
    if runs.n_devices() > 3:
        for place in ("threads", "processes"):
            train(place, job, "-n", "4", "parallel.tensor=2", "parallel.place=" + place)
            if "between stages over peers' memory" not in way_of_sums(place):
                raise AssertionError(way_of_sums(place))
        runs.same_story(runs.story("threads"), "processes")


def test_parts():
    """Parameters that come from other GPUs beside the next forward pass, or for each layer, by
    either way; and a checkpoint that goes on with whole ones."""
    for name, job in (("lenet", LENET), ("joined", JOINED), ("gpt", GPT)):
        more = job + ["parallel.bucket_mb=0.05", "train.ema=0.9", "train.clip_norm=0.5",
                      "run.checkpoint_every=5"]
        train(name, more, "-n", "1")
        for zero in (1,) if name == "joined" else (1, 2, 3):
            for place, algorithm, n in (("threads", "direct", 2), ("processes", "direct", 2),
                                        ("threads", "tree", 2), ("threads", "direct", 4)):
                if n > min(runs.n_devices(), 2 if name == "gpt" else 4):  # which has two shards
                    continue
                run = "_".join((name, str(zero), place, algorithm, str(n)))
                train(run, more, "-n", str(n), "parallel.zero=%d" % zero,
                      "parallel.place=" + place, "parallel.algorithm=" + algorithm)
                runs.same_story(runs.story(name), run)
                runs.same_checkpoint(name, run)
    cut = ["-n", "2", "train.steps=10", "schedule.steps=24"]
    train("whole", LENET, "-n", "1", "schedule.steps=24")
    for zero in (1, 2, 3):
        run = "cut%d" % zero
        train(run, LENET, *cut, "parallel.zero=%d" % zero)
        runs.tutti("train", "--resume", run, "train.steps=24", "parallel.zero=0").expect(0)
        if losses(run) != losses("whole") or last_hash(run) != last_hash("whole"):
            raise AssertionError("a run in parts goes on to something else")


if __name__ == "__main__":
    runs.need_gpus(2)
    runs.main(sys.modules[__name__])
