"""progress_line_test.py - on a terminal one line that redraws itself, elsewhere plain lines."""

import os
import pty
import re
import subprocess
import sys

import runs


def on_a_terminal(*arguments, term="xterm"):
    """What the program writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([runs.PROGRAM, *arguments], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=theirs,
                               env=dict(os.environ, TERM=term))
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the program has ended
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    if process.wait(60) != 0:
        raise AssertionError("exit code %d: %s" % (process.returncode, text))
    return text.decode()


LINE = re.compile(r"^ *\d+% step \d+/40  epoch \d  loss [\d.]+  acc [\d.]+%  \d+ samples/s"
                  r"  left \d+:\d\d  comm \d+%  wait \d+%"
                  r"(  slowest: rank [01], (data|copy|compute|other) \+\d+%)?$")


def check_terminal(text):
    lines = text.replace("\r\n", "\n").split("\n")
    drawn = [d for line in lines for d in line.split("\r\033[K") if " step " in d]
    if len(drawn) != 40 or not all(LINE.match(d) for d in drawn):
        raise AssertionError("lines: %s" % drawn)
    rows = [line for line in lines if " step " in line]
    if len(rows) != 5:  # one for each epoch: an evaluation ends it
        raise AssertionError("%d rows with a progress line" % len(rows))
    if len([line for line in lines if line.startswith("epoch ")]) != 5:
        raise AssertionError("evaluations must stand on lines of their own: %s" % lines)


def test_terminal():
    check_terminal(on_a_terminal(*runs.small("run", "-n", "2")))


def test_terminal_of_processes():
    """Rank 0 has the terminal itself."""
    check_terminal(on_a_terminal(*runs.small("run", "-n", "2", "parallel.place=processes")))


def test_no_redrawing_elsewhere():
    for name, text in (("dumb", on_a_terminal(*runs.small("dumb"), term="dumb")),
                       ("file", runs.tutti(*runs.small("file")).err)):
        if "\033" in text or "\r\033" in text:
            raise AssertionError("%s: control characters in %r" % (name, text))
        steps = [line for line in text.splitlines() if " step " in line]
        most = 1 + runs.records(name)[-1]["wall_s"] // 5  # one every 5 seconds
        if not 1 <= len(steps) <= most:
            raise AssertionError("%s: %s" % (name, steps))


def test_quiet():
    if on_a_terminal(*runs.small("run", "-q")):
        raise AssertionError("not quiet")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
