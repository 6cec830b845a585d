"""tutti.Classifier and tutti.Regressor: the API of scikit-learn, which they need."""

from typing import Any, Dict, Optional, Sequence

from ._errors import Error, invalid, shown
from ._jobs import flatten
from ._model import Model

try:
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as e:
    raise Error("E_UNSUPPORTED", "tutti.Classifier and tutti.Regressor need scikit-learn 1.6 or newer: "
                "pip install scikit-learn (%s)" % e) from None


class _Estimator(BaseEstimator):
    """What both have: parameters, the job, and the trained tutti.Model in model_."""

    def __init__(self, model: str = "mlp", hidden: Sequence[int] = (128,), *, epochs: int = 100,
                 batch: Any = "auto", lr: float = 1e-3, optimizer: str = "adamw",
                 weight_decay: Optional[float] = None, workers: Any = 1,
                 devices: Optional[str] = None, random_state: Any = None,
                 callbacks: Any = None, overrides: Optional[Dict[str, Any]] = None):
        self.model = model
        self.hidden = hidden
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.workers = workers
        self.devices = devices
        self.random_state = random_state
        self.callbacks = callbacks
        self.overrides = overrides

    def _seed(self) -> int:
        if self.random_state is None:
            return 1
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        from sklearn.utils import check_random_state

        return int(check_random_state(self.random_state).randint(1 << 31))

    def _train(self, X: Any, y: Any, more: Dict[str, Any]) -> None:
        values: Dict[str, Any] = {"optimizer.name": self.optimizer, "train.seed": self._seed(),
                                  "run.checkpoint_every": -1}
        if self.model == "mlp":
            if not isinstance(self.hidden, (list, tuple, np.ndarray)):
                raise invalid("hidden: want a list of widths such as [256], got %s" %
                              shown(self.hidden))
            values["model.hidden"] = list(self.hidden)
        if self.weight_decay is not None:
            values["optimizer.weight_decay"] = self.weight_decay
        values.update(more)
        values.update(flatten({} if self.overrides is None else self.overrides, "overrides"))
        batch = min(32, len(X)) if self.batch == "auto" else self.batch
        made = Model(self.model, values)
        made.fit(np.asarray(X, dtype=np.float32), y, workers=self.workers, batch=batch,
                 epochs=self.epochs, lr=self.lr, devices=self.devices, callbacks=self.callbacks,
                 progress=False)
        self.model_ = made
        self.history_ = made.history
        self.n_iter_ = made._trained("fit").result.n_steps  # type: ignore[union-attr]

    def _outputs(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False, dtype=np.float32, ensure_min_features=1)
        return self.model_.predict(X)


class Classifier(ClassifierMixin, _Estimator):
    """A classifier of rows of numbers with scikit-learn's API.

    model, hidden  a built-in model, and the widths of the hidden layers of mlp
    epochs, batch, lr, optimizer, weight_decay
                   train.epochs, train.batch ("auto": up to 32), optimizer.lr, .name, .weight_decay
    workers, devices
                   as for tutti.train; results do not depend on the number of workers
    random_state   the seed; the same seed gives the same bits
    callbacks      tutti.Callback objects
    overrides      further job keys

    After fit: classes_, n_features_in_, model_ (a tutti.Model), history_, n_iter_.
    """

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Trains on rows X with labels y of any type."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        given = {} if self.overrides is None else self.overrides
        loss = dict(flatten(given, "overrides")).get("train.loss", "cross-entropy")
        if loss not in ("cross-entropy", "focal"):
            raise invalid('overrides: train.loss: a classifier has "cross-entropy" or "focal", got %s'
                          % shown(loss))
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present in y: %r" %
                             (self.classes_[0],))
        self._train(X, numbers.astype(np.int32), {"data.classes": len(self.classes_)})
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities [n_samples, n_classes], in the order of classes_."""
        logits = self._outputs(X).astype(np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def decision_function(self, X: Any) -> Any:
        """The logits; for two classes the difference of both."""
        logits = self._outputs(X).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> Any:
        """The likeliest class of each row."""
        numbers = self._outputs(X).argmax(axis=1)
        return self.classes_[numbers]


class Regressor(RegressorMixin, _Estimator):
    """A regression on rows of numbers with scikit-learn's API; y has one value for each row, or
    several.  The parameters are those of tutti.Classifier.

    After fit: n_features_in_, model_ (a tutti.Model), history_, n_iter_.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "Regressor":
        """Trains on rows X with values y."""
        X, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=True)
        if len(X) < 2:
            raise ValueError("Regressor needs more than 1 sample, got n_samples = 1")
        self._is_row = y.ndim == 1
        self._train(X, np.asarray(y, dtype=np.float64).reshape(len(X), -1),
                    {"train.loss": "mse", "data.target": "value"})
        return self

    def predict(self, X: Any) -> Any:
        """The values of each row, in the unit of y."""
        values = self._outputs(X)
        return values.reshape(len(values)) if self._is_row else values
