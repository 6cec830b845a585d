"""readme_test.py - the commands of docs/quickstart.md, the C programs of the docs and those of
examples/c work as printed: the tests run them in a shell with its own home folder."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import runs  # noqa: E402

SOURCE = os.path.abspath(os.environ.get("TUTTI_SOURCE", "."))


def read_page(path):
    with open(os.path.join(SOURCE, path)) as file:
        return file.read()


def printed():
    """The program and the commands of the page."""
    page = read_page("docs/using-from-c.md")
    program = re.search(r"```c\n(.*?)```", page, re.S).group(1)
    commands = re.search(r"```\n(make install.*?)```", page, re.S).group(1)
    return program, commands


# `make` runs where a reader runs it, on what was built here: by a link, since the name of a build
# folder that make gets may have no spaces.
MAKE = 'make() { (cd "%s" && command make -s BUILD="$HOME/build" "$@"); }\n' % SOURCE


def shell(commands):
    # The paths of other libraries stay: they may lie where only the environment says, and none of
    # them leads to Tutti.
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("TUTTI_", "MAKE"))}
    environment.update(HOME=os.getcwd())
    if not os.path.exists("build"):
        os.symlink(runs.BUILD, "build")
    return subprocess.run(["sh", "-ec", commands], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_the_program():
    program, commands = printed()
    with open("mine.c", "w") as file:
        file.write(program)
    ended = shell(MAKE + commands)
    if ended.returncode != 0 or not re.search(r"\d\d\.\d\d % in runs/", ended.stdout):
        raise AssertionError("%d: %s" % (ended.returncode, ended.stdout))
    accuracy = float(re.search(r"(\d+\.\d\d) % in", ended.stdout).group(1))
    if accuracy < 90:
        raise AssertionError(ended.stdout)


def programs():
    """Name and text of every C program: those printed in the docs, and those of examples/c."""
    found = {}
    for page in sorted(os.listdir(os.path.join(SOURCE, "docs"))):
        if not page.endswith(".md"):
            continue
        blocks = re.findall(r"^```c\n(.*?)^```", read_page("docs/" + page), re.S | re.M)
        for number, block in enumerate(blocks):
            if "int main(" in block:
                found["%s_%d" % (page[:-3].replace("-", "_"), number)] = block
    for name in sorted(os.listdir(os.path.join(SOURCE, "examples/c"))):
        found[name[:-2]] = read_page("examples/c/" + name)
    return found


def test_every_program():
    """Each is compiled with the installed pkg-config file, without a warning, and succeeds."""
    shell(MAKE + "make install PREFIX=$HOME/tutti")
    found = programs()
    assert len(found) >= 6, found.keys()
    for name, program in found.items():
        with open(name + ".c", "w") as file:
            file.write(program)
        ended = shell("export PKG_CONFIG_PATH=$HOME/tutti/lib/pkgconfig\ncc -Wall -Wextra -Werror "
                      "%s.c $(pkg-config --cflags --libs tutti) -lm -o %s\n"
                      "mkdir -p in_%s && cd in_%s && ../%s" % ((name,) * 5))
        if ended.returncode != 0:
            raise AssertionError("%s: %d: %s" % (name, ended.returncode, ended.stdout))


def command_blocks(path):
    return re.findall(r"^```sh\n(.*?)^```", read_page(path), re.S | re.M)


def check_quickstart(n_train):
    """The commands of the page; with fewer samples than the page has, what is learnt is not
    checked."""
    os.symlink(os.path.join(SOURCE, "examples"), "examples")
    output = {}  # of each block, by its first command
    for block in command_blocks("docs/quickstart.md"):
        ended = shell(MAKE + block.replace("data.n_train=5000", "data.n_train=%d" % n_train))
        output[block.split("\n")[0]] = ended.stdout
        if "parallel.devices=gpu" in block and "no GPU can be used" in ended.stdout:
            assert ended.returncode == 2, ended.stdout  # as the page says
        elif ended.returncode != 0:
            raise AssertionError("%s: %d: %s" % (block, ended.returncode, ended.stdout))

    def find(command, pattern):
        """What the pattern finds in the output of the block that begins so."""
        text = "".join(text for first, text in output.items() if first.startswith(command))
        found = re.findall(pattern, text)
        assert found, "%s: %s" % (command, text)
        return found

    first = find("build/tutti train examples/digits.yaml data.n_train=5000", r"params_hash (\w+)")
    assert len(first) == 3 and len(set(first)) == 1, first  # one worker, threads, processes
    predicted = find("build/tutti eval", r'seven.png","class":(\d),"probability":([\d.]+)')
    if n_train == 5000:
        assert predicted[0][0] == "7" and float(predicted[0][1]) > 0.99, predicted
    classes = find("printf", r'"index":\d,"class":"(\w+)"')
    assert classes == ["setosa", "versicolor"], classes
    assert os.path.getsize("runs/first.onnx") > 1000000, "the export is too small"


def test_the_quickstart():
    """As printed: readme_slow_test.py."""
    check_quickstart(500)


def test_the_chinese_quickstart_has_the_same_commands():
    assert command_blocks("docs/quickstart.zh.md") == command_blocks("docs/quickstart.md")


def test_what_is_installed():
    subprocess.run(["cmake", "--install", runs.BUILD, "--prefix", "prefix"], check=True,
                   stdout=subprocess.DEVNULL)
    for path in ("share/doc/tutti/README.md", "share/doc/tutti/README.zh.md",
                 "share/doc/tutti/docs/data.md", "share/doc/tutti/docs/quickstart.md",
                 "share/tutti/examples/mnist.yaml", "share/tutti/examples/plugin/my_model.c",
                 "share/tutti/examples/c/own_loop.c",
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
