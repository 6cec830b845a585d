"""Arrays of the caller as memory that C can read, without a copy where that is possible."""

from typing import Any, Dict, Tuple

from ._errors import invalid
from ._history import numpy

# numpy's name: the C dtype that has the same bytes.
DTYPES = {"float32": "TUTTI_F32", "float64": "TUTTI_F64", "float16": "TUTTI_F16",
          "int32": "TUTTI_I32", "int64": "TUTTI_I64", "uint8": "TUTTI_U8"}

# Types without a C dtype: what they become without a change of any value.
WIDER = {"bool": "uint8", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}


def to_numpy(value: Any, name: str) -> Any:
    """The value as a numpy array in host memory, sharing its memory if it can.  Accepts arrays,
    tensors with __dlpack__ (PyTorch, CuPy, JAX), data frames and nested lists."""
    np = numpy()
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise invalid("%s: sparse matrices are not supported; use %s.toarray()" % (name, name))
    if hasattr(value, "detach"):  # a tensor of PyTorch with a gradient cannot be exported
        value = value.detach()
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        if int(kind) not in (1, 3):  # host memory, pinned or not
            raise invalid("%s: its memory is on another device (DLPack device type %d, number %d); "
                          "copy it to the host" % (name, int(kind), index))
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):
            pass  # a type that numpy does not know, such as bfloat16
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as e:
        raise invalid("%s: cannot be read as an array: %s" % (name, e)) from None


def contiguous(value: Any, name: str) -> Any:
    """The value as a row-major array of a dtype of C.  No value changes: types that C does not have
    become wider ones, anything else is refused."""
    np = numpy()
    array = to_numpy(value, name)
    kind = array.dtype.name
    if kind in WIDER:
        array = array.astype(WIDER[kind])
    elif kind not in DTYPES:
        if kind != "uint64":
            raise invalid("%s: want numbers, got an array of dtype %s" % (name, array.dtype))
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise invalid("%s: a value of uint64 is beyond 64 bits with a sign" % name)
        array = array.astype(np.int64)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)) \
        .reshape(array.shape)


def tensor(value: Any, name: str) -> Tuple[Any, Any]:
    """(tutti_tensor, object that holds its memory): on the host, or on a GPU by DLPack."""
    import ctypes

    from . import _c

    if hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) == 2:
        return _tensor_from_dlpack(value, name)
    array = contiguous(value, name)
    made = _c.tutti_tensor(name=name.encode(), type=type_of(array, name),
                           data=array.ctypes.data_as(ctypes.c_void_p), device=0)
    return made, array


def type_of(array: Any, name: str) -> Any:
    """The tutti_type of an array."""
    from . import _c

    if array.ndim > _c.TUTTI_MAX_DIMS:
        raise invalid("%s: has %d dimensions, at most %d" % (name, array.ndim, _c.TUTTI_MAX_DIMS))
    made = _c.tutti_type(dtype=getattr(_c, DTYPES[array.dtype.name]))
    made.shape.n_dims = array.ndim
    for i, n in enumerate(array.shape):
        made.shape.dim[i] = n
    return made


def _tensor_from_dlpack(value: Any, name: str) -> Tuple[Any, Any]:
    """A tensor in the memory of a GPU, which C reads where it is."""
    import ctypes

    from . import _c
    from ._library import c

    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # an older protocol
        capsule = value.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    is_versioned = "dltensor_versioned" in repr(capsule)
    pointer = get(capsule, b"dltensor_versioned" if is_versioned else b"dltensor")
    made = _c.tutti_tensor()
    text = name.encode()
    c.tutti_tensor_from_dlpack(pointer, is_versioned, text, ctypes.byref(made))
    return made, (capsule, value, text)


def shape_of(kind: Any) -> Tuple[int, ...]:
    """The shape of a tutti_type or tutti_parameter."""
    return tuple(kind.shape.dim[:kind.shape.n_dims])


def numpy_dtype(dtype: int) -> str:
    """numpy's name of a C dtype."""
    from . import _c

    for name, constant in DTYPES.items():
        if getattr(_c, constant) == dtype:
            return name
    raise invalid("numpy has no dtype for this value")


def rows(arrays: Dict[str, Any]) -> int:
    """The number of rows that all arrays have."""
    counts = {name: a.shape[0] if a.ndim else None for name, a in arrays.items()}
    if None in counts.values():
        raise invalid("%s: a single number has no rows" %
                      [name for name, n in counts.items() if n is None][0])
    if len(set(counts.values())) > 1:
        raise invalid("%s: different numbers of rows: %s" % (
            ", ".join(counts), ", ".join("%s has %d" % item for item in counts.items())))
    return next(iter(counts.values()), 0)
