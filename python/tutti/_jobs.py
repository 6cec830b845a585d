"""Jobs: a YAML file, a dict, and assignments, as the C library reads them."""

import json
import os
from typing import Any, Iterator, List, Mapping, Optional, Tuple, Union

from ._errors import flag, invalid, shown
from ._library import c, encode

JobLike = Union[None, str, "os.PathLike[str]", Mapping[str, Any]]


DEPTH = 16  # of dicts and lists in each other


def value_text(value: Any, key: str, depth: int = 0) -> str:
    """The value as a job file has it: true, [256, 128], null, "text"."""
    if depth > DEPTH:
        raise invalid("%s: lists within lists, more than %d" % (key, DEPTH))
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) <= 1024:
        value = value.tolist()  # numbers and small arrays
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        try:
            return repr(value)
        except ValueError:  # more digits than Python prints
            raise invalid("%s: a number of too many digits" % key) from None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(json.dumps(v, ensure_ascii=False) if isinstance(v, str)
                                  else value_text(v, key, depth + 1) for v in value)
    raise invalid("%s: want a number, text, bool, None or a list of these, got %s" %
                  (key, type(value).__name__))


def flatten(values: Mapping[str, Any], what: str, group: str = "") -> Iterator[Tuple[str, str]]:
    """("optimizer.lr", "0.0003") for {"optimizer": {"lr": 3e-4}} or {"optimizer.lr": 3e-4}."""
    if not isinstance(values, Mapping):
        raise invalid("%s: want a dict of job keys, got %s" % (what, type(values).__name__))
    for key, value in values.items():
        if not isinstance(key, str):
            raise invalid("%s: a job key is text, got %s" % (what, shown(key)))
        if group.count(".") > DEPTH:
            raise invalid("%s: dicts within dicts, more than %d" % (what, DEPTH))
        if isinstance(value, Mapping):
            yield from flatten(value, what, group + key + ".")
        else:
            yield group + key, value_text(value, group + key)


class Job:
    """A tutti_job of the C library.  Use it as a context manager, or call close()."""

    def __init__(self, job: JobLike = None, overrides: Optional[Mapping[str, Any]] = None,
                 run: Optional[str] = None, allow_plugin: bool = False):
        import ctypes

        from . import _c

        flag(allow_plugin, "allow_plugin")
        self.handle = ctypes.POINTER(_c.tutti_job)()
        self.keep: List[Any] = []  # what the C job borrows
        self.words: List[bytes] = []  # the job as arguments of the program `tutti train`
        c.tutti_job_create(ctypes.byref(self.handle))
        try:
            if run is not None:
                c.tutti_job_load_run(self.handle, encode(run, "run"))
            if allow_plugin:
                c.tutti_job_allow_plugin(self.handle)
                self.words.append(b"--allow-plugin")
            if isinstance(job, Mapping):
                self.set(job, "job")
            elif job is not None:
                c.tutti_job_load(self.handle, encode(job, "job"))
                self.words.insert(0, encode(job, "job"))
            if overrides is not None:
                self.set(overrides, "overrides")
        except BaseException:
            self.close()
            raise

    def set(self, values: Mapping[str, Any], what: str) -> None:
        for key, text in flatten(values, what):
            self.words.append(encode("%s=%s" % (key, text), key))
            c.tutti_job_set(self.handle, self.words[-1], what.encode())

    def get(self, key: str) -> Optional[str]:
        value = c.tutti_job_get(self.handle, encode(key, "key"))
        return None if value is None else value.decode("utf-8", "replace")

    def check(self) -> None:
        c.tutti_job_check(self.handle)

    def close(self) -> None:
        if self.handle:
            c.tutti_job_destroy(self.handle)
            self.handle = None  # type: ignore[assignment]

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
