# transport_test.sh - the tests of collectives again, over sockets and several hosts: the same
# cases, the same bits.  Hosts are names here (TUTTI_TEST_HOSTS); tests/cli/hosts_test.py has
# network namespaces.
set -u
run() {
    out=$(TUTTI_TEST_TRANSPORT=tcp TUTTI_TEST_HOSTS=$2 "$TUTTI_BUILD/tests/$1" 2>&1) ||
        { echo "transport_test: $1 on hosts $2: $out" >&2 && exit 1; }
}

for hosts in a a,b,a,b,a a,a,a,b,c,c,d; do
    run shards_test $hosts
    run move_test $hosts
done
run comm_test a,a,b,b
run shards_test a,b,c,d,e,f,g,h
