"""readme_slow_test.py - the commands of docs/quickstart.md and the program of docs/using-from-c.md,
as printed."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import readme_test  # noqa: E402
import runs  # noqa: E402


def test_the_quickstart():
    assert "data.n_train=5000" in readme_test.read_page("docs/quickstart.md")
    readme_test.check_quickstart(5000)


def test_the_program():
    readme_test.check_program(0)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
