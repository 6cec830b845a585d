"""module_path_test.py - the program finds its modules however it is started, and so do its workers.

No variable says where: the module of the tests, whose devices are the host, lies where a build or
an installation has tutti-cuda.so."""

import os
import shutil
import subprocess
import sys

import runs

TRAIN = runs.small("run", "train.steps=2", "parallel.devices=gpu", "-n", "2",
                   "optimizer.name=sgd", "optimizer.momentum=0")


def run(program, *arguments, **more):
    ended = subprocess.run([program, *arguments], env=dict(os.environ, **more),
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        raise AssertionError("%s %s: %s" % (program, " ".join(arguments), ended.stdout))
    return ended.stdout


def finds(module, program, **more):
    """doctor names the file, and workers of both kinds give the same bits."""
    line = "  module: %s\n" % os.path.abspath(module)
    reported = run(program, "doctor", "--quick", **more)
    if line not in reported:
        raise AssertionError("%s: no '%s' in %s" % (program, line, reported))
    hashes = set()
    for place in ("threads", "processes"):
        shutil.rmtree("run", ignore_errors=True)
        run(program, *TRAIN, "parallel.place=" + place, **more)
        hashes.add(runs.records("run")[-1]["params_hash"])
    if len(hashes) != 1:
        raise AssertionError("%s: hashes %s" % (program, hashes))


def installed_module(prefix):
    return os.path.join(prefix, "bin/../" + runs.cached("CMAKE_INSTALL_LIBDIR"),
                        "tutti/tutti-cuda.so")


def finds_installed(prefix, program, **more):
    reported = run(program, "doctor", "--quick", **more)
    lines = [line[10:] for line in reported.splitlines() if line.startswith("  module: ")]
    wanted = os.path.realpath(installed_module(prefix))
    if wanted not in [os.path.realpath(line) for line in lines]:
        raise AssertionError("%s: %s, not %s" % (program, lines, wanted))
    shutil.rmtree("run", ignore_errors=True)
    run(program, *TRAIN, "parallel.place=processes", **more)


def test_build_folder():
    runs.place(os.environ.get("TUTTI_PROGRAM", "build/tutti"), "build/tutti")
    runs.place(os.path.join(runs.BUILD, "tests/modules/device/tutti-cuda.so"),
               "build/tutti-cuda.so")
    finds("build/tutti-cuda.so", "build/tutti")
    finds("build/tutti-cuda.so", "tutti", PATH="build:" + os.environ["PATH"])
    os.symlink("build/tutti", "short")
    finds("build/tutti-cuda.so", "./short")


def test_installation():
    runs.install("a prefix", "device")
    finds_installed("a prefix", "a prefix/bin/tutti")
    os.mkdir("links")
    os.symlink("../a prefix/bin/tutti", "links/tutti")
    finds_installed("a prefix", "links/tutti")
    finds_installed("a prefix", "tutti", PATH=os.path.abspath("links") + ":" + os.environ["PATH"])
    os.rename("a prefix", "moved")
    finds_installed("moved", os.path.abspath("moved/bin/tutti"))


def test_replaced_program():
    """A program whose file was removed, as when it is built anew, still finds its module."""
    program = runs.install("here", "device")
    fd = os.open(program, os.O_RDONLY)
    os.remove(program)
    process = subprocess.Popen(["tutti", "doctor", "--quick"], stdout=subprocess.PIPE, text=True,
                               executable="/proc/self/fd/%d" % fd, pass_fds=(fd,))
    reported = process.communicate()[0]
    if "tutti-cuda.so\n" not in reported or process.returncode != 0:
        raise AssertionError(reported)


def test_modules_of_mpi():
    """Those that the build has lie beside its program."""
    os.symlink(runs.PROGRAM, "tutti")
    reported = run("./tutti", "doctor", "--quick")
    for name in ("mpi-openmpi", "mpi-mpich"):
        file = os.path.join(os.path.dirname(os.path.realpath(runs.PROGRAM)), "tutti-%s.so" % name)
        if os.path.exists(file) and file not in reported:
            raise AssertionError("no %s in %s" % (file, reported))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
