# gpu_sanitize_test.sh - tools/gpu-sanitize beside a sanitizer and tests that are none.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "gpu_sanitize_test: $*" >&2
    exit 1
}

# program FILE LINE...: a script
program() {
    file=$1
    shift
    printf '%s\n' '#!/bin/sh' "$@" > "$file"
    chmod +x "$file"
}

mkdir "$tmp/bin" "$tmp/build"

# sanitize CODE PART...: exit code and parts of the output, all tools or $tools
sanitize() {
    want=$1
    shift
    # shellcheck disable=SC2086
    out=$(env PATH="$tmp/bin:$PATH" BUILD="$tmp/build" OPS="norm wrong" SECONDS_RUN=30 \
        sh "$TUTTI_SOURCE/tools/gpu-sanitize" ${tools:-} 2>&1)
    code=$?
    [ "$code" -eq "$want" ] || fail "exit code $code instead of $want: $out"
    for part in "$@"; do
        printf '%s\n' "$out" | grep -Eq "$part" || fail "no '$part' in: $out"
    done
}

# racecheck alone is given kernels that it leaves out
program "$tmp/bin/compute-sanitizer" '[ "$1" = --tool ] || exit 5; tool=$2; shift 2' \
    '[ "$tool" != racecheck ] || { [ "$1" = --kernel-name-exclude ] && shift 2; } || exit 5' \
    '[ "$1 $2" = "--error-exitcode 99" ] || exit 5; shift 2' \
    '"$@" || exit; case "$tool $TUTTI_TEST_OPS" in' \
    '"racecheck wrong") echo "========= ERROR SUMMARY: 3 errors"; exit 99 ;; esac'
sanitize 2 'no .*cuda_ops_test: make gpu-test'
program "$tmp/build/cuda_ops_test" 'exit 0'
program "$tmp/build/cuda_link_test" 'exit 77'
tools=memcheck
sanitize 0 'memcheck ops of norm: nothing found' 'memcheck cuda_link_test: skipped'
tools=
sanitize 1 'memcheck ops of wrong: nothing found' 'racecheck ops of wrong: .*3 errors' \
    'initcheck ops of wrong: nothing found'
program "$tmp/build/cuda_link_test" 'exit 3'
tools=initcheck
sanitize 1 'initcheck cuda_link_test: failed with 3'
rm "$tmp/bin/compute-sanitizer"
command -v compute-sanitizer > /dev/null || ls /usr/local/cuda*/bin/compute-sanitizer \
    > /dev/null 2>&1 || sanitize 2 'no compute-sanitizer in PATH'
