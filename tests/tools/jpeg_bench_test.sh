# jpeg_bench_test.sh - bench/jpeg.sh on the CPU with a small model: its rows, and what it keeps.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "jpeg_bench_test: $*" >&2
    exit 1
}

rows() {
    out=$(env TUTTI="$TUTTI_PROGRAM" DEVICES=cpu MODEL=lenet KEYS="model.dropout=0.1" BATCH=4 \
        STEPS=2 IMAGES=40 SIDE=48 SIZE=32 THREADS=1 FOLDER="$tmp/made" TMPDIR="$tmp" \
        sh "$TUTTI_SOURCE/bench/jpeg.sh" -n 2 "$@" 2>&1) || fail "ended with $?: $out"
}
said() { printf '%s\n' "$out" | grep -q "$1" || fail "no '$1' in: $out"; }
unsaid() { ! printf '%s\n' "$out" | grep -q "$1" || fail "'$1' in: $out"; }

rows random packed jpeg
said '^40 JPEG files, .* MB, made in '
said '^packed: .* MB in '
for row in random packed jpeg; do
    said "^$row  *[1-9][0-9]* images/s .* threads 2 x 1  hash [0-9a-f]"
done
[ "$(ls "$tmp")" = made ] || fail "left behind: $(ls "$tmp")"
hash=$(printf '%s\n' "$out" | sed -n 's/^jpeg .*hash //p')

# What is kept is used again, and gives the same bits.
rows jpeg
unsaid 'made in'
said "^jpeg .*- of random .*hash $hash\$"

env TUTTI="$TUTTI_PROGRAM" DEVICES=cpu sh "$TUTTI_SOURCE/bench/jpeg.sh" tape > "$tmp/out" 2>&1 &&
    fail "takes any row"
grep -q 'no row tape: random, packed or jpeg' "$tmp/out" || fail "$(cat "$tmp/out")"
