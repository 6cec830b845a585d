#!/bin/sh
# Installs into a folder and uses what is there as a stranger would: pkg-config, CMake, C, C++.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

fail() {
    echo "install_test: $*" >&2
    exit 1
}

cmake --install "$TUTTI_BUILD" --prefix "$prefix" > "$tmp/log" || fail "$(cat "$tmp/log")"
pc=$(find "$prefix" -name tutti.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"

for file in "$lib/libtutti.so.0" "$lib/libtutti.a" "$prefix/include/tutti/graph.h"; do
    [ -e "$file" ] || fail "$file was not installed"
done
objdump -p "$lib/libtutti.so" | grep -q 'SONAME *libtutti.so.0$' || fail "wrong SONAME"

# By pkg-config, shared and static.
# shellcheck disable=SC2046  # pkg-config answers with words
{
    $cc -std=c17 -Wall -Wextra -Werror "$here/consumer.c" -o "$tmp/shared" \
        $(pkg-config --cflags --libs tutti)
    $cc -std=c17 "$here/consumer.c" -o "$tmp/static" $(pkg-config --cflags tutti) \
        "$lib/libtutti.a" $(pkg-config --static --libs-only-l tutti | sed 's/-ltutti//')
}
"$tmp/shared" > "$tmp/shared.txt" || fail "the shared program failed"
"$tmp/static" > "$tmp/static.txt" || fail "the static program failed"
grep -q 'f32\[32,784\]' "$tmp/shared.txt" || fail "unexpected output: $(cat "$tmp/shared.txt")"
cmp "$tmp/shared.txt" "$tmp/static.txt" || fail "shared and static differ"

# By CMake, after moving the prefix: nothing may remember where it was installed.
mv "$prefix" "$tmp/moved"
LD_LIBRARY_PATH=$tmp/moved/$(basename "$lib")
if ! { cmake -S "$here" -B "$tmp/by-cmake" -DCMAKE_PREFIX_PATH="$tmp/moved" \
    -DCMAKE_C_COMPILER="$cc" && cmake --build "$tmp/by-cmake"; } > "$tmp/log" 2>&1; then
    fail "$(cat "$tmp/log")"
fi
"$tmp/by-cmake/consumer_shared" | cmp - "$tmp/shared.txt" || fail "the CMake program differs"
"$tmp/by-cmake/consumer_static" | cmp - "$tmp/shared.txt" || fail "the static CMake program differs"

# tutti.h has them all.
all=$tmp/moved/include/tutti/tutti.h
for header in "$tmp"/moved/include/tutti/*.h; do
    name=$(basename "$header")
    [ "$name" = tutti.h ] || grep -q "#include \"tutti/$name\"" "$all" ||
        fail "tutti.h does not include $name"
done

# Every public header compiles alone, as C and as C++, without a warning.
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I$tmp/moved/include"
for header in "$tmp"/moved/include/tutti/*.h; do
    echo "#include <tutti/$(basename "$header")>" > "$tmp/alone.c"
    # shellcheck disable=SC2086
    $cc -std=c11 $strict "$tmp/alone.c" || fail "$(basename "$header") does not compile alone as C"
    if command -v c++ > /dev/null 2>&1; then
        cp "$tmp/alone.c" "$tmp/alone.cpp"
        # shellcheck disable=SC2086
        c++ -std=c++17 $strict "$tmp/alone.cpp" ||
            fail "$(basename "$header") does not compile alone as C++"
    fi
done

if [ -x "$tmp/moved/bin/tutti" ]; then
    "$tmp/moved/bin/tutti" --version > /dev/null || fail "the installed program does not start"
fi
if command -v scdoc > /dev/null 2>&1; then
    [ -s "$tmp/moved/share/man/man1/tutti.1" ] || fail "no man page"
fi
echo "install_test: ok"
