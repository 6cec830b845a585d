# The everyday commands.  The build itself is CMake and Ninja: see CMakePresets.json.
BUILD  ?= build
PREFIX ?= /usr/local
# Tests at a time: four more than 2 cores, because many wait for timers, signals and files.
JOBS   ?= 6
FUZZ_SECONDS ?= 60
CUDA_ARCH ?= 90
# Where WERROR is ON warnings are errors: not for users, whose compilers may be newer than ours.
WERROR ?=

CMAKE = cmake -S . -G Ninja $(if $(WERROR),-DTUTTI_WERROR=$(WERROR))
CTEST = ctest --output-on-failure -j $(JOBS)
# Without use-after-return: gcc 12's fake frames are not aligned for 64-byte vectors.
ASAN  = ASAN_OPTIONS=detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
TSAN  = TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$(CURDIR)/tests/tsan.supp

.PHONY: help run build test test-levels test-plain gpu-test gpu-sanitize cuda-module test-long check install wheel wheel-cuda asan tsan fuzz format clean

help: ## this list
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run: ## build the program, then train the built-in digits with 1 worker and with one per core
	@tools/expected-time $(BUILD)
	@$(MAKE) -s $(BUILD)/build.ninja
	@tools/install-deps build
	@ninja -C $(BUILD) tutti
	@$(BUILD)/tutti demo
	@tools/gpu-part $(BUILD)

build: $(BUILD)/build.ninja ## the program build/tutti and the library build/libtutti.so, .a
	@tools/install-deps build
	@ninja -C $(BUILD) product

test: ## every test but the slow ones; under 4 minutes on 2 cores
	@tools/install-deps build test
	@$(CMAKE) -B $(BUILD) > /dev/null
	@ninja -C $(BUILD)
	@cd $(BUILD) && $(CTEST) -LE slow

gpu-test: ## what needs an NVIDIA GPU: every kernel, training; skipped without one
	@tools/install-deps build test
	@$(CMAKE) -B $(BUILD) $(if $(filter 0,$(shell tools/install-deps cuda > /dev/null 2>&1; echo $$?)),-DTUTTI_WITH_CUDA=ON) > /dev/null
	@ninja -C $(BUILD)
	@cd $(BUILD) && $(CTEST) -j 4 -L gpu

gpu-sanitize: gpu-test ## the kernels' tests on a GPU under compute-sanitizer: memory, races, uninitialised
	@BUILD=$(BUILD) tools/gpu-sanitize

cuda-module: ## the CUDA module alone, for one target (CUDA_ARCH=90), in build-cuda; no GPU needed
	@tools/install-deps build cuda
	@$(CMAKE) -B build-cuda -DTUTTI_WITH_CUDA=ON -DBUILD_TESTING=OFF \
	    -DTUTTI_CUDA_ARCHS=$(CUDA_ARCH)-real > /dev/null && ninja -C build-cuda tutti_cuda

test-levels: ## tests that depend on instruction sets, at every level below that of this machine
	@tools/install-deps build test
	@$(CMAKE) -B $(BUILD) > /dev/null
	@ninja -C $(BUILD)
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/test-levels

test-plain: ## the same tests in a build without oneDNN, in build-plain
	@tools/install-deps build test
	@cmake --preset plain > /dev/null && ninja -C build-plain
	@cd build-plain && $(CTEST) -L levels

test-long: test fuzz ## the slow tests too, and every fuzz target for a minute
	@cd $(BUILD) && $(CTEST) -L slow

check: $(BUILD)/build.ninja ## the rules of the source tree: layers, sizes, names, format, docs
	@tools/install-deps build check
	@ninja -C $(BUILD) product
	@tools/check --build $(BUILD)

install: build ## program, library, headers, docs, examples into PREFIX (/usr/local)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

wheel: ## the Python package as a wheel in dist/
	@tools/install-deps build
	@python3 python/backend/tutti_build.py dist

wheel-cuda: ## the CUDA module as a wheel in dist/; needs nvcc, no GPU
	@tools/install-deps build cuda
	@python3 python/backend/tutti_build.py --cuda dist

asan tsan: JOBS = 5 # instrumented tests compute more than they wait
asan: ## the tests under AddressSanitizer and UBSan, in build-asan
	@tools/install-deps build test
	@cmake --preset asan > /dev/null && ninja -C build-asan
	@cd build-asan && $(ASAN) $(CTEST) -L unit -LE slow

tsan: ## the tests under ThreadSanitizer, in build-tsan
	@tools/install-deps build test
	@cmake --preset tsan > /dev/null && ninja -C build-tsan
	@cd build-tsan && $(TSAN) $(CTEST) -L unit -LE slow

fuzz: ## each fuzz target for FUZZ_SECONDS (60), in build-fuzz
	@tools/install-deps build fuzz
	@cmake --preset fuzz -DTUTTI_FUZZ_SECONDS=$(FUZZ_SECONDS) > /dev/null && ninja -C build-fuzz
	@cd build-fuzz && $(CTEST) -L fuzz

format: ## clang-format every C file
	@tools/check-format --fix

clean: ## remove every build folder
	rm -rf build build-cuda build-asan build-tsan build-fuzz build-clang build-plain build-wheel dist

$(BUILD)/build.ninja:
	@tools/install-deps build
	@$(CMAKE) -B $(BUILD) > /dev/null
