"""Sessions: a model on its workers, driven step by step from Python."""

import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, MutableMapping, Optional, Tuple, Union

from ._arrays import DlpackTensor, contiguous, converted, numpy_dtype, shape_of, tensor
from ._errors import Error, invalid, real, shown, whole
from ._history import numpy
from ._jobs import Job, JobLike
from ._library import c, encode
from ._losses import StepLoss, StepResult
from ._runs import Run, checked_lr, checked_workers
from ._samples import c_fields, field_kinds


class Arrays(MutableMapping[str, Any]):
    """Arrays of a session by the names of its parameters: s.parameters["fc.weight"] reads one as a
    numpy array of float32, and assigning to it writes one.

    parameters  the memory of the session itself, without a copy, if its workers compute on CPUs and
                share their parameters (the default).  Steps change the array, and a change in place
                shows in the next call, for all workers.  It must not be made while another thread
                is in a call of the session.  The memory lives as long as the array, also after the
                session is closed.  In other layouts: a read-only copy
    state, averages
                read-only copies, because a change of a copy would be lost: assign to write
    gradients   copies of the mean gradients
    """

    def __init__(self, session: "Session", kind: int, what: str, names: Mapping[str, Any]):
        self._session, self._kind, self._what, self._shapes = session, kind, what, names

    def _shape(self, name: str) -> Tuple[int, ...]:
        if not isinstance(name, str) or name not in self._shapes:
            raise KeyError("the session has no %s %s" % (self._what, shown(name)))
        return self._shapes[name]

    def __getitem__(self, name: str) -> Any:
        from . import _c

        shape = self._shape(name)
        if self._kind == _c.TUTTI_PARAMETER:
            array = self._session._view(name, shape)
            if array is not None:
                return array
        array = self.copy_of(name)
        array.flags.writeable = self._kind == _c.TUTTI_GRADIENT
        return array

    def copy_of(self, name: str) -> Any:
        """The array as a copy of its own, which later steps do not change."""
        import ctypes

        array = numpy().empty(self._shape(name), dtype="float32")
        described, _held = tensor(array, name)
        with self._session._use() as handle:
            c.tutti_session_read(handle, self._kind, name.encode(), ctypes.byref(described))
        return array

    def dlpack(self, name: str, device: Optional[int] = None) -> DlpackTensor:
        """A copy of the array for torch.from_dlpack and the like, in host memory or in that of the
        GPU of this number, on which a worker of the session computes."""
        import ctypes

        self._shape(name)
        at = 0 if device is None else whole(device, "device", 0, 1 << 20) + 1

        def make(is_versioned: bool) -> int:
            managed = ctypes.c_void_p()
            with self._session._use() as handle:
                c.tutti_session_read_dlpack(handle, self._kind, name.encode(), at, is_versioned,
                                            ctypes.byref(managed))
            return managed.value or 0

        return DlpackTensor(make, at)

    def __setitem__(self, name: str, value: Any) -> None:
        import ctypes

        shape = self._shape(name)
        array = converted(value, name, "float32")
        if array.shape != shape:
            raise invalid("%s: want shape %s, got %s" % (name, list(shape), list(array.shape)))
        described, _held = tensor(array, name)
        with self._session._use() as handle:
            c.tutti_session_write(handle, self._kind, name.encode(), ctypes.byref(described))

    def __delitem__(self, name: str) -> None:
        raise TypeError("a %s cannot be deleted" % self._what)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class _Use:
    """Lets one thread at a time call C with an open session of this process."""

    def __init__(self, session: "Session"):
        self.session = session

    def __enter__(self) -> Any:
        s = self.session
        if os.getpid() != s._pid:
            raise invalid("session: it was opened by process %d, and this is a fork of it; open it in "
                          "the process that uses it" % s._pid)
        if s._calling == threading.get_ident():
            raise invalid("session: its callback must not call it")
        s._lock.acquire()
        try:
            if not s._handle:
                raise invalid("session: it is closed")
            s._calling = threading.get_ident()
            return s._handle
        except BaseException:  # KeyboardInterrupt too
            s._lock.release()
            raise

    def __exit__(self, *_: Any) -> None:
        self.session._calling = 0
        self.session._lock.release()


HostLoss = Callable[[Dict[str, Any], Dict[str, Any]], Tuple[float, Any]]


class Session:
    """A model on its workers.  Made by tutti.session or model.session; use it in a with block.

        with tutti.session({"model.name": "mlp"}, inputs={"x": (20,)}, n_classes=3) as s:
            for xb, yb in batches:
                loss = s.step(x=xb, y=yb)
            logits = s.forward(x=xb)
            weight = s.parameters["fc1.weight"]

    A call takes up to `n_rows` rows (the job's train.batch); results have the bits of tutti.train on
    the same rows, for any number of workers.
    """

    def __init__(self, job: JobLike = None, overrides: Optional[Mapping[str, Any]] = None, *,
                 inputs: Optional[Mapping[str, Any]] = None, n_classes: int = 0,
                 run: Optional[str] = None, loss: Optional[HostLoss] = None,
                 allow_plugin: bool = False, keep: Any = None):
        import ctypes

        from . import _c

        self._lock, self._calling, self._pid = threading.RLock(), 0, os.getpid()
        self._handle: Any = None
        self._keep = keep  # what the model's files depend on
        self._failure: Optional[BaseException] = None
        desc = _c.tutti_session_desc()
        if inputs is not None:
            kinds = field_kinds(inputs, "inputs")
            desc.inputs, desc.n_inputs = c_fields(kinds), len(kinds)
        desc.n_classes = whole(n_classes, "n_classes", 0, 1 << 24)
        if run is not None:
            desc.run_dir = encode(run, "run")
        self._loss, self._loss_fn = loss, None
        if loss is not None:
            if not callable(loss):
                raise invalid("loss: want a function, got %s" % shown(loss))
            self._loss_fn = type(desc.loss)(self._compute_loss)
            desc.loss = self._loss_fn
        handle = ctypes.POINTER(_c.tutti_session)()
        with Job(job, overrides, run=run, allow_plugin=allow_plugin) as made:
            made.check()
            c.tutti_session_create(made.handle, ctypes.byref(desc), ctypes.byref(handle))
        self._handle = handle
        self._owner: Any = _Owner(handle, self._pid)
        self._grad_scale = 1.0
        # Unread losses by their tickets; the C library keeps the last _n_kept results.
        self._unread: "weakref.WeakValueDictionary[int, StepLoss]" = weakref.WeakValueDictionary()
        self._n_kept = int(_c.TUTTI_SESSION_N_RESULTS)
        self._settled = 0
        self._read_names()

    def _read_names(self) -> None:
        import ctypes

        from . import _c

        info = self._info()
        self.n_rows: int = info.n_rows
        self.n_workers: int = info.n_workers
        self.n_shards: int = info.n_shards
        self.steps_per_epoch: int = info.steps_per_epoch
        field, parameter = _c.tutti_field(), _c.tutti_parameter()
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Any] = {}
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        self._trained: Dict[str, Tuple[int, ...]] = {}
        self._places: Dict[str, int] = {}
        with self._use() as handle:
            for n, get, found in ((info.n_inputs, c.tutti_session_input_at, self._inputs),
                                  (info.n_outputs, c.tutti_session_output_at, self._outputs)):
                for i in range(n):
                    get(handle, i, ctypes.byref(field))
                    found[field.name.decode()] = (numpy_dtype(field.type.dtype),
                                                  shape_of(field.type))
            for i in range(info.n_parameters):
                c.tutti_session_parameter_at(handle, i, ctypes.byref(parameter))
                name = parameter.name.decode()
                self._shapes[name] = shape_of(parameter)
                self._places[name] = parameter.first
                if not parameter.is_buffer and not parameter.is_frozen:
                    self._trained[name] = self._shapes[name]
            states = [c.tutti_session_state_name(handle, k).decode() for k in range(info.n_states)]
        of_states = {"%s.%s" % (name, state): shape for name, shape in self._trained.items()
                     for state in states}
        self.parameters = Arrays(self, _c.TUTTI_PARAMETER, "parameter", self._shapes)
        self.gradients = Arrays(self, _c.TUTTI_GRADIENT, "gradient", self._trained)
        self.state = Arrays(self, _c.TUTTI_STATE, "state of the optimizer", of_states)
        self.averages = Arrays(self, _c.TUTTI_AVERAGE, "average",
                               self._shapes if info.has_average else {})

    def _use(self) -> _Use:
        return _Use(self)

    def _info(self) -> Any:
        import ctypes

        from . import _c

        info = _c.tutti_session_info()
        with self._use() as handle:
            c.tutti_session_get_info(handle, ctypes.byref(info))
        return info

    # ---- steps ----

    def _refuse_unnamed(self, what: str, unnamed: Tuple[Any, ...]) -> None:
        if unnamed:
            raise invalid("%s: give each array by the name of its input: %s(%s)" %
                          (what, what, ", ".join("%s=..." % name for name in self._inputs)))

    def _tensors(self, arrays: Mapping[str, Any], allow_none: bool = False) -> Tuple[Any, list]:
        """The arguments as C tensors, and the objects that hold their memory."""
        from . import _c

        held, made = [], (_c.tutti_tensor * len(arrays))()
        for i, (name, value) in enumerate(arrays.items()):
            if name not in self._inputs:
                raise invalid("%s: the model has no such input; its inputs are %s" %
                              (name, ", ".join(self._inputs)))
            made[i], holder = tensor(value, name)
            held.append(holder)
        return made, held

    def _call(self, function: Any, arrays: Mapping[str, Any], *more: Any) -> StepResult:
        import ctypes

        from . import _c

        result = _c.tutti_session_result()
        made, _held = self._tensors(arrays)
        with self._use() as handle:
            self._run(function, handle, made if arrays else None, len(made), *more,
                      ctypes.byref(result))
        return StepResult(result)

    def _run(self, function: Any, *arguments: Any) -> None:
        """Calls C; an exception of the loss callback is raised instead of C's error."""
        self._failure = None
        try:
            function(*arguments)
        except Error:
            if self._failure is not None:
                raise self._failure
            raise

    def step(self, *unnamed: Any, lr: Optional[float] = None, **inputs: Any) -> StepLoss:
        """One step of training: forward, backward, sum over the workers, update.  Returns the mean
        loss (a StepLoss), a number that waits for the step when it is read.

        inputs  an array for each input of the model, by name; none: the next batch of the job's
                data.  They may be changed when step returns
        lr      learning rate of this step, 0 to 1000; None: that of the job's schedule

        On GPUs step returns when the step is queued, so that the GPU computes while Python prepares
        the next batch: the previous step may still run, the one before it has ended.  On CPUs, and
        where each step depends on the result of the previous one (tutti_session_step_async lists
        these layouts), the step is complete.  If the loss or a gradient of a step is not finite, the
        step and those queued after it change nothing.  The next call of the session raises
        tutti.Error once and does nothing else; the session then goes on from before that step.
        """
        import ctypes

        ticket = ctypes.c_int64()
        self._refuse_unnamed("step", unnamed)
        made, _held = self._tensors(inputs)
        with self._use() as handle:
            self._run(c.tutti_session_step_async, handle, made if inputs else None, len(made),
                      _rate(lr), ctypes.byref(ticket))
            number = ticket.value
            loss = StepLoss(lambda: self._wait(number))
            self._unread[number] = loss
        if number - self._settled >= self._n_kept // 2:
            self._settle(number - self._n_kept // 4)  # which have ended: nothing waits
        if self._loss is not None:
            loss.result()  # complete, and a callback could not ask for it
        return loss

    def _wait(self, ticket: int) -> StepResult:
        import ctypes

        from . import _c

        result = _c.tutti_session_result()
        with self._use() as handle:
            c.tutti_session_wait(handle, ticket, ctypes.byref(result))
            return StepResult(result)

    def _settle(self, last: int) -> None:
        """Fetches the results of unread losses up to this ticket."""
        self._settled = last
        for number, loss in list(self._unread.items()):
            if number <= last:
                self._unread.pop(number, None)
                loss._settle()

    def compute_gradients(self, *unnamed: Any, **inputs: Any) -> StepResult:
        """The first half of a step: the mean gradients are in `gradients`; nothing is updated."""
        self._refuse_unnamed("compute_gradients", unnamed)
        result = self._call(c.tutti_session_gradients, inputs)
        self._grad_scale = result.grad_scale
        return result

    def apply(self, lr: Optional[float] = None) -> StepResult:
        """The second half of a step: the job's optimizer uses the gradients."""
        import ctypes

        from . import _c

        result = _c.tutti_session_result()
        with self._use() as handle:
            self._run(c.tutti_session_apply, handle, _rate(lr), ctypes.byref(result))
        return StepResult(result)

    def update(self, rule: Callable[[Any, Any], None]) -> StepResult:
        """The second half of a step with an optimizer of your own: rule(params, grads) changes
        `params` in place.  Both are flat arrays of float32; `params` is the memory of the session,
        without a copy, and `grads` are mean gradients.  views(params) has them by name.  If rule
        raises, the parameters are as before."""
        import ctypes

        from . import _c

        if not callable(rule):
            raise invalid("rule: want a function of (params, grads), got %s" % shown(rule))
        np = numpy()
        view, result = _c.tutti_flat_view(), _c.tutti_session_result()
        with self._use() as handle:
            c.tutti_session_flat(handle, ctypes.byref(view))
            params = _floats(view.params, view.n_elems, self._owner)
            sums = _floats(view.grads, view.n_elems, self._owner)
            before = params.copy()
            try:
                rule(params, sums * np.float32(self._grad_scale))
            except BaseException:
                params[:] = before
                raise
            c.tutti_session_apply_flat(handle, ctypes.byref(result))
        return StepResult(result)

    def _view(self, name: str, shape: Tuple[int, ...]) -> Any:
        """A parameter as an array of the session's memory; None: it is not one array of this
        process."""
        import ctypes

        from . import _c

        t = _c.tutti_tensor()
        with self._use() as handle:
            try:
                c.tutti_session_view(handle, name.encode(), ctypes.byref(t))
            except Error as e:
                if e.status != "E_UNSUPPORTED":
                    raise
                return None
            n = int(numpy().prod(shape, dtype="int64"))
            return _floats(t.data, n, self._owner).reshape(shape)

    def views(self, flat: Any) -> Dict[str, Any]:
        """The parameters in a flat array of update(), by name and in their shapes, without a copy."""
        np = numpy()
        least = max(self._places[name] + int(np.prod(shape))
                    for name, shape in self._shapes.items())
        if not isinstance(flat, np.ndarray) or flat.ndim != 1 or flat.size < least:
            raise invalid("flat: want an array that a rule of update() receives, got %s" %
                          shown(flat))
        return {name: flat[self._places[name]:self._places[name] + int(np.prod(shape))]
                .reshape(shape) for name, shape in self._shapes.items()}

    def forward(self, *unnamed: Any, **inputs: Any) -> Any:
        """The output of the model in evaluation for any number of rows: an array, or a dict of
        arrays if the model has several outputs."""
        self._refuse_unnamed("forward", unnamed)
        return self._forward(inputs)

    def _forward(self, inputs: Mapping[str, Any], as_doubles: bool = False) -> Any:
        """as_doubles: "logits" are values of a regression, and become float64."""
        from . import _c

        made, held = self._tensors(inputs)
        if not inputs:
            raise invalid("forward: want an array for each input: %s" % ", ".join(self._inputs))
        n, floats = {}, (_c.TUTTI_F32, _c.TUTTI_F64, _c.TUTTI_F16)
        for i, name in enumerate(inputs):
            shape, wanted = shape_of(made[i].type), self._inputs[name][1]
            if len(shape) < 1:
                raise invalid("%s: a single number has no rows" % name)
            if shape == wanted and shape[1:] != wanted:
                raise invalid("%s: want rows of shape %s, got one without the dimension of rows; use "
                              "%s[None]" % (name, list(wanted), name))
            if shape[1:] != wanted and (shape[0] == 0 or made[i].type.dtype in floats):
                raise invalid("%s: want rows of shape %s, got %s" %
                              (name, list(wanted), list(shape[1:])))
            n[name] = shape[0]
        if len(set(n.values())) > 1:
            raise invalid("forward: different numbers of rows: %s" %
                          ", ".join("%s has %d" % item for item in n.items()))
        total = next(iter(n.values()))
        outputs = {name: numpy().empty((total,) + shape,
                                       dtype="float64" if as_doubles and name == "logits" else dtype)
                   for name, (dtype, shape) in self._outputs.items()}
        for first in range(0, total, self.n_rows):
            last = min(total, first + self.n_rows)
            self._forward_rows({name: holder[first:last] for name, holder in zip(inputs, held)}
                               if total > self.n_rows else inputs,
                               {name: array[first:last] for name, array in outputs.items()})
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def _forward_rows(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        from . import _c

        made, _held = self._tensors(inputs)
        wanted, holders = (_c.tutti_tensor * len(outputs))(), []
        for i, (name, array) in enumerate(outputs.items()):
            wanted[i], holder = tensor(array, name)
            holders.append(holder)
        with self._use() as handle:
            c.tutti_session_forward(handle, made, len(made), wanted, len(wanted))

    def _compute_loss(self, _: Any, source: Any) -> int:
        """Called by C: gives the outputs to the caller's loss.  No exception may leave it."""
        try:
            loss = source.contents
            # Copies, because the loss may keep them and C frees the memory.
            outputs = {loss.outputs[i].name.decode(): _view(loss.outputs[i]).copy()
                       for i in range(loss.n_outputs)}
            inputs = {loss.inputs[i].name.decode(): _view(loss.inputs[i]).copy()
                      for i in range(loss.n_inputs)}
            grads = [_view(loss.grads[i]) for i in range(loss.n_outputs)]
            assert self._loss is not None
            returned = self._loss(outputs, inputs)
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                raise invalid("loss: want (mean loss, gradient) from the function, got %s" %
                              shown(returned))
            value, given = returned
            if not isinstance(given, Mapping):
                given = {next(iter(outputs)): given}
            unknown = set(given) - set(outputs)
            if not given:
                raise invalid("loss: no gradient of an output: %s" % ", ".join(outputs))
            if unknown:
                raise invalid("loss: gradients of outputs that are not there: %s" %
                              ", ".join(sorted(unknown)))
            for name, to in zip(outputs, grads):
                if name in given:
                    array = contiguous(given[name], "loss: the gradient of %s" % name)
                    if array.shape != to.shape:
                        raise invalid("loss: the gradient of %s: want shape %s, got %s" %
                                      (name, list(to.shape), list(array.shape)))
                    if not numpy().isfinite(array).all():
                        raise Error("E_NUMERICS", "loss: the gradient of %s is not finite" % name, 7)
                    to[...] = array * loss.n_rows
            loss.loss_sum = real(value, "loss: the mean loss") * loss.n_rows
            loss.count = float(loss.n_rows)
            return 0
        except BaseException as e:
            self._failure = e
            return 1

    # ---- state and files ----

    @property
    def step_number(self) -> int:
        """The number of updates so far.  Setting it selects the rate of the schedule, the random
        numbers of dropout and the next batch of the job's data."""
        return int(self._info().step)

    @step_number.setter
    def step_number(self, step: int) -> None:
        with self._use() as handle:
            c.tutti_session_set_step(handle, whole(step, "step_number", 0, 10 ** 12))

    @property
    def params_hash(self) -> str:
        """The hash of the parameters: equal bits give equal hashes, for any number of workers."""
        import ctypes

        found = ctypes.c_uint64()
        with self._use() as handle:
            c.tutti_session_hash(handle, ctypes.byref(found))
        return "%016x" % found.value

    def evaluate(self) -> StepResult:
        """The mean loss over the test split of the job's data."""
        import ctypes

        from . import _c

        result = _c.tutti_session_result()
        with self._use() as handle:
            self._run(c.tutti_session_evaluate, handle, ctypes.byref(result))
        return StepResult(result)

    def _file(self, function: Any, path: Any, what: str) -> None:
        data = encode(path.dir if isinstance(path, Run) else path, what)
        with self._use() as handle:
            function(handle, data)

    def save(self, run_dir: Union[str, "os.PathLike[str]"]) -> None:
        """Saves a checkpoint in a run folder, which is made if it is not there."""
        self._file(c.tutti_session_save, run_dir, "run_dir")

    def load(self, run_dir: Union[str, "os.PathLike[str]", Run]) -> None:
        """Loads parameters, optimizer state and step of the newest checkpoint of a run."""
        self._file(c.tutti_session_load, run_dir, "run_dir")

    def save_weights(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Saves parameters and buffers as a .safetensors file."""
        self._file(c.tutti_session_save_weights, path, "path")

    def load_weights(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Loads parameters and buffers of a .safetensors file or folder."""
        self._file(c.tutti_session_load_weights, path, "path")

    def close(self) -> None:
        """Ends the workers and frees their memory, as soon as no array of `parameters` or of a rule
        of update() uses it.  Later calls raise tutti.Error."""
        if self._handle is None or os.getpid() != self._pid:
            return
        if self._calling == threading.get_ident():
            raise invalid("session: its callback must not close it")
        with self._lock:
            if self._handle is not None:
                self._settle(2 ** 63 - 1)
            self._handle = self._owner = None

    def __reduce__(self) -> Any:
        raise invalid("session: it cannot be copied or pickled; save it, and load the run folder "
                      "where it is wanted")

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<tutti.Session, closed>"
        return "<tutti.Session: inputs %s, %d parameters, %d workers>" % (
            ", ".join(self._inputs), len(self._shapes), self.n_workers)


class _Owner:
    """Destroys a session of C when neither the Session nor an array in its memory refers to it."""

    def __init__(self, handle: Any, pid: int):
        weakref.finalize(self, _destroy, c.tutti_session_destroy, handle, pid)


def _destroy(destroy: Any, handle: Any, pid: int) -> None:
    if os.getpid() == pid:  # in a fork the workers of the session do not exist
        destroy(handle)


def _floats(pointer: Any, n: int, owner: _Owner) -> Any:
    """n floats of C as an array, without a copy; the memory lives as long as the array."""
    import ctypes

    memory = (ctypes.c_float * n).from_address(ctypes.cast(pointer, ctypes.c_void_p).value or 0)
    memory.owner = owner  # type: ignore[attr-defined]
    return numpy().frombuffer(memory, dtype="float32")


def _view(t: Any) -> Any:
    """A tensor of C as an array, without a copy."""
    import ctypes

    np = numpy()
    dtype = np.dtype(numpy_dtype(t.type.dtype))
    shape = shape_of(t.type)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * n_bytes).from_address(t.data) if n_bytes else b""
    return np.frombuffer(memory, dtype=dtype).reshape(shape)


def _rate(lr: Optional[float]) -> float:
    return -1.0 if lr is None else checked_lr(lr)  # TUTTI_LR_OF_JOB


def torch_loss(function: Callable[[Any, Any], Any], output: Optional[str] = None,
               target: str = "y") -> HostLoss:
    """A loss for sessions from a function of PyTorch, such as
    torch.nn.functional.cross_entropy(output, target), differentiated by autograd.  output: its
    name; None: the first one."""
    if not callable(function):
        raise invalid("function: want a function of (output, target), got %s" % shown(function))

    def compute(outputs: Dict[str, Any], inputs: Dict[str, Any]) -> Tuple[float, Any]:
        import torch

        name = next(iter(outputs)) if output is None else output
        if name not in outputs:
            raise invalid("output: the model has no output %r: %s" % (name, ", ".join(outputs)))
        if target not in inputs:
            raise invalid("target: the session has no input %s: %s" %
                          (shown(target), ", ".join(inputs)))
        given = torch.from_numpy(outputs[name].copy()).requires_grad_()
        wanted = torch.from_numpy(inputs[target].copy())
        if not wanted.is_floating_point():
            wanted = wanted.long()
        with torch.enable_grad():
            value = function(given, wanted)
            if not torch.is_tensor(value) or value.numel() != 1:
                raise invalid("function: want a loss, a tensor of one number, got %s" %
                              (list(value.shape) if torch.is_tensor(value) else shown(value)))
            gradient, = torch.autograd.grad(value, given, allow_unused=True) \
                if value.requires_grad else (None,)
        if gradient is None:
            raise invalid("function: its loss does not depend on the output %r" % name)
        return value.item(), {name: gradient.numpy()}

    return compute


def session(job: JobLike = None, overrides: Optional[Mapping[str, Any]] = None, *,
            inputs: Optional[Mapping[str, Any]] = None, n_classes: int = 0,
            workers: Union[None, int, str] = None, devices: Optional[str] = None,
            loss: Optional[HostLoss] = None, allow_plugin: bool = False) -> Session:
    """Opens a session: a training loop of your own.

    job, overrides  as for tutti.train
    inputs     shapes of one row of each input: {"x": (1, 28, 28)}, or with a type
               {"ids": ((128,), "int32")}; None: those of the job's data
    n_classes  labels "y" are classes below it; 0: inputs are fields that the model finds by name
    workers    number of workers, or "auto"
    devices    "cpu", "gpu" (all GPUs), or numbers of GPUs: "0,1"
    loss       computes the loss instead of train.loss: a function of (outputs, inputs), dicts of
               arrays, that returns the mean loss and its gradient by the output
    """
    return Session(job, layout(overrides, workers, devices), inputs=inputs, n_classes=n_classes,
                   loss=loss, allow_plugin=allow_plugin)


def layout(overrides: Optional[Mapping[str, Any]], workers: Union[None, int, str],
           devices: Optional[str]) -> Dict[str, Any]:
    """The overrides with the arguments workers and devices."""
    if overrides is not None and not isinstance(overrides, Mapping):
        raise invalid("overrides: want a dict of job keys, got %s" % type(overrides).__name__)
    values = dict(overrides or {})
    if workers is not None:
        values["parallel.workers"] = checked_workers(workers)
    if devices is not None:
        if not isinstance(devices, str):
            raise invalid('devices: want "cpu", "gpu" or numbers such as "0,1", got %s' %
                          shown(devices))
        values["parallel.devices"] = devices
    return values
