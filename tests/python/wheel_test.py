"""wheel_test.py - pip installs the checkout into an empty virtual environment, without a network;
there the package trains, and so does the program, with the same bits."""

import os
import re
import subprocess
import sys
import zipfile

from package import SMALL, runs

SOURCE = os.environ["TUTTI_SOURCE"]
ENVIRONMENT = "an environment"  # paths may have spaces


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError("%s: exit code %d\n%s%s" % (command, done.returncode, done.stdout,
                                                         done.stderr))
    return done.stdout + done.stderr


def environment():
    """Nothing of this build or of other Pythons."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "PYTHON", "PIP_"))}


def check_contents(path):
    if not re.match(r"tutti-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl$", os.path.basename(path)):
        raise AssertionError(path)
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        record = [n for n in names if n.endswith("RECORD")][0]
        listed = [line.split(",")[0] for line in wheel.read(record).decode().splitlines()]
        metadata = wheel.read(record.replace("RECORD", "METADATA")).decode()
    if sorted(listed) != sorted(names):
        raise AssertionError("RECORD differs from the files: %s" % (set(listed) ^ set(names)))
    for wanted in ("tutti/py.typed", "tutti/_c.pyi", "tutti/lib/libtutti.so.0", "tutti/bin/tutti"):
        if wanted not in names:
            raise AssertionError("no %s in %s" % (wanted, names))
    nvidia = [n for n in names if re.search("cuda|nvidia|cublas|cudnn|nccl", n)]
    required = [line for line in metadata.split("\n")
                if line.startswith("Requires-Dist") and "extra ==" not in line]
    if nvidia or required != ["Requires-Dist: numpy>=1.20"]:
        raise AssertionError("%s, %s" % (nvidia, required))
    size = os.path.getsize(path)
    if size > 25e6:
        raise AssertionError("%d bytes, at most 25 million" % size)


def check_own_libraries(path):
    """The names of the libraries in the wheel.  Files find them in lib/ and in no folder of this
    machine, and the program holds nothing of the library."""
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall("unpacked")
        libraries = {os.path.basename(n) for n in wheel.namelist() if ".so" in n}
    for name, folder in (("lib/libtutti.so.0", "$ORIGIN"), ("bin/tutti", "$ORIGIN/../lib")):
        found = output("readelf", "--dynamic", "--wide", "unpacked/tutti/" + name)
        wanted = re.findall(r"\(NEEDED\).*\[(.*)\]", found)
        folders = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", found)
        if folders != [folder] or (name == "bin/tutti") != ("libtutti.so.0" in wanted):
            raise AssertionError("%s looks in %s for %s" % (name, folders, wanted))
    return libraries


def can_install_elsewhere():
    """True if this Python's pip knows the option --python, which saves seconds: no environment
    needs a pip of its own."""
    try:
        from pip import __version__ as version
    except ImportError:
        return False
    return [int(n) for n in version.split(".")[:2]] >= [22, 3]


def make_environment():
    """The commands of its Python and of its pip; (None, None): this Python makes none."""
    python = os.path.abspath(ENVIRONMENT + "/bin/python")
    if can_install_elsewhere():
        output(sys.executable, "-m", "venv", "--without-pip", ENVIRONMENT)
        return python, [sys.executable, "-m", "pip", "--python", python]
    try:
        output(sys.executable, "-m", "venv", ENVIRONMENT)
    except AssertionError as e:
        if "ensurepip" not in str(e):
            raise
        return None, None
    return python, [python, "-m", "pip"]


def test_a_wheel_in_an_empty_environment():
    python, pip = make_environment()
    if not python:
        print("not tested: this Python makes no virtual environments")
        return
    # What the build has, instead of compiling for minutes; all else is as for users.
    output(*pip, "wheel", "-q", "--no-index", "--no-deps", SOURCE, "--wheel-dir=dist",
           "--config-settings=build=" + runs.BUILD, env=environment())
    path, = (os.path.join("dist", name) for name in os.listdir("dist"))
    check_contents(path)
    output(*pip, "install", "-q", "--no-index", "--no-deps", path, env=environment())
    text = "import tutti; r = tutti.train(None, %r, workers=2); print(r.params_hash)" % SMALL
    digits = output(python, "-c", text, env=environment()).split()[-1]
    arguments = runs.small("by-program", "-n", "2", "run.progress=false")
    said = output(ENVIRONMENT + "/bin/tutti", *arguments, env=environment())
    if "params_hash " + digits not in said:
        raise AssertionError("%s, but the program: %s" % (digits, said))
    packed = check_own_libraries(path)
    # A library that Python itself has loaded serves everyone in the process; on Ubuntu libz.
    maps = output(python, "-c", "print(open('/proc/self/maps').read())", env=environment())
    of_python = set(re.findall(r"/([^/\s]*)\.so[.\d]*$", maps, re.M))
    for name, files, allowed in (
            ("program", output(ENVIRONMENT + "/bin/tutti", "doctor", "--quick", env=environment()),
             set()),
            ("library", output(python, "-c", "import tutti; print(tutti.doctor())",
                               env=environment()), of_python)):
        found = re.findall(r"^ +(/.*\.so[.\d]*)$", files, re.M)
        loaded = {os.path.normpath(file) for file in found}
        own = {os.path.basename(file) for file in loaded if "/site-packages/tutti/lib/" in file}
        other = {file for file in loaded if os.path.basename(file) in packed - own and
                 os.path.basename(file).split(".so")[0] not in allowed}
        if "libtutti.so.0" not in own or other:
            raise AssertionError("%s: of this machine, not of the wheel: %s in %s" %
                                 (name, other, files))


def test_the_wheel_of_the_cuda_module():
    """It runs on every Linux of its tag: it holds the module alone, which loads NVIDIA's libraries
    when it runs, and requires the wheels with them."""
    if not os.path.exists(runs.CUDA_MODULE):
        print("not tested: this build has no CUDA module")
        return
    sys.path.insert(0, os.path.join(SOURCE, "python/backend"))
    import tutti_build

    name = tutti_build.build_cuda_wheel("dist-cuda", {"build": runs.BUILD})
    if not re.match(r"tutti_cuda13-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl$", name):
        raise AssertionError(name)
    with zipfile.ZipFile(os.path.join("dist-cuda", name)) as wheel:
        names = wheel.namelist()
        info = [n for n in names if n.endswith("METADATA")][0]
        metadata = wheel.read(info).decode()
    if [n for n in names if ".so" in n] != ["tutti/lib/tutti-cuda.so"]:
        raise AssertionError(names)
    for wanted in ("tutti==", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"):
        if "Requires-Dist: " + wanted not in metadata:
            raise AssertionError("no %s in %s" % (wanted, metadata[:500]))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
