# slurm_slow_test.sh - a real Slurm of one node, started here and ended here: srun in every
# pairing with MPI, the right ones and the silent wrong one, without MPI, and in shells of salloc
# and srun --pty.
# Needs root, munge, slurmctld, slurmd, srun, salloc and script; without them it is skipped.
set -u
for program in slurmctld slurmd srun salloc munged runuser script; do
    command -v $program > /dev/null || { echo "no $program here" && exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "not root" && exit 77; }
if pidof slurmctld slurmd munged > /dev/null; then echo "a Slurm runs here already" && exit 77; fi

folder=$(mktemp -d)
host=$(hostname -s)
chmod 755 "$folder"
mkdir -m 755 "$folder/munge" "$folder/state" "$folder/spool"
head -c 1024 /dev/urandom > "$folder/munge/key"
chmod 400 "$folder/munge/key"
chown -R munge "$folder/munge"
cat > "$folder/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP OverSubscribe=FORCE:4
CONF
export SLURM_CONF="$folder/slurm.conf" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SLURM_PMIX_TMPDIR="$folder"

daemons=
# One after the other: the rest of a step reports to slurmctld, through munged, and slurmd waits
# for it.
stop() {
    for pid in $daemons; do
        kill "$pid" 2> /dev/null
        wait "$pid" 2> /dev/null
    done
    rm -rf "$folder"
}
trap stop EXIT

runuser -u munge -- munged --foreground --key-file="$folder/munge/key" \
    --socket="$folder/munge/socket" --log-file="$folder/munge/log" \
    --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" > /dev/null 2>&1 &
daemons=$!
for _ in $(seq 200); do
    [ -S "$folder/munge/socket" ] && break
    sleep 0.05
done
slurmctld -D > "$folder/slurmctld.log" 2>&1 &
daemons="$! $daemons"
slurmd -D -N "$host" > "$folder/slurmd.log" 2>&1 &
daemons="$! $daemons"
for _ in $(seq 100); do
    srun -n 1 --immediate=1 true > "$folder/srun.log" 2>&1 && break
    sleep 0.2
done
srun -n 2 true || {
    cat "$folder"/*.log
    echo "slurm_slow_test: this Slurm does not start" && exit 77
}

cd "$folder" || exit 1
small="model.name=mlp model.hidden=[16] data.n_train=256 data.n_test=64 train.batch=32
       train.steps=10 parallel.shards=4"
fail() {
    echo "slurm_slow_test: $*" >&2
    exit 1
}
train() { # OUTPUT EXPECTED-PART SRUN-OPTION...: the hash, or nothing
    part=$1
    shift
    # shellcheck disable=SC2086  # lists of words
    out=$(timeout 100 srun --overcommit "$@" "$TUTTI_PROGRAM" train $small 2>&1)
    case $out in *"$part"*) ;; *) fail "srun $*: no '$part' in: $out" ;; esac
    hash=$(echo "$out" | grep -o 'params_hash [0-9a-f]*')
}

# shellcheck disable=SC2086  # a list of words
want=$("$TUTTI_PROGRAM" train $small -n 1 -q | grep -o 'params_hash [0-9a-f]*')
[ -n "$want" ] || fail "no run to compare with"
train "by Slurm" -n 2 --mpi=none
[ "$hash" = "$want" ] || fail "--mpi=none: '$hash' instead of '$want'"
# salloc names its job after its shell, and the tasks of srun in there hear that name too.
# shellcheck disable=SC2086  # a list of words
out=$(echo "srun --overcommit -n 2 --mpi=none $TUTTI_PROGRAM train" $small |
    timeout 100 salloc -n 2 --overcommit sh 2>&1)
case $out in *"by Slurm"*"$want"*) ;; *) fail "salloc: no 2 ranks with '$want' in: $out" ;; esac
# With --pty the first task has a terminal, as what is typed into a shell of that name has.
at_terminal() { # COMMAND: what it says at a terminal, where standard input is typed
    timeout 100 script -qec "$1" /dev/null 2>&1
}
srun="srun --pty --overcommit -n 2 --mpi=none"
# shellcheck disable=SC2086  # a list of words
train=$(echo "$TUTTI_PROGRAM" train $small)
out=$(echo "$srun $train; exit" | at_terminal "salloc -n 2 --overcommit --job-name=bash sh")
case $out in *"rank 0 of 2, by Slurm"*"$want"*) ;; *) fail "--pty: no 2 ranks in: $out" ;; esac
# Such a shell is a task itself, and what is typed into it is none.
out=$(echo "$train; exit" | at_terminal "$srun --job-name=bash bash --norc -i")
case $out in *"by Slurm"*) fail "typed into a shell, and taken for a task: $out" ;; esac
case $out in *"$want"*) ;; *) fail "typed into a shell: no '$want' in: $out" ;; esac
for pair in openmpi:pmix mpich:pmi2; do
    mpi=${pair%:*} kind=${pair#*:}
    [ -e "$TUTTI_BUILD/tutti-mpi-$mpi.so" ] || continue
    srun --mpi=list 2>&1 | grep -q "$kind" || continue
    train "over mpi-$mpi" -n 2 "--mpi=$kind"
    [ "$hash" = "$want" ] || fail "--mpi=$kind: '$hash' instead of '$want'"
done
if [ -e "$TUTTI_BUILD/tutti-mpi-mpich.so" ] && srun --mpi=list 2>&1 | grep -q pmix; then
    TUTTI_TRANSPORT=mpi-mpich
    export TUTTI_TRANSPORT
    train "they do not fit" -n 2 --mpi=pmix # N jobs of one rank, and nothing says so but this
    [ -z "$hash" ] || fail "a pair that does not fit has trained: $hash"
fi
exit 0
