"""tutti_build - builds the wheels of Tutti (PEP 517), with nothing but Python's standard library.

    pip install .                                builds and installs the package `tutti`
    python3 python/backend/tutti_build.py OUT    writes the wheel to OUT (`make wheel`)
    python3 python/backend/tutti_build.py --cuda OUT
                                                 writes that of the CUDA module, tutti-cuda13
                                                 (`make wheel-cuda`)

The library is built in build-wheel/.  Libraries that not every Linux has, such as oneDNN, are copied
beside it.  The platform tag names the oldest glibc that has every symbol of all files, as auditwheel
finds it.

Config setting: build=FOLDER packs what a build folder has, instead of compiling.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OLDEST_GLIBC = 17

# Libraries that every Linux has (the policies of manylinux), so that a wheel need not have them.
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so\.\d+$"
                              r"|ld-linux-x86-64\.so\.2$")

SUMMARY = "Trains neural networks on many devices at once: the same bits on 1 worker or many"
EXTRAS = {"cuda13": ["tutti-cuda13=={version}"], "sklearn": ["scikit-learn>=1.6"],
          "torch": ["torch>=2.8"]}
CUDA_NEEDS = ["tutti=={version}", "nvidia-cuda-runtime>=13,<14", "nvidia-cublas>=13,<14",
              "nvidia-cudnn-cu13>=9", "nvidia-nccl-cu13>=2.28"]


def version():
    """The version of CMakeLists.txt."""
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(tutti VERSION ([\d.]+)", file.read())[1]


# ---- compile ----

def build(target, *options):
    """Configures build-wheel/ and builds the target in it; returns the folder."""
    folder = os.path.join(ROOT, "build-wheel")
    commands = [["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 "-DCMAKE_C_FLAGS_RELEASE=-O2", "-DTUTTI_WHEEL=ON", "-DTUTTI_WITH_ONEDNN=AUTO",
                 "-DTUTTI_WITH_MPI=OFF", "-DBUILD_TESTING=OFF",
                 "-DPython3_EXECUTABLE=" + sys.executable, *options],
                ["cmake", "--build", folder, "--target", target]]
    for command in commands:
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True)
        except OSError as e:
            raise SystemExit("tutti: building needs %s: %s" % (command[0], e.strerror)) from None
        if done.returncode:
            sys.stderr.write(done.stdout[-8000:])
            raise SystemExit("tutti: %s failed" % " ".join(command[:2]))
    return folder


# ---- what a file of machine code needs ----

def needs(path):
    """(libraries, glibc): the names of the libraries that path needs, and the newest minor version of
    glibc 2.x among its symbols."""
    out = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide", path], check=True,
                         capture_output=True, text=True).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", out)
    versions = [int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", out)]
    return libraries, max(versions, default=0)


def find_libraries(paths):
    """name: file of every library that the files need and that not every Linux has."""
    found = {}
    for path in paths:
        out = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
        where = dict(re.findall(r"^\s*(\S+) => (/\S+)", out, re.M))
        for name, file in where.items():
            if not SYSTEM_LIBRARIES.match(name) and not name.startswith("libtutti."):
                found[name] = file
        missing = re.findall(r"^\s*(\S+) => not found", out, re.M)
        if missing:
            raise SystemExit("tutti: %s needs %s, not found" % (path, ", ".join(missing)))
    return found


def platform_tag(paths):
    """manylinux_2_N_x86_64, N of the newest glibc that a symbol of the files needs."""
    newest = max([OLDEST_GLIBC] + [needs(path)[1] for path in paths])
    machine = sysconfig.get_platform().split("-")[-1].replace(".", "_")
    return "manylinux_2_%d_%s" % (newest, machine)


# ---- the archive ----

class Wheel:
    """A wheel being written: files are added, then finish() writes its metadata."""

    def __init__(self, folder, name, tag):
        self.info = "%s-%s.dist-info" % (name.replace("-", "_"), version())
        self.file_name = "%s-%s-py3-none-%s.whl" % (name.replace("-", "_"), version(), tag)
        self.name, self.tag, self.records = name, tag, []
        os.makedirs(folder, exist_ok=True)
        self.archive = zipfile.ZipFile(os.path.join(folder, self.file_name), "w",
                                       zipfile.ZIP_DEFLATED, compresslevel=9)

    def add(self, path, data, executable=False):
        if isinstance(data, str):
            data = data.encode()
        entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))  # the same bytes make the same wheel
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append("%s,sha256=%s,%d\n" % (path, digest, len(data)))

    def add_code(self, path, source, executable=False):
        """Adds a file of machine code without its debug information."""
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "copy")
            shutil.copyfile(source, copy)
            subprocess.run(["strip", "--strip-unneeded", copy], check=True)
            with open(copy, "rb") as file:
                self.add(path, file.read(), executable)

    def finish(self, requires, extras, entry_points="", libraries={}):
        lines = ["Metadata-Version: 2.1", "Name: " + self.name, "Version: " + version(),
                 "Summary: " + SUMMARY, "License: MIT", "Requires-Python: >=3.8"]
        lines += ["Requires-Dist: " + need for need in requires]
        for extra, wanted in extras.items():
            lines.append("Provides-Extra: " + extra)
            lines += ['Requires-Dist: %s ; extra == "%s"' % (need, extra) for need in wanted]
        lines += ["Description-Content-Type: text/markdown", "", description()]
        self.add(self.info + "/METADATA",
                 "\n".join(lines).replace("{version}", version()) + "\n")
        self.add(self.info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: tutti_build\n"
                 "Root-Is-Purelib: false\nTag: py3-none-%s\n" % self.tag)
        if entry_points:
            self.add(self.info + "/entry_points.txt", entry_points)
        for name, text in licenses(libraries):
            self.add(self.info + "/licenses/" + name, text)
        record = "".join(self.records) + self.info + "/RECORD,,\n"
        self.add(self.info + "/RECORD", record)
        self.archive.close()
        return self.file_name


def description():
    with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
        return file.read()


def licenses(libraries):
    """Our license, and those of the libraries, where the system's packages have them."""
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        yield "LICENSE", file.read()
    for name, path in sorted(libraries.items()):
        text = "/usr/share/doc/%s/copyright" % package_of(path)
        if os.path.exists(text):
            with open(text, encoding="utf-8", errors="replace") as file:
                yield "LICENSE." + name, file.read()


def package_of(path):
    """The Debian package that owns a file, "": unknown."""
    for name in (path, os.path.realpath(path), "/usr" + os.path.realpath(path)):
        try:
            done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        except OSError:
            return ""
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return ""


# ---- PEP 517 ----

def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    given = (config_settings or {}).get("build")
    folder = os.path.abspath(given) if given else build("tutti_python", "-DTUTTI_WITH_CUDA=OFF")
    package = os.path.join(folder, "python", "tutti")
    library = os.path.realpath(os.path.join(package, "lib", "libtutti.so.0"))
    program = os.path.realpath(os.path.join(package, "bin", "tutti"))
    libraries = find_libraries([library, program])
    wheel = Wheel(wheel_directory, "tutti",
                  platform_tag([library, program, *libraries.values()]))
    for name in sorted(os.listdir(package)):
        path = os.path.join(package, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                wheel.add("tutti/" + name, file.read())
    wheel.add_code("tutti/lib/libtutti.so.0", library)
    wheel.add_code("tutti/bin/tutti", program, executable=True)
    for name, path in sorted(libraries.items()):
        wheel.add_code("tutti/lib/" + name, path)
    return wheel.finish(["numpy>=1.20"], EXTRAS,
                        "[console_scripts]\ntutti = tutti.__main__:main\n", libraries)


def build_cuda_wheel(wheel_directory, config_settings=None):
    """The CUDA module, which goes beside the library of the package.  It loads NVIDIA's libraries by
    their names when it runs, so a wheel with it has a manylinux tag."""
    given = (config_settings or {}).get("build")
    folder = os.path.abspath(given) if given else build("tutti_cuda", "-DTUTTI_WITH_CUDA=ON")
    module = os.path.join(folder, "tutti-cuda.so")
    foreign = [name for name in needs(module)[0] if not SYSTEM_LIBRARIES.match(name)]
    if foreign:
        raise SystemExit("tutti: %s needs %s, which not every Linux has" %
                         (module, ", ".join(foreign)))
    wheel = Wheel(wheel_directory, "tutti-cuda13", platform_tag([module]))
    wheel.add_code("tutti/lib/tutti-cuda.so", module)
    return wheel.finish(CUDA_NEEDS, {})


def build_sdist(sdist_directory, config_settings=None):
    """The files that git knows, or without git every file but builds."""
    import tarfile

    name = "tutti-%s" % version()
    try:
        paths = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True,
                               text=True).stdout.split("\n")[:-1]
    except (OSError, subprocess.CalledProcessError):
        paths = [os.path.relpath(os.path.join(where, f), ROOT)
                 for where, _, files in os.walk(ROOT) for f in files
                 if not os.path.relpath(where, ROOT).startswith(("build", ".git", "dist"))]
    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz") as archive:
        for path in sorted(paths):
            archive.add(os.path.join(ROOT, path), os.path.join(name, path), recursive=False)
    return name + ".tar.gz"


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) not in (1, 2) or len(words) == 2 and words[0] != "--cuda":
        sys.exit(__doc__)
    made = build_cuda_wheel(words[1]) if len(words) == 2 else build_wheel(words[0])
    print("%s: %.2f MB" % (os.path.join(words[-1], made),
                           os.path.getsize(os.path.join(words[-1], made)) / 1e6))
