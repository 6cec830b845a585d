/* row_call.c - puts the arguments of a call in the order of the row's signature and runs the row,
 * on the host if possible. Also lets rows call other rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "import/graph/building.h"
#include "import/graph/order.h"

/* ---- the signature of a row ---- */

typedef struct word {
    const char *name, *fallback;
    int n_name, n_fallback; /* n_fallback < 0: the argument is required */
    bool ignored, rest;
} word;

static bool next_word(const char **p, word *out) {
    while (**p == ' ') (*p)++;
    if (!**p) return false;
    *out = (word){.n_fallback = -1, .rest = **p == '*'};
    if (out->rest) (*p)++;
    out->name = *p;
    out->n_name = (int)strcspn(*p, " =!");
    *p += out->n_name;
    out->ignored = **p == '!';
    if (out->ignored) (*p)++;
    if (**p != '=') return true;
    out->fallback = ++*p;
    out->n_fallback = (int)strcspn(*p, " ");
    *p += out->n_fallback;
    return true;
}

/* Parses a default: "None", "True", "1", "0.5", "[1,1]", "none" (text). */
static tti_arg parse_fallback(tti_building *b, const char *text, int n) {
    char copy[64];
    double f;
    int64_t i;
    snprintf(copy, sizeof copy, "%.*s", n, text);
    if (n == 0 || strcmp(copy, "None") == 0) return (tti_arg){0};
    if (strcmp(copy, "True") == 0 || strcmp(copy, "False") == 0)
        return (tti_arg){.kind = TTI_ARG_BOOL, .i = copy[0] == 'T'};
    if (tti_parse_int(copy, &i) == TTI_NUMBER_OK) return (tti_arg){.kind = TTI_ARG_INT, .i = i};
    if (tti_parse_double(copy, &f) == TTI_NUMBER_OK)
        return (tti_arg){.kind = TTI_ARG_FLOAT, .f = f};
    if (copy[0] != '[')
        return (tti_arg){.kind = TTI_ARG_TEXT, .text = tti_arena_strdup(&b->arena, copy)};
    tti_arg *items = tti_arena_alloc(&b->arena, TUTTI_MAX_DIMS * sizeof *items);
    tti_arg list = {.kind = TTI_ARG_LIST, .items = items};
    for (char *p = copy + 1; items && *p && *p != ']' && list.n < TUTTI_MAX_DIMS;) {
        items[list.n++] = (tti_arg){.kind = TTI_ARG_INT, .i = strtoll(p, &p, 10)};
        if (*p == ',') p++;
    }
    return list;
}

const tti_arg *tti_arg_called(const tti_operator *row, const tti_call *c, const char *name,
                              int n_name) {
    const char *p = row->signature;
    word w;
    for (int k = 0; next_word(&p, &w);) {
        if (w.ignored) continue;
        if (w.n_name == n_name && memcmp(w.name, name, (size_t)n_name) == 0) return c->arg[k];
        k++;
    }
    return NULL;
}

/* Returns all positional arguments as one list. */
static tti_arg *rest_of(tti_building *b, const tti_op_call *call, int *n_found) {
    tti_arg *list = tti_arena_alloc(&b->arena, sizeof *list);
    tti_arg *items = tti_arena_alloc(&b->arena, ((size_t)call->n_args + 1) * sizeof *items);
    if (!list || !items) {
        tti_no_memory(b);
        return NULL;
    }
    *list = (tti_arg){.kind = TTI_ARG_LIST, .items = items};
    for (int i = 0; i < call->n_args; i++)
        if (!call->args[i].name[0]) items[list->n++] = call->args[i].arg;
    *n_found += list->n;
    return list;
}

static const tti_arg *find_arg(const tti_op_call *call, const word *w, int position) {
    for (int i = 0; i < call->n_args; i++) {
        const char *name = call->args[i].name;
        bool same = (int)strlen(name) == w->n_name && memcmp(name, w->name, (size_t)w->n_name) == 0;
        same |= position == 0 && strcmp(name, "self") == 0; /* what op calls input */
        if (same || (!name[0] && i == position)) return &call->args[i].arg;
    }
    return NULL;
}

void tti_fill_args(tti_building *b, const tti_operator *row, const tti_op_call *call,
                   tti_call *out) {
    int n_found = 0;
    const char *p = row->signature;
    word w;
    bool by_name = false; /* arguments after *name are only given by name */
    for (int k = 0; next_word(&p, &w); k++) {
        const tti_arg *given =
            w.rest ? rest_of(b, call, &n_found) : find_arg(call, &w, by_name ? -1 : k);
        by_name |= w.rest;
        n_found += given != NULL && !w.rest;
        if (w.ignored) continue;
        TTI_ASSERT(out->n_args < (int)TTI_COUNT(out->arg));
        if (!given && w.n_fallback < 0)
            tti_refuse(b, "argument '%.*s' is missing", w.n_name, w.name);
        if (!given) {
            tti_arg *fallback = tti_arena_alloc(&b->arena, sizeof *fallback);
            if (!fallback) {
                tti_no_memory(b);
                return;
            }
            if (w.n_fallback >= 0) *fallback = parse_fallback(b, w.fallback, w.n_fallback);
            given = fallback;
        }
        out->arg[out->n_args++] = given;
    }
    if (n_found < call->n_args) tti_refuse(b, "it has an argument that is not supported");
}

/* ---- running a row ---- */

static bool arg_on_host(const tti_building *b, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) return x->kind != TTI_OPERAND_GRAPH;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++)
        if (!arg_on_host(b, &arg->items[i])) return false;
    return true;
}

static bool all_on_host(const tti_building *b, const tti_call *c) {
    for (int k = 0; k < c->n_args; k++)
        if (!arg_on_host(b, c->arg[k])) return false;
    return true;
}

static bool any_of_shape(const tti_building *b, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) return x->of_shape;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++)
        if (any_of_shape(b, &arg->items[i])) return true;
    return false;
}

/* Marks a number that was computed from the size of the batch and may be that size. */
static void pass_on_shape(const tti_building *b, const tti_call *c) {
    bool any = false;
    for (int k = 0; k < c->n_args && !any; k++) any = any_of_shape(b, c->arg[k]);
    for (int i = 0; i < c->n_outs && any; i++)
        if (c->out[i] && c->out[i]->kind == TTI_OPERAND_HOST) c->out[i]->of_shape = true;
}

static void apply_plain_row(tti_building *b, const tti_operator *row, const tti_call *c) {
    tti_apply apply = row->fold && all_on_host(b, c) ? row->fold : row->build;
    if (!apply)
        tti_refuse(b, "it depends on the model's inputs, which is not supported for this operator");
    if (tti_good(b)) apply(b, c);
}

static bool is_complex(const tti_building *b, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) return x->is_complex;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++)
        if (is_complex(b, &arg->items[i])) return true;
    return false;
}

/* Returns the row of the same operator for complex numbers (aten_complex.c) if an argument is
 * complex. */
static const tti_operator *row_of_numbers(tti_building *b, const tti_operator *row,
                                          const tti_call *c) {
    char target[128];
    bool any = strncmp(row->target, "complex.", 8) == 0, in_place;
    if (any) return row;
    for (int k = 0; k < c->n_args && !any; k++) any = is_complex(b, c->arg[k]);
    if (!any) return row;
    const char *name = strchr(row->target, '.');
    snprintf(target, sizeof target, "complex%s", name ? name : "");
    const tti_operator *found = b->find(target, &in_place);
    if (!found) tti_refuse(b, "complex numbers are not supported");
    TTI_ASSERT(!found || strcmp(found->signature, row->signature) == 0);
    return found;
}

bool tti_apply_row(tti_building *b, const tti_operator *row, const tti_call *c) {
    const tti_operator *outer = b->row;
    row = row_of_numbers(b, row, c);
    if (!row) return false;
    b->row = row;
    if (tti_any_order(b, c))
        tti_apply_ordered_row(b, row, c);
    else
        apply_plain_row(b, row, c);
    b->row = outer;
    pass_on_shape(b, c);
    tti_check_graph(b);
    return tti_good(b);
}

/* ---- calls of other rows ---- */

tutti_graph *tti_graph_of(const tti_building *b) { return b->graph; }
const tti_operator *tti_row_of(const tti_building *b) { return b->row; }
const char *tti_as_of(const tti_building *b) { return b->row->as; }
const tti_operator *tti_row_for(const tti_building *b, const char *target, bool *in_place) {
    return b->find(target, in_place);
}
const tti_program_file *tti_program_of(const tti_building *b) { return b->program; }
tti_changes *tti_changes_of(tti_building *b) { return &b->changes; }
void tti_name_tensor(tti_building *b, int i) { b->params[i] = b->program->inputs[i].name; }
void tti_clear_call(tti_building *b) { b->call = NULL; }
int64_t tti_batch_rows(const tti_building *b) { return b->batch; }
bool tti_has_fixed_batch(const tti_building *b) { return b->fixed_batch; }

tti_arg tti_operand_arg(const tti_operand *x) {
    return (tti_arg){.kind = x ? TTI_ARG_OPERAND : TTI_ARG_NONE, .operand = x};
}
tti_arg tti_int_arg(int64_t i) { return (tti_arg){.kind = TTI_ARG_INT, .i = i}; }
tti_arg tti_bool_arg(bool i) { return (tti_arg){.kind = TTI_ARG_BOOL, .i = i}; }
tti_arg tti_float_arg(double f) { return (tti_arg){.kind = TTI_ARG_FLOAT, .f = f}; }
tti_arg tti_text_arg(const char *text) { return (tti_arg){.kind = TTI_ARG_TEXT, .text = text}; }

tti_arg tti_ints_arg(tti_building *b, const int64_t *list, int n) {
    tti_arg *items = tti_arena_alloc(&b->arena, ((size_t)n + 1) * sizeof *items);
    if (!items) tti_no_memory(b);
    for (int i = 0; items && i < n; i++) items[i] = tti_int_arg(list[i]);
    return (tti_arg){.kind = TTI_ARG_LIST, .items = items, .n = items ? n : 0};
}

void tti_call_row(tti_building *b, const char *target, const tti_arg *args, int n_args,
                  tti_operand *const *outs, int n_outs) {
    bool in_place;
    const tti_operator *row = b->find(target, &in_place);
    tti_call c = {.n_outs = n_outs};
    TTI_ASSERT(row && !in_place && n_outs <= (int)TTI_COUNT(c.out));
    tti_named_arg *named = tti_arena_alloc(&b->arena, ((size_t)n_args + 1) * sizeof *named);
    if (!named) tti_no_memory(b);
    if (!tti_good(b)) return;
    for (int i = 0; i < n_args; i++) named[i] = (tti_named_arg){"", args[i]};
    tti_op_call call = {.target = target, .args = named, .n_args = n_args};
    tti_fill_args(b, row, &call, &c);
    for (int i = 0; i < n_outs; i++) c.out[i] = outs[i];
    if (tti_good(b)) tti_apply_row(b, row, &c);
}

void tti_build_as(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    for (int k = 0; k < c->n_args; k++) args[k] = *c->arg[k];
    tti_call_row(b, b->row->as, args, c->n_args, c->out, c->n_outs);
}
