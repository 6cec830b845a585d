/* control.c - evaluates conditions and unrolls loops (If, Loop and Scan of ONNX) while the graph is
 * built.
 *
 * A graph of Tutti has neither branches nor loops. So a condition or number of iterations that
 * depends on inputs or parameters is refused. The inputs of a block are those that the operator
 * defines, then the values that follow the block in the call (onnx_inner.c). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/graph/building.h"

enum { MAX_UNROLLED = 1 << 17 };

/* ---- the call ---- */

typedef struct inner {
    const tti_block *block;
    const tti_arg *name; /* the block's name, in the call's arguments */
    const tti_named_arg *captured;
    int n_captured, n_formal; /* n_formal: inputs that the operator defines */
    tti_operand *inputs, *results;
} inner;

static const tti_arg *find_named(const tti_op_call *call, const char *name) {
    for (int i = 0; i < call->n_args; i++)
        if (strcmp(call->args[i].name, name) == 0) return &call->args[i].arg;
    return NULL;
}

static int n_positional(const tti_op_call *call) {
    int n = 0;
    while (n < call->n_args && !call->args[n].name[0]) n++;
    return n;
}

/* Finds the block with that name and allocates its inputs, of which the captured ones are filled
 * in. */
static bool find_body(tti_building *b, const tti_op_call *call, const char *name, inner *out) {
    int at = 0;
    while (at < call->n_args && strcmp(call->args[at].name, name) != 0) at++;
    *out = (inner){0};
    if (at == call->n_args || call->args[at].arg.kind != TTI_ARG_BLOCK) {
        tti_refuse(b, "it has no graph '%s'", name);
        return false;
    }
    out->block = call->args[at].arg.block;
    out->captured = &call->args[at + 1];
    while (at + 1 + out->n_captured < call->n_args &&
           strcmp(out->captured[out->n_captured].name, TTI_CAPTURED) == 0)
        out->n_captured++;
    out->n_formal = out->block->n_inputs - out->n_captured;
    if (out->n_formal < 0) tti_refuse(b, "its graph does not fit the call");
    out->inputs = tti_build_alloc(b, ((size_t)out->block->n_inputs + 1) * sizeof *out->inputs);
    out->results = tti_build_alloc(b, ((size_t)out->block->n_outputs + 1) * sizeof *out->results);
    for (int i = 0; tti_good(b) && i < out->n_captured; i++)
        out->inputs[out->n_formal + i] = *tti_operand_of(b, &out->captured[i].arg);
    return tti_good(b);
}

/* Reads a number that must be known while the graph is built; what: its name in messages, "its
 * condition". */
static bool known_number(tti_building *b, const tti_operand *x, const char *what, double *out) {
    if (x->kind == TTI_OPERAND_NUMBER) {
        *out = x->number;
        return true;
    }
    if (x->kind != TTI_OPERAND_HOST)
        tti_refuse(b,
                   "%s depends on the model's inputs or parameters; only what is known before the "
                   "first sample is supported: export the model without this branch or loop",
                   what);
    else if (tti_host_n(&x->host) != 1)
        tti_refuse(b, "%s has %lld elements, one is expected", what,
                   (long long)tti_host_n(&x->host));
    else
        *out = tti_host_at(&x->host, 0);
    return tti_good(b);
}

static bool set_scalar(tti_building *b, tti_elem elem, double x, tti_operand *out) {
    tti_host host;
    if (!tti_host_new(b, elem, &(tutti_shape){0}, &host)) return false;
    host.data[0] = x;
    *out = (tti_operand){0};
    tti_set_host(out, &host);
    return true;
}

/* ---- If ---- */

static bool same_host(tti_building *b, const tti_host *x, const tti_host *y) {
    bool same = x->elem == y->elem && x->shape.n_dims == y->shape.n_dims;
    for (int d = 0; d < x->shape.n_dims && same; d++) same = x->shape.dim[d] == y->shape.dim[d];
    int64_t n = same ? tti_host_n(x) : 0;
    same = same && tti_add_work(b, (double)n);
    tti_host_walk wx = tti_host_begin(x), wy = tti_host_begin(y);
    for (int64_t i = 0; i < n && same; i++) {
        double u = tti_host_next(&wx), v = tti_host_next(&wy);
        same = memcmp(&u, &v, sizeof u) == 0;
    }
    return same;
}

static bool same_operand(tti_building *b, const tti_operand *x, const tti_operand *y) {
    if (x->kind != y->kind || x->spec != y->spec) return false;
    if (x->kind == TTI_OPERAND_HOST) return same_host(b, &x->host, &y->host);
    if (x->kind == TTI_OPERAND_GRAPH) return x->value == y->value && x->elem == y->elem;
    return x->kind == TTI_OPERAND_NUMBER && x->elem == y->elem &&
           memcmp(&x->number, &y->number, sizeof x->number) == 0;
}

/* True if x and y are equal. twin [n_values of x's block]: 1 + the equal value of y's block, or
 * 0. */
static bool same_arg(const tti_arg *x, const tti_arg *y, const int *twin) {
    bool same = x->kind == y->kind && x->n == y->n;
    switch (same ? x->kind : TTI_ARG_BLOCK) {
        case TTI_ARG_NONE:
            return true;
        case TTI_ARG_VALUE:
            return twin[x->value] == y->value + 1;
        case TTI_ARG_INT:
        case TTI_ARG_BOOL:
        case TTI_ARG_DTYPE:
            return x->i == y->i;
        case TTI_ARG_FLOAT:
            return memcmp(&x->f, &y->f, sizeof x->f) == 0;
        case TTI_ARG_TEXT:
            return strcmp(x->text, y->text) == 0;
        case TTI_ARG_LIST:
            for (int i = 0; i < x->n && same; i++)
                same = same_arg(&x->items[i], &y->items[i], twin);
            return same;
        default:
            return false;
    }
}

static bool same_call(const tti_op_call *x, const tti_op_call *y, int *twin) {
    bool same = strcmp(x->target, y->target) == 0 && x->n_args == y->n_args &&
                x->n_outs == y->n_outs && !strstr(x->target, "Random") &&
                !strstr(x->target, "Dropout");
    for (int i = 0; i < x->n_args && same; i++)
        same = strcmp(x->args[i].name, y->args[i].name) == 0 &&
               same_arg(&x->args[i].arg, &y->args[i].arg, twin);
    for (int i = 0; i < x->n_outs && same; i++)
        if (x->outs[i] >= 0) twin[x->outs[i]] = y->outs[i] + 1;
    return same;
}

/* True if both branches compute the same result with the same calls. */
static bool same_result(tti_building *b, const inner *x, const inner *y) {
    const tti_block *u = x->block, *v = y->block;
    bool same = u->n_calls == v->n_calls && u->n_outputs == v->n_outputs;
    int *twin = tti_build_alloc(b, ((size_t)u->n_values + 1) * sizeof *twin);
    for (int i = 0; twin && i < x->n_captured && same; i++)
        for (int k = 0; k < y->n_captured && twin[u->inputs[i]] == 0; k++)
            if (same_operand(b, &x->inputs[i], &y->inputs[k]))
                twin[u->inputs[i]] = v->inputs[k] + 1;
    for (int i = 0; twin && i < u->n_calls && same; i++)
        same = same_call(&u->calls[i], &v->calls[i], twin);
    for (int i = 0; twin && i < u->n_outputs && same; i++)
        same = same_arg(&u->outputs[i], &v->outputs[i], twin);
    return twin && same;
}

/* cond, then_branch, else_branch */
static void run_if(tti_building *b, const tti_op_call *call) {
    inner branch[2];
    double taken = 0;
    if (n_positional(call) != 1) tti_refuse(b, "it has no condition");
    if (!tti_good(b) || !find_body(b, call, "then_branch", &branch[0]) ||
        !find_body(b, call, "else_branch", &branch[1]))
        return;
    const tti_operand *condition = tti_operand_of(b, &call->args[0].arg);
    bool equal = condition->kind == TTI_OPERAND_GRAPH && same_result(b, &branch[0], &branch[1]);
    if (!equal && !known_number(b, condition, "its condition", &taken)) return;
    const inner *to = &branch[equal || taken != 0 ? 0 : 1];
    if (to->n_formal != 0 || to->block->n_outputs < call->n_outs)
        tti_refuse(b, "its branch does not fit the call");
    if (!tti_good(b) || !tti_run_inner(b, to->block, to->inputs, to->results)) return;
    for (int i = 0; i < call->n_outs; i++) tti_set_result(b, call, i, &to->results[i]);
}

/* ---- loops ---- */

/* The results of all iterations in order, which are joined after the last one. */
typedef struct scanned {
    tti_arg *items; /* [n] operands */
    int n, cap;
} scanned;

static bool keep(tti_building *b, scanned *s, const tti_operand *x) {
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 8;
        tti_arg *items = tti_build_alloc(b, (size_t)cap * sizeof *items);
        if (!items) return false;
        if (s->n > 0) memcpy(items, s->items, (size_t)s->n * sizeof *items);
        s->items = items;
        s->cap = cap;
    }
    tti_operand *copy = tti_build_alloc(b, sizeof *copy);
    if (!copy) return false;
    *copy = *x;
    s->items[s->n++] = tti_operand_arg(copy);
    return true;
}

/* Joins the results of all iterations along a new dimension. */
static void join(tti_building *b, const tti_op_call *call, int i, const scanned *s, int64_t dim,
                 bool backward) {
    tti_operand joined = {0};
    if (i >= call->n_outs || call->outs[i] < 0 || !tti_good(b)) return;
    if (s->n == 0) {
        tti_refuse(b, "it has no iterations, and its result is a list of their results");
        return;
    }
    for (int k = 0; k < s->n / 2 && backward; k++) {
        tti_arg first = s->items[k];
        s->items[k] = s->items[s->n - 1 - k];
        s->items[s->n - 1 - k] = first;
    }
    tti_call_row(
        b, "aten.stack.default",
        (tti_arg[]){{.kind = TTI_ARG_LIST, .items = s->items, .n = s->n}, tti_int_arg(dim)}, 2,
        (tti_operand *[]){&joined}, 1);
    tti_set_result(b, call, i, &joined);
}

static bool count_iteration(tti_building *b, const tti_block *block) {
    if (tti_count_unrolled(b, TTI_MAX(block->n_calls, block->n_values) + 1) <= MAX_UNROLLED)
        return true;
    tti_refuse(b,
               "loops are unrolled, and have more than %d nodes in all; export recurrent layers as "
               "LSTM, GRU or RNN nodes, or with fewer iterations",
               MAX_UNROLLED);
    return false;
}

/* M cond v_initial.., body. The body's inputs are the iteration, the condition and v; its outputs
 * are the condition, v and the scanned results. */
static void run_loop(tti_building *b, const tti_op_call *call) {
    inner body;
    double most = 0, goes_on = 1;
    int n_given = n_positional(call), n = TTI_MAX(n_given - 2, 0);
    if (!find_body(b, call, "body", &body)) return;
    bool counts = n_given > 0 && call->args[0].arg.kind != TTI_ARG_NONE;
    int n_scanned = body.block->n_outputs - 1 - n;
    if (body.n_formal != n + 2 || n_scanned < 0 || call->n_outs > n + n_scanned)
        tti_refuse(b, "its body does not fit the call");
    if (tti_good(b) && counts)
        known_number(b, tti_operand_of(b, &call->args[0].arg), "the number of iterations", &most);
    if (tti_good(b) && n_given > 1 && call->args[1].arg.kind != TTI_ARG_NONE)
        known_number(b, tti_operand_of(b, &call->args[1].arg), "its condition", &goes_on);
    scanned *made = tti_build_alloc(b, ((size_t)TTI_MAX(n_scanned, 0) + 1) * sizeof *made);
    for (int i = 0; tti_good(b) && i < n; i++)
        body.inputs[2 + i] = *tti_operand_of(b, &call->args[2 + i].arg);
    for (int64_t t = 0; tti_good(b) && goes_on != 0 && (!counts || (double)t < most); t++) {
        bool ready = count_iteration(b, body.block) &&
                     set_scalar(b, TTI_ELEM_I64, (double)t, &body.inputs[0]) &&
                     set_scalar(b, TTI_ELEM_BOOL, 1, &body.inputs[1]);
        if (!ready || !tti_run_inner(b, body.block, body.inputs, body.results)) return;
        for (int i = 0; i < n; i++) body.inputs[2 + i] = body.results[1 + i];
        for (int i = 0; i < n_scanned; i++)
            if (!keep(b, &made[i], &body.results[1 + n + i])) return;
        if (!known_number(b, &body.results[0], "its condition", &goes_on)) return;
    }
    for (int i = 0; tti_good(b) && i < n; i++) tti_set_result(b, call, i, &body.inputs[2 + i]);
    for (int i = 0; tti_good(b) && i < n_scanned; i++) join(b, call, n + i, &made[i], 0, false);
}

/* Item i of a list attribute; 0 if there is no list. */
static int64_t listed(tti_building *b, const tti_op_call *call, const char *name, int i) {
    const tti_arg *list = find_named(call, name);
    if (!list) return 0;
    if (list->kind != TTI_ARG_LIST || i >= list->n || list->items[i].kind != TTI_ARG_INT) {
        tti_refuse(b, "the attribute '%s' does not fit the call", name);
        return 0;
    }
    return list->items[i].i;
}

/* Takes slice t of a scanned input, counted from the end if its direction is reverse. */
static void take_slice(tti_building *b, const tti_op_call *call, int i, const tti_operand *x,
                       int64_t t, int64_t n, tti_operand *out) {
    int64_t axis = listed(b, call, "scan_input_axes", i);
    bool backward = listed(b, call, "scan_input_directions", i) == 1;
    *out = (tti_operand){0};
    if (tti_good(b))
        tti_call_row(b, "aten.select.int",
                     (tti_arg[]){tti_operand_arg(x), tti_int_arg(axis),
                                 tti_int_arg(backward ? n - 1 - t : t)},
                     3, (tti_operand *[]){out}, 1);
}

/* Returns the length of the scanned inputs along their axes, which must be equal. */
static int64_t scan_length(tti_building *b, const tti_op_call *call, const tti_operand *x, int n) {
    int64_t length = -1;
    for (int i = 0; i < n && tti_good(b); i++) {
        tutti_shape shape = tti_shape_of(&x[i]);
        int axis = tti_wrap_dim(b, listed(b, call, "scan_input_axes", i), shape.n_dims);
        if (!tti_good(b)) return 0;
        if (length >= 0 && shape.dim[axis] != length)
            tti_refuse(b, "its inputs have different lengths, %lld and %lld", (long long)length,
                       (long long)shape.dim[axis]);
        length = shape.dim[axis];
    }
    return length;
}

/* state.. scanned.., body, num_scan_inputs. The body has the same inputs; its outputs are the state
 * and the scanned results. */
static void run_scan(tti_building *b, const tti_op_call *call) {
    inner body;
    const tti_arg *given = find_named(call, "num_scan_inputs");
    int n_given = n_positional(call);
    if (!find_body(b, call, "body", &body)) return;
    int n_in = given && given->i > 0 && given->i <= n_given ? (int)given->i : 0;
    int n = n_given - n_in, n_out = body.block->n_outputs - n;
    if (n_in < 1 || n_out < 0 || body.n_formal != n_given || call->n_outs > body.block->n_outputs)
        tti_refuse(b, "its body does not fit the call");
    tti_operand *x = tti_build_alloc(b, ((size_t)n_in + 1) * sizeof *x);
    scanned *made = tti_build_alloc(b, ((size_t)TTI_MAX(n_out, 0) + 1) * sizeof *made);
    for (int i = 0; tti_good(b) && i < n; i++)
        body.inputs[i] = *tti_operand_of(b, &call->args[i].arg);
    for (int i = 0; tti_good(b) && i < n_in; i++) x[i] = *tti_operand_of(b, &call->args[n + i].arg);
    int64_t length = tti_good(b) ? scan_length(b, call, x, n_in) : 0;
    for (int64_t t = 0; tti_good(b) && t < length; t++) {
        for (int i = 0; i < n_in; i++)
            take_slice(b, call, i, &x[i], t, length, &body.inputs[n + i]);
        if (!tti_good(b) || !count_iteration(b, body.block) ||
            !tti_run_inner(b, body.block, body.inputs, body.results))
            return;
        for (int i = 0; i < n; i++) body.inputs[i] = body.results[i];
        for (int i = 0; i < n_out; i++)
            if (!keep(b, &made[i], &body.results[n + i])) return;
    }
    for (int i = 0; tti_good(b) && i < n; i++) tti_set_result(b, call, i, &body.inputs[i]);
    for (int i = 0; tti_good(b) && i < n_out; i++)
        join(b, call, n + i, &made[i], listed(b, call, "scan_output_axes", i),
             listed(b, call, "scan_output_directions", i) == 1);
}

bool tti_run_control(tti_building *b, const tti_op_call *call) {
    static const struct {
        const char *target;
        void (*run)(tti_building *b, const tti_op_call *call);
    } rows[] = {{"onnx.If", run_if}, {"onnx.Loop", run_loop}, {"onnx.Scan", run_scan}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++)
        if (strcmp(call->target, rows[i].target) == 0) {
            rows[i].run(b, call);
            return true;
        }
    return false;
}
