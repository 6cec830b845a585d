"""Loads libtutti when it is first needed and calls it.

`c` is the library: c.tutti_train(...) calls the C function, with the GIL released.  A function that
returns a status raises tutti.Error unless the status is OK.  `import tutti` loads neither ctypes
nor the library.
"""

import os
import threading
from typing import TYPE_CHECKING, Any

from ._errors import Error, invalid

if TYPE_CHECKING:
    from . import _c

FOLDER = os.path.dirname(os.path.abspath(__file__))


def library_path() -> str:
    """The file of the C library, beside this package's modules."""
    return os.path.join(FOLDER, "lib", "libtutti.so.0")


def program_path() -> str:
    """The program `tutti` that this package contains."""
    return os.path.join(FOLDER, "bin", "tutti")


def add_cuda_folders() -> None:
    """Names the folders of NVIDIA's wheels to C, which itself finds only those in the same
    site-packages as this package: others are those of the user, or of the Python below this
    environment."""
    if os.environ.get("TUTTI_CUDA_PATH") or \
            not os.path.exists(os.path.join(FOLDER, "lib", "tutti-cuda.so")):
        return
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    roots = [root for root in (spec and spec.submodule_search_locations or ())
             if os.path.dirname(os.path.abspath(root)) != os.path.dirname(FOLDER)]
    folders = [os.path.join(root, name, "lib") for root in roots for name in sorted(os.listdir(root))]
    found = [folder for folder in folders if os.path.isdir(folder)]
    if found:
        os.environ["TUTTI_CUDA_PATH"] = ":".join(found)


class _Library:
    """The functions of the C library, each bound when it is first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dll: Any = None

    def _load(self) -> Any:
        import ctypes

        with self._lock:
            if self._dll is None:
                path = library_path()
                add_cuda_folders()
                try:
                    # Global: the model of a plugin calls functions of the library by name.
                    self._dll = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                except OSError as e:
                    raise Error("E_IO", "cannot load the C library: %s" % e, 1) from None
        return self._dll

    def __getattr__(self, name: str) -> Any:
        from . import _c

        if name not in _c.FUNCTIONS:
            raise AttributeError("libtutti has no function %s" % name)
        function = self._load()[name]
        function.restype, function.argtypes, returns_status = _c.FUNCTIONS[name]()
        if returns_status:
            function.errcheck = _check
        setattr(self, name, function)
        return function


if TYPE_CHECKING:
    c: "_c.Functions"
else:
    c = _Library()
    # A lock that another thread holds during a fork stays locked in the child.
    os.register_at_fork(after_in_child=lambda: setattr(c, "_lock", threading.Lock()))


def status_name(status: int) -> str:
    """ "E_DATA" for the status TUTTI_E_DATA."""
    from . import _c

    for name, value in vars(_c).items():
        if value == status and (name.startswith("TUTTI_E_") or name == "TUTTI_OK"):
            return name[len("TUTTI_"):]
    return "E_INTERNAL"


def error_of(status: int) -> Error:
    """The error of the call that has just failed on this thread."""
    text = c.tutti_last_error() or c.tutti_status_text(status) or b""
    return Error(status_name(status), text.decode("utf-8", "replace").rstrip("\n"),
                 c.tutti_status_exit_code(status))


def _check(status: int, function: Any, arguments: Any) -> int:
    if status != 0:
        raise error_of(status)
    return status


def take_text(pointer: Any) -> str:
    """The text at a char * that the caller owns, which is freed."""
    import ctypes

    address = pointer.value if hasattr(pointer, "value") else pointer
    if not address:
        raise Error("E_NOMEM", "out of memory", 8)
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)


def free(address: int) -> None:
    """Calls free() of the C library's malloc."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    libc.free(address)


def encode(text: Any, what: str) -> bytes:
    """A path or text for a C string; what names the argument in messages."""
    try:
        data = os.fsencode(text)
    except TypeError:
        raise invalid("%s: want text or a path, got %s" % (what, type(text).__name__)) from None
    except UnicodeEncodeError as e:
        raise invalid("%s: a text with a character that UTF-8 does not have: %s" %
                      (what, e)) from None
    if b"\0" in data:
        raise invalid("%s: a text with a NUL character" % what)
    return data


def encode_path(path: Any, what: str) -> bytes:
    """A path that is not empty, for a C string."""
    data = encode(path, what)
    if not data:
        raise invalid("%s: an empty path" % what)
    return data
