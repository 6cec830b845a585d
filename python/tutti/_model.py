"""Models: built-in ones by name, exported ones, and those of PyTorch; fit, predict, weights."""

import json
import os
import struct
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ._errors import Error, invalid, shown, whole
from ._history import numpy
from ._jobs import flatten
from ._library import encode, encode_path
from ._runs import Run, checked_lr, train
from ._samples import check_rows, named_arrays
from ._session import HostLoss, Session, layout

Arrays = Union[Any, Mapping[str, Any]]


# Losses that compare two outputs of the model and need no target.
PAIR_LOSSES = ("infonce", "sigmoid")
# Losses whose targets are numbers of the shape of the output, in samples with fields.
FIELD_LOSSES = ("bce", "kl", "cosine")
VALUE_LOSSES = ("mae", "huber", "smooth_l1", "cosine")


class _Folder:
    """A temporary folder that lives as long as this object."""

    def __init__(self) -> None:
        import tempfile

        self.path = tempfile.mkdtemp(prefix="tutti-")
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork, whose parent still uses it
        import shutil

        shutil.rmtree(path, ignore_errors=True)


class Model:
    """A model with its weights.

        model = tutti.Model("mlp", {"model.hidden": [256]})
        model.fit(x, y, epochs=10)
        logits = model.predict(x)

    name       a built-in model (tutti.catalog("models")), or a .pt2 or .onnx file
    overrides  job keys
    inputs     shapes of one row of each input, for a session before fit: {"x": (20,)}
    n_classes  number of classes of the labels, for a session before fit
    """

    def __init__(self, name: Union[str, "os.PathLike[str]"] = "mlp",
                 overrides: Optional[Mapping[str, Any]] = None, *,
                 inputs: Optional[Mapping[str, Any]] = None, n_classes: int = 0):
        path = os.fsdecode(encode(name, "name"))
        is_file = path.endswith((".pt2", ".onnx")) or os.path.isdir(path)
        self.job: Dict[str, Any] = {"model.file" if is_file else "model.name":
                                    os.path.abspath(path) if is_file else path}
        self.job.update(flatten({} if overrides is None else overrides, "overrides"))
        self.inputs, self.n_classes = inputs, n_classes
        self.run: Optional[Run] = None
        self._names: Tuple[str, ...] = ()  # of the inputs
        self._targets: Tuple[str, ...] = ()  # of several targets that fit takes as a tuple
        self._as_fields = False  # samples are fields, which are not standardized
        self._class_axis = -1  # of the output
        self.feature_names: Optional[List[str]] = None  # columns of the data frame of fit
        self._files: Optional[_Folder] = None  # of an exported model
        self._row_kinds: Dict[str, Any] = {}  # shape and type of a row of its inputs
        self._folder: Optional[_Folder] = None  # of the run, if the caller named none
        self._session: Optional[Session] = None
        self._is_several: Optional[bool] = None  # whether the model has several outputs

    # ---- training ----

    def fit(self, x: Arrays, y: Any = None, *, validation: Optional[Tuple[Any, Any]] = None,
            workers: Union[None, int, str] = None, batch: Optional[int] = None,
            epochs: Optional[int] = None, steps: Optional[int] = None, lr: Optional[float] = None,
            overrides: Optional[Mapping[str, Any]] = None, callbacks: Any = None,
            progress: Union[bool, str] = "auto", devices: Optional[str] = None,
            run_dir: Union[None, str, "os.PathLike[str]"] = None) -> "Model":
        """Trains the model on arrays and returns it; a second call continues with its weights.  If
        Ctrl-C or an exception of a callback stops it, the model has the weights of that step.

        x, y        arrays with a row for each sample; several inputs as a dict or tuple of arrays.
                    Labels are whole numbers; values are numbers, one or a row of several for each
                    sample; with train.loss=bce y has a column of 0 or 1 for each question; the
                    contrastive losses infonce and sigmoid need no y
        validation  (x, y) that are evaluated after each epoch; None: data.val_fraction of the
                    samples if it is set, else the training samples at the end
        workers     number of workers, or "auto"
        batch, epochs, steps, lr
                    train.batch, train.epochs, train.steps and optimizer.lr
        devices     "cpu", "gpu" or numbers of GPUs
        overrides, callbacks, progress
                    as for tutti.train
        run_dir     new folder of the run; None: a temporary one, which lives as long as the model
        """
        values = dict(self.job)
        values.update(flatten(layout(overrides, None, devices), "overrides"))
        if values.get("train.loss") in FIELD_LOSSES + PAIR_LOSSES:
            self._as_fields = True
        columns = _column_names(x)
        arrays = self._samples(x, y, values.get("train.loss"))
        if self._as_fields and "y" in arrays and not self._targets and "train.loss" in values and \
                values["train.loss"] not in PAIR_LOSSES:
            values.setdefault("data.label", "y")
        if "model.name" in self.job and not self._as_fields and \
                values.get("train.loss") in ("mse",) + VALUE_LOSSES:
            values.setdefault("data.target", "value")  # whole numbers too
        check_rows(arrays, self._row_kinds)
        if self._files and not self._as_fields and "y" in arrays and arrays["y"].ndim > 1 and \
                arrays["y"].dtype.kind == "f":
            raise invalid("y: a distribution over the classes needs a batch of such targets in "
                          "tutti.from_torch(..., target=y[:8])")
        for name, value in (("batch", batch), ("epochs", epochs), ("steps", steps)):
            if value is not None:
                values["train." + name] = whole(value, name, 1)
        if lr is not None:
            values["optimizer.lr"] = checked_lr(lr)
        folder = None
        held_out: Optional[Dict[str, Any]] = None
        if validation is not None:
            if not isinstance(validation, (tuple, list)) or len(validation) != 2:
                raise invalid("validation: want a pair (x, y), got %s" % type(validation).__name__)
            _check_columns(columns, validation[0], "validation")
            held_out = self._samples(validation[0], validation[1],
                                     values.get("train.loss"))
        elif "data.val_fraction" not in values:
            held_out = arrays
            values.setdefault("train.eval_every", 0)
        if self._as_fields:
            values.setdefault("data.fields", "all")
        if self.run is not None:
            values["model.init"] = _newest_checkpoint(self.run)
            values["model.init_except"] = None
        if run_dir is None:
            folder = _Folder()
            values["run.dir"] = os.path.join(folder.path, "run")
        else:
            values["run.dir"] = os.path.abspath(os.fsdecode(
                encode_path(run_dir, "run_dir")))
        try:
            run = train(None, values, workers=workers, callbacks=callbacks, progress=progress,
                        data=arrays, validation=held_out)
        except BaseException as e:
            if not _checkpoints(values["run.dir"]):
                raise
            self._set_run(Run(os.path.abspath(values["run.dir"])), folder)
            self.feature_names = columns
            if isinstance(e, KeyboardInterrupt):
                raise KeyboardInterrupt("fit was stopped; the model has the weights of its last "
                                        "step, and a further fit continues with them") from None
            raise
        self._set_run(run, folder)
        self.feature_names = columns
        return self

    def _set_run(self, run: Run, folder: Optional[_Folder]) -> None:
        self._close_session()
        self.run, self._folder = run, folder

    def _loss(self) -> str:
        """train.loss of the last fit."""
        from ._jobs import Job

        with Job(run=self._trained("train.loss").dir) as job:
            return job.get("train.loss") or ""

    def _samples(self, x: Arrays, y: Any, loss: Optional[str]) -> Dict[str, Any]:
        """Samples by the names of their fields.  Questions are f32 and, for a built-in model, in
        columns."""
        found = named_arrays(x, y, self._names, self._targets)
        if "y" not in found and "model.name" in self.job and loss not in PAIR_LOSSES:
            raise invalid("y: want a label or value for each sample, got %s" %
                          type(y).__name__)
        if loss in FIELD_LOSSES and "y" in found:
            found["y"] = found["y"].astype("float32", copy=False)
            if found["y"].ndim == 1 and "model.name" in self.job:
                found["y"] = found["y"].reshape(-1, 1)
        return found

    def _trained(self, what: str) -> Run:
        if self.run is None:
            raise Error("E_INVALID", "%s: the model is not trained: call fit first" % what)
        return self.run

    @property
    def history(self) -> Any:
        """The curves of the last fit."""
        return self._trained("history").history

    # ---- use ----

    def predict(self, x: Arrays) -> Any:
        """The outputs for rows of x: logits of classes (float32), or values in the unit of the target
        (float64).  A model file with several outputs gives a dict of arrays by their names."""
        _check_columns(self.feature_names, x, "x")
        arrays = named_arrays(x, None, self._names)
        check_rows(arrays, self._row_kinds)
        if self._has_several_outputs(arrays):
            from ._infer import predict

            found = [p.named_outputs for p in predict(self._trained("predict"), arrays)]
            return {name: numpy().stack([row[name] for row in found]) for name in found[0]}
        session = self._open_session("predict")
        return session._forward(arrays, self._predicts_values(self._trained("predict")))

    def _has_several_outputs(self, arrays: Dict[str, Any]) -> bool:
        from ._infer import predict

        run = self._trained("predict")
        if "model.file" not in self.job:
            return False
        if self._is_several is None:
            row = {name: array[:1] for name, array in arrays.items()}
            try:
                self._is_several = len(predict(run, row)[0].named_outputs) > 1
            except Error:  # a model of tokens, or arrays that the session will name
                return False
        return self._is_several

    def _predicts_values(self, run: Run) -> bool:
        with open(os.path.join(run.dir, "data.json"), encoding="utf-8") as file:
            return "target" in json.load(file)  # the mean and deviation of the values

    def predict_proba(self, x: Arrays) -> Any:
        """Probabilities of the classes, or with train.loss=bce those of a yes to each question; of
        the first output if the model has several."""
        np = numpy()
        run, loss = self._trained("predict_proba"), self._loss()
        if self._predicts_values(run) or loss in VALUE_LOSSES:
            raise invalid("predict_proba: the model predicts values (train.loss=%s)" % loss)
        outputs = self.predict(x)
        if isinstance(outputs, dict):
            outputs = next(iter(outputs.values()))
        logits = np.asarray(outputs, dtype=np.float64)
        if loss == "bce":
            powers = np.exp(-np.abs(logits))  # never overflows
            return np.where(logits < 0, powers, 1) / (1 + powers)
        axis = self._class_axis
        powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    def evaluate(self, x: Arrays, y: Any = None) -> Any:
        """Loss and accuracy, or the errors of a regression, on other samples."""
        from ._infer import evaluate

        run = self._trained("evaluate")
        _check_columns(self.feature_names, x, "x")
        return evaluate(run, data=self._samples(x, y, self._loss()))

    def _open_session(self, what: str) -> Session:
        run = self._trained(what)
        if self._session is None or self._session._pid != os.getpid():
            self._session = Session(None, {"parallel.workers": 1, "parallel.place": "threads",
                                           "model.init": None}, run=run.dir)
        return self._session

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def session(self, overrides: Optional[Mapping[str, Any]] = None, *,
                workers: Union[None, int, str] = None, devices: Optional[str] = None,
                loss: Optional[HostLoss] = None) -> Session:
        """Opens a session on the model, with the weights that it has now: see tutti.session."""
        values = layout(overrides, workers, devices)
        if self.run is not None:  # which no longer needs the weights that it began with
            return Session(None, dict({"model.init": None}, **values), run=self.run.dir, loss=loss,
                           keep=self)
        if self.inputs is None:
            raise invalid("session: the shapes of the inputs are not known: call fit first, or "
                          'tutti.Model(..., inputs={"x": (20,)}, n_classes=3)')
        merged = dict(self.job)
        merged.update(flatten(values, "overrides"))
        return Session(None, merged, inputs=self.inputs, n_classes=self.n_classes, loss=loss,
                       keep=self)

    # ---- weights and files ----

    def weights(self) -> Dict[str, Any]:
        """The trained weights by name, as arrays; those of a PyTorch model are its complete
        state_dict."""
        from ._infer import export

        run, out = self._trained("weights"), _Folder()
        kind = "state-dict" if "model.file" in self.job else "safetensors"
        export(run, kind, os.path.join(out.path, "weights"))
        return read_safetensors(os.path.join(out.path, "weights", "model.safetensors"))

    def to_torch(self, module: Any) -> Any:
        """Loads the trained weights into a module of PyTorch, by state_dict names; returns it."""
        import torch

        if not isinstance(module, torch.nn.Module):
            raise invalid("module: want a torch.nn.Module, got %s" % type(module).__name__)
        own = module.state_dict()
        found = {}
        for name, array in self.weights().items():
            if name not in own:
                raise invalid("module: it has no %s, which the trained model has" % name)
            if tuple(own[name].shape) != array.shape:
                raise invalid("module: %s has shape %s, the trained model has %s" %
                              (name, list(own[name].shape), list(array.shape)))
            found[name] = torch.from_numpy(array.copy()).to(own[name].dtype)
        missing = [name for name in own if name not in found]
        if missing:
            raise invalid("module: the trained model has no %s" % ", ".join(missing[:5]))
        module.load_state_dict(found)
        return module

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Copies the run folder to a new folder, which tutti.Model.load and the program read."""
        import shutil

        target = os.fsdecode(encode_path(path, "path"))
        if os.path.exists(target):
            raise invalid("path: %r exists already" % target)
        try:
            shutil.copytree(self._trained("save").dir, target)
        except (OSError, shutil.Error) as e:
            raise Error("E_IO", "path: %s: %s" % (target, e)) from None

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]", Run]) -> "Model":
        """The model of a run folder."""
        from ._jobs import Job
        from ._runs import load

        run = path if isinstance(path, Run) else load(path, "path")
        with Job(run=run.dir) as job:
            name = job.get("model.file") or job.get("model.name") or ""
        made = cls(name)
        made.run = run
        return made

    def __getstate__(self) -> Dict[str, Any]:
        """For pickle: the files of the model and of its newest checkpoint."""
        state = dict(self.__dict__)
        packed: Dict[str, bytes] = {}
        if self.run is not None:
            newest = _newest_checkpoint(self.run)
            for name in ("job.yaml", "data.json", "metrics.jsonl", "tokenizer.json", "model.pt2",
                         "model", os.path.relpath(newest, self.run.dir)):
                packed.update(_read_files(self.run.dir, name))
        exported: Dict[str, bytes] = {}
        if self._files is not None:
            exported = _read_files(self._files.path, ".")
        state.update(run=None, _folder=None, _session=None, _files=None, _packed=packed,
                     _exported=exported)
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        packed, exported = state.pop("_packed"), state.pop("_exported")
        _check_names(packed)
        _check_names(exported)
        self._row_kinds = {}
        self.__dict__.update(state)
        if exported:
            self._files = _Folder()
            _write_files(self._files.path, exported)
            self.job["model.file"] = os.path.join(
                self._files.path, os.path.basename(self.job["model.file"]))
        if packed:
            self._folder = _Folder()
            _write_files(os.path.join(self._folder.path, "run"), packed)
            self.run = Run(os.path.join(self._folder.path, "run"))

    def __repr__(self) -> str:
        name = self.job.get("model.file", self.job.get("model.name"))
        return "<tutti.Model %s, %s>" % (name, "trained" if self.run else "not trained")


def _column_names(x: Any) -> Optional[List[str]]:
    """The names of the columns of a data frame; None: x has none."""
    columns = getattr(x, "columns", None) if hasattr(x, "dtypes") else None
    names = None if columns is None else list(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def _check_columns(wanted: Optional[List[str]], x: Any, what: str) -> None:
    """A data frame must have the columns of the one of fit, in the same order."""
    found = _column_names(x)
    if wanted is None or found is None or found == wanted:
        return
    missing = [name for name in wanted if name not in found]
    more = [name for name in found if name not in wanted]
    text = "it lacks %s" % shown(missing[0]) if missing else \
        "fit did not have %s" % shown(more[0]) if more else \
        "they have another order; use x[model.feature_names]"
    raise invalid("%s: the columns of the data frame are not those of fit: %s" % (what, text))


def _checkpoints(run_dir: str) -> List[str]:
    """The folders of its checkpoints, oldest first."""
    folder = os.path.join(run_dir, "checkpoints")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [os.path.join(folder, n) for n in sorted(names) if n.startswith("step-")]


def _newest_checkpoint(run: Run) -> str:
    found = _checkpoints(run.dir)
    if not found:
        raise Error("E_CHECKPOINT", "%s: no checkpoint" % os.path.join(run.dir, "checkpoints"), 4)
    return found[-1]


def _read_files(root: str, name: str) -> Dict[str, bytes]:
    """The files at or below root/name by their paths from root."""
    start, found = os.path.join(root, name), {}
    paths: List[str] = [start] if os.path.isfile(start) else []
    for where, _, names in os.walk(start):
        paths += [os.path.join(where, n) for n in names]
    for path in paths:
        with open(path, "rb") as file:
            found[os.path.relpath(path, root)] = file.read()
    return found


def _check_names(files: Any) -> None:
    """The files of a pickle, which anyone may have made: their names must be below the folder."""
    items = files.items() if isinstance(files, dict) else [(None, b"")]
    for name, data in items:
        parts = name.split("/") if isinstance(name, str) else [""]
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or \
                not isinstance(data, bytes):
            raise Error("E_DATA", "pickle of a tutti.Model: it has a file %s, which cannot be one of a "
                        "model" % shown(name), 3)


def _write_files(root: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def read_safetensors(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """The tensors of a .safetensors file as arrays that map the file; bfloat16 becomes float32."""
    np = numpy()
    name = os.fsdecode(encode_path(path, "path"))
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
             "I8": "i1", "U8": "u1", "BOOL": "?", "BF16": "<u2"}
    found = {}
    try:
        with open(name, "rb") as file:
            n_bytes = struct.unpack("<Q", file.read(8))[0]
            if n_bytes > os.fstat(file.fileno()).st_size - 8:
                raise ValueError("its header of %d bytes is longer than the file" % n_bytes)
            header = json.loads(file.read(n_bytes))
        data = np.memmap(name, mode="r", offset=8 + n_bytes) \
            if os.path.getsize(name) > 8 + n_bytes else np.empty(0, dtype="u1")
        for tensor, entry in header.items():
            if tensor == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            if not 0 <= first <= last <= len(data):
                raise ValueError("%s lies beyond the end of the file" % tensor)
            array = np.frombuffer(data[first:last], dtype=kinds[entry["dtype"]])
            if entry["dtype"] == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            found[tensor] = array.reshape(entry["shape"])
    except OSError as e:
        raise Error("E_IO", "path: %s: %s" % (name, e.strerror or e)) from None
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise Error("E_CHECKPOINT", "path: %s: not a .safetensors file, or a damaged one: %s" %
                    (name, e), 4) from None
    return found


# ---- PyTorch ----

# Losses that the library computes itself: names of the function and the class in torch.nn ->
# train.loss, and their argument -> job key.
KNOWN_LOSSES: Dict[Tuple[str, str], Tuple[str, Dict[str, str]]] = {
    ("cross_entropy", "CrossEntropyLoss"): ("cross-entropy", {
        "weight": "train.class_weights", "label_smoothing": "train.label_smoothing",
        "ignore_index": "train.ignore_index"}),
    ("mse_loss", "MSELoss"): ("mse", {}),
    ("l1_loss", "L1Loss"): ("mae", {}),
    ("huber_loss", "HuberLoss"): ("huber", {"delta": "train.huber_delta"}),
    ("smooth_l1_loss", "SmoothL1Loss"): ("smooth_l1", {"beta": "train.smooth_l1_beta"}),
    ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"): ("bce", {
        "pos_weight": "train.pos_weight"})}


def _known_loss(loss: Any) -> Tuple[Optional[str], Dict[str, Any]]:
    """train.loss and the job keys that compute this loss of torch.nn; None: there is none."""
    import functools

    import torch

    for (function, kind), (name, keys) in KNOWN_LOSSES.items():
        if loss is getattr(torch.nn.functional, function):
            return name, {}
        given: Dict[str, Any] = {}
        if isinstance(loss, functools.partial) and not loss.args and \
                loss.func is getattr(torch.nn.functional, function):
            given = dict(loss.keywords)
        elif type(loss) is getattr(torch.nn, kind):
            usual = type(loss)()
            names = {key for key in vars(usual) if key[0] != "_" and key != "training"}
            given = {key: getattr(loss, key) for key in names | {"weight", "pos_weight"}
                     if hasattr(loss, key)}
            given = {key: value for key, value in given.items()
                     if torch.is_tensor(value) or value != getattr(usual, key)}
        else:
            continue
        found = {keys.get(key): _loss_value(value) for key, value in given.items()}
        both = "weight" in given and "label_smoothing" in given  # PyTorch weights these otherwise
        return (None, {}) if None in found or None in found.values() or both else (name, {
            key: value for key, value in found.items() if key is not None})
    return None, {}


def _loss_value(value: Any) -> Any:
    """An argument of a loss as the value of a job key; None: no key can have it."""
    import torch

    if torch.is_tensor(value):
        return ", ".join("%.9g" % x for x in value.reshape(-1).tolist()) if value.dim() < 2 else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _made_target(module: Any, inputs: Mapping[str, Any], loss: Any) -> Any:
    """A batch of targets for a loss of torch.nn; None: its name does not say what they are."""
    import copy
    import functools

    import torch

    if isinstance(loss, functools.partial):
        loss = loss.func
    name = getattr(loss, "__name__", type(loss).__name__)
    of_classes = ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")
    of_values = sum(KNOWN_LOSSES, ()) + ("kl_div", "KLDivLoss", "binary_cross_entropy", "BCELoss")
    is_torch = loss is getattr(torch.nn.functional, name, None) or \
        type(loss) is getattr(torch.nn, name, None)
    if not is_torch or name not in of_classes + of_values:
        return None
    with torch.no_grad():
        output = copy.deepcopy(module).eval()(*inputs.values())
    if not torch.is_tensor(output) or output.dim() < 2:
        return None
    return output.argmax(1) if name in of_classes else torch.zeros_like(output)


def _export(module: Any, inputs: Dict[str, Any], path: str) -> Tuple[int, ...]:
    """Writes the module as a .pt2 file; the shape of one row of its first output.  The job says
    which parameters are frozen, so that overrides can say otherwise; the file does not."""
    import torch

    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    frozen = [p for p in module.parameters() if not p.requires_grad and p.is_floating_point()]
    try:
        for p in frozen:
            p.requires_grad_(True)
        with torch.no_grad():
            program = torch.export.export(module, tuple(inputs.values()), strict=False,
                                          dynamic_shapes=tuple({0: batch} for _ in inputs))
    finally:
        for p in frozen:
            p.requires_grad_(False)
    torch.export.save(program, path)
    node = [n for n in program.graph.nodes if n.op == "output"][0]
    first = [n for n in node.args[0] if hasattr(n, "meta")][len(program.graph_signature
                                                                .buffers_to_mutate)]
    return tuple(int(n) for n in first.meta["val"].shape[1:])


def from_torch(module: Any, example: Any, *, loss: Any = "cross-entropy", target: Any = None,
               overrides: Optional[Mapping[str, Any]] = None) -> Model:
    """A model from a module of PyTorch, which is exported with torch.export in training mode.

    module   a torch.nn.Module; its weights are where the training begins
    example  one batch of inputs: a tensor, or a tuple of tensors, of at least two rows
    loss     train.loss by name, a function or module of torch.nn, or any function of (output,
             target) that returns the mean loss, which is exported with the module.  Output
             is what the module returns: a tensor, or a tuple of tensors.  "infonce" and "sigmoid"
             compare the two outputs of the module, and fit needs no y
    target   one batch of targets, for a loss that is exported with the module: a tensor; or several
             in a tuple or dict, as which the loss receives them and fit takes y

    The first dimension of inputs and targets is the batch.  model.to_torch(module) brings the
    trained weights back.  Parameters without requires_grad are frozen: their patterns are
    optimizer.freeze of the model, unless overrides have it.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise invalid("module: want a torch.nn.Module, got %s" % type(module).__name__)
    given = example if isinstance(example, (tuple, list)) else (example,)
    for value in given:
        if not isinstance(value, torch.Tensor) or value.dim() < 1:
            raise invalid("example: want a tensor or a tuple of tensors whose first dimension is the "
                          "batch, got %s" % type(value).__name__)
    name, keys = (loss, {}) if isinstance(loss, str) else _known_loss(loss)
    if name is None and (not callable(loss) or isinstance(loss, type)):
        raise invalid("loss: want the name of a loss, a function or an object, got %s%s" % (
            shown(loss), "; use %s()" % loss.__name__ if isinstance(loss, type) else ""))
    inputs = dict(zip(_input_names(module, len(given)), given))
    if name == "cross-entropy" and name is not loss and torch.is_tensor(target) and \
            target.is_floating_point():
        name = None  # probabilities of the classes
    if name is None and target is None:
        target = _made_target(module, inputs, loss)
    targets = _named_targets(target) if name is None else {}
    if set(targets) & set(inputs):
        raise invalid("target: the module has inputs of the same name: %s" %
                      ", ".join(set(targets) & set(inputs)))
    was_training = module.training
    module.train()
    try:
        exported, files = module, _Folder()
        if name is None:
            exported = _with_loss(module, list(inputs), list(targets), target, loss)
            inputs = dict(inputs, **targets)
        inputs = _distinct(inputs)
        path = os.path.join(files.path, type(module).__name__ + ".pt2")
        shape = _export(exported, inputs, path)
    except Exception as e:
        hint = "example: its first dimension must be the batch, of at least two rows, which the module " \
            "treats alike; torch.export says: " if "(batch)" in str(e) else ""
        raise Error("E_UNSUPPORTED", "module: torch.export failed: %s%s" % (hint, e)) from e
    finally:
        module.train(was_training)
    if name == "cross-entropy" and name is not loss and len(shape) in (2, 4) and \
            shape[1:] == shape[:-1]:
        raise invalid("loss: the classes of an output [N,%s] may be in its second or its last "
                      "dimension; give the loss as a lambda with target=, or as \"cross-entropy\" for "
                      "the last" % ",".join(map(str, shape)))
    made = Model(path, overrides)
    frozen = _frozen_patterns(module)
    if frozen and "optimizer.freeze" not in made.job:
        if len(frozen) > 16:
            raise Error("E_UNSUPPORTED", "module: the parameters without requires_grad need %d patterns "
                        "of optimizer.freeze, at most 16 are supported; give patterns of your own in "
                        "overrides" % len(frozen))
        made.job["optimizer.freeze"] = frozen
    made._files, made._names = files, tuple(n for n in inputs if n not in targets)
    made._row_kinds = {n: (tuple(v.shape[1:]), _field_dtype(v)) for n, v in inputs.items()}
    made._targets = tuple(targets) if isinstance(target, (tuple, list)) else ()
    is_torch = name == "cross-entropy" and name is not loss
    as_classes = name == "cross-entropy" and len(given) == 1 and len(shape) == 1 and \
        "train.ignore_index" not in keys
    made._as_fields = not as_classes
    if is_torch and not as_classes:
        keys.setdefault("train.ignore_index", -100)  # PyTorch's default
    if name is not None:
        made.job.setdefault("train.loss", name)
        for key, value in keys.items():
            made.job.setdefault(key, value)
    if len(shape) == 3 or (is_torch and len(shape) > 1):
        made._class_axis = 1
    made.inputs = {n: (tuple(v.shape[1:]), _field_dtype(v)) for n, v in inputs.items()}
    if as_classes:
        made.n_classes = shape[0]
        made.job.setdefault("data.classes", made.n_classes)
        made._names, made.inputs = ("x",), {"x": next(iter(made.inputs.values())), "y": ((), "int32")}
        made._row_kinds = {"x": made.inputs["x"]}
    elif name is not None and name not in PAIR_LOSSES:
        label = shape[1:] if made._class_axis == 1 else shape[:-1]
        made.inputs["y"] = (tuple(target.shape[1:]), _field_dtype(target)) \
            if torch.is_tensor(target) else \
            (label, "int32") if name == "cross-entropy" else (shape, "float32")
    return made


def _frozen_patterns(module: Any, prefix: str = "") -> List[str]:
    """Patterns of optimizer.freeze for the parameters without requires_grad: "head.*" for a part all of
    whose parameters are frozen."""
    found = [prefix + name for name, p in module.named_parameters(recurse=False)
             if not p.requires_grad]
    for name, part in module.named_children():
        grads = [p.requires_grad for p in part.parameters()]
        if grads and not any(grads):
            found.append("%s%s.*" % (prefix, name))
        elif not all(grads):
            found += _frozen_patterns(part, "%s%s." % (prefix, name))
    return found


def _named_targets(target: Any) -> Dict[str, Any]:
    """The targets of a loss of the caller: y, or y0, y1, ... of a tuple, or those of a dict."""
    import torch

    if isinstance(target, torch.Tensor):
        target = {"y": target}
    elif isinstance(target, (tuple, list)):
        target = {"y%d" % i: value for i, value in enumerate(target)}
    if not isinstance(target, Mapping) or not target:
        raise invalid("target: a loss of your own is exported with the module and needs one batch of "
                      "targets: a tensor, or a tuple or dict of tensors; got %s" %
                      type(target).__name__)
    for name, value in target.items():
        if not isinstance(value, torch.Tensor):
            raise invalid("target: %s: want a tensor, got %s" % (name, type(value).__name__))
    return dict(target)


def _field_dtype(value: Any) -> str:
    return "float32" if value.is_floating_point() else "int32"


def _distinct(inputs: Dict[str, Any]) -> Dict[str, Any]:
    """torch.export takes two inputs that are one tensor for one input."""
    seen: Dict[int, bool] = {}
    found = {}
    for name, value in inputs.items():
        found[name] = value.clone() if id(value) in seen else value
        seen[id(value)] = True
    return found


def _input_names(module: Any, n: int) -> List[str]:
    """The names of forward's first n parameters."""
    import inspect

    names = []
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind == parameter.VAR_POSITIONAL:
            names += ["%s_%d" % (name, i) for i in range(n)]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(name)
    if len(names) < n:
        raise invalid("example: the module takes %d inputs, got %d" % (len(names), n))
    return names[:n]


def _with_loss(module: Any, names: List[str], targets: List[str], target: Any,
               loss: Callable[[Any, Any], Any]) -> Any:
    """A module with the same parameters under the same names, which returns the loss and the
    outputs; its last inputs are the targets, which the loss receives in the form of `target`."""
    import copy
    import inspect

    import torch

    n_targets = len(targets)

    class WithLoss(type(module)):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            output = super().forward(*inputs[:-n_targets])
            wanted: Any = inputs[-n_targets:]
            if isinstance(target, Mapping):
                wanted = dict(zip(targets, wanted))
            elif isinstance(target, torch.Tensor):
                wanted = wanted[0]
            outputs = (output,) if isinstance(output, torch.Tensor) else tuple(output)
            return (loss(output, wanted), *outputs)

        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
             for name in ("self", *names, *targets)])

    made = copy.copy(module)
    made.__class__ = WithLoss
    return made
