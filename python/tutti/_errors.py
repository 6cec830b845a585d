"""The exception that every failed call of the library raises."""


import math
import operator
from typing import Any


class Error(Exception):
    """A call failed.

    status     name of the C status, such as "E_CONFIG" or "E_DATA"
    message    what failed and what to do about it
    exit_code  the code with which the program `tutti` ends after this failure
    """

    def __init__(self, status: str, message: str, exit_code: int = 2):
        super().__init__(message)
        self.status = status
        self.message = message
        self.exit_code = exit_code

    def __reduce__(self):
        return Error, (self.status, self.message, self.exit_code)

    def __repr__(self) -> str:
        return "tutti.Error(%r, %r)" % (self.status, self.message)


def invalid(message: str) -> Error:
    """The error of an argument that cannot be used; the message names it."""
    return Error("E_INVALID", message)


def whole(value: Any, name: str, least: int, most: int = 2 ** 63 - 1) -> int:
    """A whole number of the caller between least and most; name is that of the argument."""
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # such as an array of two numbers
        found = least - 1
    if not least <= found <= most:
        limits = "from %d to %d" % (least, most) if most < 2 ** 63 - 1 else "of at least %d" % least
        raise invalid("%s: want a whole number %s, got %s" % (name, limits, shown(value)))
    return found


def real(value: Any, name: str) -> float:
    """A finite number of the caller."""
    is_number = hasattr(value, "__float__") and not isinstance(value, (bool, str))
    try:
        found = float(value) if is_number else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = math.nan
    if not math.isfinite(found):
        raise invalid("%s: want a number, got %s" % (name, shown(value)))
    return found


def flag(value: Any, name: str) -> bool:
    """True or False of the caller."""
    if not isinstance(value, bool):
        raise invalid("%s: want True or False, got %s" % (name, shown(value)))
    return value


def shown(value: Any) -> str:
    """The value for a message, on one line.

    Objects, whose memory may be freed, are shown by their type only."""
    if isinstance(value, (list, tuple, set, frozenset, dict)) and value or \
            not isinstance(value, (str, bytes, int, float, complex, list, tuple, dict, set, type,
                                   type(None))):
        return "an object of type %s" % type(value).__name__
    try:
        text = " ".join(repr(value).split())
    except Exception:  # such as a number of too many digits
        return "an object of type %s" % type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
