"""readme_test.py - the C program of docs/using-from-c.md works as printed: the test takes its text
and commands from the page and runs them in a shell with its own home folder."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import runs  # noqa: E402

SOURCE = os.path.abspath(os.environ.get("TUTTI_SOURCE", "."))


def printed():
    """The program and the commands of the page."""
    with open(os.path.join(SOURCE, "docs/using-from-c.md")) as file:
        page = file.read()
    program = re.search(r"```c\n(.*?)```", page, re.S).group(1)
    commands = re.search(r"```\n(make install.*?)```", page, re.S).group(1)
    return program, commands


def shell(commands):
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("TUTTI_", "LD_LIBRARY", "PKG_CONFIG", "MAKE"))}
    environment.update(HOME=os.getcwd())
    return subprocess.run(["sh", "-ec", commands], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_the_program():
    program, commands = printed()
    with open("mine.c", "w") as file:
        file.write(program)
    # `make install` is run where a reader runs it, and with what was built here.
    here = 'make() { (cd "%s" && command make -s BUILD="%s" "$@"); }\n' % (SOURCE, runs.BUILD)
    ended = shell(here + commands)
    if ended.returncode != 0 or not re.search(r"\d\d\.\d\d % in runs/", ended.stdout):
        raise AssertionError("%d: %s" % (ended.returncode, ended.stdout))
    accuracy = float(re.search(r"(\d+\.\d\d) % in", ended.stdout).group(1))
    if accuracy < 90:
        raise AssertionError(ended.stdout)


def test_what_is_installed():
    subprocess.run(["cmake", "--install", runs.BUILD, "--prefix", "prefix"], check=True,
                   stdout=subprocess.DEVNULL)
    for path in ("share/doc/tutti/README.md", "share/doc/tutti/docs/data.md",
                 "share/tutti/examples/mnist.yaml", "share/tutti/examples/plugin/my_model.c",
                 "include/tutti/tutti.h", "bin/tutti"):
        if not os.path.exists(os.path.join("prefix", path)):
            raise AssertionError("%s was not installed" % path)
    # The README's links lead to what was installed with it.
    with open("prefix/share/doc/tutti/README.md") as file:
        for link in re.findall(r"\]\((docs/[^)#]*)", file.read()):
            if not os.path.exists("prefix/share/doc/tutti/" + link):
                raise AssertionError("README.md: no %s" % link)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
