/* work_test.c - what every algorithm works with: partitions that cover a vector, and memory that
 * stays.
 */
#include <stdlib.h>

#include "comm/algorithm.h"
#include "t.h"

T_CASE(parts_cover_a_vector) {
    T_UNUSED;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 4096, 100003};
    for (size_t s = 0; s < TTI_COUNT(sizes); s++)
        for (int n_partitions = 1; n_partitions <= 9; n_partitions++) {
            T_EQ(tti_partition_first(sizes[s], 0, n_partitions), 0);
            T_EQ(tti_partition_first(sizes[s], n_partitions, n_partitions), sizes[s]);
            for (int i = 0; i < n_partitions; i++) {
                size_t first = tti_partition_first(sizes[s], i, n_partitions);
                size_t next = tti_partition_first(sizes[s], i + 1, n_partitions);
                assert_true(first % 64 == 0 || first == sizes[s]);
                assert_true(first <= next && next - first <= sizes[s] / (size_t)n_partitions + 64);
            }
        }
}

T_CASE(memory_stays) {
    T_UNUSED;
    tti_message_list list = {0};
    tutti_comm comm = {0};
    tti_message *four = tti_message_list_room(&list, 4);
    four[3].peer = 7;
    assert_ptr_equal(tti_message_list_room(&list, 2), four);
    T_EQ(list.of[3].peer, 7);
    assert_non_null(tti_message_list_room(&list, 1000));
    T_EQ(list.capacity, 1000);
    T_EQ(list.of[999].peer, 0);
    tti_message_list_free(&list);
    assert_true(!list.of && list.capacity == 0);
    void *page = tti_comm_scratch(&comm, 100);
    assert_ptr_equal(tti_comm_scratch(&comm, 4096), page);
    T_EQ((uintptr_t)tti_comm_scratch(&comm, 5000) % 64, 0);
    T_EQ(comm.scratch_bytes, 8192);
    free(comm.scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_cover_a_vector),
                                       cmocka_unit_test(memory_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
