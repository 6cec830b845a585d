# cmd_doctor_test.sh - tutti doctor: the host, its kernels, and why there is no device.
set -u
fail() {
    echo "cmd_doctor_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" doctor "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

expect 0 "usage: tutti doctor" --help
expect 2 "unknown argument '--fast'" --fast
expect 0 "$("$TUTTI_PROGRAM" --version | head -n 1 | cut -d' ' -f1,2)" --quick
expect 0 "cores allowed" --quick
expect 0 "GiB of memory" --quick
expect 0 "cuda: not loaded: backend 'cuda' is not installed here; tried:
  $(dirname "$(realpath "$TUTTI_PROGRAM")")/tutti-cuda.so: not there" --quick
expect 0 "loaded files:
  $(realpath "$TUTTI_PROGRAM")" --quick
printf '%s\n' "$out" | grep -Eq '^  /.*/libc\.so\.6$' || fail "no C library in: $out"
case $out in *"GFLOP/s"*) fail "--quick measures: $out" ;; esac
expect 0 "matrix product f32"
figures='product f32 [0-9]+x[0-9]+x[0-9]+: [0-9]+\.[0-9] GFLOP/s; copy: [0-9]'
printf '%s\n' "$out" | grep -Eq "$figures" || fail "no figures in: $out"
