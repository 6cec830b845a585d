/* profile_spans_test.c - spans without their plan, here and on the way to rank 0. */
#include "train/profile/profile_spans.h"

#include "t.h"
#include "tutti/comm.h"

static const char sum[] = "sum of gradients", wait[] = "waiting for sums";

/* n spans of two names in turn, one microsecond each; of as many steps as half of them. */
static tti_timeline timeline_of(int n, tti_span *spans) {
    for (int i = 0; i < n; i++)
        spans[i] = (tti_span){
            .id = i % 2 ? tti_span_of(TTI_SPAN_WAIT, wait) : tti_span_of(TTI_SPAN_GRADS, sum),
            .shard = i,
            .row = i % 2 ? TTI_ROW_COMPUTE : TTI_ROW_COMM,
            .step = i / 2,
            .start_us = i,
            .us = 1};
    return (tti_timeline){.spans = spans, .n = n, .zero_ns = 7};
}

T_CASE(names_stand_once) {
    T_UNUSED;
    tti_span spans[200];
    tti_timeline timeline = timeline_of(200, spans);
    tti_worker_spans reported = {.head = {.bubble = 0.5}};
    T_OK(tti_spans_make(&timeline, &reported));
    T_EQ(reported.head.n_labels, 2);
    T_EQ(reported.head.n_spans, 200);
    T_EQ(reported.head.zero_ns, 7);
    T_EQ(tti_spans_n_steps(&reported), 100);
    T_NEAR(reported.head.bubble, 0.5, 0);
    for (int i = 0; i < 200; i++) {
        const tti_span_label *w = tti_span_label_of(&reported, &reported.spans[i]);
        assert_string_equal(tti_spans_text(&reported, w->name), i % 2 ? wait : sum);
        assert_string_equal(tti_spans_text(&reported, w->kernel), "");
        assert_string_equal(tti_spans_text(&reported, w->label),
                            i % 2 ? "(waiting for sums)" : "(sum of gradients)");
        T_EQ(w->layer, TTI_SPANS_NOTHING);
        T_EQ(w->kind, i % 2 ? TTI_SPAN_WAIT : TTI_SPAN_GRADS);
        T_EQ(reported.spans[i].shard, i);
    }
    tti_spans_free(&reported);
    timeline.n = 0;
    T_OK(tti_spans_make(&timeline, &reported));
    T_EQ(tti_spans_n_steps(&reported), 0);
    tti_spans_free(&reported);
}

/* One name in every kind: each kind has a label of its own. */
T_CASE(kinds) {
    T_UNUSED;
    tti_span spans[TTI_N_SPAN_KINDS];
    for (int k = 0; k < TTI_N_SPAN_KINDS; k++)
        spans[k] =
            (tti_span){.id = tti_span_of((tti_span_kind)k, sum), .shard = -1, .row = TTI_ROW_COMM};
    const tti_timeline timeline = {.spans = spans, .n = TTI_N_SPAN_KINDS};
    tti_worker_spans reported = {0};
    T_OK(tti_spans_make(&timeline, &reported));
    T_EQ(reported.head.n_labels, TTI_N_SPAN_KINDS);
    for (int k = 0; k < TTI_N_SPAN_KINDS; k++)
        T_EQ(tti_span_label_of(&reported, &reported.spans[k])->kind, k);
    tti_spans_free(&reported);
}

/* The kind is what the node is at, and its name that of the kernel. */
T_CASE(nodes) {
    T_UNUSED;
    const tti_node node = {.op = &(tti_op){.name = "op"}, .name = "layer"};
    tti_span span = {.id = tti_span_node(TTI_SPAN_LAYERS, &node, "waiting"), .row = TTI_ROW_TP};
    tti_worker_spans reported = {0};
    T_OK(tti_spans_make(&(tti_timeline){.spans = &span, .n = 1}, &reported));
    const tti_span_label *what = &reported.labels[0];
    T_EQ(what->kind, TTI_SPAN_LAYERS);
    assert_string_equal(tti_spans_text(&reported, what->name), "op");
    assert_string_equal(tti_spans_text(&reported, what->layer), "layer");
    assert_string_equal(tti_spans_text(&reported, what->kernel), "waiting");
    tti_spans_free(&reported);
}

enum { N_RANKS = 3 };

typedef enum damage { NONE, LABEL, STEP } damage;

typedef struct workers {
    tutti_comm_group *group;
    damage damages;
} workers;

static const char *check(const tti_worker_spans *all) {
    for (int r = 0; r < N_RANKS; r++) {
        const tti_worker_spans *t = &all[r];
        if (t->head.n_spans != 2 * r || t->head.n_labels != (r ? 2 : 0)) return "spans are missing";
        if (t->head.trained_us != r) return "the figures of the whole are missing";
        for (int64_t i = 0; i < t->head.n_spans; i++) {
            const tti_span_label *w = tti_span_label_of(t, &t->spans[i]);
            if (strcmp(tti_spans_text(t, w->name), i % 2 ? wait : sum) != 0) return "another name";
            if (t->spans[i].start_us != (double)i) return "another time";
        }
    }
    return NULL;
}

/* Rank r has 2 r spans. */
static const char *gather(int rank, int n_ranks, void *arg) {
    const workers *c = arg;
    tti_span spans[2 * N_RANKS];
    tti_worker_spans all[N_RANKS] = {0};
    tti_timeline timeline = timeline_of(2 * rank, spans);
    tutti_comm *comm;
    const char *wrong = NULL;
    const tutti_comm_desc desc = {.group = c->group, .rank = rank, .n_ranks = n_ranks};
    if (tutti_comm_create(&desc, &comm) != TUTTI_OK) return "no comm";
    if (tti_spans_make(&timeline, &all[rank]) != TUTTI_OK) return "not made";
    all[rank].head.trained_us = rank;
    if (c->damages == LABEL && rank == 2) all[rank].labels[1].label = 1 << 20;
    if (c->damages == STEP && rank == 2) all[rank].spans[1].step = INT32_MAX;
    tutti_status st = tti_spans_gather(comm, all);
    if (rank == 0 && c->damages)
        wrong = st == TUTTI_E_MISMATCH ? NULL : "damage was not seen";
    else if (st != TUTTI_OK)
        wrong = "not gathered";
    else if (rank == 0)
        wrong = check(all);
    for (int r = 0; r < N_RANKS; r++) tti_spans_free(&all[r]);
    tutti_comm_destroy(comm);
    return wrong;
}

static void run(damage damages) {
    workers c = {.damages = damages};
    T_OK(tutti_comm_group_create(N_RANKS, &c.group));
    t_ranks(N_RANKS, gather, &c);
    tutti_comm_group_destroy(c.group);
}

T_CASE(all_come_to_rank_0) {
    T_UNUSED;
    run(NONE);
}

T_CASE(damage_is_seen) {
    T_UNUSED;
    run(LABEL);
    run(STEP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_once), cmocka_unit_test(kinds), cmocka_unit_test(nodes),
        cmocka_unit_test(all_come_to_rank_0), cmocka_unit_test(damage_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
