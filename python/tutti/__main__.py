"""The program `tutti`: `python -m tutti`, and the command that pip puts on PATH."""

import os
import sys

from ._library import program_path


def main() -> None:
    """Becomes the program that this package contains."""
    os.execv(program_path(), [program_path()] + sys.argv[1:])


if __name__ == "__main__":
    main()
