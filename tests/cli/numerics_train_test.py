"""numerics_train_test.py - train.precision, train.loss_scale and train.recompute through the
program: runs in 16 bits that learn, that are the same for any number of workers and after a
resume, and runs that make activations again and tell the same story as those that keep them."""

import sys

import exact_test
import runs

DEEP = ["model.hidden=[32,32,32,32,32,32,32,32]", "model.dropout=0.1"]


def told(run, *arguments):
    runs.tutti(*runs.small(run, *DEEP, *arguments)).expect(0)
    return runs.story(run)


def test_recomputation_changes_no_bit():
    story = told("none", "-n", "1")
    told("block", "-n", "2", "train.recompute=block")
    told("budget", "-n", "1", "train.recompute=24KiB")
    for run in ("block", "budget"):
        runs.same_story(story, run)


def test_a_budget_too_small_is_refused_with_the_least():
    ended = runs.tutti(*runs.small("run", *DEEP, "train.recompute=64"))
    ended.expect(2, "cannot be brought down to 64 bytes; the least is ")


def losses(run):
    return [r["loss"] for r in runs.records(run) if r["event"] == "step"]


def test_sixteen_bits_are_exact_too():
    full = told("f32", "-n", "1", "train.steps=12")
    for precision in ("bf16", "f16"):
        arguments = ["train.steps=12", "train.precision=" + precision]
        story = told(precision, "-n", "1", *arguments)
        told(precision + "-2", "-n", "2", *arguments, "train.recompute=block",
             "parallel.place=processes")
        runs.same_story(story, precision + "-2")
        if story == full:
            raise AssertionError("%s computes as f32 does" % precision)
        last = losses(precision)[-1]
        if not abs(last - losses("f32")[-1]) < 0.05 * last:
            raise AssertionError("%s: the last loss is %s" % (precision, last))


def test_the_dynamic_scale_goes_on_after_a_resume():
    arguments = ["train.precision=f16", "train.steps=24", "run.checkpoint_every=3"]
    story = told("expected", "-n", "1", *arguments)
    in_time = exact_test.disturb(
        "stopped", runs.small("run", *DEEP, "-n", "2", *arguments), "run", 24)
    if in_time:
        exact_test.resume("run", 1, "threads").expect(0)
    runs.same_story(story, "run")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
