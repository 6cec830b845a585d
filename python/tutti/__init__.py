"""Trains neural networks on many devices at once.

    import tutti
    run = tutti.train("job.yaml", {"optimizer.lr": 3e-4}, workers=4)
    print(run.result.accuracy, run.history["loss"][-1])

docs/python.md is the guide.  `import tutti` is quick: the C library and numpy are loaded when they
are first needed.
"""

from ._errors import Error
from ._events import Callback, EarlyStopping, Event, Progress
from ._history import History
from ._infer import (ClassResult, Evaluation, Prediction, catalog, doctor, evaluate, export,
                     generate, predict, report)
from ._runs import Result, Run, load, start, train
from ._version import __version__

__all__ = ["Callback", "ClassResult", "EarlyStopping", "Error", "Evaluation", "Event", "History",
           "Prediction", "Progress", "Result", "Run", "__version__", "catalog", "doctor",
           "evaluate", "export", "generate", "load", "predict", "report", "start", "train"]
