"""progress_line_test.py - on a terminal one line that redraws itself, elsewhere plain lines."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import runs


def on_a_terminal(*arguments, term="xterm", columns=0):
    """What the program writes to a terminal that is its standard error; 0: of unknown width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([runs.PROGRAM, *arguments], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=theirs,
                               env=dict(os.environ, TERM=term))
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the program has ended
            break
        if not part:
            break
        text += part
    os.close(ours)
    if process.wait(runs.HANGS_S) != 0:
        raise AssertionError("exit code %d: %s" % (process.returncode, text))
    return text.decode()


LINE = re.compile(r"^ *\d+% step \d+/40  epoch \d  loss [\d.]+  acc [\d.]+%  \d+ samples/s"
                  r"  left \d+:\d\d  comm \d+%  wait \d+%"
                  r"(  slowest: rank [01], (data|copy|compute|other) \+\d+%)?$")


def check_terminal(text):
    lines = text.replace("\r\n", "\n").split("\n")
    drawn = drawn_lines(text)
    if len(drawn) != 40 or not all(LINE.match(d) for d in drawn):
        raise AssertionError("lines: %s" % drawn)
    rows = [line for line in lines if " step " in line]
    if len(rows) != 5:  # one for each epoch: an evaluation ends it
        raise AssertionError("%d rows with a progress line" % len(rows))
    if len([line for line in lines if line.startswith("epoch ")]) != 5:
        raise AssertionError("evaluations must stand on lines of their own: %s" % lines)


def drawn_lines(text):
    lines = text.replace("\r\n", "\n").split("\n")
    return [d for line in lines for d in line.split("\r\033[K") if " step " in d]


def test_terminal():
    check_terminal(on_a_terminal(*runs.small("run", "-n", "2")))
    check_terminal(on_a_terminal(*runs.small("wide", "-n", "2"), columns=200))


def test_narrow_terminals():
    """A line is never wrapped, which could not be redrawn; the least important part is left out."""
    for columns, there, gone in ((80, " samples/s", "epoch"), (40, "  loss ", " samples/s")):
        drawn = drawn_lines(on_a_terminal(*runs.small("run-%d" % columns, "-n", "2"),
                                          columns=columns))
        if len(drawn) != 40:
            raise AssertionError("%d lines" % len(drawn))
        for line in drawn:
            if len(line) >= columns or there not in line or gone in line:
                raise AssertionError("%d columns: %r" % (columns, line))


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
