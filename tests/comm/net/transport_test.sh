# transport_test.sh [all] - the tests of collectives again, over sockets and several hosts: the same
# cases, the same bits.  Hosts are names here (TUTTI_TEST_HOSTS); tests/cli/hosts_test.py has
# network namespaces.  all: further divisions into hosts (transport_slow_test.sh).  A third argument
# of run is a fault: link.sparse makes a group of few ranks connect as one of many does.
set -u
run() {
    out=$(TUTTI_TEST_TRANSPORT=tcp TUTTI_TEST_HOSTS=$2 TUTTI_FAULT=${3:-} \
        "$TUTTI_BUILD/tests/$1" 2>&1) ||
        { echo "transport_test: $1 on hosts $2: $out" >&2 && exit 1; }
}

run comm_test a,a,b,b
run move_test a,b,a,b,a
run shards_test a,a,a,b,c,c,d
run move_test a,b,a,b,a link.sparse:fail
[ "${1:-}" = all ] || exit 0
run move_test a,a,a,b,c,c,d
run shards_test a,b,a,b,a
run shards_test a,b,c,d,e,f,g,h
run partitions_test a,a,b,b link.sparse:fail
run mailbox_test a,b,a,b,c link.sparse:fail
run comm_test a,a,b,b link.sparse:fail
run shards_test a,a,a,b,c,c,d link.sparse:fail
