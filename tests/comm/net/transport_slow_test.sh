# transport_slow_test.sh - transport_test.sh with every division of the ranks into hosts.
exec sh "$(dirname "$0")/transport_test.sh" all
