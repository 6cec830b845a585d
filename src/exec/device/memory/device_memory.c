/* device_memory.c - computes the memory of a step before anything is allocated.
 *
 * Shards of half the rows have half the activations, and at most one more gradient buffer, because
 * the tree of the sum grows by a level; scratch of kernels, which may be a workspace of fixed size,
 * is assumed to stay the same. */
#include "exec/device/memory/device_memory.h"

#include "base/str.h"

static size_t params_of(const tti_device_need *n) { return n->params ? n->params : n->flat; }

static size_t grads_of(const tti_device_need *n) {
    return n->grads ? n->grads : n->flat * (size_t)n->n_grads;
}

size_t tti_device_need_bytes(const tti_device_need *n) {
    size_t n_states = (size_t)n->n_states + (size_t)n->n_emas;
    return params_of(n) + n->low + grads_of(n) + n_states * n->state +
           (size_t)n->n_arenas * n->arena + n->inputs + n->residuals + n->scratch;
}

static void print_bytes(tti_str *str, size_t n_bytes) {
    double mib = (double)n_bytes / (1 << 20);
    if (mib < 1024)
        tti_str_printf(str, "%.1f MiB", mib);
    else
        tti_str_printf(str, "%.2f GiB", mib / 1024);
}

/* The same step with factor times the shards; false: there can be no such number. */
static bool cut(const tti_device_need *n, int factor, tti_device_need *out) {
    if (factor > n->rows || n->n_shards > n->most_shards / factor) return false;
    *out = *n;
    out->n_shards *= factor;
    out->rows = (n->rows + factor - 1) / factor;
    out->arena = n->arena / (size_t)factor;
    for (int f = factor; f > 1; f /= 2) out->n_grads++, out->grads += n->grads ? n->flat : 0;
    return true;
}

/* Each worker with a part of the optimizer's state, from level 2 on of gradients, on 3 of
 * parameters; false: it is so, or cannot be. */
static bool split(const tti_device_need *n, int level, tti_device_need *out) {
    *out = *n;
    out->state = n->flat / (size_t)TTI_MAX(n->n_ranks, 1);
    if (level == 1) return n->state == n->flat && out->state < n->flat;
    out->params = n->in_parts[level - 2].params, out->grads = n->in_parts[level - 2].grads;
    return out->grads > 0;
}

/* The state on the host; false: it is there, or cannot be. */
static bool offload(const tti_device_need *n, tti_device_need *out) {
    *out = *n;
    out->n_states = out->n_emas = 0;
    return n->offloads && n->n_states > 0;
}

/* Suggests alternatives: the lowest ZeRO stage that suffices, or offload; the smallest number of
 * shards that fits. */
static void suggest(const tti_device_need *n, size_t n_free, tti_str *str) {
    tti_device_need smaller;
    for (int level = 1; level <= 3; level++) {
        if (!split(n, level, &smaller) || tti_device_need_bytes(&smaller) > n_free) continue;
        tti_str_printf(str, "parallel.zero=%d would need about ", level);
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str, ".  ");
        break;
    }
    if (offload(n, &smaller) && tti_device_need_bytes(&smaller) <= n_free) {
        tti_str_add(str, "parallel.offload=optimizer would need about ");
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str, ".  ");
    }
    smaller = *n;
    for (int factor = 2; cut(n, factor, &smaller); factor *= 2) {
        if (tti_device_need_bytes(&smaller) > n_free) continue;
        tti_str_printf(str, "parallel.shards=%d would need about ", smaller.n_shards);
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str,
                    "; a smaller train.batch, train.recompute=block or train.precision=bf16 "
                    "help too");
        return;
    }
    tti_str_add(
        str,
        "No number of shards fits: use a smaller model or train.batch, train.recompute=block, "
        "train.precision=bf16, parallel.tensor or parallel.pipeline, which divide the model, or a "
        "device with more memory; tutti plan shows the memory of each layout");
}

tutti_status tti_device_need_check(const tti_device_need *n, size_t n_free) {
    tti_str str = {0};
    if (tti_device_need_bytes(n) <= n_free) return TUTTI_OK;
    const struct {
        const char *text;
        size_t n_bytes;
    } parts[] = {
        {"the step needs ", tti_device_need_bytes(n)},
        {" of device memory, of which is free ", n_free},
        {": activations of a shard ", n->arena},
        {", parameters ", params_of(n) + n->low},
        {", optimizer state ", n->state * (size_t)(n->n_states + n->n_emas)},
        {", gradients ", grads_of(n) + n->residuals},
        {", samples ", n->inputs},
        {", scratch of kernels ", n->scratch},
    };
    for (size_t i = 0; i < TTI_COUNT(parts) - (n->scratch == 0); i++) {
        tti_str_add(&str, parts[i].text);
        print_bytes(&str, parts[i].n_bytes);
    }
    tti_str_add(&str, ".  ");
    suggest(n, n_free, &str);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "%s", tti_str_text(&str));
    tti_str_free(&str);
    return st;
}
