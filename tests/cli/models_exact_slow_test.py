"""models_exact_slow_test.py - batch norms of resnet18, which is too wide for
models_exact_test.py."""

import sys

import models_exact_test
import runs
from models_exact_test import ALL, JOINED, OWN, PICTURES


def test_resnet():
    resnet = ["model.name=resnet18", "model.stem=cifar", "data.format=random_images",
              "data.image_size=12", *PICTURES]
    models_exact_test.check("own", *resnet, *OWN, layouts=ALL[:1])
    models_exact_test.check("joined", *resnet, *JOINED, layouts=ALL[1:2])


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
