"""Training runs: tutti.train, tutti.start and what they return."""

import atexit
import os
import signal
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

from ._errors import Error, invalid, real, shown, whole
from ._events import Callback, EarlyStopping, Event, Progress, StepInfo, as_callbacks, default_progress
from ._history import History
from ._jobs import Job, JobLike
from ._library import c, encode, encode_path, program_path
from ._samples import as_samples, failure_of, set_samples

# The C library trains one job at a time in a process: it takes over the signals meanwhile.
_in_progress = threading.Lock()
_running: List["Run"] = []  # of tutti.start, until its end


def checked_lr(lr: Any) -> float:
    """A learning rate of the caller as a number."""
    found = real(lr, "lr")
    if not 0 <= found <= 1000:  # as optimizer.lr
        raise invalid("lr: want a number from 0 to 1000, got %s" % shown(lr))
    return found


def current_folder() -> str:
    """The current folder; "" if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def checked_workers(workers: Any) -> Union[int, str]:
    """A number of workers of the caller, or "auto"."""
    if isinstance(workers, str) and workers == "auto":
        return workers
    return whole(workers, "workers", 1)


def asks_to_stop(answer: Any) -> bool:
    """Whether a callback has returned True, which may be one of numpy."""
    return answer is True or type(answer).__name__ in ("bool_", "bool") and bool(answer)


class Result:
    """Results of a finished run.

    loss, accuracy       of the test split (accuracy: nan if the loss counts none)
    rmse, mae, r2        of a regression
    n_steps, n_params, n_workers, n_shards
    samples_per_s, wall_s, first_step_s
    params_hash          of the final parameters, as 16 hexadecimal digits
    stopped_early        whether a callback or run.stop() ended it
    stop_signal          signal that stopped the run, 0: none
    """

    FIELDS = ("n_workers", "n_shards", "n_steps", "n_params", "loss", "accuracy", "is_regression",
              "n_targets", "nrmse", "rmse", "mae", "r2", "samples_per_s", "wall_s", "first_step_s",
              "step_flops", "peak_host_bytes", "peak_device_bytes", "stopped_early", "stop_signal",
              "staleness_mean", "staleness_max", "n_dropped", "sent_bytes", "exit_code")

    n_workers: int
    n_shards: int
    n_steps: int
    n_params: int
    loss: float
    accuracy: float
    is_regression: bool
    n_targets: int
    nrmse: float
    rmse: float
    mae: float
    r2: float
    samples_per_s: float
    wall_s: float
    first_step_s: float
    step_flops: float
    peak_host_bytes: int
    peak_device_bytes: int
    stopped_early: bool
    stop_signal: int
    staleness_mean: float
    staleness_max: int
    n_dropped: int
    sent_bytes: float
    exit_code: int

    def __init__(self, source: Any):
        for name in self.FIELDS:
            setattr(self, name, getattr(source, name))
        self.params_hash = "%016x" % source.params_hash

    def take_end_record(self, records: List[Dict[str, Any]]) -> None:
        """Takes the figures that worker processes have written to the run folder."""
        for record in records:
            if record.get("event") in ("start", "end"):
                known = {"workers": "n_workers", "shards": "n_shards", "params": "n_params",
                         "step": "n_steps", "params_hash": "params_hash"}
                for name, value in record.items():
                    if known.get(name, name) in self.__dict__:
                        setattr(self, known.get(name, name), value)

    def as_dict(self) -> Dict[str, Any]:
        """All fields by name."""
        return dict({name: getattr(self, name) for name in self.FIELDS},
                    params_hash=self.params_hash)

    def __repr__(self) -> str:
        return "<tutti.Result: %d steps, loss %.6g, accuracy %.4g, params_hash %s>" % (
            self.n_steps, self.loss, self.accuracy, self.params_hash)


class Run:
    """A run in progress, or one that has ended.

    Iterate over it to receive its events; wait() returns when it has ended; stop() ends it at the
    next step boundary with a checkpoint.  As a context manager it is stopped and waited for when
    the block ends.
    """

    def __init__(self, dir: Optional[str] = None):
        self._dir = dir
        self._events: List[Event] = []
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._ended = dir is not None
        self._stop = self._save = False
        self._lr: Optional[float] = None
        self._failure: Optional[BaseException] = None
        self._is_raised = False  # whether a caller has received the failure
        self._calling = 0  # the thread that calls a callback
        self._is_awaited = 0  # calls of the main thread that wait for the run
        self._request: Any = None  # an int of C: whether _stop, _save or _lr has changed
        self._pid = os.getpid()
        self.result: Optional[Result] = None

    # ---- while it trains ----

    def __iter__(self) -> Iterator[Event]:
        """All events from the beginning, as they arrive.  Raises what wait() raises."""
        at = 0
        while True:
            with self._changed:
                while at >= len(self._events) and not self._ended:
                    self._check_caller()
                    self._wait_for(lambda: at < len(self._events) or self._ended, 0.2)
                if at >= len(self._events):
                    break
                event = self._events[at]
            at += 1
            yield event
        self.wait()

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits for the end of the run and returns it.  Raises what the run raised: tutti.Error, the
        exception of a callback, or KeyboardInterrupt after Ctrl-C.  TimeoutError: it has not ended
        after timeout seconds."""
        if timeout is not None and real(timeout, "timeout") < 0:
            raise invalid("timeout: want seconds, got %s" % shown(timeout))
        with self._changed:
            self._check_caller()
            if not self._wait_for(lambda: self._ended, timeout):
                raise TimeoutError("the run has not ended after %g s" % (timeout or 0))
        self._join()
        if self._failure is not None:
            self._is_raised = True
            raise self._failure
        return self

    def stop(self) -> None:
        """Asks the run to end within a few steps with a checkpoint; does not wait."""
        self._stop = True
        self._ask()

    def save(self) -> None:
        """Asks the run to save a checkpoint within a few steps; does not wait."""
        self._save = True
        self._ask()

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate of later steps, in place of the schedule: from the next step on in
        a method for each step, else within a few steps."""
        self._lr = checked_lr(lr)
        self._ask()

    def _ask(self) -> None:
        if self._request is not None:
            self._request.value = 1

    @property
    def done(self) -> bool:
        """True after the end of the run."""
        return self._ended

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if not self._ended:
            self.stop()
        if kind is None and not self._is_raised:
            self.wait()
        else:  # the exception of the block goes on
            with self._changed:
                self._check_caller()
                self._wait_for(lambda: self._ended)
            self._join()

    def _wait_for(self, is_done: Callable[[], bool], timeout: Optional[float] = None) -> bool:
        """Waits with the lock of _changed; Ctrl-C is then raised by the caller of this."""
        is_main = threading.current_thread() is threading.main_thread()
        self._is_awaited += is_main
        try:
            return self._changed.wait_for(is_done, timeout)
        finally:
            self._is_awaited -= is_main

    def _join(self) -> None:
        """Waits for the last lines of the thread of a run that has ended."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join()

    def _check_caller(self) -> None:
        if self._calling == threading.get_ident():
            raise invalid("run: its callback must not wait for it; return True to stop it")
        if os.getpid() != self._pid and not self._ended:
            raise invalid("run: it was started by process %d, and this is a fork of it; start runs "
                          "in the process that uses them" % self._pid)

    # ---- its folder ----

    @property
    def dir(self) -> str:
        """The run folder."""
        if self._dir is None:
            raise Error("E_CONFIG", "run: it has no folder: it has not begun, or it failed before")
        return self._dir

    def __reduce__(self) -> Any:
        if not self._ended:
            raise invalid("run: it is in progress, so it cannot be copied or pickled")
        return _ended_run, (self._dir, self.result)

    def __fspath__(self) -> str:
        return self.dir

    @property
    def history(self) -> History:
        """The curves so far, read from the run folder: run.history["loss"], run.history.eval."""
        return History.read(self.dir)

    @property
    def params_hash(self) -> str:
        """Hash of the final parameters; equal hashes mean equal bits."""
        if self.result is None:
            raise Error("E_CONFIG", "run: params_hash is known after the run has ended")
        return self.result.params_hash

    def predict(self, data: Any, **options: Any) -> Any:
        """tutti.predict(run, data)."""
        from ._infer import predict

        return predict(self, data, **options)

    def evaluate(self, overrides: Optional[Mapping[str, Any]] = None, **options: Any) -> Any:
        """tutti.evaluate(run)."""
        from ._infer import evaluate

        return evaluate(self, overrides, **options)

    def __repr__(self) -> str:
        state = "ended" if self._ended else "in progress"
        return "<tutti.Run %s, %s>" % (self._dir or "without a folder", state)


def _ended_run(dir: Optional[str], result: Optional[Result]) -> Run:
    run = Run(dir)
    run._ended, run.result = True, result
    return run


class _Training:
    """One call of tutti_train, with its callbacks, on the thread that calls run()."""

    def __init__(self, job: Job, resume: Optional[str], callbacks: List[Any], run: Run):
        self.job, self.resume, self.callbacks, self.target = job, resume, callbacks, run
        self.failure: Optional[BaseException] = None
        self.asked = False  # whether this object has sent itself a signal to stop
        self.result: Any = None  # of C
        self.folder = current_folder()
        # Asynchronous parameter servers have no step that all workers end together.
        self.controls = job.get("parallel.staleness") == job.get("parallel.backup_workers") == "0"
        self.steppers = {method: [one for one in callbacks if isinstance(one, Callback) and
                                  getattr(type(one), method) is not getattr(Callback, method)]
                         for method in ("on_each_step", "on_epoch")}
        if not self.controls and any(self.steppers.values()):
            raise Error("E_UNSUPPORTED", "callbacks: asynchronous workers (parallel.staleness) end no "
                        "step together, so on_each_step and on_epoch cannot be called")

    def call(self, one: Any, event: Event) -> None:
        if isinstance(one, Callback):
            answer = getattr(one, "on_" + event.kind)(self.target, event)
        else:
            answer = one(event)
        if asks_to_stop(answer):
            self.target.stop()

    def on_event(self, _: Any, source: Any) -> None:
        """Called by C on the thread of rank 0.  No exception may leave it."""
        run = self.target
        run._calling = threading.get_ident()
        event = Event(source.contents)
        self.find_folder()
        for one in self.callbacks:
            if self.failure is None:
                try:
                    self.call(one, event)
                except BaseException as e:
                    self.failure = e
                    run.stop()
        run._calling = 0
        with run._changed:
            run._events.append(event)
            run._changed.notify_all()
        if run._stop and not self.asked and not self.controls and event.kind != "end":
            self.asked = True
            signal.raise_signal(signal.SIGTERM)  # blocked on this thread, where the trainer takes it

    def find_folder(self) -> None:
        """Takes the folder of the run from C, as soon as it is there."""
        folder = self.result.run_dir.decode("utf-8", "surrogateescape")
        for base in (self.folder, os.curdir) if folder and self.target._dir is None else ():
            path = os.path.abspath(os.path.join(base, folder))  # the program may have gone elsewhere
            if self.target._dir is None and os.path.isdir(path):
                self.target._dir = path

    def after_step(self, method: Optional[str], source: Any, control: Any) -> None:
        """Called by C on the thread of rank 0 after a step or epoch, or (None) because the run was
        asked for something.  No exception may leave it."""
        run = self.target
        if method is not None and self.failure is None:
            info = StepInfo(source.contents)
            run._calling = threading.get_ident()
            for one in self.steppers[method]:
                try:
                    if asks_to_stop(getattr(one, method)(run, info)):
                        run._stop = True
                except BaseException as e:
                    self.failure = e
                    run._stop = True
                    break
            run._calling = 0
        run._request.value = 0
        asked = control.contents
        asked.stop, asked.save = run._stop, run._save
        run._save = False
        if run._lr is not None:
            asked.set_lr, asked.lr, run._lr = True, run._lr, None

    def run(self) -> None:
        """Trains; sets the run's result or failure, and closes the job."""
        try:
            self.train()
        except BaseException as e:
            self.target._failure = e
        finally:
            self.job.close()
            _in_progress.release()
            with self.target._changed:
                if self.target in _running:
                    _running.remove(self.target)
                self.target._ended = True
                is_heard = self.target._is_awaited > 0
                self.target._changed.notify_all()
            if isinstance(self.target._failure, KeyboardInterrupt) and not is_heard:
                _interrupt_main_thread()

    def train(self) -> None:
        import ctypes

        from . import _c

        run = self.target
        self.result = result = _c.tutti_train_result()
        words = [encode(program_path(), "tutti"), b"train", b"-q"] + self.job.words
        desc = _c.tutti_train_desc()
        if self.resume is not None:
            desc.resume = encode(self.resume, "resume")
            words += [b"--resume", desc.resume]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)  # one word of each worker process
        desc.worker_argv = argv
        on_event = type(desc.on_event)(self.on_event)
        desc.on_event = on_event
        if self.controls:
            # Steps wait for those that are called after each of them, so only what is there is given.
            kind = type(desc.on_step)
            if self.steppers["on_each_step"]:
                desc.on_step = on_step = kind(lambda _, p, control:
                                              self.after_step("on_each_step", p, control))
            if self.steppers["on_epoch"]:
                desc.on_epoch = on_epoch = kind(lambda _, p, control:
                                                self.after_step("on_epoch", p, control))
            desc.on_request = on_request = kind(lambda _, p, control:
                                                self.after_step(None, p, control))
            run._request = ctypes.c_int(run._stop or run._save or run._lr is not None)
            desc.request = ctypes.pointer(run._request)
        failure: Optional[Error] = None
        try:
            c.tutti_train(self.job.handle, ctypes.byref(desc), ctypes.byref(result))
        except Error as e:
            failure = e
        self.find_folder()
        run.result = Result(result)
        if failure is None and result.n_params == 0 and run._dir is not None:
            run.result.take_end_record(History.read(run._dir).records)
        if self.failure is not None:
            raise self.failure
        if failure is not None:
            raise failure_of(self.job.keep, failure)
        self.report_signal(result.stop_signal)

    def report_signal(self, number: int) -> None:
        """Raises what a signal means in Python, now that the checkpoint is saved."""
        if number == 0 or self.asked:
            return
        text = "stopped at step %d with a checkpoint; tutti.train(resume=%r) continues" % (
            self.target.result.n_steps if self.target.result else 0, self.target._dir)
        if number == signal.SIGINT:
            raise KeyboardInterrupt(text)
        raise SystemExit(128 + number)


def _interrupt_main_thread() -> None:
    """Ctrl-C stopped a run of another thread; what the main thread does ends too, as without a
    run."""
    main = threading.main_thread()
    if threading.current_thread() is not main and main.ident is not None and main.is_alive():
        signal.pthread_kill(main.ident, signal.SIGINT)


def _warn(event: Event) -> None:
    """The warnings of a run that shows no progress."""
    if event.kind == "warning":
        warnings.warn(event.text, RuntimeWarning, stacklevel=2)


def _prepare(job: JobLike, overrides: Optional[Mapping[str, Any]], workers: Any, callbacks: Any,
             resume: Any, allow_plugin: bool, progress: Any, data: Any,
             validation: Any) -> _Training:
    """Reads the job and takes the right to train in this process."""
    called = as_callbacks(callbacks)
    if not isinstance(progress, bool) and not (isinstance(progress, str) and progress == "auto"):
        raise invalid('progress: want True, False or "auto", got %s' % shown(progress))
    lines = default_progress() if progress == "auto" else [Progress()] if progress else []
    lines = lines or [_warn]
    if resume is not None:
        resume = (resume if isinstance(resume, Run) else load(resume, "resume")).dir
    values = dict(overrides) if isinstance(overrides, Mapping) else overrides
    if workers is not None:
        values = dict(values or {})
        values["parallel.workers"] = checked_workers(workers)
    made = Job(job, values, run=resume if job is None else None, allow_plugin=allow_plugin)
    try:
        for split, given in enumerate((data, validation)):
            if given is not None:
                set_samples(made, split, as_samples(given, ("data", "validation")[split]))
        made.check()
        if made.get("train.eval_every") == "0" and \
                any(isinstance(one, EarlyStopping) for one in called):
            raise invalid("callbacks: tutti.EarlyStopping follows the evaluations, and this run has none "
                          "before its end (train.eval_every=0): give fit validation=(x, y), or "
                          '{"data.val_fraction": 0.1}')
        folder = made.get("run.dir") or "auto"
        if folder != "auto" and resume is None:  # the thread of the run may begin later
            made.set({"run.dir": os.path.join(current_folder(), folder)}, "run.dir")
        for what, given in (("callbacks", called), ("data", made.keep)):
            if given and made.get("parallel.place") == "processes":
                raise Error("E_UNSUPPORTED", "%s: the workers of this job are processes "
                            "(parallel.place), which have nothing of this one's memory; use "
                            "parallel.place=threads" % what)
        training = _Training(made, resume, lines + called, Run())
        if not _in_progress.acquire(blocking=False):
            raise invalid("train: another run is in progress in this process; wait for it, or start "
                          "this one in a process of its own")
        return training
    except BaseException:
        made.close()
        raise


def train(job: JobLike = None, overrides: Optional[Mapping[str, Any]] = None, *,
          workers: Union[None, int, str] = None, callbacks: Any = None,
          resume: Union[None, str, "os.PathLike[str]", Run] = None, allow_plugin: bool = False,
          progress: Union[bool, str] = "auto", data: Any = None, validation: Any = None) -> Run:
    """Trains a job and returns its run when it has ended.

    job         path of a job file, or a dict of job keys; None: the defaults
    overrides   dict of job keys that win over the file: {"optimizer.lr": 3e-4}
    workers     number of workers, or "auto": one per GPU or core
    callbacks   tutti.Callback objects, or functions of an event
    resume      run, or its folder, to continue; its job is used if no job is given
    allow_plugin  load the code that model.plugin of a run folder names
    progress    show progress; "auto": on a terminal and in a notebook.  A run that shows none gives
                its warnings to Python, as RuntimeWarning
    data, validation
                samples in memory instead of files: a pair (x, y), a dict of arrays by the names of
                fields, or tutti.Samples; without validation, data.val_fraction of them are held out

    Ctrl-C saves a checkpoint and raises KeyboardInterrupt; a second Ctrl-C ends the process.
    Raises tutti.Error if the job is wrong or the training fails.
    """
    training = _prepare(job, overrides, workers, callbacks, resume, allow_plugin, progress, data,
                        validation)
    training.run()
    return training.target.wait()


def start(job: JobLike = None, overrides: Optional[Mapping[str, Any]] = None, *,
          workers: Union[None, int, str] = None, callbacks: Any = None,
          resume: Union[None, str, "os.PathLike[str]", Run] = None, allow_plugin: bool = False,
          progress: Union[bool, str] = False, data: Any = None, validation: Any = None) -> Run:
    """Starts a training in the background and returns its run at once.

    The arguments are those of tutti.train.  Iterate over the run to receive its events, call
    run.stop() to end it with a checkpoint, run.wait() to wait for it.
    """
    training = _prepare(job, overrides, workers, callbacks, resume, allow_plugin, progress, data,
                        validation)
    run = training.target
    run._thread = threading.Thread(target=training.run, name="tutti run", daemon=True)
    _running.append(run)
    run._thread.start()
    return run


def _stop_at_exit() -> None:
    """Stops a run that is still in progress when the program ends, with a checkpoint: its thread
    must not call Python while the interpreter is being taken down."""
    for run in _running:
        if not run._ended and run._pid == os.getpid():
            run.stop()
            with run._changed:
                run._wait_for(lambda: run._ended)


atexit.register(_stop_at_exit)


def load(run_dir: Union[str, "os.PathLike[str]"], what: str = "run_dir") -> Run:
    """The run of an existing folder, for its history, predictions and evaluation.  `what` names the
    argument in messages."""
    path = os.fsdecode(encode_path(run_dir, what))
    if not os.path.exists(os.path.join(path, "metrics.jsonl")):
        raise Error("E_CONFIG", "%s: no run in %r (no metrics.jsonl)" % (what, path))
    return Run(os.path.abspath(path))
