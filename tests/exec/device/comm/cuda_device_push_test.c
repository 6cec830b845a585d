/* cuda_device_push_test.c - products of two GPUs whose rows go to both, or come while they have
 * begun, against the kernel that makes all rows here: the whole matrix, bit for bit, as exact mode
 * chooses it.  The shapes are those of GPT-2 1.5B on two tensor ranks.  Exit code 77 with fewer
 * than two.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpus.h"
#include "exec/peers_workers.h"
#include "ops/op_samples.h"

enum { N_BLOCKS = 8, N_ROWS = 512, M = 2 * N_BLOCKS * N_ROWS, TP = 4096 };

/* x [N_BLOCKS, 2 N_ROWS, K] by w, which lies [N, K], of a matmul [K, N]; pulled: else pushed. */
typedef struct product {
    const char *op;
    int64_t n, k;
    bool has_bias, pulled;
} product;

static const product products[] = {
    {"linear", 1600, 800, false, false},  /* out of attention                 */
    {"linear", 1600, 3200, false, false}, /* the second of a block of two     */
    {"matmul", 1600, 3200, false, false}, /* gradients of the inputs of: fc   */
    {"matmul", 1600, 2400, false, false}, /* ..                          qkv  */
    {"linear", 2400, 1600, true, true},   /* qkv                              */
    {"linear_gelu", 3200, 1600, true, true},
    {"linear", 1600, 1600, false, true}, /* of half the tiles: no bias       */
};

/* A rank, and the product that it makes twice. */
typedef struct side {
    const tti_device_ops *ops;
    tutti_comm *comm;
    int rank;
    void *group;
    float *staging;
    char *inbox; /* terms of the own rows, from the other rank: [M / 2][n] */
    size_t inbox_bytes;
    tutti_graph *g;
    const tti_node *node;
    const tti_kernel *kernel;
    void *state, *scratch;
    size_t n_scratch;
    void *in[TTI_MAX_IN], *want[TTI_MAX_OUT], *got[TTI_MAX_OUT];
} side;

static const char *describe(side *s, const product *p) {
    bool across = strcmp(p->op, "matmul") == 0;
    const tutti_type types[] = {
        {.dtype = TUTTI_BF16, .shape = {3, {N_BLOCKS, 2 * (int64_t)N_ROWS, p->k}}},
        {.dtype = TUTTI_BF16, .shape = {2, {across ? p->k : p->n, across ? p->n : p->k}}},
        {.dtype = TUTTI_BF16, .shape = {1, {p->n}}}};
    const tti_attr_arg tanh[] = {TTI_INT("approximate", 1), {0}};
    bool gelu = strcmp(p->op, "linear_gelu") == 0;
    s->g = tutti_graph_create(true);
    s->node = t_add_node(s->g, tti_op_find(p->op), types, p->has_bias ? 3 : 2, gelu ? tanh : NULL);
    COMM_TRUE(s->node);
    s->kernel = cuda->select(s->node, false);
    COMM_TRUE(s->kernel);
    s->state = NULL;
    if (s->kernel->prepare) COMM_OK(s->kernel->prepare(s->node, &s->state));
    s->n_scratch = s->kernel->scratch_bytes ? s->kernel->scratch_bytes(s->node, s->state) + 64 : 64;
    s->scratch = cuda->alloc(s->n_scratch);
    COMM_TRUE(s->scratch);
    return NULL;
}

/* Between 1/128 and 2, of either sign. */
static const char *fill(const side *s, void *to, size_t n_elems, uint32_t seed) {
    uint16_t *host = malloc(n_elems * sizeof *host);
    COMM_TRUE(host);
    for (size_t i = 0; i < n_elems; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t r = seed >> 12;
        host[i] = (uint16_t)((r & 1) << 15 | (120 + (r >> 1) % 8) << 7 | (r >> 8 & 127));
    }
    COMM_OK(s->ops->queues.copy(TTI_QUEUE_COMPUTE, to, host, n_elems * sizeof *host));
    COMM_OK(s->ops->queues.sync());
    free(host);
    return NULL;
}

static const char *take(side *s) {
    for (int i = 0; i < s->node->n_in; i++) {
        s->in[i] = cuda->alloc(tti_value_n_bytes(s->node->in[i]));
        COMM_TRUE(s->in[i]);
        size_t n = (size_t)tti_value_n_elems(s->node->in[i]);
        const char *failure = fill(s, s->in[i], n, (uint32_t)i + 5);
        if (failure) return failure;
    }
    for (int k = 0; k < s->node->op->n_out; k++) {
        s->want[k] = cuda->alloc(tti_value_n_bytes(s->node->out[k]));
        s->got[k] = cuda->alloc(tti_value_n_bytes(s->node->out[k])); /* zeros */
        COMM_TRUE(s->want[k] && s->got[k]);
    }
    return NULL;
}

static const char *make(side *s, const product *p) {
    tti_kargs args = {.node = s->node, .in = s->in, .out = s->want, .scratch = s->scratch};
    COMM_OK(s->kernel->run(s->state, &args));
    args.out = s->got;
    const tti_device_push push = {.kernel = s->kernel,
                                  .state = s->state,
                                  .args = &args,
                                  .n_blocks = N_BLOCKS,
                                  .n_rows = N_ROWS,
                                  .width = (size_t)p->n};
    COMM_OK((p->pulled ? s->ops->fusions.pull : s->ops->fusions.push)(s->group, &push));
    COMM_OK(s->ops->queues.sync());
    COMM_OK(tutti_comm_barrier(s->comm));
    return NULL;
}

static bool is_zero(const char *row, size_t n_bytes) {
    return row[0] == 0 && memcmp(row, row + 1, n_bytes - 1) == 0;
}

/* What both make of the same inputs is the same, so terms from there are as the own rows. */
static const char *compare(const side *s, const product *p, int k, const char *want,
                           const char *got, const char *inbox) {
    size_t n_bytes = (size_t)p->n * sizeof(uint16_t);
    for (size_t r = 0, own = 0; r < M; r++) {
        const char *row = got + r * n_bytes;
        bool is_own = r / N_ROWS % 2 == (size_t)s->rank, is_here = p->pulled || is_own;
        if (is_here ? memcmp(row, want + r * n_bytes, n_bytes) != 0 : !is_zero(row, n_bytes))
            return comm_text("rank %d, %s %lld x %lld: output %d, row %zu differs", s->rank, p->op,
                             (long long)p->n, (long long)p->k, k, r);
        if (p->pulled || !is_own) continue;
        if (memcmp(inbox + own++ * n_bytes, want + r * n_bytes, n_bytes) != 0)
            return comm_text("rank %d, %s %lld x %lld: row %zu of the other's terms differs",
                             s->rank, p->op, (long long)p->n, (long long)p->k, own - 1);
    }
    return NULL;
}

static const char *check(const side *s, const product *p) {
    size_t n_bytes = (size_t)M * (size_t)p->n * sizeof(uint16_t);
    char *host = malloc(3 * n_bytes);
    const char *failure = NULL;
    COMM_TRUE(host);
    for (int k = 0; k < s->node->op->n_out && !failure; k++) {
        COMM_OK(s->ops->queues.copy(TTI_QUEUE_COMPUTE, host, s->want[k], n_bytes));
        COMM_OK(s->ops->queues.copy(TTI_QUEUE_COMPUTE, host + n_bytes, s->got[k], n_bytes));
        COMM_OK(s->ops->queues.copy(TTI_QUEUE_COMPUTE, host + 2 * n_bytes, s->inbox, n_bytes / 2));
        COMM_OK(s->ops->queues.sync());
        failure = compare(s, p, k, host, host + n_bytes, host + 2 * n_bytes);
    }
    free(host);
    return failure;
}

static void leave(side *s) {
    for (int i = 0; i < s->node->n_in; i++)
        cuda->release(s->in[i], tti_value_n_bytes(s->node->in[i]));
    for (int k = 0; k < s->node->op->n_out; k++) {
        cuda->release(s->want[k], tti_value_n_bytes(s->node->out[k]));
        cuda->release(s->got[k], tti_value_n_bytes(s->node->out[k]));
    }
    cuda->release(s->scratch, s->n_scratch);
    if (s->kernel->release) s->kernel->release(s->state);
    tutti_graph_destroy(s->g);
}

/* Those that this kind of device takes. */
static const char *one_product(side *s, const product *p, int *n_made) {
    const char *failure = describe(s, p);
    if (failure) return failure;
    bool can =
        (p->pulled ? s->ops->fusions.can_pull : s->ops->fusions.can_push)(s->node, N_ROWS, 2);
    if (!failure) failure = take(s);
    if (!failure && can) failure = make(s, p);
    if (!failure && can) failure = check(s, p);
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(s->comm));
    leave(s);
    *n_made += can;
    return NULL;
}

static const char *connect_group(side *s) {
    tti_device_term terms[2];
    COMM_OK(workers_terms(2, terms));
    s->inbox_bytes = (size_t)M / 2 * 3200 * sizeof(uint16_t);
    s->inbox = cuda->alloc(s->inbox_bytes);
    s->staging = cuda->alloc(2 * TP);
    COMM_TRUE(s->inbox && s->staging);
    const tti_device_partitions source = {.data = (float *)(void *)s->inbox};
    COMM_OK(s->ops->collectives.connect(&(tti_device_peers){.rank = s->rank,
                                                            .n_ranks = 2,
                                                            .timeout_ms = 20000,
                                                            .terms = terms,
                                                            .n_terms = 2,
                                                            .partials = &s->staging,
                                                            .n_partials = 1,
                                                            .n_flat = 2 * TP / sizeof(float),
                                                            .n_most = 2 * TP / sizeof(float),
                                                            .n_words = 2,
                                                            .tp_half_bytes = TP,
                                                            .sources = &source,
                                                            .n_sources = 1,
                                                            .algorithm = TTI_DEVICE_PEERS,
                                                            .user = s->comm,
                                                            .all_gather = workers_gather,
                                                            .check = workers_look},
                                        &s->group));
    return NULL;
}

static const char *rank_main(tutti_comm *comm, void *arg) {
    side s = {.ops = cuda->device, .comm = comm, .rank = tutti_comm_rank(comm)};
    int *n_made = arg, n = 0;
    COMM_OK(s.ops->open(&(tti_device_desc){.index = s.rank, .exact = true}));
    const char *failure = connect_group(&s);
    for (size_t i = 0; i < TTI_COUNT(products) && !failure; i++)
        failure = one_product(&s, &products[i], &n);
    if (failure) return failure;
    if (s.rank == 0) *n_made = n;
    COMM_OK(tutti_comm_barrier(comm));
    s.ops->collectives.disconnect(s.group);
    cuda->release(s.inbox, s.inbox_bytes);
    cuda->release(s.staging, 2 * TP);
    s.ops->close();
    return NULL;
}

T_CASE(rows_of_two_have_the_bits_of_all_rows_here) {
    T_UNUSED;
    int n_made = 0;
    comm_run(2, rank_main, &n_made);
    printf("%d of %zu products are made so here\n", n_made, TTI_COUNT(products));
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_two_have_the_bits_of_all_rows_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
