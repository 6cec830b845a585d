/* compress_places_test.c - every slot has its places in the messages or pairs of its bucket, and no
 * other has them. */
#include "exec/worker/compress.h"

#include <stdlib.h>
#include <string.h>

#include "exec/workers.h"

/* Matrices of some size, vectors, and a matrix that would not become smaller. */
static tutti_graph *net_some(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 90, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 3, "fc2"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
}

/* n elements from first on are a vector's alone, in the message of which at is the beginning. */
static void mark(char *used, const size_t *at, size_t first, size_t n) {
    assert_true(first % 4 == 0 && first >= at[0] && first + n <= at[1]);
    for (size_t i = 0; i < n; i++) assert_true(!used[first + i]++);
}

static int bucket_of(const tti_plan *plan, size_t grads) {
    int b = 0;
    while (grads >= plan->buckets[b].first + plan->buckets[b].n_elems) b++;
    return b;
}

static void check_powersgd(const tti_exec_desc *desc, const tti_compress_places *p) {
    const tti_plan *plan = desc->plan;
    char *used = calloc(p->message[2 * plan->n_buckets] + 1, 1);
    assert_non_null(used);
    for (int b = 0; b < plan->n_buckets; b++) {
        size_t scratch = 0;
        for (int i = p->first_powersgd[b]; i < p->first_powersgd[b + 1]; i++) {
            const tti_powersgd_slot *t = &p->powersgd[i];
            size_t n = (size_t)t->rows * t->cols;
            assert_int_equal(bucket_of(plan, t->grads), b);
            assert_true(t->scratch >= scratch);
            scratch = t->scratch + tti_powersgd_scratch(t);
            mark(used, &p->message[2 * b], t->left, t->r ? (size_t)t->r * t->rows : n);
            mark(used, &p->message[2 * b + 1], t->right, (size_t)t->r * t->cols);
            assert_true(t->r == 0 || (size_t)t->r * (t->rows + t->cols) < n);
        }
        assert_true(scratch <= p->n_scratch);
        assert_true(p->message[2 * b + 2] - p->message[2 * b] <= p->n_longest);
    }
    free(used);
}

static void check_topk(const tti_exec_desc *desc, const tti_compress_places *p) {
    const tti_plan *plan = desc->plan;
    for (int b = 0; b < plan->n_buckets; b++) {
        size_t next = p->pairs[b];
        for (int i = p->first_topk[b]; i < p->first_topk[b + 1]; i++) {
            assert_int_equal(bucket_of(plan, p->topk[i].grads), b);
            assert_true(p->topk[i].pairs == next && p->topk[i].k >= 1);
            next += p->topk[i].k;
        }
        assert_true(p->pairs[b + 1] % 2 == 0 && p->pairs[b + 1] - next < 2);
        assert_true(p->pairs[b + 1] - p->pairs[b] <= p->n_most_pairs);
    }
}

static void check_all(tti_compression compression) {
    tti_plan *plan = net_plan(net_some, &net_fast, 1 << 11);
    tti_exec_desc desc = {
        .plan = plan, .fast = true, .compression = compression, .topk = 0.05, .low_rank = 2};
    tti_compress_places p;
    double pairs, summed;
    T_OK(tti_compress_places_init(&desc, &p));
    assert_true(plan->n_buckets > 1);
    check_powersgd(&desc, &p);
    check_topk(&desc, &p);
    int n_powersgd = p.first_powersgd[plan->n_buckets], n_topk = p.first_topk[plan->n_buckets];
    assert_int_equal(n_powersgd + n_topk, plan->n_slots);
    assert_true((compression == TTI_COMPRESS_TOPK) == (n_topk > 0));
    tti_compress_kinds(&desc, &pairs, &summed); /* the same, but for what is between them */
    double n_message = (double)p.message[2 * plan->n_buckets];
    assert_true(n_message >= summed / 4 && n_message <= summed / 4 + 6 * n_powersgd);
    double n_pairs = (double)p.pairs[plan->n_buckets];
    assert_true(n_pairs >= pairs / 8 && n_pairs <= pairs / 8 + plan->n_buckets);
    tti_compress_places_fini(&p);
    tti_plan_destroy(plan);
}

T_CASE(every_slot_has_its_own_places) {
    T_UNUSED;
    check_all(TTI_COMPRESS_POWERSGD);
    check_all(TTI_COMPRESS_TOPK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_slot_has_its_own_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
