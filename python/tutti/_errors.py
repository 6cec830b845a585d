"""The exception that every failed call of the library raises."""


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
