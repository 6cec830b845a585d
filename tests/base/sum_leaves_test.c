/* sum_leaves_test.c - orders of eight and five terms over hosts, by their leaves. */
#include "base/sum_leaves.h"

#include <string.h>

#include "t.h"

enum { MOST = 8 };

/* n_adds, hosts: a digit for each term; starts: 1 where a leaf begins; n_outer: a digit. */
static const struct {
    const char *n_adds, *hosts, *starts, *n_outer;
} rows[] = {
    {"01020103", "00000000", "10000000", "00000000"}, /* one host */
    {"01020103", "00001111", "10001000", "00000001"},
    {"01020103", "00011111", "10111000", "00020001"}, /* ((0+0)+(0+1))+1 */
    {"01020103", "01010101", "11111111", "01020103"}, /* in turns */
    {"01021", "00001", "10001", "00001"},
    {"01021", "00100", "10111", "00021"}, /* and the last term stays alone */
};

T_CASE(leaves_of_hosts) {
    T_UNUSED;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool starts[MOST] = {false};
        int n_outer[MOST] = {0};
        tti_sum_leaves leaves = {.starts = starts, .n_outer = n_outer};
        int n = (int)strlen(rows[i].hosts);
        for (int t = 0; t < n; t++)
            tti_sum_leaves_add(&leaves, t, rows[i].hosts[t] - '0', rows[i].n_adds[t] - '0');
        T_EQ(leaves.n, 1);
        for (int t = 0; t < n; t++) {
            T_EQ(starts[t], rows[i].starts[t] - '0');
            T_EQ(n_outer[t], rows[i].n_outer[t] - '0');
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(leaves_of_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
