"""tensor_slow_test.py - every layout of tensor_train_test.py for each of its models; and resnet18
in tensor shards on two and four workers: twenty steps with the losses of one worker.  The learning
rate is small: with a usual one any other order of sums, such as that of another instruction set, is
elsewhere after ten steps (batch norm over few samples)."""

import sys

import runs
import tensor_train_test as short

ARGUMENTS = ["model.name=resnet18", "model.stem=cifar", "data.n_train=64", "data.n_test=16",
             "train.batch=16", "optimizer.name=sgd", "optimizer.lr=1e-6"]


def test_every_layout():
    for model, arguments in short.models().items():
        short.train(model, "-n", "1", *arguments)
        for layout in short.CELLS.values():
            short.cell(model, arguments, *layout)


def test_resnet18():
    short.train("resnet18", "-n", "1", *ARGUMENTS)
    for tensor in (2, 4):
        short.cell("resnet18", ARGUMENTS, tensor, tensor, "threads")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
