"""What the house tools know about C source: comments, functions, includes.

No compiler and no ctags: the scanner reads what the style allows, which is C17 with functions
that begin at brace depth 0.  Line numbers survive every step.
"""

import os
import re
import sys
from collections import namedtuple

# n_lines counts from the return type to the closing brace; "..." is one of n_params.
Function = namedtuple("Function", "name line n_lines n_params")

# Endings of source files: C, and CUDA's C++.
OURS = (".c", ".h", ".cu", ".cuh")

SKIPPED = {".git", "build", "node_modules", "__pycache__"}


def find_files(root, folders, endings):
    """Paths below root, relative, sorted; build folders are left out."""
    found = []
    for folder in folders:
        for where, names, files in os.walk(os.path.join(root, folder)):
            names[:] = [n for n in names if n not in SKIPPED and not n.startswith("build-")]
            found += [os.path.relpath(os.path.join(where, f), root)
                      for f in files if f.endswith(endings)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


TOKEN = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                   re.S)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text):
    """The text with comments blanked, strings kept."""
    return TOKEN.sub(lambda m: _blank(m[0]) if m[0][0] == "/" else m[0], text)


def strip_directives(text):
    """The text with preprocessor lines blanked."""
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: _blank(m[0]), text, flags=re.M)


def bare(text):
    """The text with comments, strings, character constants and preprocessor lines blanked."""
    return strip_directives(TOKEN.sub(lambda m: _blank(m[0]), text))


def comment_lines(text):
    """Numbers of the lines that hold a comment or a part of one."""
    lines = set()
    for m in TOKEN.finditer(text):
        if m[0][0] == "/":
            first = text.count("\n", 0, m.start())
            lines.update(range(first, first + m[0].count("\n") + 1))
    return lines


def includes(text):
    """(line, "quoted" or "system", path) of each #include."""
    out = []
    for number, line in enumerate(strip_comments(text).split("\n"), 1):
        m = re.match(r'\s*#\s*include\s*(?:"([^"]*)"|<([^>]*)>)', line)
        if m:
            out.append((number, "quoted" if m[1] is not None else "system", m[1] or m[2] or ""))
    return out


def _closing(text, start):
    """Index of the parenthesis that closes the one at start, -1 if none does."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] == "(":
            depth += 1
        elif text[i] == ")":
            depth -= 1
            if depth == 0:
                return i
    return -1


def _without_attributes(head):
    while True:
        m = re.search(r"\b__attribute__\s*\(|\b_Alignas\s*\(", head)
        if not m:
            return head
        end = _closing(head, m.end() - 1)
        if end < 0:
            return head
        head = head[:m.start()] + _blank(head[m.start():end + 1]) + head[end + 1:]


def _signature(head):
    """(name, number of parameters, offset) if head is that of a function, else None."""
    head = _without_attributes(head)
    end = len(head.rstrip())
    if not end or head[end - 1] != ")" or re.search(r"(?<![=!<>])=(?!=)", head):
        return None
    depth, start = 0, -1
    for i in range(end - 1, -1, -1):
        if head[i] == ")":
            depth += 1
        elif head[i] == "(":
            depth -= 1
            if depth == 0:
                start = i
                break
    m = re.search(r"([A-Za-z_]\w*)\s*$", head[:start]) if start > 0 else None
    if not m:
        return None
    inside = head[start + 1:end - 1].strip()
    if inside in ("", "void"):
        n_params = 0
    else:
        depth, n_params = 0, 1
        for c in inside:
            depth += (c in "([{") - (c in ")]}")
            n_params += c == "," and depth == 0
    name = m[1]
    if not head[:m.start()].strip():  # a macro that makes a test case: T_CASE(name) {
        name = "%s(%s)" % (name, inside)
    return name, n_params, len(head) - len(head.lstrip())


def functions(text):
    """The functions that are defined in text."""
    code = bare(text)
    out = []
    depth, head_start, current = 0, 0, None
    for m in re.finditer(r"[{};]", code):
        c, at = m[0], m.start()
        if c == ";":
            if depth == 0:
                head_start = at + 1
        elif c == "{":
            if depth == 0:
                head = code[head_start:at]
                if re.search(r'\bextern\s*$', head):  # extern "C" {
                    head_start = at + 1
                    continue
                signature = _signature(head)
                current = (signature, head_start)
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0:
                signature, start = current
                if signature:
                    name, n_params, offset = signature
                    line = code.count("\n", 0, start + offset) + 1
                    out.append(Function(name, line, code.count("\n", 0, at) + 2 - line, n_params))
                    head_start = at + 1
        else:
            head_start = at + 1
    return out


def is_balanced(text):
    """False if the braces do not pair, and functions() cannot be trusted."""
    code = bare(text)
    return code.count("{") == code.count("}")


class Report:
    """Collects problems as "path:line: text" and ends the program with 0 or 1."""

    def __init__(self, tool):
        self.tool, self.problems = tool, []

    def add(self, path, line, text):
        self.problems.append((path, line, text))

    def finish(self, summary):
        for path, line, text in sorted(self.problems):
            print("%s%s %s" % (path, ":%d:" % line if line else ":", text))
        print("%s: %s" % (self.tool, summary if not self.problems
                          else "%d problem(s)" % len(self.problems)))
        sys.exit(1 if self.problems else 0)
