"""The program `tutti`: `python -m tutti`, and the command that pip puts on PATH."""

import os
import sys

from ._library import add_cuda_folders, program_path


def main() -> None:
    """Becomes the program that this package contains."""
    add_cuda_folders()
    os.execv(program_path(), [program_path()] + sys.argv[1:])


if __name__ == "__main__":
    main()
