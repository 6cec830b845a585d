#!/bin/sh
# tutti bench comm: rows in both places, JSON that parses, and usage errors with exit code 2.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

[ -x "$TUTTI_PROGRAM" ] || exit 77

for place in threads processes; do
    "$TUTTI_PROGRAM" bench comm -n 3 --place $place --algorithm all --min 4K --max 16K --ms 1 \
        --json >"$tmp/rows"
    [ "$(wc -l <"$tmp/rows")" -eq 6 ] || { cat "$tmp/rows"; exit 1; }
    grep -q "\"n_ranks\":3,\"place\":\"$place\",\"algorithm\":\"tree\",\"n_bytes\":16384" \
        "$tmp/rows"
done
# 4 MiB over two hosts of two ranks: sums of each host cross there and back, and 1000 bytes for each
# agreement of two ranks.
"$TUTTI_PROGRAM" bench comm -n 4 --hosts 2 --algorithm direct --min 4M --max 4M --ms 1 --json \
    >"$tmp/rows"
grep -q "\"between_bytes\":$((2 * 4194304 + 8 * 1000))" "$tmp/rows" || { cat "$tmp/rows"; exit 1; }
# As ranks of a launcher, ours or any: all of them together, and rank 0 prints.
"$TUTTI_PROGRAM" bench comm -n 66 --hosts 3 --min 4K --max 4K --ms 1 --json | grep -q '"n_ranks":66'
"$TUTTI_PROGRAM" launch -n 3 "$TUTTI_PROGRAM" bench comm --min 4K --max 4K --ms 1 --json \
    >"$tmp/rows"
[ "$(wc -l <"$tmp/rows")" -eq 1 ] || { cat "$tmp/rows"; exit 1; }
grep -q '"n_ranks":3,"place":"processes"' "$tmp/rows"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((32000 + $$ % 768)) \
        TUTTI_TEST_HOSTS=a,b "$TUTTI_PROGRAM" bench comm --algorithm all --min 1M --max 1M --ms 1 \
        --json >"$tmp/rows-$rank" &
done
wait
[ "$(wc -l <"$tmp/rows-0")" -eq 3 ] && [ ! -s "$tmp/rows-1" ] || { cat "$tmp"/rows-*; exit 1; }
grep -q '"algorithm":"direct","n_bytes":1048576.*"between_bytes":20' "$tmp/rows-0"
code=0
RANK=0 WORLD_SIZE=2 "$TUTTI_PROGRAM" bench comm -n 3 >"$tmp/out" 2>"$tmp/err" || code=$?
[ $code -eq 2 ] && grep -q "the launcher decides the number" "$tmp/err" || exit 1
"$TUTTI_PROGRAM" bench comm -n 2 --max 64 --ms 1 --plain | grep -q "plain memory"
code=0
"$TUTTI_PROGRAM" bench comm --devices >"$tmp/out" 2>"$tmp/err" || code=$?
[ $code -eq 2 ] || { echo "bench comm --devices without a module: exit $code"; exit 1; }
grep -q "tutti-cuda.so: not there" "$tmp/err" || { cat "$tmp/err"; exit 1; }
"$TUTTI_PROGRAM" bench --help | grep -q "usage: tutti bench comm"

for bad in "-n 0" "-n 4097" "--place moon" "--algorithm star" "--min 0" "--max 4X" "extra" \
    "--min 1M --max 4" "-n 2 --hosts 3" "--devices --plain" "--devices --algorithm tree" \
    "--devices --place processes" "--devices --hosts 2" "--devices --ms 5"; do
    code=0
    # shellcheck disable=SC2086
    "$TUTTI_PROGRAM" bench comm $bad >"$tmp/out" 2>"$tmp/err" || code=$?
    [ $code -eq 2 ] || { echo "bench comm $bad: exit $code"; exit 1; }
    [ -s "$tmp/err" ] || { echo "bench comm $bad: no message"; exit 1; }
done

# The option that is wrong is named.
for bad in "-n 4097" "--max 1MiB"; do
    # shellcheck disable=SC2086 # two words
    "$TUTTI_PROGRAM" bench comm $bad 2>"$tmp/err" && exit 1
    grep -q "comm: ${bad% *} cannot be '${bad#* }'" "$tmp/err" || { cat "$tmp/err"; exit 1; }
done
