# gpus_bench_test.sh - bench/gpus.sh beside a program that is none: the row of the plan.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "gpus_bench_test: $*" >&2
    exit 1
}

# program LINE: what `tutti plan` does
program() {
    printf '%s\n' '#!/bin/sh' 'case "$1" in' \
        'doctor) echo "  device 0: a"; echo "  device 1: b" ;;' "plan) $1 ;;" \
        'bench) echo "{\"tokens_per_s\":7}" ;;' 'esac' > "$tmp/tutti"
    chmod +x "$tmp/tutti"
}

rows() {
    out=$(env TUTTI="$tmp/tutti" PYTHON=false XL_ROWS="plan zero1" \
        sh "$TUTTI_SOURCE/bench/gpus.sh" gpt2-xl 2>&1) || fail "ended with $?: $out"
}

# said PART, unsaid PART: of the output
said() { printf '%s\n' "$out" | grep -q "$1" || fail "no '$1' in: $out"; }
unsaid() { ! printf '%s\n' "$out" | grep -q "$1" || fail "'$1' in: $out"; }

layout='"tensor":2,"pipeline":1,"pipeline_chunks":1,"zero":3,"shards":2'
program "echo '{\"layouts\": [{$layout}]}'"
rows
said 'tutti 2 GPU parallel.tensor=2 parallel.pipeline=1 .*parallel.zero=3 parallel.shards=2 '
unsaid 'left out'

# Without a plan there is no row that is taken for the planner's.
for plan in 'exit 1' 'echo "{}"'; do
    program "$plan"
    rows
    said 'tutti plan named no layout: its row is left out'
    said 'tutti 2 GPU parallel.zero=1 '
    n=$(printf '%s\n' "$out" | grep -c 'tutti 2 GPU')
    [ "$n" -eq 1 ] || fail "more rows than that of zero=1: $out"
done
