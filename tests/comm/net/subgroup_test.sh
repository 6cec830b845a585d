# subgroup_test.sh - subgroups of ranks on several hosts, slots between them, and vectors in
# partitions: the cases of one host again, over sockets.  Hosts are names here (TUTTI_TEST_HOSTS).
set -u
run() {
    out=$(TUTTI_TEST_TRANSPORT=tcp TUTTI_TEST_HOSTS=$2 "$TUTTI_BUILD/tests/$1" 2>&1) ||
        { echo "subgroup_test: $1 on hosts $2: $out" >&2 && exit 1; }
}

run mesh_test a,a,b,b,c,a
run mailbox_test a,b,b,c,a
run partitions_test a,a,b,b,b,c,a
