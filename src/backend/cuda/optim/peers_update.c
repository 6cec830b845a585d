/* peers_update.c - which updates run in one kernel with the preceding sums. */
#include "backend/cuda/optim/peers_update.h"

#include "backend/cuda/comm/peers_group.h"
#include "backend/cuda/runtime/device.h"

/* Every device fetches all terms of the others, which is worth it as long as that takes less time
 * than a kernel and a barrier do: two H200 gain 3.4 us of 12.4 with a thousand elements, 2.7
 * of 15.8 with 256 Ki, and lose 0.9 of a step with 412 Ki (lenet). */
enum { MOST_BYTES = 1 << 20 };

static size_t bytes_of_others(const tti_peers_group *g) {
    size_t each = g->is_paired ? sizeof(uint16_t) : sizeof(float);
    return tti_peers_n_foreign_terms(g) * g->peers.n_flat * each;
}

/* The reduction uses only the others' memory, and the update no norm.  A sum of fast mode that is
 * rounded is added in another order. */
static bool fits(const tti_peers_group *g, const tti_update_view *u) {
    size_t n_reported = (size_t)u->n_sums * (size_t)u->n_shards + 3 * (size_t)g->peers.n_ranks;
    bool adds_so = !g->rounded[0] || g->is_paired;
    return g->direct && adds_so && g->peers.n_groups == 0 && u->grads == g->partials[0] &&
           u->n_items > 0 && n_reported <= TTI_PEERS_NUMBERS && bytes_of_others(g) <= MOST_BYTES &&
           tti_peers_can_update(&u->rule);
}

static tti_peers_rounding rounding_of(const tti_peers_group *g) {
    tti_peers_rounding rounding = {.n = g->is_paired ? g->peers.n_partials : 0};
    for (int k = 0; k < rounding.n; k++) {
        rounding.from[k] = g->partials[k];
        rounding.to[k] = g->rounded[k];
    }
    return rounding;
}

tutti_status tti_cuda_peers_can_update(const void *group, const void *update, size_t first,
                                       bool *can) {
    const tti_update_view *u = tti_cuda_update_plain(update);
    *can = first == 0 && u && fits(group, u); /* the kernel adds all elements */
    if (!*can) return TUTTI_OK;
    bool rounds = ((const tti_peers_group *)group)->is_paired;
    return tti_cuda_check(tti_launch_peers_update_load(&u->rule, rounds), "cudaFuncGetAttributes");
}

tutti_status tti_cuda_peers_update(void *group, void *update, const tti_device_step_sums *step_sums,
                                   size_t first) {
    const tti_peers_group *g = group;
    const tti_update_view *u = tti_cuda_update_plain(update);
    TTI_ASSERT(first == 0 && u && fits(g, u));
    TTI_ASSERT(step_sums->sums == u->sums && step_sums->report == u->report);
    tti_peers_rounding rounding = rounding_of(g);
    return tti_cuda_check(
        tti_launch_peers_update(&g->view, u, step_sums, &rounding, tti_cuda_stream()),
        "peers_update");
}
