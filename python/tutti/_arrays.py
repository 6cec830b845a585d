"""Arrays of the caller as memory that C can read, without a copy where that is possible."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from ._errors import Error, invalid, shown
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
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.getmaskarray(value).any():
            raise invalid("%s: a masked array with hidden values; use %s.filled(...)" % (name, name))
        return value.data
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise invalid("%s: sparse matrices are not supported; use %s.toarray()" % (name, name))
    if hasattr(value, "untyped_storage") and hasattr(value, "detach"):
        value = _from_torch(value, name)
    if hasattr(value, "dtypes") and hasattr(value, "iloc"):
        return _from_frame(value, name)
    kind, index = dlpack_device(value, name)
    if kind not in (None, 1, 3):  # host memory, pinned or not
        raise invalid("%s: its memory is on another device (DLPack device type %d, number %d); "
                      "copy it to the host" % (name, kind, index))
    if kind is not None:
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError, AttributeError):
            pass  # a type that numpy does not know, such as bfloat16; or an old numpy
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as e:
        raise invalid("%s: cannot be read as an array: %s" % (name, e)) from None


def _from_frame(value: Any, name: str) -> Any:
    """A data frame, or one of its columns, of pandas: numbers of any types, those with missing values
    included as long as none is missing."""
    np = numpy()
    is_column = not hasattr(value, "columns")
    columns = [value] if is_column else [value.iloc[:, i] for i in range(len(value.columns))]
    made = []
    for column in columns:
        what = name if is_column else "%s: column %s" % (name, shown(column.name))
        kind = getattr(column.dtype, "kind", "O")
        if kind not in "biuf":
            raise invalid("%s: want numbers, got %s; give a number for each category, such as "
                          "pandas.get_dummies makes, or train on a CSV file (data.format=csv)" %
                          (what, column.dtype))
        if hasattr(column.dtype, "numpy_dtype"):  # a type with missing values
            if column.isna().any():
                raise invalid("%s: a value is missing" % what)
            column = column.to_numpy(dtype=column.dtype.numpy_dtype)
        made.append(np.asarray(column))
    if is_column:
        return made[0]
    if len({array.dtype for array in made}) == 1 or not made:
        return np.asarray(value) if not made else np.stack(made, axis=1)
    return np.stack([array.astype(np.result_type(*made)) for array in made], axis=1)


def dlpack_device(value: Any, name: str) -> Tuple[Any, int]:
    """(type, number) of the device with the memory of a tensor; (None, 0) of other objects."""
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        return None, 0
    try:
        kind, index = value.__dlpack_device__()
        return int(kind), int(index)
    except (ValueError, TypeError, RuntimeError, BufferError) as e:  # such as a tensor without data
        raise invalid("%s: its memory cannot be read: %s" % (name, e)) from None


def _from_torch(value: Any, name: str) -> Any:
    """A tensor of PyTorch that can be exported: without a gradient, of a type that numpy has."""
    if value.device.type == "meta" or value.is_nested or str(value.layout) != "torch.strided":
        kind = "a nested one" if value.is_nested else "one of device %s and %s" % (value.device,
                                                                                   value.layout)
        raise invalid("%s: want a tensor with values in strides, got %s" % (name, kind))
    value = value.detach().resolve_neg()
    n = value.storage_offset() + 1 + sum((size - 1) * stride for size, stride in
                                         zip(value.shape, value.stride()))
    if value.numel() > 0 and n * value.element_size() > value.untyped_storage().nbytes():
        raise invalid("%s: the memory of the tensor is freed" % name)
    return value.float() if str(value.dtype) == "torch.bfloat16" else value


def contiguous(value: Any, name: str) -> Any:
    """The value as a row-major array of a dtype of C.  No value changes: types that C does not have
    become wider ones, anything else is refused."""
    try:
        return _contiguous(value, name)
    except MemoryError as e:
        raise Error("E_NOMEM", "%s: out of memory: %s" % (name, e), 8) from None


def _contiguous(value: Any, name: str) -> Any:
    np = numpy()
    array = to_numpy(value, name)
    kind = array.dtype.name
    if kind == "bfloat16":
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif kind in WIDER:
        array = array.astype(WIDER[kind])
    elif kind not in DTYPES:
        if kind != "uint64":
            raise invalid("%s: want numbers, got %s%s" % (name, _kind_of(value, array), (
                "; for labels that are texts use tutti.Classifier, or number them: "
                "np.unique(y, return_inverse=True)[1]") if array.dtype.kind in "US" else ""))
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise invalid("%s: a value of uint64 is beyond 64 bits with a sign" % name)
        array = array.astype(np.int64)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)) \
        .reshape(array.shape)


def _kind_of(value: Any, array: Any) -> str:
    """What is no array of numbers, for messages: an object of a class, or an array of a type."""
    if array.dtype.name == "object" and array.ndim == 0:
        return "a %s; give arrays, or tutti.Samples for samples that a function makes" % \
            type(value).__name__
    return "an array of dtype %s" % array.dtype


def converted(value: Any, name: str, dtype: str) -> Any:
    """The value as a row-major array of this dtype.  Whole numbers stay what they are; numbers with
    fractions are rounded to a narrower float, never to a whole number or to infinity."""
    np = numpy()
    array = contiguous(value, name)
    if array.dtype.name == dtype:
        return array
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    is_kept = made == array if np.dtype(dtype).kind != "f" else \
        np.isfinite(made) | ~np.isfinite(array)
    if not is_kept.all():
        raise invalid("%s: a value of the %s is not one of %s" % (name, array.dtype, dtype))
    return made


def tensor(value: Any, name: str) -> Tuple[Any, Any]:
    """(tutti_tensor, object that holds its memory): on the host, or on a GPU by DLPack."""
    import ctypes

    from . import _c

    if dlpack_device(value, name)[0] in (2, 13):  # memory of CUDA, of a device or managed
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

    if hasattr(value, "resolve_neg"):
        value = value.detach().resolve_neg()
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 0))
        except TypeError:  # an older protocol
            capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise invalid("%s: cannot be read by DLPack: %s" % (name, e)) from None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    is_versioned = "dltensor_versioned" in repr(capsule)
    try:
        pointer = get(capsule, b"dltensor_versioned" if is_versioned else b"dltensor")
    except ValueError:
        raise invalid("%s: its __dlpack__ returns no new capsule" % name) from None
    made = _c.tutti_tensor()
    text = name.encode()
    c.tutti_tensor_from_dlpack(pointer, is_versioned, text, ctypes.byref(made))
    return made, (capsule, value, text)


class DlpackTensor:
    """A tensor of C for consumers of DLPack: torch.from_dlpack(tensor).  make(is_versioned) makes a
    DLManagedTensor and returns its address; each consumer receives one of its own."""

    def __init__(self, make: Callable[[bool], int], device: int):
        self._make, self._device = make, device

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0) if self._device == 0 else (2, self._device - 1)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("the tensor is on device %s" % (self.__dlpack_device__(),))
        if copy is False:
            raise BufferError("the tensor is a copy of an array of the session")
        is_versioned = max_version is not None and max_version[0] >= 1
        return _capsule(self._make(is_versioned), is_versioned)


def _capsule(address: int, is_versioned: bool) -> Any:
    """A capsule that releases the tensor unless a consumer has taken it, and so renamed it."""
    import ctypes

    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = _NAMES[is_versioned]
    return new(address, name, ctypes.cast(_destructor(), ctypes.c_void_p))


_NAMES = (b"dltensor", b"dltensor_versioned")  # live as long as every capsule
_kept: List[Any] = []


def _destructor() -> Any:
    """The C function that a capsule calls at its end."""
    import ctypes

    from ._library import c

    if not _kept:
        is_valid = ctypes.pythonapi.PyCapsule_IsValid
        is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi))
        release = c.tutti_dlpack_release

        def end(capsule: int) -> None:
            for is_versioned, name in enumerate(_NAMES):
                if is_valid(capsule, name):
                    release(get(capsule, name), bool(is_versioned))

        _kept.append(ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(end))
    return _kept[0]


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
