"""What a run reports while it trains, and callbacks that receive it."""

import math
import re
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ._errors import invalid, real, shown, whole

if TYPE_CHECKING:
    from ._runs import Run

KINDS = ("start", "step", "eval", "checkpoint", "warning", "end")

# Fields of an event that hold text in C.
TEXTS = ("text", "slowest_why")


def metrics_of(source: Any) -> Tuple[Dict[str, float], Dict[str, List[float]]]:
    """The metrics of an event or evaluation of C: values by name, and values of each class."""
    found = [source.metrics[i] for i in range(source.n_metrics)]
    return ({m.name.decode("utf-8", "replace"): m.value for m in found},
            {m.name.decode("utf-8", "replace"): m.each[:m.n_each] for m in found if m.n_each})


class Event:
    """One report of a run.

    kind        "start", "step", "eval", "checkpoint", "warning" or "end"
    step        steps finished, of n_steps
    epoch       counted from 0
    loss        of the last step, or of the test split ("eval", "end")
    accuracy    likewise; nan if the loss counts no correct predictions
    rmse, mae, r2, nrmse
                of a regression, instead of accuracy
    metrics, metrics_each
                figures by name: of a step the model's own (model.metrics), of an evaluation also
                those of train.metrics; and for some of them the list of values for each class or
                column
    lr, samples_per_s, eta_s, comm_share, wait_share
                learning rate, speed, expected seconds until the end, fractions of the time
    text        a line of text: the folder of a checkpoint, a warning
    """

    __slots__ = ("kind", "step", "n_steps", "epoch", "loss", "accuracy", "is_regression",
                 "n_targets", "nrmse", "rmse", "mae", "r2", "metrics", "metrics_each", "lr",
                 "samples_per_s", "eta_s", "comm_share", "wait_share", "text", "slowest_rank", "slowest_late_share",
                 "slowest_why")

    kind: str
    step: int
    n_steps: int
    epoch: int
    loss: float
    accuracy: float
    is_regression: bool
    n_targets: int
    nrmse: float
    rmse: float
    mae: float
    r2: float
    metrics: Dict[str, float]
    metrics_each: Dict[str, List[float]]
    lr: float
    samples_per_s: float
    eta_s: float
    comm_share: float
    wait_share: float
    text: Optional[str]
    slowest_rank: int
    slowest_late_share: float
    slowest_why: Optional[str]

    def __init__(self, source: Any):
        self.metrics, self.metrics_each = metrics_of(source)
        for name in self.__slots__:
            if name in ("metrics", "metrics_each"):
                continue
            value = getattr(source, name)
            if name in TEXTS:
                value = None if value is None else value.decode("utf-8", "replace")
            setattr(self, name, KINDS[value] if name == "kind" else value)

    def as_dict(self) -> Dict[str, Any]:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        if self.kind in ("checkpoint", "warning", "start"):
            return "<tutti.Event %s: %s>" % (self.kind, self.text)
        return "<tutti.Event %s %d/%d loss %.6g>" % (self.kind, self.step, self.n_steps, self.loss)


class StepInfo:
    """The state of a run after a step.

    step, n_steps, epoch, steps_per_epoch
                 epoch is counted from 0
    loss, accuracy, lr
                 of the step; accuracy is nan if the loss counts no correct predictions
    metrics      the model's own figures of the step (model.metrics) by name
    has_eval, eval_loss, eval_accuracy
                 whether the test split was evaluated after this step, and the results
    """

    __slots__ = ("step", "n_steps", "epoch", "steps_per_epoch", "loss", "accuracy", "lr",
                 "metrics", "has_eval", "eval_loss", "eval_accuracy")

    step: int
    n_steps: int
    epoch: int
    steps_per_epoch: int
    loss: float
    accuracy: float
    lr: float
    metrics: Dict[str, float]
    has_eval: bool
    eval_loss: float
    eval_accuracy: float

    def __init__(self, source: Any):
        self.metrics, _ = metrics_of(source)
        for name in self.__slots__:
            if name != "metrics":
                setattr(self, name, getattr(source, name))

    def __repr__(self) -> str:
        return "<tutti.StepInfo %d/%d loss %.6g>" % (self.step, self.n_steps, self.loss)


class Callback:
    """Base of callbacks: override what you need.

    Most methods receive the run and an event, on_each_step and on_epoch the run and a StepInfo.
    Return True to stop the run with a checkpoint, as if it were finished.  An exception stops the run
    likewise and is raised again by tutti.train or run.wait.  A method may call run.set_lr(lr) and
    run.save().  Methods are called by one thread of the run, one at a time.
    """

    def on_each_step(self, run: "Run", info: StepInfo) -> Optional[bool]:
        """After every step.  All workers wait for it."""

    def on_epoch(self, run: "Run", info: StepInfo) -> Optional[bool]:
        """After the last step of every epoch, and its evaluation and checkpoint."""

    def on_start(self, run: "Run", event: Event) -> Optional[bool]:
        """Before the first step."""

    def on_step(self, run: "Run", event: Event) -> Optional[bool]:
        """After some steps, at most a few times per second, with speed and remaining time."""

    def on_eval(self, run: "Run", event: Event) -> Optional[bool]:
        """After an evaluation of the test split."""

    def on_checkpoint(self, run: "Run", event: Event) -> Optional[bool]:
        """After a checkpoint was saved; event.text is its folder."""

    def on_warning(self, run: "Run", event: Event) -> Optional[bool]:
        """For every warning; event.text has it."""

    def on_end(self, run: "Run", event: Event) -> Optional[bool]:
        """After the last step."""


def as_callbacks(given: Any) -> List[Any]:
    """The argument `callbacks` as a list: objects with Callback's methods, or functions of an
    event."""
    if given is None:
        return []
    if isinstance(given, Callback) or callable(given):
        given = [given]
    if not isinstance(given, (list, tuple)):
        raise invalid("callbacks: want a list of callbacks, got %s" % type(given).__name__)
    for one in given:
        if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
            raise invalid("callbacks: want tutti.Callback objects or functions of an event, got %s" %
                          shown(one))
        _check_methods(one)
    return list(given)


# Beginnings of the names that other libraries give to methods of callbacks.
_MOMENTS = re.compile(r"on_(train|fit|epoch|batch|step|validation|val|test|eval|predict|save|"
                      r"checkpoint|before|after|begin|start|end|log|warn)")


def _check_methods(one: Any) -> None:
    """A method such as on_epoch_end, which Callback does not have, would never be called."""
    known = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(type(one)) if isinstance(one, Callback) else ():
        if _MOMENTS.match(name) and name not in known:
            raise invalid("callbacks: %s.%s is never called: tutti.Callback has %s" %
                          (type(one).__name__, name, ", ".join(known)))


class EarlyStopping(Callback):
    """Stops a run whose evaluations no longer improve.

    monitor    "loss", "accuracy", "rmse", "mae" or "r2" of the test split, or a metric of the
               evaluations (train.metrics, model.metrics), such as "auc"
    patience   evaluations without improvement before the run stops
    min_delta  a smaller change is no improvement
    mode       "min" or "max"; None: "max" where larger is better, as for accuracy and r2; a metric
               of the model's own needs it

    Afterwards `best` and `best_step` have the best value and its step, and `stopped_step` the step
    at which the run was stopped (None: it was not).
    """

    SMALLER = ("loss", "rmse", "mae", "nrmse", "perplexity")
    LARGER = ("accuracy", "r2", "auc", "miou", "class_accuracy")

    def __init__(self, monitor: str = "loss", patience: int = 3, min_delta: float = 0.0,
                 mode: Optional[str] = None):
        if mode is not None and (not isinstance(mode, str) or mode not in ("min", "max")):
            raise invalid('mode: want "min", "max" or None, got %s' % shown(mode))
        name = monitor if isinstance(monitor, str) else ""
        is_larger = name in self.LARGER or re.match(r"top\d+$", name) is not None
        if not name or not (mode or is_larger or name in self.SMALLER):
            known = self.SMALLER + self.LARGER
            meant = re.sub(r"^(val|test|eval)_", "", name)
            raise invalid('monitor: want one of %s, or with mode="min" or "max" a metric of the '
                          "model's own, got %s%s" % (
                              ", ".join(known), shown(monitor), '; evaluations are of the test split: '
                              'use "%s"' % meant if meant != name and meant in known else ""))
        self.monitor, self.patience = name, whole(patience, "patience", 1)
        self.min_delta = real(min_delta, "min_delta")
        if self.min_delta < 0:
            raise invalid("min_delta: want a number of at least 0, got %s" % shown(min_delta))
        self.mode = mode or ("max" if is_larger else "min")
        self._begin()

    def _begin(self) -> None:
        self.best: float = math.nan
        self.best_step: Optional[int] = None
        self.stopped_step: Optional[int] = None
        self._n_worse = 0

    def on_start(self, run: "Run", event: Event) -> Optional[bool]:
        self._begin()
        return None

    def _value(self, event: Event) -> float:
        """The monitored figure of an evaluation."""
        names = ("rmse", "mae", "r2", "nrmse") if event.is_regression else ("accuracy",)
        own = {name: getattr(event, name) for name in names}
        known = {"loss": event.loss, **event.metrics,
                 **{name: value for name, value in own.items() if not math.isnan(value)}}
        if self.monitor not in known:
            raise invalid("monitor: the evaluations of this run have no %s; they have %s" %
                          (self.monitor, ", ".join(known)))
        return known[self.monitor]

    def on_eval(self, run: "Run", event: Event) -> Optional[bool]:
        value = self._value(event)
        sign = 1 if self.mode == "max" else -1
        is_first = self.best_step is None or math.isnan(self.best)
        if is_first or sign * (value - self.best) > self.min_delta:
            self.best, self.best_step, self._n_worse = value, event.step, 0
            return None
        self._n_worse += 1
        if self._n_worse < self.patience:
            return None
        self.stopped_step = event.step
        return True


class Progress(Callback):
    """Shows a progress line: on a terminal it redraws itself; in a notebook it is a progress bar
    with the curve of the loss; elsewhere it prints a line for each evaluation."""

    WIDTH = 24

    def __init__(self, file: Any = None):
        self.file = file
        self._display: Any = None
        self._points: List[Tuple[int, float]] = []
        self._evals: List[Tuple[int, float]] = []

    def _out(self) -> Any:
        return self.file if self.file is not None else sys.stderr

    def on_start(self, run: "Run", event: Event) -> Optional[bool]:
        self._points, self._evals = [], []
        if self.file is None and _in_notebook():
            from IPython.display import HTML, display  # type: ignore[import-not-found]

            self._display = display(HTML(self._html(event)), display_id=True)
        elif event.text:
            self._print(event.text)
        return None

    def on_step(self, run: "Run", event: Event) -> Optional[bool]:
        self._points.append((event.step, event.loss))
        if self._display is not None:
            self._update(event)
        elif _is_terminal(self._out()):
            self._out().write("\r\x1b[2K" + self._line(event))
            self._out().flush()
        return None

    def on_eval(self, run: "Run", event: Event) -> Optional[bool]:
        self._evals.append((event.step, event.loss))
        if self._display is not None:
            self._update(event)
        else:
            self._print("test: " + _scores(event) + ", step %d of %d" % (event.step, event.n_steps))
        return None

    def on_warning(self, run: "Run", event: Event) -> Optional[bool]:
        self._print("warning: %s" % event.text)
        return None

    def on_end(self, run: "Run", event: Event) -> Optional[bool]:
        if self._display is not None:
            self._update(event)
        return None

    def _print(self, text: str) -> None:
        out = self._out()
        out.write(("\r\x1b[2K" if _is_terminal(out) else "") + text + "\n")
        out.flush()

    def _line(self, event: Event) -> str:
        share = event.step / max(1, event.n_steps)
        bar = ("#" * int(share * self.WIDTH)).ljust(self.WIDTH, ".")
        return "%3.0f %% %s %d/%d  %s  %.0f samples/s  %.0f s left" % (
            100 * share, bar, event.step, event.n_steps, _scores(event), event.samples_per_s,
            event.eta_s)

    def _update(self, event: Event) -> None:
        from IPython.display import HTML

        self._display.update(HTML(self._html(event)))

    def _html(self, event: Event) -> str:
        share = 100 * event.step / max(1, event.n_steps)
        return ('<div style="font:12px sans-serif;max-width:480px">'
                '<progress max="100" value="%.1f" style="width:100%%"></progress>'
                "<div>step %d of %d, %s, %.0f samples/s</div>%s</div>" %
                (share, event.step, event.n_steps, _scores(event), event.samples_per_s,
                 _curve(self._points, self._evals)))


def _scores(event: Event) -> str:
    text = "loss %.4g" % event.loss
    if event.is_regression:
        return text + (", rmse %.4g" % event.rmse if event.rmse == event.rmse else "")
    return text + ("" if math.isnan(event.accuracy) else ", accuracy %.4f" % event.accuracy)


def _curve(points: List[Tuple[int, float]], evals: List[Tuple[int, float]]) -> str:
    """The losses as an SVG: a line for training, one for the test split."""
    drawn = [[p for p in line if math.isfinite(p[1])] for line in (points, evals)]
    shown = drawn[0] + drawn[1]
    if len(shown) < 2:
        return ""
    width, height, most = 480, 120, 400
    x0, x1 = min(p[0] for p in shown), max(p[0] for p in shown)
    y0, y1 = min(p[1] for p in shown), max(p[1] for p in shown)
    lines = ""
    for line, color in zip(drawn, ("#1f77b4", "#d62728")):
        every = max(1, len(line) // most)
        at = " ".join("%.1f,%.1f" % ((x - x0) / max(1, x1 - x0) * width,
                                     height - (y - y0) / ((y1 - y0) or 1.0) * height)
                      for x, y in line[::every])
        lines += '<polyline fill="none" stroke="%s" points="%s"/>' % (color, at)
    return ('<svg width="%d" height="%d" viewBox="-2 -2 %d %d">%s</svg><div>loss: '
            '<span style="color:#1f77b4">training</span>, '
            '<span style="color:#d62728">test</span>, %.4g to %.4g</div>' %
            (width, height, width + 4, height + 4, lines, y0, y1))


def _is_terminal(file: Any) -> bool:
    try:
        return bool(file.isatty())
    except (AttributeError, ValueError):
        return False


def _in_notebook() -> bool:
    """True in a notebook: IPython runs with a kernel that displays HTML."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and shell.__class__.__name__ == "ZMQInteractiveShell"


def default_progress() -> List[Callback]:
    """The progress display, in a terminal or a notebook."""
    return [Progress()] if _in_notebook() or _is_terminal(sys.stderr) else []
