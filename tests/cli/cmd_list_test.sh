# cmd_list_test.sh - the tables print themselves; tests/train/job/catalog_test.c checks every row.
set -u
fail() {
    echo "cmd_list_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

expect 0 "conv2d " ops
expect 0 "autodiff " passes
expect 0 "lenet " models
expect 0 "idx " formats
expect 0 "adamw " optimizers
expect 0 "cosine " schedules
expect 0 "ring " algorithms
for table in ops passes models formats optimizers schedules transports algorithms; do
    expect 0 "usage: tutti $table" $table --help
    expect 2 "usage: tutti $table" $table extra
done
