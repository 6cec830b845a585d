"""Uses of a trained run: predictions, evaluation, generated text, exports, and the machine."""

import math
import os
import signal
import threading
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ._errors import Error, flag, invalid, real, shown, whole
from ._events import metrics_of
from ._history import numpy
from ._jobs import Job
from ._library import c, encode, encode_path, take_text
from ._runs import Run
from ._samples import (Samples, as_samples, c_samples, failure_of, named_arrays,
                       set_samples)

RunLike = Union[str, "os.PathLike[str]", Run]


def _folder(run: RunLike) -> bytes:
    return encode_path(run.dir if isinstance(run, Run) else run, "run")


def _text(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else value.decode("utf-8", "replace")


class _CtrlC:
    """Ctrl-C during a call of C that calls Python: a KeyboardInterrupt after the call, because none
    may leave a callback, which returns `is_asked` to end the call."""

    def __init__(self) -> None:
        self.is_asked = False
        self._usual: Any = None

    def __enter__(self) -> "_CtrlC":
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._usual = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: Any) -> None:
        self.is_asked = True

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
        if self.is_asked and (kind is None or issubclass(kind, Error)):
            raise KeyboardInterrupt from None


class Prediction:
    """The prediction for one sample of a file.

    file, index     the file, and the number of the sample in it
    label, name, probability
                    the likeliest class, or the likeliest next token of a text
    top             up to five (label, name, probability), likeliest first
    outputs         the output of the model: logits, or standardized values
    named_outputs   all outputs of a model file with several: arrays by name
    probabilities   of classes or labels; None for values
    labels          of labels of 0 and 1 (train.loss=bce): the probability of a 1 for each, by the name
                    of its column, or by its number
    values          of a regression, in the units of the targets
    loss, perplexity, n_tokens
                    of a text
    mask            of segmentation: the class of each pixel of the image, an array [height, width];
                    None for others
    error           why there is no prediction; then nothing else is set
    """

    __slots__ = ("file", "index", "error", "top", "values", "names", "loss", "perplexity",
                 "n_tokens", "outputs", "named_outputs", "probabilities", "labels", "_mask")

    def __init__(self, p: Any):
        import ctypes

        self.file = os.fsdecode(p.file) if p.file is not None else ""
        self.index: int = p.index
        self.error = _text(p.error)
        self.top: List[Tuple[int, Optional[str], float]] = []
        self.values: List[float] = []
        self.names: List[Optional[str]] = []
        self.loss = self.perplexity = float("nan")
        self.n_tokens = 0
        self.outputs: List[float] = []
        self.named_outputs: Dict[str, Any] = {}
        self.probabilities: Optional[List[float]] = None
        self.labels: Dict[Union[int, str], float] = {}
        self._mask: Optional[Tuple[bytes, int, int]] = None
        if self.error is not None:
            return
        if p.is_value:
            self.values = [p.values[i] for i in range(p.n_values)]
            self.names = [_text(p.names[i]) for i in range(p.n_values)] if p.names else []
        else:
            self.top = [(t.label, _text(t.name), t.probability) for t in p.top[:p.n_top]]
        self.outputs = p.outputs[:p.n_outputs]
        for o in p.named[:p.n_named]:
            shape = tuple(o.shape.dim[:o.shape.n_dims])
            data = ctypes.string_at(o.data, 4 * math.prod(shape))
            self.named_outputs[_text(o.name) or ""] = \
                numpy().frombuffer(data, dtype=numpy().float32).reshape(shape)
        self.probabilities = p.probabilities[:p.n_outputs] if p.probabilities else None
        if p.is_labels and self.probabilities:
            self.labels = {_text(p.names[i]) or i if p.names else i: probability
                           for i, probability in enumerate(self.probabilities)}
        if p.mask:
            self._mask = (ctypes.string_at(p.mask, 2 * p.mask_height * p.mask_width),
                          p.mask_height, p.mask_width)
        if p.is_text:
            self.loss, self.perplexity, self.n_tokens = p.loss, p.perplexity, p.n_tokens

    @property
    def mask(self) -> Any:
        if self._mask is None:
            return None
        data, height, width = self._mask
        return numpy().frombuffer(data, dtype=numpy().uint16).reshape(height, width)

    @property
    def label(self) -> Optional[int]:
        return self.top[0][0] if self.top else None

    @property
    def name(self) -> Optional[str]:
        return self.top[0][1] if self.top else None

    @property
    def probability(self) -> Optional[float]:
        return self.top[0][2] if self.top else None

    def __repr__(self) -> str:
        what = "error: %s" % self.error if self.error is not None else \
            "values %s" % self.values if self.values else \
            "labels %s" % self.labels if self.labels else \
            "%s, probability %.4f" % (self.name if self.name is not None else self.label,
                                      self.probability or 0.0)
        return "<tutti.Prediction %s[%d]: %s>" % (self.file, self.index, what)


class _Warnings:
    """Texts that C reports; they become UserWarnings where Python calls show()."""

    def __init__(self) -> None:
        from . import _c

        self.texts: List[str] = []
        self.function = _c.tutti_warn_fn(self._take)

    def _take(self, _: Any, text: Any) -> None:
        self.texts.append(_text(text) or "")

    def show(self) -> None:
        import warnings

        for text in self.texts:
            warnings.warn(text, stacklevel=3)


def predict(run: RunLike, data: Any, overrides: Optional[Mapping[str, Any]] = None, *,
            allow_plugin: bool = False, skip_errors: bool = False) -> List[Prediction]:
    """Predicts every sample of files or arrays with the newest valid checkpoint of a run.

    run          a run or its folder
    data         a path or a list of paths: images, arrays, tables or texts, as the model reads them;
                 a folder means all such files in it and below, "-" standard input (tables and
                 texts).  Or samples in memory: an array, a dict of arrays by the names of fields, or
                 tutti.Samples
    skip_errors  return samples that cannot be read as predictions with an error, instead of raising

    Cells of a table that are filled in, categories that training did not have, and damaged checkpoints
    that are skipped are a UserWarning.
    """
    import ctypes
    import warnings

    from . import _c

    if isinstance(data, (str, bytes, os.PathLike)):
        data = [data]
    is_files = isinstance(data, (list, tuple)) and len(data) > 0 and \
        isinstance(data[0], (str, bytes, os.PathLike))
    paths = [encode_path(f, "data") for f in data] if is_files else []
    held: List[Any] = []
    flag(skip_errors, "skip_errors")
    if not is_files:
        samples = data if isinstance(data, Samples) else named_arrays(data)
        given = c_samples(samples, held)
    found: List[Prediction] = []
    notices: List[str] = []
    failure: List[BaseException] = []

    def take(_: Any, source: Any) -> int:
        """Called by C.  No exception may leave it; it ends the call."""
        try:
            if source.contents.notice is None:
                found.append(Prediction(source.contents))
            else:
                notices.append(_text(source.contents.notice) or "")
        except BaseException as e:
            failure.append(e)
        return bool(failure) or ctrl_c.is_asked

    with Job(overrides=overrides, run=os.fsdecode(_folder(run)),
             allow_plugin=allow_plugin) as job, _CtrlC() as ctrl_c:
        try:
            if is_files:
                c.tutti_predict(job.handle, _folder(run), (ctypes.c_char_p * len(paths))(*paths),
                                len(paths), _c.tutti_predict_fn(take), None)
            else:
                c.tutti_predict_samples(job.handle, _folder(run), ctypes.byref(given),
                                        _c.tutti_predict_fn(take), None)
        except Error as e:
            if failure:
                raise failure[0]
            reasons = [p.error for p in found if p.error is not None]
            if not reasons or e.status not in ("E_DATA", "E_NUMERICS"):
                raise failure_of(held, e) from None
            if not skip_errors:
                raise Error(e.status, "%s: %s" % (e.message, "; ".join(reasons[:5])),
                            e.exit_code) from None
        finally:
            for notice in notices:
                warnings.warn(notice, stacklevel=2)
    return found


class ClassResult:
    """Figures of one class: n_samples, n_predicted, n_correct, precision, recall, f1."""

    def __init__(self, source: Any):
        self.name = _text(source.name)
        self.n_samples: int = source.n_samples
        self.n_predicted: int = source.n_predicted
        self.n_correct: int = source.n_correct
        self.precision: float = source.precision
        self.recall: float = source.recall
        self.f1: float = source.f1

    def __repr__(self) -> str:
        return "<tutti.ClassResult %s: precision %.4f, recall %.4f, f1 %.4f>" % (
            self.name, self.precision, self.recall, self.f1)


class LabelResult:
    """Figures of one label of 0 and 1: n_samples, n_positive (with a 1), n_predicted (as 1), n_correct,
    accuracy, precision, recall, f1, auc; NaN where nothing is divided."""

    def __init__(self, source: Any):
        self.name = _text(source.name)
        self.n_samples: int = source.n_samples
        self.n_positive: int = source.n_positive
        self.n_predicted: int = source.n_predicted
        self.n_correct: int = source.n_correct
        self.accuracy: float = source.accuracy
        self.precision: float = source.precision
        self.recall: float = source.recall
        self.f1: float = source.f1
        self.auc: float = source.auc

    def __repr__(self) -> str:
        return "<tutti.LabelResult %s: accuracy %.4f, auc %.4f>" % (self.name, self.accuracy, self.auc)


class Evaluation:
    """The result of tutti.evaluate.

    loss, accuracy, macro_f1, perplexity, rmse, mae, r2, n_samples, n_targets, step
    metrics      figures of train.metrics and model.metrics by name
    metrics_each name -> list of the values for each class or column, for some of the metrics
    classes      a ClassResult for each class
    confusion    array [true class, predicted class] of counts
    labels       a LabelResult for each label of 0 and 1 (train.loss=bce)
    targets      of a regression: name -> {"rmse", "mae", "r2"}
    """

    FIELDS = ("step", "n_samples", "n_targets", "loss", "accuracy", "is_regression", "rmse", "mae",
              "r2", "is_sequence", "perplexity", "macro_f1", "wall_s")

    step: int
    n_samples: int
    n_targets: int
    loss: float
    accuracy: float
    is_regression: bool
    rmse: float
    mae: float
    r2: float
    is_sequence: bool
    perplexity: float
    macro_f1: float
    wall_s: float

    def __init__(self, source: Any, text: str):
        for name in self.FIELDS:
            setattr(self, name, getattr(source, name))
        self.checkpoint = os.fsdecode(source.checkpoint)
        self.data = source.data.decode("utf-8", "replace")
        self.classes = [ClassResult(source.classes[i]) for i in range(source.n_classes)]
        self.labels = [LabelResult(source.labels[i]) for i in range(source.n_labels)]
        n = source.n_classes
        self._counts = [source.confusion[i] for i in range(n * n)]
        self.targets: Dict[Any, Dict[str, float]] = {}
        for i in range(source.n_values):
            v = source.values[i]
            name = _text(v.name)
            self.targets[i if name is None else name] = {"rmse": v.rmse, "mae": v.mae, "r2": v.r2}
        self.metrics, self.metrics_each = metrics_of(source)
        self._printed = text

    @property
    def confusion(self) -> Any:
        n = len(self.classes)
        return numpy().array(self._counts, dtype=numpy().int64).reshape(n, n)

    def __str__(self) -> str:
        return self._printed

    def __repr__(self) -> str:
        return "<tutti.Evaluation: %d samples, loss %.6g, accuracy %.4g>" % (
            self.n_samples, self.loss, self.accuracy)


def evaluate(run: RunLike, overrides: Optional[Mapping[str, Any]] = None, *, data: Any = None,
             allow_plugin: bool = False) -> Evaluation:
    """Evaluates the newest valid checkpoint of a run on its test split, or on other data:
    tutti.evaluate(run, {"data.dir": "new"}), or samples in memory: tutti.evaluate(run, data=(x, y)),
    given as for tutti.train."""
    import ctypes

    from . import _c

    result = _c.tutti_eval_result()
    notices = _Warnings()
    with Job(overrides=overrides, run=os.fsdecode(_folder(run)), allow_plugin=allow_plugin) as job:
        if data is not None:
            set_samples(job, _c.TUTTI_TEST, as_samples(data, "data"))
        try:
            c.tutti_eval(job.handle, _folder(run), notices.function, None, ctypes.byref(result))
        except Error as e:
            raise failure_of(job.keep, e) from None
        finally:
            notices.show()
        try:
            return Evaluation(result, take_text(c.tutti_eval_print(ctypes.byref(result), False)))
        finally:
            c.tutti_eval_result_free(ctypes.byref(result))


def generate(run: RunLike, prompt: str, max_tokens: int = 200, *, temperature: float = 1.0,
             top_k: int = 0, top_p: float = 0.0, seed: int = 0, on_text: Any = None,
             overrides: Optional[Mapping[str, Any]] = None, allow_plugin: bool = False) -> str:
    """Continues a prompt with a language model and returns the whole text.

    temperature  divides the logits; 0: always the likeliest token
    top_k, top_p sample from the k likeliest tokens, or from those with this total probability
    on_text      called with the text of each token as it is generated; an exception ends the call
    """
    import codecs
    import ctypes

    from . import _c

    if not isinstance(prompt, str):
        raise invalid("prompt: want text, got %s" % type(prompt).__name__)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: List[str] = []
    failure: List[BaseException] = []

    def take(_: Any, text: Any, n_bytes: int) -> int:
        """Called by C.  No exception may leave it; it ends the call."""
        try:
            piece = decoder.decode(ctypes.string_at(text, n_bytes))
            pieces.append(piece)
            if on_text is not None and piece:
                on_text(piece)
        except BaseException as e:
            failure.append(e)
        return bool(failure) or ctrl_c.is_asked

    # C passes bytes with a length, which a c_char_p would cut at a NUL.
    desc = _c.tutti_generate_desc()
    desc.prompt = encode(prompt, "prompt")
    desc.max_tokens, desc.top_k = whole(max_tokens, "max_tokens", 1), whole(top_k, "top_k", 0)
    desc.temperature, desc.top_p = real(temperature, "temperature"), real(top_p, "top_p")
    desc.seed = whole(seed, "seed", 0, 2 ** 64 - 1)
    if on_text is not None and not callable(on_text):
        raise invalid("on_text: want a function of a text, got %s" % shown(on_text))
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                ctypes.c_size_t)(take)
    desc.on_text = ctypes.cast(function, type(desc.on_text))
    notices = _Warnings()
    desc.on_warning = notices.function
    with Job(overrides=overrides, run=os.fsdecode(_folder(run)),
             allow_plugin=allow_plugin) as job, _CtrlC() as ctrl_c:
        try:
            c.tutti_generate(job.handle, _folder(run), ctypes.byref(desc))
        except Error:
            if failure:
                raise failure[0]
            raise
        finally:
            notices.show()
    return "".join(pieces) + decoder.decode(b"", True)


def export(run: RunLike, format: str, out: Union[str, "os.PathLike[str]"], *,
           max_file_bytes: int = 0, overrides: Optional[Mapping[str, Any]] = None,
           allow_plugin: bool = False) -> int:
    """Exports a run: "safetensors", "hf", "torchvision", "onnx" or "state-dict".  Returns the number
    of tensors written."""
    import ctypes

    from . import _c

    number = ctypes.c_int()
    if not isinstance(format, str) or not c.tutti_export_find(encode(format, "format"),
                                                              ctypes.byref(number)):
        raise invalid('format: want "safetensors", "hf", "torchvision", "onnx" or "state-dict", got '
                      '%s' % shown(format))
    desc = _c.tutti_export_desc(format=number.value, out=encode_path(out, "out"),
                                max_file_bytes=whole(max_file_bytes, "max_file_bytes", 0))
    result = _c.tutti_export_result()
    notices = _Warnings()
    with Job(overrides=overrides, run=os.fsdecode(_folder(run)), allow_plugin=allow_plugin) as job:
        try:
            c.tutti_export(job.handle, _folder(run), ctypes.byref(desc), notices.function, None,
                           ctypes.byref(result))
        finally:
            notices.show()
    return int(result.n_tensors)


def report(run: RunLike, *, allow_plugin: bool = False) -> str:
    """Writes RUN/report.html and returns its path."""
    with Job(run=os.fsdecode(_folder(run)), allow_plugin=allow_plugin) as job:
        c.tutti_report(job.handle, _folder(run))
    return os.path.join(os.fsdecode(_folder(run)), "report.html")


def doctor(measure: bool = False) -> str:
    """Describes this machine: cores, devices, modules, the libraries in use and where they are."""
    import ctypes

    text = ctypes.c_void_p()
    c.tutti_doctor(flag(measure, "measure"), ctypes.byref(text))
    return take_text(text)


def catalog(what: str) -> str:
    """The table "ops", "operators", "passes", "models", "formats", "optimizers", "schedules",
    "transports" or "algorithms" of the library as text."""
    import ctypes

    text = ctypes.c_void_p()
    c.tutti_catalog(encode(what, "what"), ctypes.byref(text))
    return take_text(text)
