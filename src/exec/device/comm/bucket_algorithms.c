/* bucket_algorithms.c - chooses the reduction algorithm per bucket from a table of measurements.
 *
 * Rank 0 gathers the device kinds of all ranks, checks that its table matches them, and sends its
 * choice to all ranks. */
#include "exec/device/comm/device_reduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/progress.h"
#include "exec/device/comm/device_tp.h"
#include "exec/update/flat_update.h"

/* Rank 0's message. */
typedef struct table_message {
    int32_t found;
    tti_sum_table table;
} table_message;

/* Equal on all ranks. */
static bool uses_table(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    bool plain = !setup->divided && !tti_pipe_of(x) && !tti_offload_of(x) && !tti_sharded_of(x) &&
                 !tti_exec_has_partitions(setup) && !tti_device_tp_group(tti_tp_of(x));
    bool can = plain && setup->desc.backend->device->collectives.mixes_algorithms &&
               setup->desc.alg == TUTTI_ALG_AUTO && setup->n_ranks > 1 &&
               setup->n_ranks <= TTI_SUM_DEVICES;
    tti_comm_place place = {.n_hosts = 0};
    if (can) tti_comm_get_place(setup->desc.comm, &place);
    return can && place.n_hosts == 1;
}

static tutti_status choose(const tti_setup *setup, tti_bucket_algorithms *algorithms) {
    int n_buckets = setup->desc.plan->n_buckets;
    algorithms->by_library = calloc((size_t)n_buckets + 1, sizeof *algorithms->by_library);
    if (!algorithms->by_library) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int b = 0; b < n_buckets; b++) {
        size_t n_bytes = setup->desc.plan->buckets[b].n_elems * tti_exec_wire_bytes(&setup->desc);
        algorithms->by_library[b] =
            tti_sum_table_prefers_library(&algorithms->table, (int64_t)n_bytes, setup->desc.fast);
        algorithms->n_by_library += algorithms->by_library[b];
    }
    return TUTTI_OK;
}

tutti_status tti_bucket_algorithms_init(tti_exec *x, tti_bucket_algorithms *out) {
    const tti_setup *setup = tti_setup_of(x);
    table_message t;
    memset(&t, 0, sizeof t);
    *out = (tti_bucket_algorithms){.found = TTI_CACHE_ABSENT};
    if (!uses_table(x)) return TUTTI_OK;
    tti_sum_kind mine, kinds[TTI_SUM_DEVICES];
    char key[TTI_SUM_KEY];
    tti_sum_table_kind(setup->desc.backend, setup->desc.device.index, &mine);
    TTI_TRY(tutti_comm_all_gather(setup->desc.comm, &mine, kinds, sizeof mine, TUTTI_U8));
    tti_sum_table_key(setup->desc.backend, kinds, setup->n_ranks, key);
    if (setup->rank == 0) t.found = (int32_t)tti_sum_table_load(key, setup->n_ranks, &t.table);
    TTI_TRY(tutti_comm_broadcast(setup->desc.comm, &t, sizeof *(&t), TUTTI_U8, 0));
    out->found = (tti_cache_found)t.found;
    out->table = t.table;
    return out->found == TTI_CACHE_GOOD ? choose(setup, out) : TUTTI_OK;
}

void tti_bucket_algorithms_forget(tti_bucket_algorithms *algorithms) {
    free(algorithms->by_library);
    algorithms->by_library = NULL;
    algorithms->n_by_library = 0;
}

void tti_bucket_algorithms_describe(const tti_bucket_algorithms *algorithms, int n_buckets,
                                    tti_str *str) {
    if (algorithms->n_by_library > 0)
        tti_str_printf(str, ", %d of %d buckets by %s", algorithms->n_by_library, n_buckets,
                       algorithms->table.library);
    if (algorithms->found == TTI_CACHE_GOOD) tti_str_add(str, ", by the table of tutti doctor");
    if (algorithms->found == TTI_CACHE_FOREIGN)
        tti_str_add(str,
                    " (the table of tutti doctor is of other devices or libraries: run it "
                    "again)");
    if (algorithms->found == TTI_CACHE_DAMAGED)
        tti_str_add(str, " (the table of tutti doctor is damaged: run it again)");
}
