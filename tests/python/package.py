"""package.py - for the scripts of this folder: finds the package `tutti` of the build."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

import runs  # noqa: E402

FOLDER = os.path.join(runs.BUILD, "python")

if runs.sanitized() or not os.path.exists(os.path.join(FOLDER, "tutti", "_c.py")):
    print("skipped: this build has no Python package, or it needs a sanitizer's Python")
    sys.exit(77)
sys.path.insert(0, FOLDER)

# A run of a tenth of a second.
SMALL = dict(assignment.split("=", 1) for assignment in runs.SMALL)


def raises(kind, call, *parts):
    """What call() raises must be of this kind, and its text must contain the parts."""
    try:
        call()
    except kind as e:
        for part in parts:
            if part not in str(e):
                raise AssertionError("no '%s' in: %s" % (part, e)) from e
        return e
    raise AssertionError("nothing was raised instead of %s" % kind.__name__)


def need(*modules):
    """Ends the script as skipped where a module of others is missing."""
    import importlib

    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            print("skipped: no %s here" % name)
            sys.exit(77)
