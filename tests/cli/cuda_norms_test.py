"""cuda_norms_test.py - norms between layers that GPUs divide are computed with collectives around
them.  Exit code 77 with fewer than two GPUs."""

import sys

import runs
from gpus import GPT, train, way_of_sums


def test_norms_between_collectives():
    """Made with the collectives before and after them: the bits of the steps one by one, on one GPU
    through the host.  With many rows also while the products before and after run."""
    job = GPT + ["train.precision=bf16", "train.low_precision_residual=true", "model.dropout=0",
                 "parallel.tensor=2", "parallel.shards=1"]
    for width, context in ((128, 64), (1152, 64), (1152, 512)):
        both, alone = "both_%d_%d" % (width, context), "alone_%d_%d" % (width, context)
        wide = ["model.width=%d" % width, "model.heads=%d" % (width // 64),
                "data.context=%d" % context, "train.batch=%d" % (16 if context > 64 else 8),
                "train.steps=%d" % (8 if width == 128 else 4)]
        train(both, job + wide, "-n", "2")
        if "norms with them" not in way_of_sums(both):
            raise AssertionError(way_of_sums(both))
        train(alone, job + wide, "-n", "2", devices="0")
        runs.same_story(runs.story(both), alone)
        train(both + "_processes", job + wide, "-n", "2", "parallel.place=processes")
        runs.same_story(runs.story(both), both + "_processes")


if __name__ == "__main__":
    runs.need_gpus(2)
    runs.main(sys.modules[__name__])
