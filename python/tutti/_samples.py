"""Samples in the memory of the program, as arrays or by a function."""

import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._arrays import DTYPES, contiguous, converted, rows
from ._errors import Error, invalid, shown, whole
from ._history import numpy
from ._library import c, encode


MOST_DIMS = 8  # TUTTI_MAX_DIMS, the rows among them


def named_arrays(x: Any, y: Any = None, names: Tuple[str, ...] = (),
                 targets: Tuple[str, ...] = ()) -> Dict[str, Any]:
    """Arrays by name: x and y, or those of a dict, or of a tuple in the order of the names."""
    if isinstance(x, Mapping):
        found = {field_name(name, "x"): contiguous(value, str(name)) for name, value in x.items()}
    elif isinstance(x, tuple) and len(names) > 1:
        if len(x) != len(names):
            raise invalid("x: want %d arrays (%s), got %d" % (len(names), ", ".join(names), len(x)))
        found = {name: contiguous(value, name) for name, value in zip(names, x)}
    else:
        found = {names[0] if names else "x": contiguous(x, "x")}
    if targets and y is not None:
        if not isinstance(y, (tuple, list)) or len(y) != len(targets):
            raise invalid("y: want %d arrays in a tuple, one for each target of the loss" %
                          len(targets))
        found.update((name, contiguous(value, name)) for name, value in zip(targets, y))
    elif isinstance(y, Mapping):
        twice = [str(name) for name in y if name in found]
        if twice:
            raise invalid("y: x has an array %s too" % ", ".join(twice))
        found.update((field_name(name, "y"), contiguous(value, str(name)))
                     for name, value in y.items())
    elif y is not None:
        if "y" in found:
            raise invalid("y: x has an array y too")
        found["y"] = contiguous(y, "y")
    if not found:
        raise invalid("x: a dict without arrays")
    if rows(found) == 0:
        raise invalid("%s: no rows" % ", ".join(found))
    for name, array in found.items():
        if array.ndim > MOST_DIMS:
            raise invalid("%s: has %d dimensions, at most %d" % (name, array.ndim, MOST_DIMS))
        if array.dtype.kind == "f":
            finite = numpy().isfinite(array)
            if not finite.all():
                row = int(finite.reshape(len(array), -1).all(axis=1).argmin())
                raise invalid("%s: a value of row %d is not finite (nan or infinity)" % (name, row))
    return found


def check_rows(arrays: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuses arrays whose rows do not have the shape of an exported input; kinds: name -> (shape,
    "float32" or "int32")."""
    for name, (shape, dtype) in kinds.items():
        array = arrays.get(name)
        if array is None or (array.dtype.name == "uint8" and len(shape) > 1):  # pixels
            continue
        if array.shape[1:] != shape:
            hint = "; use %s.reshape(%s)" % (name, ", ".join(map(str, (-1,) + shape))) \
                if array.size == array.shape[0] * math.prod(shape) else ""
            raise invalid("%s: the module takes rows of shape %s, got %s%s" %
                          (name, list(shape), list(array.shape[1:]), hint))
        if dtype == "float32" and array.dtype.name in ("int32", "int64"):
            raise invalid("%s: the module takes floats, got %s; use %s.astype('float32')" %
                          (name, array.dtype, name))


class Samples:
    """Samples that a function makes when they are needed.

        samples = tutti.Samples(get, 1000, {"x": (3, 32, 32), "y": ((), "int32")})
        tutti.train(job, data=samples)

    get        get(index) returns a dict with an array for each field; the same index gives the same
               sample.  Loader threads call it, one at a time in Python
    n_samples  their number; indices are 0 .. n_samples-1
    fields     shape of each field, or (shape, type)
    """

    def __init__(self, get: Callable[[int], Mapping[str, Any]], n_samples: int,
                 fields: Mapping[str, Any]):
        if not callable(get):
            raise invalid("get: want a function of an index, got %s" % shown(get))
        self.get, self.n_samples = get, whole(n_samples, "n_samples", 1)
        self.fields = field_kinds(fields, "fields")
        self.failure: Optional[BaseException] = None

    def _fill(self, _: Any, index: int, memory: Any) -> int:
        """Called by C.  No exception may leave it."""
        import ctypes

        try:
            sample = self.get(index)
            if not isinstance(sample, Mapping):
                raise invalid("get: want a dict of arrays for sample %d, got %s" %
                              (index, type(sample).__name__))
            for i, (name, (shape, dtype)) in enumerate(self.fields.items()):
                what = "%s of sample %d" % (name, index)
                if name not in sample:
                    raise invalid("get: sample %d has no %s" % (index, name))
                array = converted(sample[name], what, dtype)
                if array.shape != shape:
                    raise invalid("%s: want shape %s, got %s" %
                                  (what, list(shape), list(array.shape)))
                ctypes.memmove(memory[i], array.ctypes.data, array.nbytes)
            return 0
        except BaseException as e:
            if self.failure is None:
                self.failure = e
            return 1


def field_kinds(fields: Any, what: str) -> Dict[str, Tuple[Tuple[int, ...], str]]:
    """name -> (shape, type) of fields that are each given as a shape or as both; what names the
    argument in messages."""
    if not isinstance(fields, Mapping):
        raise invalid('%s: want a dict such as {"x": (20,), "y": ((), "int32")}, got %s' %
                      (what, type(fields).__name__))
    return {name: _field_kind("%s: %s" % (what, name), name, kind)
            for name, kind in fields.items()}


def field_name(name: Any, what: str) -> str:
    """The name of a field as the caller gave it; what names the argument in messages."""
    if not isinstance(name, str) or not name:
        raise invalid("%s: the name of a field is text, got %s" % (what, shown(name)))
    encode(name, "%s: the name of a field" % what)
    return name


def _field_kind(what: str, name: Any, kind: Any) -> Tuple[Tuple[int, ...], str]:
    field_name(name, what)
    if not isinstance(kind, (tuple, list)):
        raise invalid('%s: want a shape, or (shape, type) such as ((), "int32"), got %s' %
                      (what, shown(kind)))
    shape, dtype = kind if len(kind) == 2 and isinstance(kind[1], str) else (kind, "float32")
    if dtype not in DTYPES:
        raise invalid("%s: want one of %s, got %s" % (what, ", ".join(DTYPES), shown(dtype)))
    if not isinstance(shape, (tuple, list)) or len(shape) >= MOST_DIMS:
        raise invalid("%s: %s is not the shape of a sample" % (what, shown(shape)))
    return tuple(whole(n, "%s: its shape" % what, 0) for n in shape), dtype


def c_fields(kinds: Mapping[str, Tuple[Tuple[int, ...], str]]) -> Any:
    """Names, shapes and types as an array of tutti_field."""
    from . import _c

    fields = (_c.tutti_field * len(kinds))()
    for field, (name, (shape, dtype)) in zip(fields, kinds.items()):
        field.name = encode(name, "field")
        field.type.dtype = getattr(_c, DTYPES[dtype])
        field.type.shape.n_dims = len(shape)
        for i, n in enumerate(shape):
            field.type.shape.dim[i] = n
    return fields


def as_samples(data: Any, what: str) -> Any:
    """The argument `data` of tutti.train: Samples, or arrays by name."""
    if isinstance(data, Samples):
        return data
    if isinstance(data, Mapping):
        return named_arrays(data)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return named_arrays(data[0], data[1])
    raise invalid("%s: want a pair (x, y), a dict of arrays or tutti.Samples, got %s" %
                  (what, type(data).__name__))


def c_samples(data: Any, keep: List[Any]) -> Any:
    """Samples or arrays by name as a tutti_samples; what it borrows is added to keep."""
    import ctypes

    from . import _c

    fields = c_fields(data.fields if isinstance(data, Samples) else {
        name: (array.shape[1:], array.dtype.name) for name, array in data.items()})
    given = _c.tutti_samples(fields=fields, n_fields=len(fields))
    keep += [fields, data]
    if isinstance(data, Samples):
        given.n_samples = data.n_samples
        given.get = function = type(given.get)(data._fill)
        keep.append(function)
    else:
        given.n_samples = rows(data)
        given.data = (ctypes.c_void_p * len(fields))(*(a.ctypes.data for a in data.values()))
    return given


def set_samples(job: Any, split: int, data: Any) -> None:
    """Gives samples to a job, which keeps what C borrows."""
    import ctypes

    given = c_samples(data, job.keep)
    c.tutti_job_set_samples(job.handle, split, ctypes.byref(given))


def failure_of(kept: List[Any], error: Error) -> BaseException:
    """The exception of a function that makes samples, if that is why a call failed; kept: what C has
    borrowed."""
    for held in kept:
        if isinstance(held, Samples) and held.failure is not None:
            failure, held.failure = held.failure, None
            return failure
    return error
