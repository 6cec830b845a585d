"""Results of the steps of a session: the loss as a number, known at once or later."""

import math
import numbers
import operator
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._errors import Error
from ._events import metrics_of
from ._history import numpy


class StepResult(float):
    """The mean loss of a step, as a number, with the other results as attributes:

    step, n_rows, loss_sum, count, correct, lr, grad_norm, grad_scale, skipped
    metrics, metrics_each
                 as of an Event
    params_hash  of the parameters after the update, as 16 hexadecimal digits
    """

    step: int
    n_rows: int
    loss_sum: float
    count: float
    correct: float
    lr: float
    grad_norm: float
    grad_scale: float
    skipped: bool
    metrics: Dict[str, float]
    metrics_each: Dict[str, List[float]]
    params_hash: str

    def __new__(cls, source: Any) -> "StepResult":
        if isinstance(source, float):  # a copy, whose attributes follow
            return super().__new__(cls, source)
        made = super().__new__(cls, source.loss_sum / source.count if source.count else 0.0)
        for name in ("step", "n_rows", "loss_sum", "count", "correct", "lr", "grad_norm",
                     "grad_scale", "skipped"):
            setattr(made, name, getattr(source, name))
        made.metrics, made.metrics_each = metrics_of(source)
        made.params_hash = "%016x" % source.params_hash
        return made

    @property
    def accuracy(self) -> float:
        """The fraction of correct predictions; nan if the loss counts none."""
        return self.correct / self.count if self.count else float("nan")

    def item(self) -> float:
        """The loss as a plain float."""
        return float(self)


class StepLoss:
    """The mean loss of Session.step, which may not be computed yet.

    It is a number: float(loss), comparisons, arithmetic, formatting and numpy.asarray wait for the
    step and use its loss.  So do the attributes, which are those of a StepResult: loss.accuracy,
    loss.lr, loss.params_hash.  It is not a subclass of float: json.dumps and isinstance(loss, float)
    need float(loss).

    A loss that nobody reads costs nothing; one that is read in every step makes the device wait for
    Python.  A loss may be kept and read at any time, also after the session is closed.
    """

    __slots__ = ("_fetch", "_result", "_failure", "__weakref__")

    def __init__(self, fetch: Optional[Callable[[], StepResult]],
                 result: Optional[StepResult] = None):
        self._fetch, self._result = fetch, result
        self._failure: Optional[Tuple[Any, ...]] = None

    def result(self) -> StepResult:
        """Waits for the step and returns its result.  Raises tutti.Error if the step has failed."""
        fetch = self._fetch
        if self._result is None and self._failure is None and fetch is not None:
            try:
                self._result = fetch()
            except Error as e:
                if e.status == "E_INVALID":  # of the call, such as in a fork; not of the step
                    raise
                self._failure = (e.status, e.message, e.exit_code)
        self._fetch = None  # the session may go
        if self._failure is not None:
            raise Error(*self._failure)
        assert self._result is not None
        return self._result

    def item(self) -> float:
        """The loss as a plain float."""
        return float(self.result())

    def _settle(self) -> None:
        """Keeps the result or the failure, for a session that is about to forget it."""
        try:
            self.result()
        except Error:
            pass  # raised where the loss is read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols that a number does not have
            raise AttributeError("a StepLoss has no attribute %s" % name)
        return getattr(self.result(), name)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        return numpy().array(float(self), dtype=dtype or "float64")

    def __reduce__(self) -> Any:
        return StepLoss, (None, self.result())

    def __copy__(self) -> "StepLoss":
        return self

    def __deepcopy__(self, _: Any) -> "StepLoss":
        return self

    def __dir__(self) -> List[str]:
        return sorted(set(dir(StepResult)) | set(object.__dir__(self)))

    def __hash__(self) -> int:
        return hash(float(self))

    def __format__(self, form: str) -> str:
        return format(float(self), form)

    def __repr__(self) -> str:
        return repr(float(self))

    def __float__(self) -> float:
        return float(self.result())

    def __int__(self) -> int:
        return int(float(self))

    def __bool__(self) -> bool:
        return bool(float(self))

    def __round__(self, n: Optional[int] = None) -> Any:
        return round(float(self), n)


def _add_operators() -> None:
    def unary(function: Callable[[float], Any]) -> Any:
        return lambda self: function(float(self))

    def binary(function: Callable[[Any, Any], Any]) -> Any:
        return lambda self, other: function(float(self), other)

    def reflected(function: Callable[[Any, Any], Any]) -> Any:
        return lambda self, other: function(other, float(self))

    for name in ("neg", "pos", "abs"):
        setattr(StepLoss, "__%s__" % name, unary(getattr(operator, name)))
    for name in ("trunc", "floor", "ceil"):
        setattr(StepLoss, "__%s__" % name, unary(getattr(math, name)))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(StepLoss, "__%s__" % name, binary(getattr(operator, name)))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        setattr(StepLoss, "__%s__" % name, binary(getattr(operator, name)))
        setattr(StepLoss, "__r%s__" % name, reflected(getattr(operator, name)))
    setattr(StepLoss, "__divmod__", binary(divmod))
    setattr(StepLoss, "__rdivmod__", reflected(divmod))


_add_operators()
numbers.Real.register(StepLoss)
