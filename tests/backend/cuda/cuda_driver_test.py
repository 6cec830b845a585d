"""cuda_driver_test.py - what doctor and train say where the driver is missing, too old or knows no
device: a libcuda.so.1 of the tests stands for it.  Needs the module, and no device."""

import os
import subprocess
import sys

BUILD = os.path.abspath(os.environ.get("TUTTI_BUILD", "build"))
DRIVER = os.path.join(BUILD, "tests/modules/driver")
PROGRAM = os.path.abspath(os.environ.get("TUTTI_PROGRAM", "build/tutti"))


def expect(version, arguments, code, *parts):
    folders = [DRIVER, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    environment = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, folders)),
                       TUTTI_TEST_DRIVER=version)
    ended = subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True,
                           timeout=60)
    reported = ended.stdout + ended.stderr
    if ended.returncode != code or any(part not in reported for part in parts):
        sys.exit("driver %s: exit code %d, no %s in\n%s" %
                 (version, ended.returncode, parts, reported))


if __name__ == "__main__":
    if not os.path.exists(BUILD + "/tutti-cuda.so"):
        print("skipped: this build has no CUDA module")
        sys.exit(77)
    doctor, train = ["doctor", "--quick"], ["train", "parallel.devices=gpu", "run.dir=none"]
    expect("0", doctor, 0, "there is no NVIDIA driver here (libcuda.so.1)")
    expect("11040", doctor, 0, "the NVIDIA driver is too old: it is for CUDA 11.4, and this build "
           "needs ", "install a newer driver")
    expect("99000", doctor, 0, "no device can be used: ", "driver for CUDA 99.0")
    expect("11040", train, 2, "no GPU can be used; parallel.devices=cpu", "tutti doctor",
           "the NVIDIA driver is too old")
    if os.path.exists("none"):
        sys.exit("a run that could not begin has left its folder")
