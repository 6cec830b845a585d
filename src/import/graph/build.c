/* build.c - processes the calls of a program, each with its row of the operator table.
 *
 * Values that share memory in PyTorch are in the same group. A call that writes to its first
 * argument replaces that value for later calls and makes other views of the same memory unusable.
 * Host tensors are real views, so writes to them change the shared memory. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/graph/building.h"
#include "import/graph/order.h"

/* ---- calls ---- */

/* Returns the old value with the elements of the part replaced by the new ones, which have the
 * shape of the part. */
static tutti_value *replace_part(tti_building *b, const tti_operand *whole,
                                 const tti_view_part *part, tutti_value *old, tutti_value *new) {
    tutti_graph *g = b->graph;
    tutti_shape shape = tti_shape_of(whole);
    int dim = part->dim, perm[TUTTI_MAX_DIMS];
    if (part->is_permuted) {
        for (int d = 0; d < shape.n_dims; d++) perm[part->perm[d]] = d;
        return tutti_permute(g, new, perm, shape.n_dims);
    }
    if (part->is_whole) return tutti_reshape(g, new, &shape);
    if (part->selected) {
        tutti_shape wide = shape;
        wide.dim[dim] = 1;
        new = tutti_reshape(g, new, &wide);
    }
    tti_operand x = {0}, source = {0}, made = {0};
    tti_set_value(b, &x, old, whole->elem, tti_of_batch(whole));
    tti_set_value(b, &source, new, whole->elem, tti_of_batch(whole));
    if (!tti_good(b)) return NULL;
    int64_t n = tutti_value_type(new).shape.dim[dim];
    const tti_arg args[] = {tti_operand_arg(&x),
                            tti_operand_arg(&source),
                            tti_int_arg(dim),
                            tti_int_arg(part->start),
                            tti_int_arg(part->start + (n - 1) * part->step + 1),
                            tti_int_arg(part->step)};
    if (n == 0) return old;
    tti_call_row(b, "aten.slice_scatter.default", args, TTI_COUNT(args), (tti_operand *[]){&made},
                 1);
    return tti_good(b) ? tti_value_of(b, &made) : NULL;
}

/* After a write to a view: replaces the value of its base, and of every enclosing view, by one with
 * the new elements. */
static void write_whole(tti_building *b, const tti_operand *view) {
    while (tti_good(b) && view->part.base > 0) {
        tti_operand *whole = &b->values[view->part.base - 1];
        if (whole->kind != TTI_OPERAND_GRAPH || whole->group != view->group) return;
        bool any = tti_of_batch(whole) || tti_of_batch(view);
        tti_operand made = *whole;
        tutti_value *old = any ? tti_batch_value(b, whole) : tti_value_of(b, whole);
        tutti_value *new = any ? tti_batch_value(b, view) : tti_value_of(b, view);
        made.of_input = any;
        made.rows = 0;
        made.folded = made.is_noise = false;
        if (tti_good(b))
            made.value =
                replace_part(b, &made, &view->part, tti_as_float(b, old), tti_as_float(b, new));
        made.stamp = b->writes[whole->group];
        made.spec = 0;
        tti_check_graph(b);
        *whole = made;
        view = whole;
    }
}

/* Call before a write that makes a part of a constant depend on inputs: the part and its base
 * become values of the graph. Other views of the constant can no longer be used. False: the kind of
 * view is not supported. */
static bool replace_constant(tti_building *b, tti_operand *part, bool of_batch) {
    const double *data = part->host.data;
    int group = -1, at = part->part.base;
    tti_operand *whole = NULL;
    for (; at > 0; at = whole->part.base) {
        whole = &b->values[at - 1];
        if (whole->kind != TTI_OPERAND_HOST || whole->host.data != data) return false;
    }
    if (!whole || tti_host_n(&whole->host) == 0) return false;
    part->host.use->replaced = true;
    for (tti_operand *x = part; tti_good(b) && x;
         x = x->part.base > 0 ? &b->values[x->part.base - 1] : NULL) {
        tti_operand made = {0}, old = *x;
        tutti_shape shape = tti_shape_of(x);
        bool rows = of_batch && shape.n_dims > 0 && shape.dim[0] == b->batch;
        tutti_value *value = rows ? tti_batch_value(b, x) : tti_value_of(b, x);
        tti_set_value(b, &made, tti_as_float(b, value), tti_elem_of(x), rows);
        if (group < 0) group = made.group;
        made.group = group;
        made.part = old.part;
        *x = made;
    }
    return tti_good(b);
}

/* x.op_(...): the result replaces x for all names that share its memory. */
static void write_back(tti_building *b, const tti_call *c, tti_operand *made) {
    const tti_arg *arg = tti_arg_at(c, 0);
    if (!tti_good(b) || arg->kind != TTI_ARG_VALUE) return;
    tti_operand *self = &b->values[arg->value];
    bool ordered = self->role != TTI_ORDER_NONE || made->role != TTI_ORDER_NONE;
    if (ordered && self->kind != TTI_OPERAND_GRAPH) { /* then self is never a view */
        *self = *made;
        return;
    }
    if (self->kind == TTI_OPERAND_HOST && made->kind == TTI_OPERAND_HOST) {
        tti_host source;
        int64_t n = tti_host_n(&self->host);
        if (!tti_host_expand(b, &made->host, &self->host.shape, &source)) return;
        tti_host copy; /* source may share the memory */
        self->host.use->written = true;
        if (!tti_host_copy(b, &source, &copy)) return;
        tti_host_walk to = tti_host_begin(&self->host);
        for (int64_t i = 0; i < n; i++)
            self->host.data[tti_host_next_offset(&to)] = tti_round(self->host.elem, copy.data[i]);
        *made = *self;
        return;
    }
    if (self->kind == TTI_OPERAND_HOST && self->part.base > 0 && self->host.use->shared &&
        !replace_constant(b, self, tti_of_batch(made)) && !tti_good(b))
        return;
    if (self->kind == TTI_OPERAND_HOST && self->host.use->shared) {
        tti_refuse(b,
                   "values that depend on inputs are written into a part of a constant tensor; "
                   "this is not supported");
        return;
    }
    if (self->kind == TTI_OPERAND_GRAPH) {
        made->group = self->group;
        made->stamp = ++b->writes[self->group];
        made->part = self->part;
        made->of_buffer = self->of_buffer;
    }
    if (made->kind == TTI_OPERAND_HOST && self->kind == TTI_OPERAND_GRAPH && self->part.base > 0) {
        tti_elem elem = self->elem;
        tutti_shape shape = tti_shape_of(self);
        tti_host wide;
        if (!tti_host_expand(b, &made->host, &shape, &wide)) return;
        tti_operand own = *self, host = *made;
        host.host = wide;
        own.value = tti_as_float(
            b, tti_of_batch(self) ? tti_batch_value(b, &host) : tti_value_of(b, &host));
        own.elem = elem;
        own.folded = own.is_noise = false;
        own.stamp = made->stamp;
        if (own.rows > 0) own.of_input = true;
        own.rows = 0;
        *made = own;
    }
    *self = *made;
    write_whole(b, self);
}

static void share_group(tti_building *b, const tti_call *c) {
    const tti_arg *arg = tti_arg_at(c, 0);
    if (arg->kind != TTI_ARG_VALUE) return;
    const tti_operand *self = &b->values[arg->value];
    for (int i = 0; i < c->n_outs && self->kind == TTI_OPERAND_GRAPH; i++)
        if (c->out[i] && c->out[i]->kind == TTI_OPERAND_GRAPH) {
            c->out[i]->group = self->group;
            c->out[i]->stamp = b->writes[self->group];
        }
}

/* True if the results are elements of the first argument, in any order. */
static bool keeps_elements(const tti_operator *row) {
    return row->view || strncmp(row->target, "aten.to.", 8) == 0 ||
           strncmp(row->target, "aten._to_copy", 13) == 0 ||
           strncmp(row->target, "aten.clone", 10) == 0;
}

/* Gives a result that is no view its own memory, which matters if constants are written to. */
static void own_memory(tti_building *b, const tti_call *c) {
    for (int i = 0; i < c->n_outs && tti_good(b); i++) {
        tti_operand *out = c->out[i];
        if (!out || out->kind != TTI_OPERAND_HOST) continue;
        for (int k = 0; k < c->n_args; k++) {
            const tti_operand *x = tti_operand_named(b, c->arg[k]);
            tti_host copy;
            if (!x || x->kind != TTI_OPERAND_HOST || x->host.data != out->host.data) continue;
            if (tti_host_copy(b, &out->host, &copy)) out->host = copy;
            break;
        }
    }
}

static void share_input(const tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_named(b, tti_arg_at(c, 0));
    for (int i = 0; x && x->input > 0 && i < c->n_outs; i++)
        if (c->out[i] && c->out[i]->kind == TTI_OPERAND_GRAPH) c->out[i]->input = x->input;
}

tti_known_dims tti_known_result(const tti_building *b, int i) {
    const tti_block *block = b->block;
    const tti_op_call *call = b->call;
    bool known = block && block->dims && call && i < call->n_outs && call->outs[i] >= 0;
    return known ? block->dims[call->outs[i]] : (tti_known_dims){0};
}

/* Sets the batch dimension of a constant result from the shapes in the file: operators that compute
 * constants do not always know it. */
static void mark_batch(tti_building *b, const tti_call *c) {
    for (int i = 0; i < c->n_outs; i++) {
        tti_host *x = c->out[i] && c->out[i]->kind == TTI_OPERAND_HOST ? &c->out[i]->host : NULL;
        tti_known_dims known = tti_known_result(b, i);
        if (!x || known.n_dims != x->shape.n_dims || __builtin_popcount(known.of_batch) != 1)
            continue;
        int d = __builtin_ctz(known.of_batch);
        if (x->of_batch || x->batch_dim > 0 || x->shape.dim[d] != b->batch ||
            !tti_host_repeats(x, d))
            continue;
        x->of_batch = d == 0;
        x->batch_dim = d;
    }
}

bool tti_record_labels(tti_building *b, const tti_operand *label, int64_t n_classes,
                       int64_t ignored) {
    tti_import_labels *noted = &b->labels;
    bool is_first = noted->n_classes == 0;
    if (label->input == 0) return false;
    if (is_first) *noted = (tti_import_labels){label->input - 1, n_classes, ignored};
    return is_first || (noted->input == label->input - 1 && noted->n_classes == n_classes &&
                        noted->ignored == ignored);
}

static void run_row(tti_building *b, const tti_operator *row, bool in_place,
                    const tti_op_call *call) {
    tti_call c = {0};
    tti_operand written = {0};
    tti_fill_args(b, row, call, &c);
    if (call->n_outs > (int)TTI_COUNT(c.out))
        tti_refuse(b, "it has %d results, at most %d are supported", call->n_outs,
                   (int)TTI_COUNT(c.out));
    if (!tti_good(b)) return;
    c.n_outs = call->n_outs;
    for (int i = 0; i < call->n_outs; i++)
        c.out[i] = call->outs[i] >= 0 ? &b->values[call->outs[i]] : NULL;
    tti_operand *result = c.out[0];
    if (in_place) c.out[0] = &written;
    bool reused = !in_place && tti_reuse_call(b, row, &c);
    if (!reused && !tti_apply_row(b, row, &c)) return;
    if (!in_place && !reused) tti_store_call(b, row, &c);
    if (!in_place) mark_batch(b, &c);
    if (reused) return;
    if (row->view && !in_place) share_group(b, &c);
    if (!row->view && !in_place && b->keeps_repeats) own_memory(b, &c);
    if (keeps_elements(row) && !in_place) share_input(b, &c);
    if (in_place) write_back(b, &c, &written);
    if (!in_place || !result) return;
    *result = written;
    result->part.is_whole = false;
    if (written.kind == TTI_OPERAND_GRAPH && c.arg[0]->kind == TTI_ARG_VALUE)
        /* the result of x.mul_(y) is x, so a later write to it changes x */
        result->part = (tti_view_part){.base = c.arg[0]->value + 1, .is_whole = true};
}

static void run_block(tti_building *b, const tti_block *block, tti_operand *values);

/* True if a block has written to one of its inputs, so that the operand was replaced. */
static bool is_replaced(const tti_operand *before, const tti_operand *after) {
    return before->kind != after->kind || before->value != after->value ||
           before->host.data != after->host.data;
}

bool tti_run_inner(tti_building *b, const tti_block *inner, tti_operand *inputs,
                   tti_operand *results) {
    const tti_block *outer = b->block;
    const tti_op_call *call = b->call;
    tti_operand *values = b->values,
                *own = calloc((size_t)inner->n_values + 1, sizeof *own); /* of one run */
    if (!own) {
        tti_no_memory(b);
        return false;
    }
    for (int i = 0; i < inner->n_inputs; i++)
        if (inner->inputs[i] >= 0) own[inner->inputs[i]] = inputs[i];
    for (int i = 0; i < inner->n_values; i++)
        own[i].part.base = 0; /* base numbers of another run are invalid */
    if (tti_good(b)) run_block(b, inner, own);
    for (int i = 0; tti_good(b) && i < inner->n_outputs; i++) {
        results[i] = *tti_operand_of(b, &inner->outputs[i]);
        results[i].part.base = 0; /* a value number of the inner block */
    }
    for (int i = 0; tti_good(b) && i < inner->n_inputs; i++)
        if (inner->inputs[i] >= 0 && is_replaced(&inputs[i], &own[inner->inputs[i]]))
            inputs[i] = own[inner->inputs[i]];
    b->block = outer;
    b->values = values;
    b->call = call;
    free(own);
    return tti_good(b);
}

void tti_set_result(tti_building *b, const tti_op_call *call, int i, const tti_operand *x) {
    if (i < call->n_outs && call->outs[i] >= 0) b->values[call->outs[i]] = *x;
}

int tti_count_unrolled(tti_building *b, int n) {
    if (n > INT_MAX - b->n_unrolled) n = INT_MAX - b->n_unrolled;
    return b->n_unrolled += n;
}

/* True if a call runs its block without gradients (torch.no_grad()). */
static bool stops_gradients(const tti_op_call *call) {
    return strcmp(call->target, "higher_order.wrap_with_set_grad_enabled") == 0 &&
           call->n_args > 0 && call->args[0].arg.kind == TTI_ARG_BOOL && call->args[0].arg.i == 0;
}

/* Replaces x by the same values without a gradient. */
static void stop_gradient(tti_building *b, tti_operand *x) {
    if (x->kind == TTI_OPERAND_GRAPH && tutti_value_type(x->value).dtype == TUTTI_F32)
        x->value = tutti_stop_gradient(b->graph, x->value);
}

/* Replaces the argument of a block by the value that the block has written to it, if the argument
 * is a constant or a buffer, which has no gradient. A write to any other value is refused when a
 * part of that value is read again. */
static void take_write(tti_building *b, const tti_op_call *call, const tti_arg *arg,
                       const tti_operand *written) {
    if (!tti_good(b) || arg->kind != TTI_ARG_VALUE) return;
    tti_operand *x = &b->values[arg->value], made = *written;
    if (!is_replaced(x, written) || (x->kind == TTI_OPERAND_GRAPH && !x->of_buffer)) return;
    if (x->kind == TTI_OPERAND_HOST && x->part.base > 0)
        tti_refuse(b, "its inner graph writes to a part of a constant, which is not supported");
    if (stops_gradients(call)) stop_gradient(b, &made);
    made.part = x->part;
    *x = made;
    if (x->kind == TTI_OPERAND_GRAPH) write_whole(b, x);
}

/* Runs a graph that only wraps calls: its inputs are the arguments after the graph. */
static void run_wrapped(tti_building *b, const tti_op_call *call) {
    const tti_block *inner = NULL;
    int at = 0;
    while (at < call->n_args && call->args[at].arg.kind != TTI_ARG_BLOCK) at++;
    if (at < call->n_args) inner = call->args[at].arg.block;
    if (!inner || call->n_args - at - 1 != inner->n_inputs || inner->n_outputs != call->n_outs) {
        tti_refuse(b, "its inner graph does not fit the call");
        return;
    }
    tti_operand *inputs = tti_build_alloc(b, ((size_t)inner->n_inputs + 1) * sizeof *inputs);
    tti_operand *results = tti_build_alloc(b, ((size_t)inner->n_outputs + 1) * sizeof *results);
    for (int i = 0; results && i < inner->n_inputs; i++)
        inputs[i] = *tti_operand_of(b, &call->args[at + 1 + i].arg);
    if (!tti_good(b) || !tti_run_inner(b, inner, inputs, results)) return;
    for (int i = 0; i < inner->n_inputs; i++)
        take_write(b, call, &call->args[at + 1 + i].arg, &inputs[i]);
    for (int i = 0; i < call->n_outs; i++) {
        if (stops_gradients(call)) stop_gradient(b, &results[i]);
        tti_set_result(b, call, i, &results[i]);
    }
}

static void run_call(tti_building *b, const tti_op_call *call) {
    bool in_place;
    b->call = call;
    tutti_graph_set_module(b->graph, call->module);
    if (tti_runs_block(call->target)) {
        if (!tti_run_control(b, call)) run_wrapped(b, call);
        return;
    }
    const tti_operator *row = b->find(call->target, &in_place);
    if (!row)
        tti_refuse(b, "this operator is not supported");
    else
        run_row(b, row, in_place, call);
}

static void run_block(tti_building *b, const tti_block *block, tti_operand *values) {
    b->block = block;
    b->values = values;
    bool is_main = block == &b->program->main;
    for (int i = 0; i < block->n_calls && tti_good(b); i++) {
        if (is_main && !b->needed[i]) continue;
        run_call(b, &block->calls[i]);
        if (is_main && tti_good(b)) tti_record_changes(b, i);
    }
    b->call = NULL;
}

/* ---- inputs of the model, and analysis of the program ---- */

tutti_shape tti_shape_of_spec(const tti_input_spec *spec) {
    tutti_shape shape = {.n_dims = spec->shape.n_dims};
    for (int d = 0; d < shape.n_dims; d++) shape.dim[d] = spec->shape.dim[d];
    return shape;
}

static void mark_used(const tti_arg *arg, bool *used) {
    if (arg->kind == TTI_ARG_VALUE) used[arg->value] = true;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++) mark_used(&arg->items[i], used);
}

/* True if a call has a side effect. */
static bool has_effect(const tti_building *b, const tti_op_call *call) {
    bool in_place = false;
    if (tti_runs_block(call->target) || strstr(call->target, "batch_norm")) return true;
    b->find(call->target, &in_place);
    return in_place;
}

/* Finds the values that the model's results depend on, and sets b->needed for the calls that
 * compute them. Other calls are omitted: a parameter that only they read has no gradient in PyTorch
 * either. */
static bool *find_used(tti_building *b) {
    const tti_block *block = &b->program->main;
    bool *used = tti_build_alloc(b, (size_t)block->n_values + 1);
    b->needed = tti_build_alloc(b, (size_t)block->n_calls + 1);
    if (!used || !b->needed) return NULL;
    for (int i = 0; i < block->n_outputs; i++) mark_used(&block->outputs[i], used);
    for (int i = block->n_calls - 1; i >= 0; i--) {
        const tti_op_call *call = &block->calls[i];
        bool needed = has_effect(b, call);
        for (int k = 0; k < call->n_outs && !needed; k++)
            needed = call->outs[k] >= 0 && used[call->outs[k]];
        b->needed[i] = needed;
        for (int k = 0; k < call->n_args && needed; k++) mark_used(&call->args[k].arg, used);
    }
    return used;
}

bool tti_any_marked(const tti_arg *arg, const bool *marked) {
    bool found = arg->kind == TTI_ARG_VALUE && marked[arg->value];
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n && !found; i++)
        found = tti_any_marked(&arg->items[i], marked);
    return found;
}

static bool writes_anything(tti_building *b, const tti_block *block) {
    bool in_place = false;
    for (int i = 0; i < block->n_calls && !in_place; i++) {
        const tti_op_call *call = &block->calls[i];
        if (!tti_runs_block(call->target)) b->find(call->target, &in_place);
        for (int k = 0; k < call->n_args && !in_place; k++)
            if (call->args[k].arg.kind == TTI_ARG_BLOCK)
                in_place = writes_anything(b, call->args[k].arg.block);
    }
    return in_place;
}

/* True if a call may write to a tensor that depends on neither inputs nor parameters. If no call
 * does, repeated elements of host tensors are stored once (a mask of a batch is one mask), and
 * equal calls on host tensors share their result. Only a value computed from the elements of an
 * input-dependent first argument is known not to be such a tensor; zeros_like(x), zeros(x.shape[0])
 * and results of blocks may be. */
static bool writes_constants(tti_building *b) {
    const tti_block *block = &b->program->main;
    bool *varies = tti_arena_alloc(&b->arena, (size_t)block->n_values + 1), writes = false;
    if (!varies) {
        tti_no_memory(b);
        return true;
    }
    for (int i = 0; i < block->n_inputs; i++)
        if (block->inputs[i] >= 0)
            varies[block->inputs[i]] = b->program->inputs[i].kind == TTI_SPEC_INPUT ||
                                       b->program->inputs[i].kind == TTI_SPEC_PARAM ||
                                       b->changes.changed[i];
    for (int i = 0; i < block->n_calls && !writes; i++) {
        const tti_op_call *call = &block->calls[i];
        const tti_operator *row = NULL;
        bool in_place = false;
        if (tti_runs_block(call->target))
            for (int k = 0; k < call->n_args && !writes; k++)
                writes = call->args[k].arg.kind == TTI_ARG_BLOCK &&
                         writes_anything(b, call->args[k].arg.block);
        else
            row = b->find(call->target, &in_place);
        bool first_varies = call->n_args > 0 && tti_any_marked(&call->args[0].arg, varies);
        bool makes = row && row->build == row->fold; /* from any arguments, on the host */
        writes |= in_place && !first_varies;
        for (int k = 0; k < call->n_outs; k++)
            if (call->outs[k] >= 0) varies[call->outs[k]] = row && !makes && first_varies;
    }
    return writes;
}

static bool any_says_training(const tti_block *block);

/* True if a call has a training flag that is set. If no call has, the whole model was exported for
 * evaluation. */
static bool has_training_flag(const tti_op_call *call) {
    bool known = strstr(call->target, "batch_norm") || strstr(call->target, "dropout") ||
                 strcmp(call->target, "onnx.BatchNormalization") == 0;
    for (int i = 0; known && i < call->n_args; i++) {
        const char *name = call->args[i].name;
        const tti_arg *arg = &call->args[i].arg;
        bool is_flag = strcmp(name, "training") == 0 || strcmp(name, "train") == 0 ||
                       strcmp(name, "training_mode") == 0;
        if (is_flag && (arg->kind == TTI_ARG_BOOL || arg->kind == TTI_ARG_INT)) return arg->i != 0;
    }
    for (int i = 0; i < call->n_args; i++)
        if (call->args[i].arg.kind == TTI_ARG_BLOCK && any_says_training(call->args[i].arg.block))
            return true;
    return false;
}

bool tti_any_trains(const tti_building *b) { return b->any_trains; }

/* True if a call updates running statistics, or would if the model had been exported for
 * training. */
static bool moves_statistics(const tti_building *b, const tti_op_call *call) {
    bool is_norm = strstr(call->target, "batch_norm") || strstr(call->target, "BatchNormalization");
    return is_norm && (!b->any_trains || has_training_flag(call));
}

tti_sharing tti_sharing_of(const tti_building *b, int input) {
    const tti_block *block = &b->program->main;
    tti_sharing s = {0};
    for (int i = 0; i < block->n_calls; i++) {
        const tti_op_call *call = &block->calls[i];
        if (call == b->call) s.call = s.n_calls;
        for (int k = 0; k < call->n_args && moves_statistics(b, call); k++) {
            const tti_arg *arg = &call->args[k].arg;
            if (arg->kind != TTI_ARG_VALUE || arg->value != block->inputs[input]) continue;
            s.n_calls++;
            break;
        }
    }
    return s;
}

static bool any_says_training(const tti_block *block) {
    for (int i = 0; i < block->n_calls; i++)
        if (has_training_flag(&block->calls[i])) return true;
    return false;
}

/* Returns the first input that is the same tensor as input i: a tensor with two names is one
 * parameter. */
static int first_alias_of(const tti_program_file *p, int i) {
    for (int k = 0; k < i; k++)
        if (tti_is_same_tensor(&p->inputs[k], &p->inputs[i])) return k;
    return -1;
}

static void add_param(tti_building *b, int i, tti_operand *out) {
    const tti_input_spec *spec = &b->program->inputs[i];
    tutti_shape shape = tti_shape_of_spec(spec);
    int twin = first_alias_of(b->program, i);
    if (twin >= 0 && b->values[b->program->main.inputs[twin]].kind == TTI_OPERAND_GRAPH) {
        *out = b->values[b->program->main.inputs[twin]];
        return;
    }
    if (!tti_elem_is_float(spec->elem)) {
        tti_refuse(b, "parameter '%s' is of type %s; only floating parameters can be trained",
                   spec->name, tti_elem_text(spec->elem));
        return;
    }
    tutti_value *value = tutti_param(b->graph, spec->name, &shape, NULL, true);
    tti_set_value(b, out, value, spec->elem, false);
    b->params[i] = spec->name;
}

static void add_host(tti_building *b, int i, tti_operand *out) {
    const tti_input_spec *spec = &b->program->inputs[i];
    tutti_shape shape = tti_shape_of_spec(spec);
    tti_host host;
    b->max_work += 65 * (double)tti_import_n_elems(&spec->shape); /* work of 64 operators */
    if (!tti_host_new(b, spec->elem, &shape, &host)) return;
    tutti_status st = tti_program_load(b->program, spec, host.data);
    if (st != TUTTI_OK) b->st = st;
    tti_set_host(out, &host);
}

/* Adds a user input: dimension 0 is the batch, and the others are those of a sample. */
static void add_input(tti_building *b, int i, tutti_value *value, tti_operand *out) {
    const tti_input_spec *spec = &b->program->inputs[i];
    tutti_type type = tutti_value_type(value);
    if (!value) return;
    if (type.shape.n_dims != spec->shape.n_dims || spec->shape.n_dims < 1) {
        tti_refuse(b, "input '%s' has %d dimensions, the data has %d with the batch", spec->name,
                   spec->shape.n_dims, type.shape.n_dims);
        return;
    }
    for (int d = 1; d < type.shape.n_dims; d++) {
        if (spec->shape.symbol[d])
            tti_refuse(b,
                       "dimension %d of input '%s' is dynamic (%s); only the batch may be: export "
                       "it with a fixed size",
                       d, spec->name, spec->shape.symbol[d]);
        else if (spec->shape.dim[d] != type.shape.dim[d])
            tti_refuse(b, "dimension %d of input '%s' is %lld, the data has %lld", d, spec->name,
                       (long long)spec->shape.dim[d], (long long)type.shape.dim[d]);
    }
    if (!spec->shape.symbol[0] && spec->shape.dim[0] != type.shape.dim[0])
        tti_refuse(b,
                   "input '%s' was exported for a batch of %lld, and a shard has %lld rows; export "
                   "it with a dynamic batch (torch.export.Dim), or choose train.batch and "
                   "parallel.shards so that a shard has %lld",
                   spec->name, (long long)spec->shape.dim[0], (long long)type.shape.dim[0],
                   (long long)spec->shape.dim[0]);
    if (tti_elem_is_float(spec->elem) != (type.dtype == TUTTI_F32))
        tti_refuse(b, "input '%s' is of type %s, the data is %s", spec->name,
                   tti_elem_text(spec->elem), tutti_dtype_text(type.dtype));
    b->fixed_batch = !spec->shape.symbol[0];
    tti_set_value(b, out, value, spec->elem, true);
}

/* Adds the inputs of the main block. aten_norm.c creates buffers that a batch norm updates, and
 * changes.c those that the model changes; all other buffers are constants. */
static void add_inputs(tti_building *b) {
    const tti_program_file *p = b->program;
    const bool *used = find_used(b);
    int n_inputs = 0;
    for (int i = 0; used && i < p->main.n_inputs && tti_good(b); i++) {
        int value = p->main.inputs[i];
        tti_spec_kind kind = p->inputs[i].kind;
        if (kind == TTI_SPEC_INPUT) {
            add_input(b, i, b->inputs[n_inputs++], &b->values[value]);
            if (value >= 0) b->values[value].input = n_inputs;
        }
        if (value < 0 || !used[value]) continue;
        if (kind == TTI_SPEC_PARAM) add_param(b, i, &b->values[value]);
        if (b->changes.changed[i])
            tti_add_changed(b, i, &b->values[value]);
        else if (kind == TTI_SPEC_BUFFER || kind == TTI_SPEC_CONSTANT)
            add_host(b, i, &b->values[value]);
        b->values[value].spec = i + 1;
    }
}

static void take_outputs(tti_building *b, tutti_value **outputs) {
    const tti_program_file *p = b->program;
    int n = 0;
    for (int i = 0; i < p->main.n_outputs && tti_good(b); i++) {
        tti_result_kind kind = p->outputs[i].kind;
        if (kind != TTI_RESULT_OUTPUT && kind != TTI_RESULT_LOSS) continue;
        outputs[n] = NULL;
        tti_operand result;
        const tti_operand *x = tti_operand_named(b, &p->main.outputs[i]);
        if (x && x->is_complex)
            tti_refuse(b, "result %d of the model is complex; return torch.view_as_real of it", n);
        if (tti_good(b) && p->main.outputs[i].kind == TTI_ARG_VALUE &&
            tti_sort_rows(b, tti_operand_of(b, &p->main.outputs[i]), &result))
            outputs[n] = tti_as_float(b, tti_value_of(b, &result));
        n++;
    }
    tti_check_graph(b);
}

/* The limit of b->work. A mask has an element for each pair of positions in a sample, and every
 * layer applies a few operators to it. */
static double limit_of_work(const tti_building *b) {
    const tti_program_file *p = b->program;
    double n_pairs = 0;
    for (int i = 0, k = 0; i < p->main.n_inputs; i++) {
        if (p->inputs[i].kind != TTI_SPEC_INPUT) continue;
        tutti_shape shape = tutti_value_type(b->inputs[k++]).shape;
        double n = (double)tutti_shape_n_elems(&shape);
        n_pairs += n * n / (double)TTI_MAX(b->batch, 1);
    }
    return 0x1p26 + fmin(256 * n_pairs, 0x1p32);
}

tutti_status tti_program_build(const tti_program_file *p, tti_find_operator *find, tutti_graph *g,
                               tutti_value *const *inputs, tutti_value *present,
                               tti_import_labels *labels, tutti_value **outputs) {
    tti_building b = {.program = p,
                      .graph = g,
                      .inputs = inputs,
                      .present = present,
                      .block = &p->main,
                      .find = find};
    TTI_TRY(tutti_graph_check(g));
    b.first = inputs[0];
    b.nothing.kind = TTI_OPERAND_NUMBER;
    b.any_trains = any_says_training(&p->main);
    b.batch =
        tutti_value_type(inputs[0]).shape.n_dims ? tutti_value_type(inputs[0]).shape.dim[0] : 1;
    b.max_work = limit_of_work(&b);
    b.values = calloc((size_t)p->main.n_values + 1, sizeof *b.values);
    b.params = calloc((size_t)p->main.n_inputs + 1, sizeof *b.params);
    tti_operand *values = b.values;
    if (!b.values || !b.params) tti_no_memory(&b);
    if (tti_good(&b)) tti_find_changes(&b);
    if (tti_good(&b)) b.keeps_repeats = writes_constants(&b);
    if (tti_good(&b)) add_inputs(&b);
    if (tti_good(&b)) run_block(&b, &p->main, values);
    if (tti_good(&b)) tti_refuse_changes(&b);
    if (tti_good(&b)) take_outputs(&b, outputs);
    if (b.why) tti_fail(b.st, "%s", b.why);
    if (labels) *labels = b.labels;
    free(values);
    free(b.params);
    free(b.writes);
    tti_arena_free(&b.arena);
    return b.st;
}
