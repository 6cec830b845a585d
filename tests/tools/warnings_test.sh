# warnings_test.sh - a warning stops the build if TUTTI_WERROR is ON, and is only printed otherwise.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "warnings_test: $*" >&2
    cat "$tmp/log" >&2
    exit 1
}

cat > "$tmp/CMakeLists.txt" << END
cmake_minimum_required(VERSION 3.22)
project(warned LANGUAGES C)
include($TUTTI_SOURCE/cmake/flags.cmake)
add_library(warned OBJECT warned.c)
END
echo 'static int unused;' > "$tmp/warned.c"

# build [-DTUTTI_WERROR=ON]: the exit code of the build; what it says in $tmp/log
build() {
    cmake -S "$tmp" -B "$tmp/build" -G Ninja "$@" > "$tmp/log" 2>&1 || fail "cmake ended with $?"
    ninja -C "$tmp/build" > "$tmp/log" 2>&1
}

build || fail "a warning stopped the build of a user"
grep -q 'unused.*warning\|warning.*unused' "$tmp/log" || fail "the warning was not reported"
! build -DTUTTI_WERROR=ON || fail "a warning did not stop the build of a developer"
grep -q 'unused' "$tmp/log" || fail "something else stopped it"
