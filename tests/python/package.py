"""package.py - for the scripts of this folder: finds the package `tutti` of the build."""

import os
import sys
import time

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


def usage():
    """(bytes in memory, open files, threads) of this process."""
    with open("/proc/self/statm") as file:
        n_bytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return n_bytes, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def check_no_growth(cycle, n, most_bytes=8 << 20):
    """n calls leave no memory, files or threads behind; caches have filled up after some calls."""
    for _ in range(20):
        cycle()
    before = usage()
    for _ in range(n):
        cycle()
    after = usage()
    for _ in range(100):  # a thread that has said its last may not have ended
        if after[1] <= before[1] and after[2] <= before[2]:
            break
        time.sleep(0.02)
        after = usage()
    if after[0] - before[0] > most_bytes or after[1] > before[1] or after[2] > before[2]:
        raise AssertionError("%d calls: (bytes, files, threads) %s, before %s" % (n, after, before))


def need(*modules):
    """Ends the script as skipped where a module of others is missing."""
    import importlib

    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            print("skipped: no %s here" % name)
            sys.exit(77)
