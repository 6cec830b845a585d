/* device_compress_test.c - who compresses on devices, and what it takes;
 * tests/cli/device_ways_test.py and cuda_sums_test.py train with it. */
#include "exec/device/comm/device_reduce.h"

#include "exec/worker/compress.h"
#include "exec/workers.h"

static tutti_status create_powersgd(const tti_powersgd_desc *desc, void **powersgd) {
    (void)desc, (void)powersgd;
    return TUTTI_OK;
}

static tutti_status create_topk(const tti_topk_desc *desc, void **topk) {
    (void)desc, (void)topk;
    return TUTTI_OK;
}

static tutti_status connect_group(const tti_device_peers *peers, void **group) {
    (void)peers, (void)group;
    return TUTTI_OK;
}

static const tti_device_ops able = {.collectives.connect = connect_group,
                                    .powersgd.create = create_powersgd,
                                    .topk.create = create_topk};
static const tti_device_ops without = {.collectives.connect = connect_group};

T_CASE(devices_compress_whole_models_and_states) {
    T_UNUSED;
    tti_backend backend = {.device = &able};
    tti_mesh mesh = {0};
    tti_plan *plan = net_plan(net_wide, &net_fast, 1 << 16);
    const tti_exec_desc good = {.plan = plan,
                                .backend = &backend,
                                .fast = true,
                                .compression = TTI_COMPRESS_POWERSGD,
                                .low_rank = 2,
                                .topk = 0.01};
    enum { N_BAD = 7 };
    tti_exec_desc bad[N_BAD];
    for (int i = 0; i < N_BAD; i++) bad[i] = good;
    bad[0].fast = false;
    bad[1].compression = TTI_COMPRESS_NONE;
    bad[2].zero = 1;
    bad[3].local = true;
    bad[4].offload = true;
    bad[5].mixed = true;
    bad[6].mesh = &mesh;
    assert_true(tti_device_compress_can(&good, 2));
    assert_false(tti_device_compress_can(&good, 1));
    for (int i = 0; i < N_BAD; i++) {
        assert_false(tti_device_compress_can(&bad[i], 2));
        assert_true(tti_device_compress_bytes(&bad[i], 2) == 0);
    }
    backend.device = &without;
    assert_false(tti_device_compress_can(&good, 2));
    tti_plan_destroy(plan);
}

/* Two bytes for each element of each partial sum that is sent in 16 bits, and nothing where nothing
 * is: exact mode rounds to bf16 alone, fast mode sends one sum of a worker. */
T_CASE(memory_of_rounded_partial_sums) {
    T_UNUSED;
    const tti_backend device = {.device = &able};
    tti_plan *plan = net_plan(net_wide, &net_fast, 1 << 16);
    const tti_exec_desc exact = {
        .plan = plan, .backend = &device, .n_shards = 8, .wire = TUTTI_BF16};
    const tti_shard_map uneven = {.n_ranks = 2, .n_shards = 8, .first = (int[]){0, 5, 8}};
    tti_exec_desc f32 = exact, fast = exact, several = exact, local = exact, zero = exact;
    tti_exec_memory rounded, f32_sums;
    size_t each = plan->n_flat * sizeof(uint16_t);
    f32.wire = TUTTI_F32, fast.fast = true, local.local = local.fast = true, zero.zero = 2;
    several.shard_map = &uneven; /* 0 .. 3 and 4 */
    const struct {
        const tti_exec_desc *desc;
        int n_ranks;
        size_t n_bytes;
    } cases[] = {{&exact, 2, each}, {&exact, 1, 0},          {&f32, 2, 0},
                 {&fast, 2, each},  {&several, 2, 2 * each}, {&local, 2, 0}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tti_exec_desc plain = *cases[i].desc;
        plain.wire = TUTTI_F32;
        T_OK(tti_exec_memory_plan(cases[i].desc, 0, cases[i].n_ranks, &rounded));
        T_OK(tti_exec_memory_plan(&plain, 0, cases[i].n_ranks, &f32_sums));
        T_EQ(rounded.grads - f32_sums.grads, cases[i].n_bytes);
    }
    T_OK(tti_exec_memory_plan(&zero, 0, 2, &rounded));
    zero.wire = TUTTI_F32;
    T_OK(tti_exec_memory_plan(&zero, 0, 2, &f32_sums));
    assert_true(rounded.grads > f32_sums.grads && rounded.grads - f32_sums.grads <= 2 * each);
    tti_plan_destroy(plan);
}

T_CASE(memory_is_reported_before) {
    T_UNUSED;
    const tti_backend backend = {.device = &able};
    tti_plan *plan = net_plan(net_wide, &net_fast, 1 << 16);
    tti_exec_desc desc = {.plan = plan,
                          .backend = &backend,
                          .fast = true,
                          .compression = TTI_COMPRESS_TOPK,
                          .low_rank = 2,
                          .topk = 0.1};
    double flat = (double)plan->n_flat * sizeof(float), pairs, summed;
    double two = (double)tti_device_compress_bytes(&desc, 2);
    tti_compress_kinds(&desc, &pairs, &summed);
    assert_true(two > flat + pairs + 2 * summed);
    assert_true((double)tti_device_compress_bytes(&desc, 4) > two);
    desc.compression = TTI_COMPRESS_POWERSGD;
    tti_compress_kinds(&desc, &pairs, &summed);
    assert_true((double)tti_device_compress_bytes(&desc, 2) > flat + 2 * summed);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_compress_whole_models_and_states),
                                       cmocka_unit_test(memory_of_rounded_partial_sums),
                                       cmocka_unit_test(memory_is_reported_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
