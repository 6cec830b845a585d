# gpu_bench_test.sh - bench/gpu.sh beside a program that is none: checks first, then rows.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "gpu_bench_test: $*" >&2
    exit 1
}

# program FILE LINE...: a script
program() {
    file=$1
    shift
    printf '%s\n' '#!/bin/sh' "$@" > "$file"
    chmod +x "$file"
}

program "$tmp/tutti" 'case "$1 $2" in' \
    '"bench train") echo "{\"per_s\":7,\"tokens_per_s\":7168,\"first_step_s\":1.5}" ;;' \
    '*) echo "  device 0: of tests" ;; esac'
program "$tmp/cuda_right_test" 'echo ran >> "$(dirname "$0")/ran"'
program "$tmp/cuda_skipped_test" 'exit 77'

# bench CODE PART [NAME=VALUE...]: exit code and a part of the output
bench() {
    want=$1 part=$2
    shift 2
    out=$(env TUTTI="$tmp/tutti" PYTHON=false "$@" sh "$TUTTI_SOURCE/bench/gpu.sh" gpt2 2>&1)
    code=$?
    [ "$code" -eq "$want" ] || fail "$*: exit code $code instead of $want: $out"
    printf '%s\n' "$out" | grep -Eq "$part" || fail "$*: no '$part' in: $out"
}

bench 0 'gpt2 +tutti exact +7168 /s'
[ "$(cat "$tmp/ran")" = ran ] || fail "the test beside the program was not run"
program "$tmp/llmc" '[ "$(head -c 12 "$2" | od -An -t d4 | xargs)" = "20240520 1 4194304" ] &&' \
    '[ "$(wc -c < "$2")" = 8389632 ] &&' \
    'echo "step 2/2 | loss 10.9 | 9.00 ms | 40.0% bf16 MFU | 4711 tok/s"'
bench 0 'gpt2 +llm.c +4711 /s' LLMC="$tmp/llmc"
program "$tmp/cuda_wrong_test" 'echo 1.0 is not 2.0' 'exit 3'
bench 1 'cuda_wrong_test failed with 3'
case $out in *"1.0 is not 2.0"*) ;; *) fail "what is wrong is not reported: $out" ;; esac
case $out in *" /s "*) fail "figures of what computes wrongly: $out" ;; esac
bench 0 'gpt2 +tutti fast +7168 /s' CHECKS=no
program "$tmp/tutti" 'echo cuda: not loaded'
bench 1 'no GPU that Tutti can use'
