/* socket_test.c - a connection to a port without a listener never reaches the caller itself. */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"
#include "forked.h"

enum { PORT = 40000, N_CALLS = 100 };

/* A network of its own whose callers get one of two ports. */
static bool enter_small_network(void) {
    struct ifreq lo = {.ifr_name = "lo"};
    if (unshare(CLONE_NEWNET) != 0) return false;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) != 0) return false;
    lo.ifr_flags |= IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &lo) != 0) return false;
    close(fd);
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    if (!range) return false;
    fprintf(range, "%d %d", PORT, PORT + 1);
    return fclose(range) == 0;
}

/* 0: every call was refused. */
static int call_again_and_again(void) {
    tcp_address a;
    tcp_place place;
    int n;
    if (!enter_small_network()) return FORKED_SKIPPED; /* not allowed here */
    if (tti_tcp_parse("127.0.0.1:40000", &a) || tti_tcp_resolve(&a, PORT, &place, 1, &n)) return 1;
    for (int i = 0; i < N_CALLS; i++) {
        int fd = tti_tcp_connect(&place, tti_now_ns() + 1000 * TTI_NS_PER_MS);
        if (fd >= 0) return 2;
        if (errno != ECONNREFUSED && errno != EADDRNOTAVAIL) return 3;
    }
    return 0;
}

T_CASE(nobody_calls_itself) {
    T_UNUSED;
    t_forked(call_again_and_again);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_calls_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
