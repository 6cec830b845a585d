/* reuse.c - computes equal calls on constants once.
 *
 * Exporters repeat the masks and tables of a model for each layer. Calls are equal if they have the
 * same row, literals and host tensors; host tensors are compared by memory, shape and strides. This
 * is only valid while nothing is written to host tensors, so a program that may write to one does
 * not reuse results. */
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "import/graph/building.h"

enum { MOST_WORDS = 512, FIRST_SLOTS = 256 };

/* The key of a call or of a constant, as a sequence of words. */
typedef struct key {
    uint64_t word[MOST_WORDS];
    int n;
    bool is_known; /* false: it is too long, or an argument is in the graph */
} key;

typedef struct entry {
    uint64_t hash;
    const uint64_t *word; /* [n_words] */
    int n_words;
    const tti_operand *outs; /* results of a call */
    tutti_value *value;      /* graph value of a constant */
    int64_t answer;          /* answer to a question about a constant */
} entry;

struct tti_reuse {
    entry *slots; /* [n_slots], a power of two; word NULL: empty */
    size_t n_slots, n_used;
};

/* ---- keys ---- */

static void add(key *k, uint64_t word) {
    if (k->n == MOST_WORDS)
        k->is_known = false;
    else
        k->word[k->n++] = word;
}

static void add_text(key *k, const char *text) {
    size_t n = strlen(text);
    add(k, n);
    for (size_t i = 0; i < n && k->is_known; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, text + i, TTI_MIN(n - i, sizeof word));
        add(k, word);
    }
}

static void add_pointer(key *k, const void *p) { add(k, (uint64_t)(uintptr_t)p); }

static void add_host(key *k, const tti_host *x) {
    add_pointer(k, x->data);
    add(k, (uint64_t)x->elem << 8 | (uint64_t)x->shape.n_dims << 1 | x->of_batch);
    add(k, (uint64_t)x->offset);
    add(k, (uint64_t)x->batch_dim);
    for (int d = 0; d < x->shape.n_dims; d++) {
        add(k, (uint64_t)x->shape.dim[d]);
        add(k, (uint64_t)x->stride[d]);
    }
}

static void add_operand(key *k, const tti_operand *x) {
    add(k, (uint64_t)x->kind << 3 | (uint64_t)x->of_shape << 1 | x->is_batch);
    if (x->role != TTI_ORDER_NONE || x->order || x->is_complex) k->is_known = false;
    if (x->kind == TTI_OPERAND_HOST) {
        add_host(k, &x->host);
    } else if (x->kind == TTI_OPERAND_NUMBER) {
        add(k, tti_f64_to_bits(x->number));
        add(k, (uint64_t)x->elem);
        add_pointer(k, x->live);
    } else {
        k->is_known = false;
    }
}

static void add_arg(const tti_building *b, key *k, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) {
        add_operand(k, x);
        return;
    }
    add(k, (uint64_t)arg->kind << 32 | (uint64_t)(uint32_t)arg->n);
    switch (arg->kind) {
        case TTI_ARG_NONE:
            break;
        case TTI_ARG_INT:
        case TTI_ARG_BOOL:
        case TTI_ARG_DTYPE:
            add(k, (uint64_t)arg->i);
            break;
        case TTI_ARG_FLOAT:
            add(k, tti_f64_to_bits(arg->f));
            break;
        case TTI_ARG_TEXT:
            add_text(k, arg->text);
            break;
        case TTI_ARG_LIST:
            for (int i = 0; i < arg->n && k->is_known; i++) add_arg(b, k, &arg->items[i]);
            break;
        default:
            k->is_known = false;
    }
}

static void key_of_call(tti_building *b, const tti_operator *row, const tti_call *c, key *k) {
    k->n = 0;
    k->is_known = tti_reuse_of(b) && tti_good(b);
    add_pointer(k, row);
    add(k, (uint64_t)c->n_outs);
    for (int i = 0; i < c->n_outs; i++) add(k, c->out[i] != NULL);
    for (int i = 0; i < c->n_args && k->is_known; i++) add_arg(b, k, c->arg[i]);
}

static void key_of_constant(tti_building *b, const tti_host *x, int form, key *k) {
    k->n = 0;
    k->is_known = tti_reuse_of(b) && tti_good(b);
    add(k, (uint64_t)form);
    add_host(k, x);
}

/* ---- the table ---- */

static uint64_t hash_of(const key *k) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < k->n; i++) {
        hash = (hash ^ k->word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns the entry of a key, or the empty slot where it belongs. */
static entry *find_slot(const tti_reuse *r, const key *k, uint64_t hash) {
    for (size_t i = hash & (r->n_slots - 1);; i = (i + 1) & (r->n_slots - 1)) {
        entry *e = &r->slots[i];
        if (!e->word) return e;
        if (e->hash == hash && e->n_words == k->n &&
            memcmp(e->word, k->word, (size_t)k->n * sizeof *k->word) == 0)
            return e;
    }
}

static const entry *find(tti_building *b, const key *k) {
    if (!k->is_known || !*tti_reuse_of(b)) return NULL;
    const entry *e = find_slot(*tti_reuse_of(b), k, hash_of(k));
    return e->word ? e : NULL;
}

/* Makes room for one more entry; NULL: out of memory, which is recorded as the failure. */
static tti_reuse *grow(tti_building *b) {
    tti_reuse *r = *tti_reuse_of(b);
    if (!r) r = *tti_reuse_of(b) = tti_build_alloc(b, sizeof *r);
    if (!r) return NULL;
    if (2 * (r->n_used + 1) <= r->n_slots) return r;
    size_t n = r->n_slots ? 2 * r->n_slots : FIRST_SLOTS;
    entry *old = r->slots, *slots = tti_build_alloc(b, n * sizeof *slots);
    if (!slots) return NULL;
    for (size_t i = 0; i < r->n_slots; i++) {
        if (!old[i].word) continue;
        size_t at = old[i].hash & (n - 1);
        while (slots[at].word) at = (at + 1) & (n - 1);
        slots[at] = old[i];
    }
    r->slots = slots;
    r->n_slots = n;
    return r;
}

static void keep(tti_building *b, const key *k, const entry *kept) {
    tti_reuse *r = grow(b);
    uint64_t hash = hash_of(k);
    if (!r) return;
    entry *e = find_slot(r, k, hash);
    uint64_t *word = tti_build_alloc(b, (size_t)k->n * sizeof *word);
    if (!word || e->word) return;
    memcpy(word, k->word, (size_t)k->n * sizeof *word);
    *e = *kept;
    e->hash = hash;
    e->word = word;
    e->n_words = k->n;
    r->n_used++;
}

/* ---- calls ---- */

bool tti_reuse_call(tti_building *b, const tti_operator *row, const tti_call *c) {
    key k;
    key_of_call(b, row, c, &k);
    const entry *e = find(b, &k);
    if (!e) return false;
    for (int i = 0; i < c->n_outs; i++)
        if (c->out[i]) tti_set(c->out[i], &e->outs[i]);
    return true;
}

void tti_store_call(tti_building *b, const tti_operator *row, const tti_call *c) {
    key k;
    for (int i = 0; i < c->n_outs; i++)
        if (c->out[i] && (c->out[i]->kind != TTI_OPERAND_HOST || c->out[i]->order)) return;
    key_of_call(b, row, c, &k);
    if (!k.is_known || c->n_outs < 1) return;
    tti_operand *outs = tti_build_alloc(b, (size_t)c->n_outs * sizeof *outs);
    for (int i = 0; outs && i < c->n_outs; i++) {
        if (!c->out[i]) continue;
        outs[i] = *c->out[i];
        outs[i].part.base = 0; /* value numbers are valid only in one block */
    }
    if (outs) keep(b, &k, &(entry){.outs = outs});
}

/* ---- constants ---- */

tutti_value *tti_reuse_constant(tti_building *b, const tti_host *x, int form) {
    key k;
    key_of_constant(b, x, form, &k);
    const entry *e = find(b, &k);
    return e ? e->value : NULL;
}

void tti_store_constant(tti_building *b, const tti_host *x, int form, tutti_value *value) {
    key k;
    key_of_constant(b, x, form, &k);
    if (k.is_known && value) keep(b, &k, &(entry){.value = value});
}

bool tti_reuse_answer(tti_building *b, const tti_host *x, int question, int64_t *answer) {
    key k;
    key_of_constant(b, x, question, &k);
    const entry *e = find(b, &k);
    if (e) *answer = e->answer;
    return e != NULL;
}

void tti_store_answer(tti_building *b, const tti_host *x, int question, int64_t answer) {
    key k;
    key_of_constant(b, x, question, &k);
    if (k.is_known) keep(b, &k, &(entry){.answer = answer});
}
