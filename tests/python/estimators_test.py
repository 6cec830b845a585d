"""estimators_test.py - tutti.Classifier and tutti.Regressor in pipelines of scikit-learn, which it
needs.  estimators_slow_test.py has scikit-learn's own checks."""

import pickle
import sys

from package import need, raises, runs

need("numpy", "sklearn")

import numpy as np  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import tutti  # noqa: E402


def samples(n=150):
    x = np.random.default_rng(0).normal(size=(n, 5))
    return x, np.array(["low", "middle", "top"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0)]


def test_classifier():
    x, y = samples()
    one = tutti.Classifier(hidden=[16], epochs=30, lr=0.01, random_state=3).fit(x, y)
    if one.score(x, y) < 0.9 or list(one.classes_) != ["low", "middle", "top"]:
        raise AssertionError("%g, %s" % (one.score(x, y), one.classes_))
    p = one.predict_proba(x)
    if p.shape != (150, 3) or not np.allclose(p.sum(axis=1), 1):
        raise AssertionError(p)
    for other in (clone(one).set_params(workers=2).fit(x, y), pickle.loads(pickle.dumps(one))):
        if not (other.predict_proba(x) == p).all():
            raise AssertionError("other probabilities")
    if (clone(one).set_params(random_state=4).fit(x, y).predict_proba(x) == p).all():
        raise AssertionError("the seed has no effect")


def test_regressor():
    x, _ = samples()
    y = x @ np.arange(5)
    for values in (y, np.stack([y, -y], axis=1)):
        one = tutti.Regressor(hidden=[32], epochs=60, lr=0.01).fit(x, values)
        if one.score(x, values) < 0.95 or one.predict(x).shape != values.shape:
            raise AssertionError("%g, %s" % (one.score(x, values), one.predict(x).shape))


def test_values_with_many_digits():
    """Times in seconds since 1970 have more digits than a 32-bit float."""
    x, _ = samples()
    y = x @ np.arange(5)
    near, far = (tutti.Regressor(hidden=[32], epochs=20, lr=0.01).fit(x, y + offset).predict(x)
                 for offset in (0, 1.7e9))
    if np.abs(far - 1.7e9 - near).max() > 0.01:
        raise AssertionError(np.abs(far - 1.7e9 - near).max())


def test_pipeline():
    x, y = samples()
    pipeline = make_pipeline(StandardScaler(), tutti.Classifier(hidden=[16], epochs=10, lr=0.01))
    scores = cross_val_score(pipeline, x * 1000, y, cv=3)
    if scores.mean() < 0.75:
        raise AssertionError(scores)
    search = GridSearchCV(tutti.Classifier(epochs=5), {"hidden": [(4,), (16,)]}, cv=2).fit(x, y)
    if search.best_params_["hidden"] not in ((4,), (16,)):
        raise AssertionError(search.best_params_)


class Sparse:
    """As scikit-learn sees a sparse matrix, here without scipy."""
    def __init__(self, array):
        self.shape, self.dtype, self.nnz = array.shape, array.dtype, array.size

    def toarray(self):
        raise AssertionError("converted in silence")


def test_what_is_refused():
    x, y = samples()
    raises(tutti.Error, lambda: tutti.Classifier(model="mpl").fit(x, y), "mpl")
    raises(tutti.Error, lambda: tutti.Classifier(epochs=0).fit(x, y), "epochs")
    for hidden in (16, "16", None):
        raises(tutti.Error, lambda: tutti.Classifier(hidden=hidden).fit(x, y), "hidden")
    for overrides in ([1], "a=b", 3):
        raises(tutti.Error, lambda: tutti.Regressor(overrides=overrides).fit(x, x[:, 0]),
               "overrides")
    raises(tutti.Error, lambda: tutti.Classifier(overrides={"train": {"loss": "mse"}}).fit(x, y),
           "train.loss")
    raises(TypeError, lambda: tutti.Classifier().fit(x, y, sample_weight=x[:, 0]), "sample_weight")
    for one in (tutti.Classifier(), tutti.Regressor()):
        raises(TypeError, lambda: one.fit(Sparse(x), x[:, 0]), "Sparse")
        hole = x.copy()
        hole[3, 2] = np.nan
        raises(ValueError, lambda: one.fit(hole, y), "NaN")
        with np.errstate(over="ignore"):
            raises(ValueError, lambda: one.fit(np.full((9, 5), 1e300), np.arange(9)), "too large")
        raises(ValueError, lambda: one.fit(x[:, None], y), "dim")
    raises(ValueError, lambda: tutti.Classifier().fit(x, ["one"] * len(x)), "class")


def test_data_frames():
    """Names of columns are checked as scikit-learn does."""
    try:
        import pandas as pd
    except ImportError:
        return
    x = np.random.default_rng(0).normal(size=(60, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    labels = pd.Series(np.where(x[:, 0] > 0, "yes", "no"))
    for one, y in ((tutti.Classifier(hidden=[8], epochs=2), labels),
                   (tutti.Regressor(hidden=[8], epochs=2), frame["a"] * 2)):
        one.fit(frame, y)
        plain = type(one)(hidden=[8], epochs=2).fit(x, y.to_numpy())
        if list(one.feature_names_in_) != ["a", "b", "c"]:
            raise AssertionError("names: %s" % one.feature_names_in_)
        if list(one.predict(frame)) != list(plain.predict(x)):
            raise AssertionError("a frame does not train as its array")
        for bad in (frame[["b", "a", "c"]], frame[["a", "b"]]):
            raises(ValueError, lambda: one.predict(bad), "feature names")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
