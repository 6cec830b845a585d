/* compress_test.c - gradients that travel as less: nothing is lost, everybody has the same sum, and
 * what is not to be compressed is not. */
#include "exec/worker/compress.h"

#include "exec/worker/worker.h"
#include "exec/workers.h"

enum { REPEATS = 6, FLUSHES = 60 };

/* Matrices of some size, with vectors beside them. */
static tutti_graph *net_two_layers(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 90, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 40, "fc2"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
}

static workers new_workers(int n_ranks, tti_compression compression) {
    workers c = {.net = net_two_layers,
                 .target = &net_fast,
                 .n_ranks = n_ranks,
                 .n_compute_threads = 2,
                 .n_steps = 6,
                 .bucket_bytes = 1 << 13};
    c.exec.fast = true;
    c.exec.compression = compression;
    c.exec.topk = 0.05;
    c.exec.low_rank = 2;
    return c;
}

static float unit_of(uint64_t rank, uint64_t slot, uint64_t what, size_t i) {
    return 2 * tti_philox_unit(tti_philox_draw(rank << 16 | slot, what, i).v[0]) - 1;
}

/* A rank's gradient: for PowerSGD of rank one, so that two workers' sum is of rank two. */
static void fill(const workers *c, int rank, float *g) {
    memset(g, 0, c->plan->n_flat * sizeof *g);
    for (int s = 0; s < c->plan->n_slots; s++) {
        const tti_slot *slot = &c->plan->slots[s];
        size_t rows = (size_t)slot->param->out[0]->type.shape.dim[0], cols = slot->n_elems / rows;
        for (size_t i = 0; i < slot->n_elems; i++)
            g[slot->first + i] =
                c->exec.compression == TTI_COMPRESS_TOPK
                    ? unit_of((uint64_t)rank, (uint64_t)s, 0, i)
                    : unit_of((uint64_t)rank, (uint64_t)s, 1, i / cols) *
                          unit_of((uint64_t)rank, (uint64_t)s, 2, cols ? i % cols : 0);
    }
}

/* One call for each bucket, as in a step. */
static tutti_status reduce(tti_exec *x, float *g) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    tti_tally_of(x)->begun.n_rows = 16;
    tti_tally_of(x)->loss_scale = 1;
    for (int b = 0; b < plan->n_buckets; b++)
        TTI_TRY(tti_compress_reduce(x, g + plan->buckets[b].first, plan->buckets[b].first,
                                    plan->buckets[b].n_elems));
    return TUTTI_OK;
}

/* The same gradient some times, then nothing, until what was kept has come too. */
static const char *send_and_flush(workers *c, tti_exec *exec, int rank) {
    size_t n = c->plan->n_flat;
    float *g = calloc(n, sizeof *g), *own = calloc(n, sizeof *own);
    double *total = calloc(n, sizeof *total);
    fill(c, rank, own);
    for (int t = 0; t < REPEATS + FLUSHES; t++) {
        memset(g, 0, n * sizeof *g);
        if (t < REPEATS) memcpy(g, own, n * sizeof *g);
        COMM_OK(reduce(exec, g));
        for (size_t i = 0; i < n; i++) total[i] += (double)g[i];
    }
    for (int r = 0; r < c->n_ranks; r++) {
        fill(c, r, own);
        for (size_t i = 0; i < n; i++) total[i] -= REPEATS * (double)own[i];
    }
    for (size_t i = 0; i < n; i++)
        if (fabs(total[i]) > 1e-3) return comm_text("element %zu: %g is lost", i, total[i]);
    free(g);
    free(own);
    free(total);
    return NULL;
}

T_CASE(nothing_is_lost) {
    T_UNUSED;
    for (int w = 2; w <= 4; w++) {
        workers c = new_workers(w, TTI_COMPRESS_TOPK);
        c.fn = send_and_flush;
        workers_run(&c);
        workers_fini(&c);
    }
    workers c = new_workers(2, TTI_COMPRESS_POWERSGD);
    c.fn = send_and_flush;
    workers_run(&c);
    workers_fini(&c);
}

/* Directions that came to nothing are drawn anew. */
static const char *send_nothing_first(workers *c, tti_exec *exec, int rank) {
    float *g = calloc(c->plan->n_flat, sizeof *g);
    for (int t = 0; t < 3; t++) COMM_OK(reduce(exec, g));
    for (size_t i = 0; i < c->plan->n_flat; i++) COMM_TRUE(g[i] == 0);
    fill(c, rank, g);
    COMM_OK(reduce(exec, g));
    int fc1 = tti_plan_find_slot(c->plan, "fc1.weight"), n = 0;
    COMM_TRUE(fc1 >= 0);
    const tti_slot *slot = &c->plan->slots[fc1];
    for (size_t i = 0; i < slot->n_elems; i++) n += fabsf(g[slot->first + i]) > 1e-6f;
    COMM_TRUE(n > (int)slot->n_elems / 2);
    free(g);
    return NULL;
}

T_CASE(a_gradient_of_zeros_does_no_harm) {
    T_UNUSED;
    workers c = new_workers(2, TTI_COMPRESS_POWERSGD);
    c.fn = send_nothing_first;
    workers_run(&c);
    workers_fini(&c);
}

static void expect_same_hashes(const workers *c) {
    for (int s = 0; s < c->n_steps; s++)
        for (int r = 1; r < c->n_ranks; r++)
            assert_true(c->result[r][s].params_hash == c->result[0][s].params_hash);
}

static double sent_by(const workers *c, int step) { return c->result[0][step].sent_bytes; }

T_CASE(everybody_has_the_same_and_less_is_sent) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++) {
        workers plain = new_workers(w, TTI_COMPRESS_NONE);
        workers_run(&plain);
        T_NEAR(sent_by(&plain, 0), 2.0 * (w - 1) / w * (double)plain.plan->n_flat * 4, 1e-9);
        for (int k = TTI_COMPRESS_TOPK; k <= TTI_COMPRESS_POWERSGD; k++) {
            workers c = new_workers(w, (tti_compression)k);
            c.exec.compress_after = 3;
            workers_run(&c);
            expect_same_hashes(&c);
            for (int s = 0; s < 3; s++) {
                assert_true(c.result[0][s].params_hash == plain.result[0][s].params_hash);
                assert_true(sent_by(&c, s) == sent_by(&plain, s));
            }
            assert_true(c.result[0][3].params_hash != plain.result[0][3].params_hash);
            assert_true(sent_by(&c, 3) > 0 && sent_by(&c, 3) < 0.5 * sent_by(&plain, 3));
            assert_true(workers_distance(&c, &plain) < 0.5);
            workers_fini(&c);
        }
        workers_fini(&plain);
    }
}

T_CASE(alone_nothing_travels) {
    T_UNUSED;
    workers plain = new_workers(1, TTI_COMPRESS_NONE), c = new_workers(1, TTI_COMPRESS_TOPK);
    workers_run(&plain);
    workers_run(&c);
    workers_expect_same(&c, &plain);
    assert_true(sent_by(&c, 0) == 0);
    workers_fini(&c);
    workers_fini(&plain);
}

/* Vectors, running statistics and what is frozen: biases are sums of whole gradients. */
static const char *send_once(workers *c, tti_exec *exec, int rank) {
    size_t n = c->plan->n_flat;
    float *g = calloc(n, sizeof *g), *own = calloc(n, sizeof *own);
    fill(c, rank, g);
    COMM_OK(reduce(exec, g));
    int n_vectors = 0;
    for (int s = 0; s < c->plan->n_slots; s++) {
        const tti_slot *slot = &c->plan->slots[s];
        if (slot->param->out[0]->type.shape.n_dims > 1) continue;
        n_vectors++;
        for (size_t i = slot->first; i < slot->first + slot->n_elems; i++) {
            float sum = 0;
            for (int r = 0; r < c->n_ranks; r++) {
                fill(c, r, own);
                sum += own[i];
            }
            COMM_TRUE(fabsf(g[i] - sum) < 1e-5f);
        }
    }
    COMM_TRUE(n_vectors == 3);
    free(g);
    free(own);
    return NULL;
}

T_CASE(vectors_travel_whole) {
    T_UNUSED;
    for (int k = TTI_COMPRESS_TOPK; k <= TTI_COMPRESS_POWERSGD; k++) {
        workers c = new_workers(3, (tti_compression)k);
        c.fn = send_once;
        workers_run(&c);
        workers_fini(&c);
    }
}

T_CASE(memory_is_reported_before) {
    T_UNUSED;
    workers c = new_workers(2, TTI_COMPRESS_TOPK);
    c.plan = net_plan(c.net, c.target, c.bucket_bytes);
    tti_exec_desc desc = c.exec;
    desc.plan = c.plan;
    size_t flat = c.plan->n_flat * sizeof(float);
    assert_true(tti_compress_bytes(&desc, 1) == 0);
    assert_true(tti_compress_bytes(&desc, 2) > flat);
    assert_true(tti_compress_bytes(&desc, 4) > tti_compress_bytes(&desc, 2));
    desc.fast = false;
    assert_true(tti_compress_bytes(&desc, 2) == 0);
    tti_plan_destroy(c.plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost),
                                       cmocka_unit_test(a_gradient_of_zeros_does_no_harm),
                                       cmocka_unit_test(everybody_has_the_same_and_less_is_sent),
                                       cmocka_unit_test(alone_nothing_travels),
                                       cmocka_unit_test(vectors_travel_whole),
                                       cmocka_unit_test(memory_is_reported_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
