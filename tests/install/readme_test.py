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


def check_program(n_train):
    """With fewer samples than the built-in digits have, what is learnt is not checked; 0: with
    all."""
    program, commands = printed()
    digits = 'tutti_job_set(job, "data.format=digits", "mine.c");'
    assert digits in program, program
    with open("mine.c", "w") as file:
        few = [digits.replace("format=digits", text) for text in ("n_train=%d" % n_train,
                                                                  "n_test=%d" % (n_train / 5))]
        file.write(program.replace(digits, "\n".join([digits, *(few if n_train else [])])))
    ended = shell(MAKE + commands)
    if ended.returncode != 0 or not re.search(r"\d\.\d\d % in runs/", ended.stdout):
        raise AssertionError("%d: %s" % (ended.returncode, ended.stdout))
    accuracy = float(re.search(r"(\d+\.\d\d) % in", ended.stdout).group(1))
    if accuracy < 90 and not n_train:
        raise AssertionError(ended.stdout)


def test_the_program():
    """As printed: readme_slow_test.py."""
    check_program(500)


C_BLOCK = re.compile(r"^ *```[cC] *\n(.*?)^ *```(.*?)(?=^ *```[cC] *\n|\Z)", re.S | re.M)


def pages():
    """Every page of the docs, README.zh.md too."""
    found = [name for name in os.listdir(SOURCE) if name.endswith(".md")]
    for folder, _, names in os.walk(os.path.join(SOURCE, "docs")):
        found += [os.path.relpath(os.path.join(folder, name), SOURCE) for name in names
                  if name.endswith(".md")]
    return sorted(found)


def programs():
    """Name, text and command of every C program: those printed in the docs, and those of
    examples/c, whose first comment has the command."""
    found = {}
    for page in pages():
        for block, rest in C_BLOCK.findall(read_page(page)):
            command = re.search(r"^ *cc (\w+)\.c .*$", rest, re.M)
            assert "int main(" in block and command, "%s: no program: %s" % (page, block)
            found[command[1]] = (block, command[0].strip())
    for name in sorted(os.listdir(os.path.join(SOURCE, "examples/c"))):
        text = read_page("examples/c/" + name)
        command = re.search(r"^ \*     (cc (\w+)\.c .*)$", text, re.M)
        assert command[2] + ".c" == name, command[0]
        found[command[2]] = (text, command[1])
    return found


def test_every_program():
    """Each is compiled without a warning and succeeds, both by the printed command."""
    shell(MAKE + "make install PREFIX=$HOME/tutti")
    found = programs()
    assert len(found) >= 7, found.keys()
    for name, (program, command) in found.items():
        os.mkdir("in_" + name)
        with open("in_%s/%s.c" % (name, name), "w") as file:
            file.write(program)
        ended = shell("export PKG_CONFIG_PATH=$HOME/tutti/lib/pkgconfig\n"
                      "export PATH=$HOME/tutti/bin:$PATH\n"
                      "cc() { command cc -Wall -Wextra -Werror \"$@\"; }\n"
                      "cd in_%s\n%s" % (name, command))
        if ended.returncode != 0:
            raise AssertionError("%s: %d: %s" % (name, ended.returncode, ended.stdout))


def command_blocks(path):
    return re.findall(r"^```sh\n(.*?)^```", read_page(path), re.S | re.M)


def with_samples(block, n_train):
    printed_as = "data.n_train=5000 data.n_test=1000"
    return block.replace(printed_as, "data.n_train=%d data.n_test=%d" % (n_train, n_train / 5))


def check_quickstart(n_train):
    """The commands of the page; with fewer samples than the page has, what is learnt is not
    checked."""
    os.symlink(os.path.join(SOURCE, "examples"), "examples")
    output = {}  # of each block, by its first command
    for block in command_blocks("docs/quickstart.md"):
        ended = shell(MAKE + with_samples(block, n_train))
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
