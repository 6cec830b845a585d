/* pretrained.c - loads a folder of weights into the flat parameters of a worker.
 *
 * The shapes of all tensors are checked before any is read.  Matrices of Hugging Face's GPT-2 are
 * [in,out], Tutti's are [out,in].  The shape of a square matrix does not show its layout, but all
 * matrices of a file have the same layout, so the matrices that are not square determine it. */
#include "train/setup/pretrained.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/job/param_groups.h"
#include "train/setup/part_store.h"
#include "train/setup/weight_names.h"

enum { MAX_LISTED = 10 };

typedef struct loading {
    const tti_blueprint *b;
    const tti_weights *weights;
    tti_weight_parts *parts; /* [n_slots]: tensors of weights; n 0: the slot keeps its value */
    bool *used;              /* [tti_weights_n] */
    bool transposed;         /* the file's matrices are [in,out] */
    tti_str problems;
    int n_problems;
    const char *head;       /* a parameter that differs only in the number of classes; NULL: none */
    struct source *sources; /* targets of the tensors that are read in parts */
    tti_part_store store;
} loading;

static bool is_excepted(const tti_blueprint *b, const char *name) {
    const tti_text_list *patterns = &b->config.model.init_except;
    for (int i = 0; i < patterns->n; i++)
        if (tti_pattern_matches(patterns->v[i], name)) return true;
    return false;
}

static tutti_shape turned(const tutti_shape *shape) {
    tutti_shape out = *shape;
    out.dim[0] = shape->dim[1];
    out.dim[1] = shape->dim[0];
    return out;
}

static bool may_turn(const loading *l, const tti_node *param) {
    return param->out[0]->type.shape.n_dims == 2 && tti_weight_is_transposed(l->b, param->name);
}

/* ---- comparing ---- */

/* Finds out if a matrix that is not square matches only when transposed. */
static void find_layout(loading *l) {
    for (int i = 0; i < l->b->plan->n_slots; i++) {
        const tti_node *param = l->b->plan->slots[i].param;
        const tutti_shape *want = &param->out[0]->type.shape;
        if (l->parts[i].n == 0 || !may_turn(l, param) || want->dim[0] == want->dim[1]) continue;
        tutti_shape other = turned(want);
        if (tti_shape_equal(&tti_weights_at(l->weights, l->parts[i].at[0])->type.shape, &other))
            l->transposed = true;
    }
}

static void add_problem(loading *l, const char *name, const char *text) {
    if (l->n_problems++ < MAX_LISTED)
        tti_str_printf(&l->problems, "%s%s %s", l->n_problems > 1 ? "; " : "", name, text);
}

/* Returns the type of the joined parts, or the type of a part that does not match the first one. */
static tutti_type joined_type(const loading *l, const tti_weight_parts *parts) {
    tutti_type joined = tti_weights_at(l->weights, parts->at[0])->type;
    for (int k = 1; k < parts->n; k++) {
        tutti_type part = tti_weights_at(l->weights, parts->at[k])->type;
        int64_t n = part.shape.n_dims > 0 ? part.shape.dim[0] : 0, sum;
        tutti_shape as_joined = part.shape;
        as_joined.dim[0] = joined.shape.dim[0];
        if (n == 0 || !tti_shape_equal(&as_joined, &joined.shape) ||
            __builtin_add_overflow(joined.shape.dim[0], n, &sum))
            return part;
        joined.shape.dim[0] = sum;
    }
    return joined;
}

/* True if the shapes are equal except for dimensions of 1, so that the elements have the same
 * order. */
static bool same_order(const tutti_shape *a, const tutti_shape *b) {
    int i = 0, j = 0;
    for (;;) {
        while (i < a->n_dims && a->dim[i] == 1) i++;
        while (j < b->n_dims && b->dim[j] == 1) j++;
        if (i == a->n_dims || j == b->n_dims) return i == a->n_dims && j == b->n_dims;
        if (a->dim[i++] != b->dim[j++]) return false;
    }
}

/* True if the tensors differ only in the number of classes. */
static bool counts_classes(const tti_blueprint *b, const tutti_shape *found,
                           const tutti_shape *want) {
    const tutti_model *model = tti_job_model(&b->config);
    bool has_classes = model && (model->input != TUTTI_MODEL_TOKENS || b->model_params.classify);
    tutti_shape as_found = *want;
    as_found.dim[0] = found->dim[0];
    return has_classes && want->dim[0] == b->model_params.n_classes &&
           tti_shape_equal(found, &as_found);
}

static void check_slot(loading *l, int i) {
    const tti_node *param = l->b->plan->slots[i].param;
    tutti_shape want = param->out[0]->type.shape;
    if (l->parts[i].n == 0) {
        if (!is_excepted(l->b, param->name)) add_problem(l, param->name, "is missing");
        return;
    }
    if (l->transposed && may_turn(l, param)) want = turned(&want);
    tutti_type found = joined_type(l, &l->parts[i]);
    if (same_order(&found.shape, &want)) return;
    if (counts_classes(l->b, &found.shape, &want)) l->head = param->name;
    tti_str text = {0};
    tti_str_add(&text, "has ");
    tti_type_print(&text, &found);
    tti_str_add(&text, ", the model ");
    tti_type_print(&text, &(tutti_type){TUTTI_F32, want});
    add_problem(l, param->name, tti_str_text(&text));
    tti_str_free(&text);
}

static tutti_status compare(loading *l, const char *path) {
    for (int i = 0; i < l->b->plan->n_slots; i++) {
        const char *name = l->b->plan->slots[i].param->name;
        if (!is_excepted(l->b, name)) l->parts[i] = tti_weight_find_parts(l->b, l->weights, name);
        for (int k = 0; k < l->parts[i].n; k++) l->used[l->parts[i].at[k]] = true;
    }
    find_layout(l);
    for (int i = 0; i < l->b->plan->n_slots; i++) check_slot(l, i);
    for (size_t i = 0; i < tti_weights_n(l->weights); i++) {
        const char *name = tti_weights_at(l->weights, i)->name;
        if (!l->used[i] && !tti_weight_is_surplus(l->b, name) && !is_excepted(l->b, name))
            add_problem(l, name, "is not in the model");
    }
    if (l->n_problems == 0) return TUTTI_OK;
    const char *dot = l->head ? strrchr(l->head, '.') : NULL;
    tti_str advice = {0};
    if (dot)
        tti_str_printf(&advice,
                       "; to train another number of classes, give "
                       "model.init_except=\"[%.*s.*]\"",
                       (int)(dot - l->head), l->head);
    tutti_status st =
        tti_fail(TUTTI_E_CHECKPOINT, "%s: does not match the model (%d tensors): %s%s%s", path,
                 l->n_problems, tti_str_text(&l->problems),
                 l->n_problems > MAX_LISTED ? "; ..." : "", tti_str_text(&advice));
    tti_str_free(&advice);
    return st;
}

/* ---- reading ---- */

/* A tensor of the files that fills a slot, or the slot's elements from `first` on. */
typedef struct source {
    const tti_slot *slot;
    size_t first;
} source;

static size_t elems_of(const tti_weights *weights, size_t at) {
    return (size_t)tutti_shape_n_elems(&tti_weights_at(weights, at)->type.shape);
}

static bool turns(const loading *l, const tti_slot *slot) {
    return l->transposed && may_turn(l, slot->param);
}

static tutti_status take_part(void *user, int tensor, size_t first, size_t n_elems,
                              const float *data) {
    loading *l = user;
    const source *from = &l->sources[tensor];
    return tti_part_store_add(&l->store, TTI_STATE_PARAMS, from->slot, from->first + first, n_elems,
                              data);
}

/* Reads the tensors that have the layout of the model. */
static tutti_status read_plain(loading *l) {
    size_t n = 0, n_most = 0;
    tti_readers readers;
    for (int i = 0; i < l->b->plan->n_slots; i++) n_most += (size_t)l->parts[i].n;
    size_t *at = calloc(n_most + 1, sizeof *at);
    l->sources = calloc(n_most + 1, sizeof *l->sources);
    if (!at || !l->sources) {
        free(at);
        return tti_fail(TUTTI_E_NOMEM, "out of memory");
    }
    for (int i = 0; i < l->b->plan->n_slots; i++) {
        const tti_slot *slot = &l->b->plan->slots[i];
        size_t first = 0;
        for (int k = 0; k < l->parts[i].n && !turns(l, slot); k++, n++) {
            at[n] = l->parts[i].at[k];
            l->sources[n] = (source){slot, first};
            first += elems_of(l->weights, at[n]);
        }
    }
    tti_exec_readers(l->store.exec, &readers);
    tutti_status st = tti_weights_read_parts(l->weights, at, (int)n, &readers, take_part, l);
    free(at);
    return st;
}

static tutti_status read_turned(loading *l, int i) {
    const tti_slot *slot = &l->b->plan->slots[i];
    const int64_t *dim = slot->param->out[0]->type.shape.dim;
    float *raw = malloc(2 * slot->n_elems * sizeof *raw + 1);
    if (!raw) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    float *to = raw, *turned_to = raw + slot->n_elems;
    tutti_status st = TUTTI_OK;
    for (int k = 0; st == TUTTI_OK && k < l->parts[i].n; k++) {
        st = tti_weights_read(l->weights, l->parts[i].at[k], to);
        to += elems_of(l->weights, l->parts[i].at[k]);
    }
    if (st == TUTTI_OK) {
        tti_weight_transpose(raw, dim[1], dim[0], turned_to);
        st = tti_part_store_add(&l->store, TTI_STATE_PARAMS, slot, 0, slot->n_elems, turned_to);
    }
    free(raw);
    return st;
}

static tutti_status load(loading *l, tti_exec *exec, const char *path) {
    l->parts = calloc((size_t)l->b->plan->n_slots + 1, sizeof *l->parts);
    l->used = calloc(tti_weights_n(l->weights) + 1, sizeof *l->used);
    if (!l->parts || !l->used) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    TTI_TRY(compare(l, path));
    tutti_status st = tti_part_store_begin(exec, true, &l->store);
    if (st == TUTTI_OK) st = read_plain(l);
    for (int i = 0; st == TUTTI_OK && i < l->b->plan->n_slots; i++)
        if (l->parts[i].n > 0 && turns(l, &l->b->plan->slots[i])) st = read_turned(l, i);
    if (st == TUTTI_OK) st = tti_part_store_end(&l->store);
    tti_part_store_fini(&l->store);
    return st;
}

tutti_status tti_pretrained_load(const tti_blueprint *b, tti_exec *exec, const char *path) {
    tti_weights *weights;
    tutti_status st = tti_weights_open(path, &weights);
    loading l = {.b = b, .weights = weights};
    if (st == TUTTI_OK) st = load(&l, exec, path);
    if (st != TUTTI_OK) tti_fail_context("model.init: ");
    tti_weights_close(weights);
    tti_str_free(&l.problems);
    free(l.sources);
    free(l.parts);
    free(l.used);
    return st;
}

/* ---- model.file ---- */

typedef struct importing {
    const tti_plan *plan;
    tti_part_store store;
} importing;

/* Stores a part of a tensor; tensor numbers are the slots of the plan. */
static tutti_status take_imported(void *user, int tensor, size_t first, size_t n_elems,
                                  const float *data) {
    importing *m = user;
    return tti_part_store_add(&m->store, TTI_STATE_PARAMS, &m->plan->slots[tensor], first, n_elems,
                              data);
}

static tutti_status read_imported(const tti_import *import, importing *m) {
    int n = m->plan->n_slots;
    tti_readers readers;
    tti_import_wanted *wanted = malloc(((size_t)n + 1) * sizeof *wanted);
    if (!wanted) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    for (int i = 0; i < n; i++)
        wanted[i] =
            (tti_import_wanted){m->plan->slots[i].param->name, (int64_t)m->plan->slots[i].n_elems};
    tti_exec_readers(m->store.exec, &readers);
    tutti_status st = tti_import_load(import, wanted, n, &readers, take_imported, m);
    free(wanted);
    return st == TUTTI_OK ? tti_part_store_end(&m->store) : st;
}

tutti_status tti_imported_load(const tti_blueprint *b, tti_exec *exec) {
    importing m = {.plan = b->plan};
    tutti_status st = tti_part_store_begin(exec, true, &m.store);
    if (st == TUTTI_OK) st = read_imported(b->import, &m);
    tti_part_store_fini(&m.store);
    if (st != TUTTI_OK) tti_fail_context("model.file: ");
    return st;
}

tutti_status tti_first_weights_load(const tti_blueprint *b, tti_exec *exec) {
    const char *path = b->config.model.init;
    if (!*path && !b->import) return TUTTI_OK;
    if (b->import) TTI_TRY(tti_imported_load(b, exec));
    if (*path) TTI_TRY(tti_pretrained_load(b, exec, path));
    return tti_exec_check_params(exec, 0);
}
