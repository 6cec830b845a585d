/* whole_layers.c - finds layers that tensor parallelism leaves whole, by comparing the plan of the
 * whole model with that of a tensor shard. */
#include "train/setup/whole_layers.h"

#include <string.h>

#include "passes/tensor/tensor.h"

/* Fails with the layer, the values that work, and, if enough of the model can be divided, the key
 * that accepts whole layers. */
static tutti_status say_uneven(const tutti_graph *g, int n, const tti_node *first, int n_layers,
                               tti_str *out) {
    tti_division d;
    TTI_TRY(tti_tensor_divide(g, n, NULL, &d));
    bool suffices = tti_tensor_suffices(&d);
    tti_tensor_division_fini(&d);
    tti_str_printf(out, "%d workers cannot divide ", n);
    tti_tensor_layer_text(first, out);
    if (n_layers > 1)
        tti_str_printf(out, ", nor %d other layer%s", n_layers - 1, n_layers > 2 ? "s" : "");
    tti_str_add(out, "; numbers that divide all layers: ");
    TTI_TRY(tti_tensor_numbers(g, true, out));
    if (suffices)
        tti_str_add(out, "; parallel.uneven=whole leaves such layers whole on every worker");
    return TUTTI_OK;
}

tutti_status tti_uneven_check(const tti_blueprint *b, const tutti_graph *g) {
    const tti_node *first;
    bool may_be_whole = strcmp(b->config.parallel.uneven, "whole") == 0;
    int n = b->mesh.tensor;
    int n_layers = n > 1 && !may_be_whole ? tti_tensor_uneven(g, n, &first) : 0;
    if (n_layers == 0) return TUTTI_OK;
    tti_str why = {0};
    tutti_status st = say_uneven(g, n, first, n_layers, &why);
    if (st == TUTTI_OK) st = tti_fail(TUTTI_E_CONFIG, "parallel.tensor: %s", tti_str_text(&why));
    tti_str_free(&why);
    return st;
}

bool tti_whole_heads_text(const tti_blueprint *b, tti_str *out) {
    const tutti_graph *g = b->plan->shard.graph;
    int n = b->mesh.tensor, n_listed = 0;
    int64_t heads = n > 1 ? tti_tensor_whole_heads(g, n) : 0;
    if (heads == 0) return false;
    tti_str_printf(out,
                   "parallel.tensor=%d: attention of %lld heads stays whole on every worker; "
                   "numbers that divide the heads: ",
                   n, (long long)heads);
    for (int other = 2; other <= TTI_TENSOR_MOST_TRIED; other++)
        if (tti_tensor_whole_heads(g, other) == 0)
            tti_str_printf(out, "%s%d", n_listed++ ? ", " : "", other);
    if (n_listed == 0)
        tti_str_printf(out,
                       "none up to %d (heads that share keys are divided if queries, keys and "
                       "values are layers of their own)",
                       TTI_TENSOR_MOST_TRIED);
    return true;
}

void tti_whole_params_text(const tti_blueprint *b, tti_str *out) {
    const tti_plan *all = b->plan;
    const tti_slot *largest = NULL;
    double n_whole = 0, n_all = 0;
    if (b->mesh.tensor < 2 || b->mesh.stage > 1) return;
    const tti_plan *divided = tti_blueprint_plan(b, 0);
    for (int i = 0; i < all->n_slots; i++) {
        const tti_slot *slot = &all->slots[i];
        int there = tti_plan_find_slot(divided, slot->param->name);
        if (slot->buffer) continue;
        n_all += (double)slot->n_elems;
        if (there < 0 || divided->slots[there].n_elems != slot->n_elems) continue;
        n_whole += (double)slot->n_elems;
        if (!largest || slot->n_elems > largest->n_elems) largest = slot;
    }
    tti_str_printf(out, "%.1f %% of the parameters are whole on every worker",
                   n_all > 0 ? 100 * n_whole / n_all : 0);
    if (largest)
        tti_str_printf(out, ", the largest %s (%zu)", largest->param->name, largest->n_elems);
}
