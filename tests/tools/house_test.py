"""Each house tool says no to a small tree that breaks its rule, and yes to one that does not."""

import contextlib
import io
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOLS = os.path.abspath(os.path.join(os.environ.get("TUTTI_SOURCE", "."), "tools"))
sys.path.insert(0, TOOLS)  # as for a tool that is started

GOOD = {
    "include/tutti/noun.h": "/* noun.h - a thing. */\n#include <stdint.h>\n",
    "src/base/a.h": "/* a.h */\n",
    "src/base/a.c": '#include "base/a.h"\n#include <stdio.h>\nint a(void) { return 0; }\n',
    "src/base/README.md": "# base\n\nEntry: src/base/a.h\n",
    "src/ir/b.c": '#include "base/a.h"\n#include "tutti/noun.h"\n'
                  "int b(int x) {\n    return x;\n}\n",
    "src/ir/README.md": "# ir\n",
    "tests/base/a_test.c": "int main(void) { return 0; }\n",
    "tests/EXEMPT": "src/ir/b.c: covered by a_test\n",
    "src/cli/main.c": 'static const int commands[] = {{"train", 0}};\n',
    "src/cli/README.md": "# cli\n",
    "tests/cli/main_test.sh": "exit 0\n",
    "Makefile": "build:\n\ttrue\n",
    "README.md": "# Top\n\nSee [below](#the-map) and [base](src/base/README.md).\n\n## The map\n\n"
                 "```\nmake build\ntutti train job.yaml -n 4\n```\nPlaceholders: src/ROOM/NAME.c\n",
}


def run_here(path, *arguments):
    """A Python tool in this process, which saves the start of another one."""
    out, err, code, saved = io.StringIO(), io.StringIO(), 0, sys.argv
    sys.argv = [path, *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        err.write(end.code if isinstance(end.code, str) else "")
    finally:
        sys.argv = saved
    return subprocess.CompletedProcess([path, *arguments], code, out.getvalue(), err.getvalue())


class House(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in GOOD.items():
            self.write(path, text)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as f:
            f.write(text)

    def run_tool(self, tool):
        path = os.path.join(TOOLS, tool)
        with open(path) as file:
            is_python = "python" in file.readline()
        return run_here(path, self.root) if is_python else \
            subprocess.run([path, self.root], capture_output=True, text=True)

    def accepts(self, tool):
        run = self.run_tool(tool)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def refuses(self, tool, path, text, *expected):
        self.write(path, text)
        run = self.run_tool(tool)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        for part in expected:
            self.assertIn(part, run.stdout)


class Cycles(House):
    def compile(self, name, calls):
        source = "src/base/%s.c" % name
        self.write(source, "int %s(void);\nint %s(void) {\n    return %s();\n}\n"
                   % (calls, name, calls))
        path = os.path.join(self.root, "build/CMakeFiles/t.dir/src/base/%s.c.o" % name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-c", os.path.join(self.root, source),
                        "-o", path], check=True)

    def cycles(self):
        run = subprocess.run([sys.executable, os.path.join(TOOLS, "check-cycles"), "--build",
                              os.path.join(self.root, "build"), self.root],
                             capture_output=True, text=True)
        return run.stdout

    def test_calls_in_a_circle(self):
        for name, calls in (("p", "q"), ("q", "r"), ("r", "s"), ("s", "p"), ("t", "p")):
            self.compile(name, calls)
        out = self.cycles()
        self.assertIn("cycle of 4 files:", out)
        self.assertIn("base/s.c -> base/p.c: p", out)
        self.assertNotIn("base/t.c", out)

    def test_source_changed_since(self):
        self.compile("p", "q")
        os.utime(os.path.join(self.root, "src/base/p.c"), (2e9, 2e9))
        self.assertIn("src/base/p.c: is newer than its object", self.cycles())

    def test_without_build(self):
        run = self.run_tool("check-cycles")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


class Structs(House):
    HEADER = "src/base/s.h", ("typedef struct tti_inner {\n    int n;\n} tti_inner;\n"
                              "typedef struct tti_state {\n    tti_inner *inner;\n    int *a;\n"
                              "} tti_state;\n")

    def use(self, n, body):
        for i in range(n):
            self.write("src/base/u%d.c" % i, '#include "base/s.h"\n%s\n' % body)

    def test_at_most_ten_files(self):
        self.write(*self.HEADER)
        self.use(10, "int f(tti_state *s) { return s->a[0]; }")
        self.accepts("check-structs")
        self.refuses("check-structs", "src/ir/u.c", "int f(const tti_state *s) { return !s->a; }\n",
                     "src/base/s.h: 11 files use the fields of tti_state, at most 10")

    def test_chains_casts_and_calls(self):
        self.write(*self.HEADER)
        for body in ("int f(tti_state *s) { return s->inner->n; }",
                     "int f(void *s) { return ((tti_state *)s)->inner->n; }",
                     "tti_state *g(int x);\nint f(int x) { return g(x + 1)->inner->n; }",
                     "int f(tti_state **s) { return s[0]->inner->n; }",
                     "int f(void) { tti_inner x = {0}; return x.n; }"):
            self.use(11, body)
            run = self.run_tool("check-structs")
            self.assertIn("11 files use the fields of tti_inner", run.stdout, body)

    def test_records_are_read_through_const(self):
        name = "tti_data_spec"
        self.write("src/base/spec.h", "typedef struct %s { int n; } %s;\n"
                   "typedef struct tti_owner { const %s *spec; int k; } tti_owner;\n"
                   "const %s *the_spec(void);\n" % ((name,) * 4))
        self.use(11, "int f(const %s *s) { return s->n + the_spec()->n; }" % name)
        self.use(10, "int f(tti_owner *o) { return o->spec->n; }")
        self.accepts("check-structs")
        self.use(11, "void f(%s *s) { s->n = 1; }" % name)
        run = self.run_tool("check-structs")
        self.assertIn("11 files use the fields of %s" % name, run.stdout)

    def test_passing_it_on_is_no_use(self):
        self.write(*self.HEADER)
        self.use(11, "void g(tti_state *s);\nvoid f(tti_state *s) { g(s); }")
        self.accepts("check-structs")


class Layers(House):
    def test_good(self):
        self.accepts("check-layers")

    def test_upwards(self):
        self.write("src/ir/b.h", "")
        self.refuses("check-layers", "src/base/a.c", '\n#include "ir/b.h"\n',
                     "src/base/a.c:2:", "base may include: public headers only")

    def test_folders_of_exec(self):
        self.write("src/exec/host/host.h", "")
        self.refuses("check-layers", "src/exec/device/d.c", '#include "exec/host/host.h"\n',
                     "exec/device may include these folders of exec: program, update, worker")

    def test_entries_of_exec(self):
        self.write("src/exec/host/h.h", "")
        self.refuses("check-layers", "src/exec/worker/w.c", '#include "exec/host/h.h"\n',
                     "other folders see of exec/host only exec/host/host.h")

    def test_without_room(self):
        self.refuses("check-layers", "src/base/a.c", '#include "a.h"\n', "write the room too")

    def test_relative(self):
        self.refuses("check-layers", "src/ir/b.c", '#include "../base/a.h"\n', "write the room too")

    def test_not_there(self):
        self.refuses("check-layers", "src/ir/b.c", '#include "base/none.h"\n', "no such file")

    def test_cli_sees_public_headers_only(self):
        self.refuses("check-layers", "src/cli/main.c", '#include "base/a.h"\n',
                     "public headers only")

    def test_twins(self):
        self.write("src/backend/cuda/k.h", "")
        self.refuses("check-layers", "src/backend/cpu/k.c", '#include "backend/cuda/k.h"\n',
                     "twins and never see each other")

    def test_nobody_looks_into_a_backend(self):
        self.write("src/backend/cpu/k.h", "")
        self.refuses("check-layers", "src/exec/run.c", '#include "backend/cpu/k.h"\n',
                     "only backend/ itself looks into backend/cpu")

    def test_unknown_room(self):
        self.refuses("check-layers", "src/attic/x.c", '#include "base/a.h"\n', "not in the table")

    def test_public_header(self):
        self.refuses("check-layers", "include/tutti/noun.h", '#include "base/a.h"\n',
                     "only tutti/*.h")
        self.refuses("check-layers", "include/tutti/noun.h", "#include <pthread.h>\n", "std*.h")

    def test_foreign_header(self):
        self.refuses("check-layers", "src/ir/b.c", "#include <yaml.h>\n", "seen only by src/base/")
        self.write("src/ir/b.c", "")
        self.write("src/backend/cpu/x.c", "#include <dnnl.h>\n")
        self.refuses("check-layers", "src/backend/cpu/y.c", "#include <dnnl.h>\n", "at most 1")

    def test_cuda_is_seen_by_its_backend_alone(self):
        text = "#include <cuda_runtime_api.h>\n"
        self.write("src/backend/cuda/x.cuh", text)
        self.write("src/backend/cuda/y.h", text)
        self.accepts("check-layers")
        self.refuses("check-layers", "src/backend/cuda/x.cuh", "#include <cudnn.h>\n"
                     "#include <cuda_fp8.h>\n", "x.cuh: (cu|", "at most 0")
        self.write("src/backend/cuda/x.cuh", "#include <cuda.h>\n")
        self.refuses("check-layers", "src/backend/cuda/y.h", "#include <cuda.h>\n", "at most 1")
        self.write("src/backend/cuda/y.h", text)
        self.write("src/backend/cuda/x.cuh", "")
        self.refuses("check-layers", "src/backend/cuda/z.cu", "#include <cublasLt.h>\n"
                     '#include "x.cuh"\n', "src/backend/cuda/z.cu:2:")
        self.refuses("check-layers", "src/exec/b.c", text, "seen only by src/backend/cuda/")


class Sizes(House):
    def test_good(self):
        self.accepts("sizes")
        self.assertIn("median", self.run_tool("sizes").stdout)

    def test_file(self):
        self.refuses("sizes", "src/ir/b.c", "int x;\n" * 801, "801 lines, at most 800")

    def test_function(self):
        self.write("src/ir/b.c", "int f(void) {\n" + "    g();\n" * 98 + "}\n")
        self.accepts("sizes")
        self.refuses("sizes", "src/ir/b.c", "\nint f(void) {\n" + "    g();\n" * 99 + "}\n",
                     "src/ir/b.c:2: f has 101 lines")

    def test_parameters(self):
        self.refuses("sizes", "src/ir/b.c", "int f(int a, int b, int c, int d, int e, int g, "
                     "int h, int i) {\n}\n", "8 parameters")

    def test_columns(self):
        self.refuses("sizes", "tests/base/a_test.c", "//" + "x" * 99, "101 columns")

    def test_public_header_without_contract(self):
        self.refuses("sizes", "include/tutti/noun.h", "/* x */\nint a;\nint b;\n", "33 %")


class Names(House):
    def test_good(self):
        self.accepts("check-names")

    def test_no_test(self):
        self.refuses("check-names", "src/ir/c.c", "", "src/ir/c.c: no test")

    def test_stale_exempt(self):
        self.write("tests/ir/b_test.c", "")
        self.refuses("check-names", "tests/EXEMPT", "src/ir/b.c: x y\nsrc/ir/gone.c: x y\n",
                     "remove the line", "src/ir/gone.c does not exist")

    def test_reason(self):
        self.refuses("check-names", "tests/EXEMPT", "src/ir/b.c:\n", "want 'path: reason'")

    def test_same_name(self):
        self.write("tests/ir/a_test.c", "")
        self.refuses("check-names", "src/ir/a.c", "", "src/base/a.c has the same name")

    def test_folders_of_a_room(self):
        self.write("src/data/files/a.h", "")
        self.write("src/data/formats/b.h", "")
        self.refuses("check-layers", "src/data/files/c.c", '#include "data/formats/b.h"\n',
                     "data/files may include these folders of data: none")
        self.refuses("check-layers", "src/data/other/c.c", '#include "data/files/a.h"\n',
                     "folder data/other is not in the table")
        self.write("src/data/other/c.c", "")
        self.write("src/data/files/c.c", "")
        self.write("src/data/formats/d.c", '#include "data/files/a.h"\n')
        self.accepts("check-layers")

    def test_twins_may_share(self):
        for twin in ("cpu", "cuda"):
            self.write("src/backend/%s/a.c" % twin, "")
            self.write("tests/backend/%s/a_test.c" % twin, "")
        self.accepts("check-names")

    def test_a_twin_has_its_name_in_front(self):
        self.write("src/backend/cuda/conv.cu", "")
        self.refuses("check-names", "src/backend/cuda/conv.c", "", "conv.c: no test",
                     "conv.cu: no")
        self.write("tests/backend/cuda/cuda_conv_test.c", "")
        self.accepts("check-names")

    def test_no_library_of_cuda(self):
        def link(path, *others):
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-nostdlib", "-o", path,
                            "-Wl,--no-as-needed", *others, "-x", "c", "/dev/null"], check=True)
        with tempfile.TemporaryDirectory() as build:
            for name in ("libm.so.6", "libcublasLt.so.13", "libcuda.so.1"):
                link(os.path.join(build, name), "-Wl,-soname," + name)
            check = [os.path.join(TOOLS, "check-names"), self.root, "--build", build]
            link(build + "/tutti", build + "/libm.so.6")
            run = subprocess.run(check, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertIn("1 files need no CUDA", run.stdout + run.stderr)
            link(build + "/tutti-cuda.so", build + "/libm.so.6", build + "/libcublasLt.so.13")
            link(build + "/tutti", build + "/libcuda.so.1")
            run = subprocess.run(check, capture_output=True, text=True)
            self.assertEqual(run.returncode, 1)
            for part in ("tutti: needs libcuda.so.1", "tutti-cuda.so: needs libcublasLt.so.13"):
                self.assertIn(part, run.stdout + run.stderr)
            self.assertNotIn("libm", run.stdout + run.stderr)

    def test_fault_point_in_a_header(self):
        self.write("src/base/fault.h", "#define TTI_FAULT(point) (false)\n")
        self.accepts("check-names")
        self.refuses("check-names", "src/base/a.h",
                     "/* TTI_FAULT(x) */\nstatic inline int a(void) { return TTI_FAULT(\"x\"); }\n",
                     "src/base/a.h:2: a fault point in a header")

    def test_leftover(self):
        self.refuses("check-names", "src/base/a.h", "/* TO" "DO: later */\n", "src/base/a.h:1:")


class Docs(House):
    def test_good(self):
        self.accepts("check-docs")

    def test_problems(self):
        self.refuses("check-docs", "README.md",
                     "[a](no.md)\n[b](#none)\n`make all`\n`tutti fly x`\nsee src/ir/none.c\n"
                     "`ir/gone.c`, `ir/NAME.c`\n",
                     "README.md:1: link to no.md", "README.md:2: link to #none",
                     "make all: no such target", "tutti fly: no such command",
                     "names src/ir/none.c", "README.md:6: names ir/gone.c, which is not in src/")

    def test_pages_for_users(self):
        self.write("tests/cli/kill_test.py", "")
        text = ("See tests/cli/kill_test.py.\nFaster since 9f31c2ab.\nOn 2026-11-05 it took 3 s.\n"
                "Such a cluster has not been tried yet.\n") + "line\n" * 300
        self.refuses("check-docs", "docs/page.md", text, "docs/page.md: 304 lines, at most 300",
                     "page.md:1: a page for users names a test",
                     "page.md:2: a page for users names a commit",
                     "page.md:3: a page for users names history",
                     "page.md:4: a page for users names history")
        os.rename(os.path.join(self.root, "docs/page.md"),
                  os.path.join(self.root, "docs/ARCHITECTURE.md"))
        self.write("docs/dates.md", "`2024-02-29`, x_test.npy and [notes](lab/2026-11-x.md#a)\n")
        self.write("docs/lab/2026-11-x.md", "## A\nOn 2026-11-05 it took 3 s.\n")
        self.accepts("check-docs")

    def test_room_without_readme(self):
        self.refuses("check-docs", "src/ops/x.c", "", "src/ops/README.md")


@unittest.skipUnless("version 14." in subprocess.run(
    ["sh", "-c", "clang-format-14 --version || clang-format --version || true"],
    capture_output=True, text=True).stdout, "needs clang-format 14")
class Format(House):
    def test_ugly(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.refuses("check-format", "src/ir/b.c", "int  f( void ){return 0 ;}\n", "src/ir/b.c:1")

    def test_changed_files_alone(self):
        """A check without problems writes the stamp; later ones read what has changed since."""
        self.write(".clang-format", "BasedOnStyle: Google\n")
        tool, stamp = os.path.join(TOOLS, "check-format"), os.path.join(self.root, "a stamp")
        subprocess.run([tool, "--fix", self.root], check=True)
        check = [tool, "--stamp", stamp, self.root]
        self.write("src/ir/b.c", "int  f( void ){return 0 ;}\n")
        for _ in range(2):  # it has no stamp from a check that found a problem
            run = subprocess.run(check, capture_output=True, text=True)
            self.assertEqual((run.returncode, os.path.exists(stamp)), (1, False), run.stdout)
        for text in ("int f(void) { return 0; }\n", "int f(void) { return 1; }\n"):
            self.write("src/ir/b.c", text)
            run = subprocess.run(check, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout)
            self.assertIn("files", run.stdout)
            self.assertIn("no file to check", subprocess.run(check, capture_output=True,
                                                              text=True).stdout)
        self.write("src/ir/b.c", "int  f( void ){return 0 ;}\n")
        run = subprocess.run(check, capture_output=True, text=True)
        self.assertEqual(run.returncode, 1, run.stdout)

    def test_ugly_kernel(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.refuses("check-format", "src/ir/b.cu", "int  f( void ){return 0 ;}\n", "src/ir/b.cu:1")


def make_wheel(folder, *files):
    for name in files:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write('#!/bin/sh\necho "release 13.1, V13.1.80"\n')
        os.chmod(path, 0o755)


class FindCuda(unittest.TestCase):
    """cmake/cuda.cmake in a project of its own, where nothing is but what a test makes."""

    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.gpu = "/nowhere"
        self.wheel = os.path.join(self.root, "nvidia", "cu13")

    def configure(self, *options):
        with open(os.path.join(self.root, "CMakeLists.txt"), "w") as f:
            f.write("cmake_minimum_required(VERSION 3.22)\nproject(t LANGUAGES NONE)\n"
                    "set(TUTTI_FUZZ OFF)\nset(TUTTI_SANITIZE \"\")\n"
                    "include(%s)\n" % os.path.join(TOOLS, "..", "cmake", "cuda.cmake"))
        path = os.path.join(self.root, "bin")
        make_wheel(path, "python3")
        with open(os.path.join(path, "python3"), "w") as f:
            f.write('#!/bin/sh\necho "%s"\n' % self.wheel)
        run = subprocess.run([shutil.which("cmake"), "-S", self.root, "-B", self.root + "/b",
                              "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + shutil.which("ninja"),
                              "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", *options],
                             env=dict(PATH=path, TUTTI_CUDA_DEFAULT="/nowhere",
                                      TUTTI_NVIDIA_DEVICE=self.gpu),
                             capture_output=True, text=True)
        return run.returncode, run.stdout + " ".join(run.stderr.split())

    def expect(self, code, parts, *options):
        got, text = self.configure(*options)
        self.assertEqual(got, code, text)
        for part in parts:
            self.assertIn(part, text)

    def test_nothing(self):
        self.expect(0, ["CUDA: nvcc: not found: the CUDA module is not built; looked on PATH"])
        self.expect(1, ["pip install nvidia-cuda-nvcc"], "-DTUTTI_WITH_CUDA=ON")
        self.expect(0, ["CUDA: not built: TUTTI_WITH_CUDA is OFF"], "-DTUTTI_WITH_CUDA=OFF")

    def test_wheels(self):
        make_wheel(self.wheel, "bin/nvcc", "include/cuda_runtime_api.h", "lib/libcudart_static.a")
        self.expect(0, ["CUDA: nvcc: %s/bin/nvcc\n" % self.wheel,
                        "CUDA: cublasLt.h: not found: the CUDA module is not built; its wheel"])
        make_wheel(self.wheel, "include/cublasLt.h")
        self.expect(0, ["CUDA: cublasLt.h: %s/include\n" % self.wheel,
                        "CUDA: cudnn.h: not found: no cuDNN; own kernels", "CUDA: NCCL (when"],
                    "-DTUTTI_WITH_CUDA=ON")
        none = "CUDA: no NVIDIA GPU here: the CUDA module is not built; -DTUTTI_WITH_CUDA=ON"
        self.expect(0, [none], "-DTUTTI_WITH_CUDA=AUTO")
        self.assertNotIn("no NVIDIA GPU", self.configure("-DTUTTI_WITH_CUDA=ON")[1])
        self.gpu = "/"
        self.assertNotIn("no NVIDIA GPU", self.configure("-DTUTTI_WITH_CUDA=AUTO")[1])
        make_wheel(self.wheel, "include/cudnn.h", "lib/libnccl.so.2")
        self.expect(0, ["CUDA: cudnn.h: %s/include\n" % self.wheel,
                        "needed): %s/lib/libnccl.so.2\n" % self.wheel],
                    "-UTUTTI_NCCL")  # the runs before may have found one of the machine


class InstallDeps(unittest.TestCase):
    """Runs with a PATH of our own, so nothing is ever installed."""

    def run_with(self, commands, group="fuzz", **environment):
        bin_folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, bin_folder)
        for name in ("sh", "awk", "tr", "sort", "cat", "mkdir", "env"):
            os.symlink(shutil.which(name), os.path.join(bin_folder, name))
        for name, script in commands.items():
            path = os.path.join(bin_folder, name)
            with open(path, "w") as f:
                f.write("#!/bin/sh\n" + script + "\n")
            os.chmod(path, 0o755)
        return subprocess.run([os.path.join(TOOLS, "install-deps"), group], cwd=bin_folder,
                              env=dict(PATH=bin_folder, **environment), capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)

    def test_cuda_is_reported_and_never_installed(self):
        nvcc = 'echo "Cuda compilation tools, release 13.1, V13.1.80"'
        run = self.run_with({"nvcc": nvcc, "apt-get": "exit 9"}, group="cuda",
                            TUTTI_CUDA_DEFAULT="/nowhere", TUTTI_NVIDIA_DEVICE="/nowhere")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("/nvcc (13.1, V13.1.80), no driver", run.stdout)
        run = self.run_with({"nvcc": nvcc}, group="cuda", TUTTI_CUDA_DEFAULT="/nowhere",
                            TUTTI_NVIDIA_DEVICE="/")
        self.assertIn("with a driver", run.stdout)

    def test_nvcc_of_a_wheel(self):
        wheel = os.path.join(tempfile.mkdtemp(), "cu13")
        self.addCleanup(shutil.rmtree, os.path.dirname(wheel))
        make_wheel(wheel, "bin/nvcc")
        run = self.run_with({"python3": 'echo "%s/bin"' % wheel}, group="cuda",
                            TUTTI_CUDA_DEFAULT="/nowhere")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("CUDA: %s/bin/nvcc (13.1" % wheel, run.stdout)

    def test_no_cuda(self):
        run = self.run_with({"apt-get": "exit 9"}, group="cuda",
                            TUTTI_CUDA_DEFAULT="/nowhere")
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("no nvcc here", run.stderr)

    def test_all_there(self):
        run = self.run_with({"clang": ""})
        self.assertEqual((run.returncode, run.stdout + run.stderr), (0, ""))

    def test_forbidden(self):
        run = self.run_with({"apt-get": "exit 1", "id": "echo 0"}, TUTTI_NO_INSTALL="1")
        self.assertEqual(run.returncode, 1)
        self.assertIn("  apt-get install -y --no-install-recommends clang", run.stderr)

    def test_no_sudo(self):
        run = self.run_with({"apt-get": "exit 1", "id": "echo 1000"})
        self.assertEqual(run.returncode, 1)
        self.assertIn("there is no sudo", run.stderr)

    def test_no_network(self):
        run = self.run_with({"apt-get": "exit 100", "id": "echo 0"})
        self.assertEqual(run.returncode, 1)
        self.assertIn("no network?", run.stderr)
        self.assertIn("installing clang", run.stderr)

    def test_installs_by_sudo(self):
        run = self.run_with({"apt-get": 'case "$*" in install*) printf "" > clang && '
                                        '/bin/chmod +x clang ;; esac',
                             "id": "echo 1000", "sudo": '[ "$1" = -n ] || "$@"'})
        self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)

    def test_no_package_manager(self):
        run = self.run_with({"id": "echo 0"})
        self.assertEqual(run.returncode, 1)
        self.assertIn("install by hand", run.stderr)


if __name__ == "__main__":
    unittest.main()
