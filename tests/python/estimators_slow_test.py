"""estimators_slow_test.py - scikit-learn's check_estimator, which it needs, for both estimators."""

import sys

from package import need, runs

need("numpy", "sklearn")

from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import tutti  # noqa: E402


def test_classifier():
    check_estimator(tutti.Classifier(hidden=(32,), epochs=50, lr=0.01))


def test_regressor():
    check_estimator(tutti.Regressor(hidden=(32,), epochs=50, lr=0.01))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
