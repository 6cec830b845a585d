"""tensor_slow_test.py - resnet18 in pieces on two and four workers: twenty steps with the losses of
one worker.  The learning rate is small: with a usual one any other order of sums, such as that of
another instruction set, is elsewhere after ten steps (batch norm over few samples)."""

import sys

import runs
import tensor_train_test as short

ARGUMENTS = ["model.name=resnet18", "model.stem=cifar", "data.n_train=64", "data.n_test=16",
             "train.batch=16", "optimizer.name=sgd", "optimizer.lr=1e-6"]


def test_resnet18():
    short.train("resnet18", "-n", "1", *ARGUMENTS)
    for tensor in (2, 4):
        short.cell("resnet18", ARGUMENTS, tensor, tensor, "threads")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
