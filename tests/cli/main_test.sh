# main_test.sh - the front of the program: help, version, a mistyped command.
set -u
fail() {
    echo "main_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "tutti $*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "tutti $*: no '$part' in: $out" ;; esac
}

expect 2 "usage: tutti COMMAND"
expect 0 "usage: tutti COMMAND" --help
expect 0 "launch" help
expect 0 "tutti 0." --version
expect 0 "tutti 0." version
expect 2 "did you mean 'launch'?" lanuch -n 2 true
expect 2 "did you mean 'config'?" confg
expect 2 "did you mean 'train'?" fit
expect 2 "did you mean 'eval'?" evaluate
expect 2 "did you mean 'generate'?" chat
expect 2 "no command 'xyzzyxyzzy' (tutti --help" xyzzyxyzzy
expect 2 "no command ''" ""
expect 2 "no command '--lunch'" --lunch
long=$(printf '%0200d' 0)
expect 2 "no command '000" "$long"

# Results that do not arrive are a failure.
if [ -w /dev/full ]; then
    for command in models doctor --version --help; do
        out=$("$TUTTI_PROGRAM" $command 2>&1 >/dev/full)
        [ $? -eq 1 ] || fail "$command wrote to a full disk: $out"
        case $out in
        *"tutti $command: standard output: No space left"*) ;;
        *) fail "$command: no reason: $out" ;;
        esac
    done
fi

# Every command is in the manual.
commands=$("$TUTTI_PROGRAM" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 20 ] || fail "these are the commands? $commands"
for command in $commands; do
    grep -Eq "^(\*[a-z-]+\*, )*\*$command[ *]" "$TUTTI_SOURCE/docs/tutti.1.scd" ||
        fail "docs/tutti.1.scd says nothing of '$command'"
done
