# cmd_launch_test.sh - `tutti launch` as a user types it; the supervisor's own tests are in
# tests/launch/.
set -u
dir=$(mktemp -d)
launcher= # one that is at work, or stopped
trap '[ -z "$launcher" ] || kill -9 $launcher; rm -rf "$dir"' EXIT
fail() {
    echo "cmd_launch_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" launch "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

expect 0 "usage: tutti launch -n N" --help
expect 2 "give -n N, the number of workers" true
expect 2 "give a program to run" -n 2
expect 2 "give a program to run" -n 2 --
expect 2 "not a number: x" -n x true
expect 2 "not a number: -1" -n -1 true
expect 2 "unknown option --frobnicate" -n 2 --frobnicate true
expect 2 "no value after -n" -n
expect 2 "5000 workers" -n 5000 true
expect 127 "cannot run 'no-such-program-here'" -n 2 no-such-program-here
expect 127 "cannot run './no/such'" -n 2 ./no/such
expect 0 "" -n 4 true
expect 0 "[rank 1] 1 of 2, 1 of 2" -n 2 -- \
    sh -c 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE'
expect 0 "] socket" -n 2 sh -c '[ -e /proc/self/fd/$TUTTI_COMM_FD ] && echo socket || exit 1'
expect 3 "exited with code 3" -n 2 sh -c '[ $RANK = 0 ] || exit 3; sleep 10'
expect 5 "was killed by signal 9 (Killed)" -n 2 sh -c 'kill -9 $$'
expect 93 "3 starts without a new step" -n 1 --max-restarts 9 false
expect 1 "exited with code 1" -n 2 --log-dir "$dir/log" --error-file "$dir/e.json" \
    sh -c 'echo x; exit 1'
[ "$(cat "$dir/log/rank-1.txt")" = x ] || fail "no log of rank 1"
grep -q '"worker_exit_code":1' "$dir/e.json" || fail "no error file"
# A run is started by `tutti train`, which makes its folder.
expect 2 "start the run with tutti train -n 2" -n 2 "$TUTTI_PROGRAM" train "run.dir=$dir/none" \
    model.name=lenet data.n_train=96 train.steps=2 parallel.devices=cpu parallel.workers=2
expect 1 "cannot make the log folder" -n 2 --log-dir "$dir/a/b" true

# There are files of these names, in time.
wait_for() {
    for i in $(seq 400); do
        for name in "$@"; do [ -e "$dir/$name" ] || break; done
        [ -e "$dir/$name" ] && return
        sleep 0.05
    done
    fail "no $name"
}

# Equal lines of all ranks are merged. On a busy machine a worker may print too late for that, so
# the launcher is stopped meanwhile and reads all lines at once.
"$TUTTI_PROGRAM" launch -n 3 sh -c 'touch "$0/up-$RANK"; until [ -e "$0/go" ]; do sleep 0.05; done
    echo hello; touch "$0/said-$RANK"' "$dir" >"$dir/out" 2>&1 &
launcher=$!
wait_for up-0 up-1 up-2
kill -STOP $launcher
touch "$dir/go"
wait_for said-0 said-1 said-2
kill -CONT $launcher
wait $launcher
code=$? launcher=
[ $code = 0 ] || fail "exit code $code of workers that say hello: $(cat "$dir/out")"
[ "$(cat "$dir/out")" = "[rank 0-2] hello" ] || fail "not one line: $(cat "$dir/out")"

# No program outlives its launcher, even one that knows nothing of it.
"$TUTTI_PROGRAM" launch -n 2 sh -c 'echo $$ > "$0/pid-$RANK"; exec sleep 60' "$dir" &
launcher=$!
for i in $(seq 400); do
    [ -s "$dir/pid-0" ] && [ -s "$dir/pid-1" ] && break
    sleep 0.05
done
[ -s "$dir/pid-0" ] && [ -s "$dir/pid-1" ] || fail "workers have not started"
kill -9 $launcher
wait $launcher 2>/dev/null
launcher=
for i in $(seq 400); do
    alive=
    for r in 0 1; do
        state=$(sed 's/.*) \(.\).*/\1/' "/proc/$(cat "$dir/pid-$r")/stat" 2>/dev/null)
        case $state in '' | Z | X) ;; *) alive=yes ;; esac
    done
    [ -z "$alive" ] && exit 0
    sleep 0.05
done
fail "workers are left after their launcher was killed"
