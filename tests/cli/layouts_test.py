"""layouts_test.py - workers that divide the model: a few layouts against one worker alone, threads
and processes, checkpoints that go from one layout to another.  All: layouts_slow_test.py."""

import os
import sys

import layouts
import runs


def test_lenet():
    layouts.grid("lenet", [(1, 1, 2), (2, 1, 2), (1, 2, 1), (2, 2, 2)])


def test_gpt_with_tied_head_and_dropout():
    layouts.grid("gpt2", [(1, 1, 4), (1, 4, 1), (1, 2, 2)])


def test_processes_are_as_threads():
    arguments = layouts.models()["lenet"]
    layouts.train("threads", (1, 2, 2), *arguments)
    layouts.train("processes", (1, 2, 2), *arguments, "parallel.place=processes")
    runs.same_story(runs.story("threads"), "processes")
    runs.same_checkpoint("threads", "processes")


def test_a_checkpoint_knows_nothing_of_it():
    """From one worker to four and back; what is loaded and saved at once is the same bytes."""
    arguments = layouts.models()["gpt2"] + ["train.ema=0.9"]
    layouts.train("whole", (1, 1, 1), *arguments, "train.steps=4")
    layouts.train("parts", (1, 2, 2), *arguments, "train.steps=4")
    layouts.continue_with("parts", (1, 1, 1), 8)
    layouts.continue_with("whole", (2, 1, 2), 8)
    layouts.same_losses("whole", "parts")
    layouts.same_tensors("whole", "parts")


def test_use_of_what_was_trained_in_parts():
    arguments = layouts.models()["lenet"]
    layouts.train("parts", (1, 1, 2), *arguments)
    told = [r for r in runs.records("parts") if r["event"] == "eval"][-1]
    ended = runs.tutti("eval", "parts").expect(0)
    if "%.4f" % told["loss"] not in ended.out:
        raise AssertionError("eval says\n%s, the run %s" % (ended.out, told))
    init = "model.init=" + os.path.join(runs.newest_checkpoint("parts"), "model.safetensors")
    layouts.train("pupil", (1, 1, 1), init, *arguments)
    layouts.train("pupil-parts", (1, 2, 2), init, *arguments)
    layouts.same_losses("pupil", "pupil-parts")


def test_refusals():
    few = ["train", "run.dir=refused", *layouts.FEW]
    runs.tutti(*few, "parallel.tensor=3", "parallel.workers=4").expect(2, "parallel.workers=3")
    runs.tutti(*few, "parallel.pipeline=2", "parallel.sync=parameter-server").expect(
        2, "a parameter server keeps whole models")
    if os.path.exists("refused"):
        raise AssertionError("the run has begun")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
