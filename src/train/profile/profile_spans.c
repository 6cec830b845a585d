/* profile_spans.c - sends the spans of each worker, with their names, to rank 0.
 *
 * Many spans belong to the same node and kernel.  Their common fields are stored once, in a hash
 * table keyed by the addresses of node and name, which are the same for all spans of a worker. */
#include "train/profile/profile_spans.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ir/graph.h"

enum { MOST_TEXT = 1 << 30, MOST_SPANS = 1 << 24 };

/* ---- one worker ---- */

typedef struct key {
    tti_span_id id;
    tti_row row;
    int what; /* -1: the entry is free */
} key;

typedef struct maker {
    tti_worker_spans *out;
    tti_str text;
    key *keys; /* [n_keys], a power of two, at most half full */
    size_t n_keys;
} maker;

static size_t place_of(const maker *m, const tti_span *span) {
    const tti_span_id *id = &span->id;
    uintptr_t mix = (uintptr_t)id->node * 31 + (uintptr_t)id->name * 17 + (uintptr_t)span->row;
    size_t at = (size_t)(mix ^ mix >> 12) & (m->n_keys - 1);
    for (; m->keys[at].what >= 0; at = (at + 1) & (m->n_keys - 1)) {
        const key *k = &m->keys[at];
        bool same_id = k->id.node == id->node && k->id.name == id->name && k->id.kind == id->kind;
        if (same_id && k->row == span->row) break;
    }
    return at;
}

static int32_t put_text(maker *m, const char *text) {
    int32_t at = (int32_t)m->text.n_bytes;
    tti_str_add_bytes(&m->text, text, strlen(text) + 1);
    return at;
}

/* Stores the label of a node, such as "linear bf16[65536,768] bf16[2304,768]"; returns its
 * offset. */
static int32_t put_label(maker *m, const tti_span_id *id) {
    tti_str label = {0};
    if (id->node) {
        tti_str_add(&label, id->node->op->name);
        for (int i = 0; i < id->node->n_in && i < 3; i++) {
            tti_str_add(&label, " ");
            tti_type_print(&label, &id->node->in[i]->type);
        }
    } else {
        tti_str_printf(&label, "(%s)", id->name);
    }
    int32_t at = put_text(m, tti_str_text(&label));
    m->text.failed = m->text.failed || label.failed;
    tti_str_free(&label);
    return at;
}

static tti_cost cost_of(const tti_node *node) {
    tti_cost cost = {0};
    if (!node) return cost;
    if (node->op->cost) node->op->cost(node, &cost);
    for (int i = 0; cost.bytes == 0 && i < node->n_in; i++)
        cost.bytes += (double)tti_value_n_bytes(node->in[i]);
    for (int k = 0; !node->op->cost && k < node->op->n_out; k++)
        cost.bytes += (double)tti_value_n_bytes(node->out[k]);
    return cost;
}

static void put_what(maker *m, const tti_span_id *id, tti_row row) {
    tti_cost cost = cost_of(id->node);
    m->out->labels[m->out->head.n_labels++] =
        (tti_span_label){.name = put_text(m, id->node ? id->node->op->name : id->name),
                         .layer = id->node ? put_text(m, id->node->name) : TTI_SPANS_NOTHING,
                         .kernel = put_text(m, id->node ? id->name : ""),
                         .label = put_label(m, id),
                         .row = (int32_t)row,
                         .kind = (int32_t)id->kind,
                         .flops = cost.flops,
                         .bytes = cost.bytes};
}

static void put_span(maker *m, const tti_span *span) {
    key *k = &m->keys[place_of(m, span)];
    if (k->what < 0) {
        *k = (key){span->id, span->row, (int)m->out->head.n_labels};
        put_what(m, &span->id, span->row);
    }
    m->out->spans[m->out->head.n_spans++] = (tti_profile_span){.what = k->what,
                                                               .shard = span->shard,
                                                               .step = span->step,
                                                               .start_us = span->start_us,
                                                               .us = span->us};
}

tutti_status tti_spans_make(const tti_timeline *timeline, tti_worker_spans *out) {
    maker m = {.out = out, .n_keys = 64};
    size_t n = (size_t)timeline->n;
    if (n > MOST_SPANS)
        return tti_fail(TUTTI_E_INVALID, "profile: %zu spans are too many; give fewer --steps", n);
    while (m.n_keys < 2 * n) m.n_keys *= 2;
    m.keys = calloc(m.n_keys, sizeof *m.keys);
    out->labels = calloc(n + 1, sizeof *out->labels);
    out->spans = calloc(n + 1, sizeof *out->spans);
    bool ok = m.keys && out->labels && out->spans;
    for (size_t i = 0; ok && i < m.n_keys; i++) m.keys[i].what = -1;
    out->head.n_labels = out->head.n_spans = 0;
    out->head.zero_ns = timeline->zero_ns;
    for (size_t i = 0; ok && i < n; i++) put_span(&m, &timeline->spans[i]);
    free(m.keys);
    out->text = m.text.text;
    out->head.n_text = (int64_t)m.text.n_bytes;
    ok = ok && !m.text.failed && m.text.n_bytes < MOST_TEXT;
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
}

void tti_spans_free(tti_worker_spans *t) {
    free(t->labels);
    free(t->spans);
    free(t->text);
    *t = (tti_worker_spans){0};
}

int tti_spans_n_steps(const tti_worker_spans *t) {
    int32_t last = -1;
    for (int64_t i = 0; i < t->head.n_spans; i++) last = TTI_MAX(last, t->spans[i].step);
    return last + 1;
}

/* ---- to rank 0 ---- */

static tutti_status send(tutti_comm *comm, const tti_worker_spans *t) {
    const tti_spans_head *h = &t->head;
    TTI_TRY(tutti_comm_send(comm, h, sizeof *h, TUTTI_U8, 0));
    TTI_TRY(tutti_comm_send(comm, t->labels, (size_t)h->n_labels * sizeof *t->labels, TUTTI_U8, 0));
    TTI_TRY(tutti_comm_send(comm, t->spans, (size_t)h->n_spans * sizeof *t->spans, TUTTI_U8, 0));
    return tutti_comm_send(comm, t->text, (size_t)h->n_text, TUTTI_U8, 0);
}

static bool is_place(const tti_worker_spans *t, int32_t at) {
    return at >= 0 && at < t->head.n_text;
}

/* True if received spans refer only to received names. */
static bool is_sound(const tti_worker_spans *t) {
    const tti_spans_head *h = &t->head;
    bool sound = h->n_text == 0 || t->text[h->n_text - 1] == '\0';
    for (int64_t i = 0; sound && i < h->n_labels; i++) {
        const tti_span_label *w = &t->labels[i];
        sound = is_place(t, w->name) && is_place(t, w->kernel) && is_place(t, w->label) &&
                (w->layer == TTI_SPANS_NOTHING || is_place(t, w->layer)) && w->row >= 0 &&
                w->row < TTI_N_ROWS && w->kind >= 0 && w->kind < TTI_N_SPAN_KINDS;
    }
    for (int64_t i = 0; sound && i < h->n_spans; i++)
        sound = t->spans[i].what >= 0 && t->spans[i].what < h->n_labels && t->spans[i].step >= -1 &&
                t->spans[i].step < MOST_SPANS;
    return sound;
}

static tutti_status receive(tutti_comm *comm, int rank, tti_worker_spans *t) {
    tti_spans_head *h = &t->head;
    TTI_TRY(tutti_comm_recv(comm, h, sizeof *h, TUTTI_U8, rank));
    bool sound = h->n_labels >= 0 && h->n_labels <= h->n_spans && h->n_spans <= MOST_SPANS &&
                 h->n_text >= 0 && h->n_text < MOST_TEXT;
    if (!sound) return tti_fail(TUTTI_E_MISMATCH, "profile: rank %d reports invalid spans", rank);
    t->labels = calloc((size_t)h->n_labels + 1, sizeof *t->labels);
    t->spans = calloc((size_t)h->n_spans + 1, sizeof *t->spans);
    t->text = calloc((size_t)h->n_text + 1, 1);
    if (!t->labels || !t->spans || !t->text)
        return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    TTI_TRY(
        tutti_comm_recv(comm, t->labels, (size_t)h->n_labels * sizeof *t->labels, TUTTI_U8, rank));
    TTI_TRY(tutti_comm_recv(comm, t->spans, (size_t)h->n_spans * sizeof *t->spans, TUTTI_U8, rank));
    TTI_TRY(tutti_comm_recv(comm, t->text, (size_t)h->n_text, TUTTI_U8, rank));
    return is_sound(t)
               ? TUTTI_OK
               : tti_fail(TUTTI_E_MISMATCH, "profile: the report of rank %d is damaged", rank);
}

tutti_status tti_spans_gather(tutti_comm *comm, tti_worker_spans *all) {
    int rank = tutti_comm_rank(comm);
    if (rank > 0) return send(comm, &all[rank]);
    for (int r = 1; r < tutti_comm_n_ranks(comm); r++) TTI_TRY(receive(comm, r, &all[r]));
    return TUTTI_OK;
}
