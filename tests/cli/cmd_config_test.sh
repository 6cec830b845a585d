# cmd_config_test.sh - tutti config: values with origins, every problem with exit code 2, and a
# schema and a reference that are whole.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "cmd_config_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" config "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

cat >"$dir/job.yaml" <<'YAML'
model: {name: mlp}
train:
  batch: 64
YAML
cat >"$dir/bad.yaml" <<'YAML'
train: {batch: x}
optimizer: {lrr: 1}
YAML

expect 2 "usage: tutti config show"
expect 2 "usage: tutti config show" shwo
expect 2 "usage: tutti config show" schema extra
expect 0 "usage: tutti config show" --help
expect 0 "batch: 128                            # default" show
expect 0 "batch: 64                             # $dir/job.yaml:3" show "$dir/job.yaml"
expect 0 "batch: 32                             # command line" show train.batch=32 "$dir/job.yaml"
expect 2 "bad.yaml:1:16: error: train.batch: expected an integer" show "$dir/bad.yaml"
expect 2 "bad.yaml:2:13: error: optimizer.lrr: unknown key (did you mean \"lr\"?)" \
    show "$dir/bad.yaml"
expect 2 "command line: error: lr: unknown key (did you mean \"optimizer.lr\"?)" show lr=1
expect 2 "No such file or directory" show "$dir/none.yaml"
expect 2 "not a regular file" show "$dir"
expect 0 '"$schema": "https://json-schema.org/draft/2020-12/schema"' schema
expect 0 '| `optimizer.lr` | a number from 0 to 1000 | `1e-3` |' reference

# config show prints a job file that is the same job.
"$TUTTI_PROGRAM" config show "$dir/job.yaml" run.dir="a b" >"$dir/shown.yaml" || fail "show"
"$TUTTI_PROGRAM" config show "$dir/shown.yaml" >"$dir/again.yaml" || fail "show what was shown"
cut -d'#' -f1 "$dir/shown.yaml" >"$dir/a"
cut -d'#' -f1 "$dir/again.yaml" >"$dir/b"
cmp "$dir/a" "$dir/b" || fail "shown and read back: not the same"
[ "$(wc -l <"$dir/a")" -ge 40 ] || fail "keys are missing"

# A full disk is an error, not a short text.
if [ -w /dev/full ]; then
    "$TUTTI_PROGRAM" config schema >/dev/full 2>"$dir/err" && fail "wrote to a full disk"
    grep -q "No space left" "$dir/err" || fail "no reason: $(cat "$dir/err")"
fi
