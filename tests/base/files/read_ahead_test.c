/* read_ahead_test.c - the order of use, memory, which failure is reported, and parts of tensors. */
#include "base/files/read_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "t.h"

enum { N_ITEMS = 1000 };

typedef struct list {
    int64_t n_used, fails_at, refuses_at; /* -1: nowhere */
    int64_t latest_failure;               /* a later item fails too; -1: none */
} list;

static tutti_status read_number(void *user, int64_t item, void *memory) {
    const list *l = user;
    if (item == l->fails_at || item == l->latest_failure)
        return tti_fail(TUTTI_E_CHECKPOINT, "item %d is damaged", (int)item);
    T_EQ((uintptr_t)memory % 64, 0);
    ((int64_t *)memory)[0] = 3 * item;
    ((int64_t *)memory)[1] = -item;
    return TUTTI_OK;
}

static tutti_status use_number(void *user, int64_t item, void *memory) {
    list *l = user;
    T_EQ(item, l->n_used);
    if (item == l->refuses_at) return tti_fail(TUTTI_E_DEVICE, "no place for %d", (int)item);
    T_EQ(((int64_t *)memory)[0], 3 * item);
    T_EQ(((int64_t *)memory)[1], -item);
    l->n_used++;
    return TUTTI_OK;
}

static tutti_status run(list *l, const tti_readers *readers, int64_t n_items) {
    return tti_read_ahead(&(tti_read_ahead_desc){.readers = readers,
                                                 .n_items = n_items,
                                                 .item_bytes = 2 * sizeof(int64_t),
                                                 .read = read_number,
                                                 .use = use_number,
                                                 .user = l});
}

static list nothing_fails(void) {
    return (list){.fails_at = -1, .refuses_at = -1, .latest_failure = -1};
}

T_CASE(items_are_used_in_order) {
    T_UNUSED;
    static const int64_t numbers[] = {0, 1, 2, 3, N_ITEMS};
    for (int n_threads = 0; n_threads <= 5; n_threads++)
        for (size_t i = 0; i < TTI_COUNT(numbers); i++) {
            tti_readers readers = {.n_threads = n_threads};
            list l = nothing_fails();
            T_OK(run(&l, &readers, numbers[i]));
            T_EQ(l.n_used, numbers[i]);
        }
    list l = nothing_fails();
    T_OK(run(&l, NULL, N_ITEMS));
    T_EQ(l.n_used, N_ITEMS);
}

T_CASE(the_first_failure_counts) {
    T_UNUSED;
    for (int n_threads = 0; n_threads <= 4; n_threads++) {
        tti_readers readers = {.n_threads = n_threads};
        list l = nothing_fails();
        l.fails_at = 500;
        l.latest_failure = 503;
        T_FAILS(run(&l, &readers, N_ITEMS), TUTTI_E_CHECKPOINT, "item 500 is damaged");
        T_EQ(l.n_used, 500);
        l = nothing_fails();
        l.refuses_at = 7;
        T_FAILS(run(&l, &readers, N_ITEMS), TUTTI_E_DEVICE, "no place for 7");
        T_EQ(l.n_used, 7);
    }
}

static size_t n_allocated;
static int n_released;

static void *alloc_some(size_t n_bytes) {
    n_allocated = n_bytes;
    return aligned_alloc(64, n_bytes);
}

static void *alloc_none(size_t n_bytes) {
    (void)n_bytes;
    return NULL;
}

static void release_some(void *memory) {
    n_released++;
    free(memory);
}

T_CASE(memory_is_bounded_and_of_the_caller) {
    T_UNUSED;
    tti_readers readers = {.n_threads = 3, .alloc = alloc_some, .release = release_some};
    list l = nothing_fails();
    T_OK(run(&l, &readers, N_ITEMS));
    T_EQ(n_allocated, 2 * 3 * 64);
    T_EQ(n_released, 1);
    readers.alloc = alloc_none;
    T_FAILS(run(&l, &readers, N_ITEMS), TUTTI_E_NOMEM, "out of memory");
    T_EQ(n_released, 1);
}

/* Tensor 0 has two parts, 1 is empty, 2 cannot be divided, 3 is one part. */
static const size_t sizes[] = {TTI_PART_ELEMS + 5, 0, 2 * (size_t)TTI_PART_ELEMS, 7};

static size_t size_of(const void *user, int tensor, bool *is_whole) {
    (void)user;
    *is_whole = tensor == 2;
    return sizes[tensor];
}

static tutti_status read_numbers(void *user, tti_part *part, float *memory) {
    (void)user;
    assert_false(part->is_whole);
    for (size_t i = 0; i < part->n_elems; i++) memory[i] = (float)(part->first + i);
    part->crc = (uint32_t)part->tensor + 1;
    return TUTTI_OK;
}

static tutti_status use_numbers(void *user, const tti_part *part, const float *memory) {
    size_t *n_used = user;
    T_EQ(part->first, n_used[part->tensor]);
    for (int t = part->tensor + 1; t < 4; t++) T_EQ(n_used[t], 0);
    T_EQ(part->is_whole, part->tensor == 2);
    T_EQ(part->crc, part->is_whole ? 0 : (uint32_t)part->tensor + 1);
    for (size_t i = 0; i < part->n_elems && !part->is_whole; i++)
        assert_true(memory[i] == (float)(part->first + i));
    n_used[part->tensor] += part->n_elems;
    return TUTTI_OK;
}

T_CASE(tensors_are_divided_into_parts) {
    T_UNUSED;
    for (int n_threads = 0; n_threads <= 2; n_threads++) {
        tti_readers readers = {.n_threads = n_threads};
        size_t n_used[4] = {0};
        T_OK(tti_read_parts(&readers, 4, size_of, read_numbers, use_numbers, n_used));
        assert_memory_equal(n_used, sizes, sizeof sizes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_used_in_order),
        cmocka_unit_test(the_first_failure_counts),
        cmocka_unit_test(tensors_are_divided_into_parts),
        cmocka_unit_test(memory_is_bounded_and_of_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
