/* weight.c - costs of operations as times on a kind of hardware.
 *
 * Only the ratios of the constants matter.  Those of a GPU come from GPT-2's steps on an H200
 * (docs/lab/2026-11-performance.md): large products reach 730 TFLOP/s on 16 bits, attention half of
 * that, the rest 3.3 TB/s, messages 335 GB/s; and kernels of shards as small as those of a pipeline
 * lose 10 us at their ends. */
#include "ops/weight.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

/* A core makes six operations in the time of a byte. */
const tti_weights tti_weights_host = {
    .op = 1, .tf32_op = 1, .op_16_bit = 1, .attention = 1, .byte = 6, .byte_between = 12};

const tti_weights tti_weights_gpu = {.op = 1 / 50e12,
                                     .tf32_op = 1 / 320e12,
                                     .op_16_bit = 1 / 730e12,
                                     .attention = 2,
                                     .byte = 1 / 3.3e12,
                                     .byte_between = 1 / 335e9,
                                     .kernel = 10e-6,
                                     .at_once = true,
                                     .fused = true};

static double n_bytes_of(const tti_node *node) {
    double n_bytes = (double)tti_value_n_bytes(node->out[0]);
    for (int i = 0; i < node->n_in; i++) n_bytes += (double)tti_value_n_bytes(node->in[i]);
    return n_bytes;
}

/* Products read the operands that they multiply first; other ops have few operations anyway. */
static double op_weight(const tti_weights *w, const tti_node *node, bool tf32) {
    tutti_dtype dtype = node->n_in ? node->in[0]->type.dtype : node->out[0]->type.dtype;
    bool is_16_bit = dtype == TUTTI_BF16 || dtype == TUTTI_F16;
    double each = is_16_bit ? w->op_16_bit : tf32 ? w->tf32_op : w->op;
    return strncmp(node->op->name, "attention", 9) == 0 ? each * w->attention : each;
}

/* Other nodes are free, or included in another one. */
static bool takes_time(const tti_node *node) {
    return (node->op->traits & (TTI_SOURCE | TTI_VIEW)) == 0;
}

typedef struct work {
    double ops, moved;
} work;

static work work_of(const tti_weights *w, const tti_node *node, bool tf32) {
    tti_cost cost = {0};
    if (node->op->cost)
        node->op->cost(node, &cost);
    else
        cost.flops = (double)tti_value_n_elems(node->out[0]);
    if (cost.bytes <= 0) cost.bytes = n_bytes_of(node);
    /* a collective counts sent and received bytes */
    double byte = node->op->traits & TTI_COLLECTIVE ? w->byte_between / 2 : w->byte;
    return (work){cost.flops * op_weight(w, node, tf32), cost.bytes * byte};
}

double tti_node_weight(const tti_weights *w, const tti_node *node, bool tf32) {
    if (!takes_time(node)) return 0;
    work of = work_of(w, node, tf32);
    return w->kernel + (w->at_once ? fmax(of.ops, of.moved) : of.ops + of.moved);
}

double tti_share_of_operations(const tti_weights *w, tti_node *const *nodes, int n, bool tf32) {
    double all = 0, by_ops = 0;
    for (int i = 0; i < n; i++) {
        if (!takes_time(nodes[i])) continue;
        work of = work_of(w, nodes[i], tf32);
        all += fmax(of.ops, of.moved);
        if (of.ops > of.moved) by_ops += of.ops;
    }
    return all > 0 ? by_ops / all : 0;
}
