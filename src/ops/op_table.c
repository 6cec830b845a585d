/* op_table.c - all op families in one list, and lookup by name.
 *
 * Nothing is registered at run time: a family is an array ended by a record without a name, and
 * the list below is the only place that knows all of them.  Lookups go through an index sorted by
 * name, built once for the process and never changed after.
 * To add a family: write ops/NAME.c with `const tti_op tti_ops_NAME[]` and add X(NAME) here. */
#include "ops/op_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAMILIES(X)       \
    X(source)             \
    X(elementwise)        \
    X(activation)         \
    X(binary)             \
    X(matmul)             \
    X(matmul_joint)       \
    X(grouped)            \
    X(conv)               \
    X(pool)               \
    X(conv_pool)          \
    X(batch_norm)         \
    X(batch_norm_grad)    \
    X(bn_pool)            \
    X(norm)               \
    X(norm_joint)         \
    X(resample)           \
    X(shape)              \
    X(embed)              \
    X(along)              \
    X(rotary)             \
    X(attention)          \
    X(sdpa)               \
    X(recurrent)          \
    X(softmax)            \
    X(loss)               \
    X(head)               \
    X(pair_loss)          \
    X(gather_rows)        \
    X(counts)             \
    X(reduce)             \
    X(random)             \
    X(optim)              \
    X(tensor_collectives) \
    X(vocabulary)         \
    X(fused)

#define DECLARE_FAMILY(name) extern const tti_op tti_ops_##name[];
FAMILIES(DECLARE_FAMILY)
#undef DECLARE_FAMILY

static const tti_op *const families[] = {
#define FAMILY_ROW(name) tti_ops_##name,
    FAMILIES(FAMILY_ROW)
#undef FAMILY_ROW
};

enum { MAX_OPS = 256 };

static const tti_op *by_name[MAX_OPS];
static int n_ops;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static int compare_ops(const void *a, const void *b) {
    return strcmp((*(const tti_op *const *)a)->name, (*(const tti_op *const *)b)->name);
}

static int compare_name(const void *name, const void *op) {
    return strcmp(name, (*(const tti_op *const *)op)->name);
}

static void build_index(void) {
    for (const tti_op *op; (op = tti_op_at(n_ops)) != NULL; n_ops++) {
        TTI_ASSERT(n_ops < MAX_OPS);
        by_name[n_ops] = op;
    }
    qsort(by_name, (size_t)n_ops, sizeof by_name[0], compare_ops);
}

const tti_op *tti_op_find(const char *name) {
    pthread_once(&index_once, build_index);
    const tti_op *const *found =
        bsearch(name, by_name, (size_t)n_ops, sizeof by_name[0], compare_name);
    return found ? *found : NULL;
}

const tti_op *tti_op_at(int i) {
    for (size_t f = 0; f < TTI_COUNT(families); f++)
        for (const tti_op *op = families[f]; op->name; op++)
            if (i-- == 0) return op;
    return NULL;
}

tutti_graph *tutti_graph_create(bool training) { return tti_graph_new(training, tti_op_find); }

tutti_status tutti_graph_parse(const char *text, const char *source, tutti_graph **out) {
    return tti_graph_read(text, source, tti_op_find, out);
}

static void check_callbacks(const tti_op *op) {
    bool source = op->traits & TTI_SOURCE, fused = op->traits & TTI_FUSED;
    TTI_ASSERT(op->infer && op->shard && op->cost);
    TTI_ASSERT(source || fused ? !op->reference : op->reference != NULL);
    TTI_ASSERT(fused || (op->samples && op->samples[0].in));
    TTI_ASSERT(!source || op->n_in_max == 0);
    TTI_ASSERT(!(op->traits & TTI_SYNC) == !op->join);
    TTI_ASSERT(!(op->traits & TTI_COLLECTIVE) == !op->collective);
    TTI_ASSERT(!(op->traits & TTI_UPDATE) || op->n_out <= op->n_in_min);
}

/* TTI_TAKES_EPILOGUE and TTI_TAKES_MASK promise an attribute "act". */
static void check_attrs(const tti_op *op) {
    bool act = false;
    int n = tti_n_attrs(op);
    TTI_ASSERT(n <= TTI_MAX_ATTRS);
    for (int i = 0; i < n; i++) {
        TTI_ASSERT(op->attrs[i].doc && op->attrs[i].doc[0]);
        act |= strcmp(op->attrs[i].name, "act") == 0;
    }
    TTI_ASSERT(act == ((op->traits & (TTI_TAKES_EPILOGUE | TTI_TAKES_MASK)) != 0));
    TTI_ASSERT(!(op->traits & TTI_TAKES_RESIDUAL) || (op->traits & TTI_TAKES_EPILOGUE));
}

void tti_op_table_check(void) {
    const tti_op *op;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        TTI_ASSERT(op->doc && op->doc[0]);
        TTI_ASSERT(op->n_in_min >= 0 && op->n_in_min <= op->n_in_max);
        TTI_ASSERT(op->n_in_max <= TTI_MAX_IN && op->n_out >= 1 && op->n_out <= TTI_MAX_OUT);
        TTI_ASSERT(tti_op_find(op->name) == op); /* fails on a name used twice */
        check_callbacks(op);
        check_attrs(op);
    }
}
