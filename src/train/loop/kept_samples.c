/* kept_samples.c - decides if the training split stays on the device, and copies it there. */
#include "train/loop/kept_samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "data/loader/resident.h"
#include "train/loop/placement.h"
#include "train/setup/feeding.h"

/* Larger data sets are kept on the device only on request: reading them delays the first step. */
static const size_t max_resident = (size_t)2 << 30;

tutti_status tti_samples_keep(const tti_blueprint *b, tti_exec *exec, const tti_loader_desc *order,
                              bool is_async, tti_lasting_samples *lasting, int32_t **index) {
    const tti_job_config *c = &b->config;
    const char *requested = c->data.resident, *why = tti_why_not_resident(b, is_async);
    bool must = strcmp(requested, "yes") == 0, kept = false;
    *index = NULL;
    if (must && why) return tti_fail(TUTTI_E_CONFIG, "data.resident=yes: %s", why);
    if (why || strcmp(requested, "no") == 0) return TUTTI_OK;
    if (!must && tti_resident_bytes(b->train) > max_resident) return TUTTI_OK;
    tti_resident set = {0};
    tutti_status st = TUTTI_OK;
    if (!lasting || !lasting->device) {
        (void)TTI_FAULT("train.read_samples");
        st = tti_feeding_load(b->train, (int)c->data.threads, exec, &set);
    }
    const tti_resident_samples samples = {.x = set.x,
                                          .y = set.y,
                                          .value = (const float(*)[256])set.table.value,
                                          .n = set.n,
                                          .n_elems = set.n_elems,
                                          .n_channels = set.table.n_channels};
    int ahead = c->parallel.min_workers > 0 ? 1 : (int)c->parallel.ahead;
    if (st == TUTTI_OK) st = tti_exec_keep(exec, &samples, lasting, ahead, &kept);
    tti_resident_free(&set);
    TTI_TRY(st);
    if (!kept && must)
        return tti_fail(TUTTI_E_CONFIG,
                        "data.resident=yes: %zu bytes are more than a quarter of the device's free "
                        "memory",
                        tti_resident_bytes(b->train));
    if (!kept) return TUTTI_OK;
    int64_t n = tti_rows_per_shard(order->batch, order->n_shards);
    n *= order->last_shard - order->first_shard;
    *index = calloc((size_t)n + 1, sizeof **index);
    return *index ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}
