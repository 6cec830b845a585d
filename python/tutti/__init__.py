"""Trains neural networks on many devices at once.

    import tutti
    run = tutti.train("job.yaml", {"optimizer.lr": 3e-4}, workers=4)
    print(run.result.accuracy, run.history["loss"][-1])

docs/python.md is the guide.  `import tutti` is quick: the C library and numpy are loaded when they
are first needed.
"""

from typing import TYPE_CHECKING, Any

from ._errors import Error
from ._events import Callback, EarlyStopping, Event, Progress, StepInfo
from ._history import History
from ._infer import (ClassResult, Evaluation, LabelResult, Prediction, catalog, doctor, evaluate,
                     export, generate, predict, report)
from ._losses import StepLoss, StepResult
from ._model import Model, from_torch, read_safetensors
from ._runs import Result, Run, load, start, train
from ._samples import Samples
from ._session import Session, session, torch_loss
from ._version import __version__

if TYPE_CHECKING:
    from ._estimators import Classifier, Regressor

__all__ = ["Callback", "ClassResult", "Classifier", "EarlyStopping", "Error", "Evaluation",
           "Event", "History", "LabelResult", "Model", "Prediction", "Progress", "Regressor",
           "Result", "Run", "Samples", "Session", "StepInfo", "StepLoss", "StepResult",
           "__version__", "catalog", "doctor", "evaluate", "export", "from_torch", "generate", "load",
           "predict", "read_safetensors", "report", "session", "start", "torch_loss", "train"]


def __getattr__(name: str) -> Any:
    """Imports the estimators when they are first needed, because they import scikit-learn."""
    if name in ("Classifier", "Regressor"):
        from . import _estimators

        return getattr(_estimators, name)
    raise AttributeError("module 'tutti' has no attribute %r" % name)
