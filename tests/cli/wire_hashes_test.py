"""wire_hashes_test.py - with parallel.wire=bf16 results do not depend on the layout of workers: the
hashes in tests/golden/wire_hashes.txt.  Runs every pair of model, layout, place and device;
wire_hashes_slow_test.py runs every combination."""

import sys

import layout_hashes
import layouts
import runs
import wire_hashes


def test_hashes_of_every_pair():
    layout_hashes.check(wire_hashes.table.pairwise_cases())


def test_rounding_changes_the_result():
    layouts.write_text()
    case = ("lenet", "one", "threads", "host")
    rounded = layout_hashes.result(case)
    layout_hashes.LAYOUTS["one"].append("parallel.wire=f32")
    whole = layout_hashes.result(case)
    layout_hashes.LAYOUTS["one"].pop()
    if rounded == whole:
        raise AssertionError("parallel.wire=bf16 has rounded nothing")


def test_other_numbers_of_workers():
    """An elastic run, and one that goes on with another number of workers, have the same bits."""
    job = [*layout_hashes.JOB, *layout_hashes.MODELS["lenet"], *wire_hashes.WIRE,
           "parallel.devices=cpu"]
    runs.tutti("train", *job, "train.steps=4", "run.dir=one").expect(0)
    runs.tutti("train", *job, "train.steps=4", "-n", "3", "parallel.place=processes",
               "parallel.min_workers=1", "run.dir=elastic").expect(0)
    runs.tutti("train", *job, "-n", "2", "run.dir=resumed").expect(0)
    runs.tutti("train", "--resume", "resumed", "train.steps=4", "-n", "3").expect(0)
    ends = {run: runs.records(run)[-1]["params_hash"] for run in ("one", "elastic", "resumed")}
    if len(set(ends.values())) != 1:
        raise AssertionError(ends)


def test_the_former_key_warns():
    job = [*layout_hashes.JOB, *layout_hashes.MODELS["lenet"], "parallel.workers=2",
           "parallel.devices=cpu"]
    run = runs.tutti("train", *job, "parallel.compress=bf16", "run.dir=former").expect(0)
    if "parallel.compress=bf16 is deprecated; give parallel.wire=bf16" not in run.out + run.err:
        raise AssertionError(run.out + run.err)
    runs.tutti("train", *job, "parallel.compress=bf16", "parallel.wire=f32").expect(
        2, "the former name of bf16")
    runs.tutti("train", *job, "parallel.mode=fast", "parallel.compress=topk",
               "parallel.wire=bf16").expect(2, "gives the gradients another form")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
