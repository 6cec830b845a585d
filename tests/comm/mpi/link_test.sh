# link_test.sh - runs the tests of collectives again, over each MPI that the build has a module for.
# The ranks are processes of mpirun, on one host, on two, or each on one of its own.  The code above
# the messages is the same for every MPI, so the second one is tried on two divisions alone.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent=false # where ssh is not installed; all ranks are on this host
reported=$(mktemp -d)
trap 'rm -rf "$reported"' EXIT
cp "$TUTTI_BUILD/tests/shards_test" "$TUTTI_BUILD/tests/move_test" "$reported"
found=0
for mpi in openmpi mpich; do
    [ -e "$TUTTI_BUILD/tutti-mpi-$mpi.so" ] && command -v mpirun.$mpi > /dev/null || continue
    divisions="2:a 2:a,b 4:a,a,b 4:a,b,c,d"
    [ $found = 0 ] || divisions="2:a,b 4:a,a,b"
    found=1
    cp "$TUTTI_BUILD/tutti-mpi-$mpi.so" "$reported" # where the tests find it, beside themselves
    many=
    [ $mpi = mpich ] || many=--oversubscribe
    for division in $divisions; do
        n=${division%:*} hosts=${division#*:}
        # Both at once: most of the time is mpirun's.  Each has a TMPDIR of its own: Open MPI
        # removes its user's folder when a job ends, also while another creates files there.
        for test in shards_test move_test; do
            mkdir -p "$reported/$test.tmp"
            TMPDIR=$reported/$test.tmp TUTTI_TEST_TRANSPORT=mpi-$mpi TUTTI_TEST_HOSTS=$hosts \
                mpirun.$mpi $many -n "$n" "$reported/$test" > "$reported/$test.out" 2>&1 &
        done
        wait
        for test in shards_test move_test; do
            out=$(cat "$reported/$test.out")
            # A case that breaks the group on purpose leaves MPI unfinished: what counts is
            # that all ranks passed all cases, and that there were some of n ranks.
            passed=$(echo "$out" | grep -c 'PASSED')
            case $out in *FAILED* | *"rank 0 of"*) passed=0 ;; esac
            case $out in *"ran a case of $n ranks"*) ;; *) passed=0 ;; esac
            [ "$passed" -gt 0 ] ||
                { echo "link_test: $test, $n ranks of $mpi on $hosts: $out" >&2 && exit 1; }
        done
    done
done
[ $found = 1 ] || { echo "link_test: no MPI here" && exit 77; }
