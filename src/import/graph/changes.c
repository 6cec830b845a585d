/* changes.c - models that change their own buffers or parameters, such as running means or the
 * vectors of a spectral norm.
 *
 * Such a buffer becomes a buffer of the graph. As for any other tensor, calls that write to it
 * create new values. The step stores the last value in the buffer, averaged over the shards in
 * proportion to their samples. Evaluation stores nothing. aten_norm.c handles the statistics of
 * batch norms. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/graph/building.h"

/* ---- finding the buffers ---- */

static void mark_results(const tti_op_call *call, bool *marked) {
    for (int k = 0; k < call->n_outs; k++)
        if (call->outs[k] >= 0) marked[call->outs[k]] = true;
}

/* Marks the values of a block that depend on marked values. A call that writes counts as a write to
 * all values that it reads. */
static void mark_dependents(tti_building *b, const tti_block *block, bool *marked);

/* The same for the blocks inside a call: their inputs are the call's arguments after the blocks. */
static void mark_inside(tti_building *b, const tti_op_call *call, bool *marked) {
    for (int at = 0; at < call->n_args && tti_good(b); at++) {
        const tti_block *inner = call->args[at].arg.block;
        if (call->args[at].arg.kind != TTI_ARG_BLOCK) continue;
        bool *own = calloc((size_t)inner->n_values + 1, sizeof *own);
        if (!own) {
            tti_no_memory(b);
            return;
        }
        bool fits = call->n_args - at - 1 == inner->n_inputs && inner->n_outputs == call->n_outs;
        for (int i = 0; fits && i < inner->n_inputs; i++)
            if (inner->inputs[i] >= 0)
                own[inner->inputs[i]] = tti_any_marked(&call->args[at + 1 + i].arg, marked);
        if (fits) mark_dependents(b, inner, own);
        for (int i = 0; fits && i < inner->n_inputs; i++) {
            const tti_arg *arg = &call->args[at + 1 + i].arg;
            if (arg->kind == TTI_ARG_VALUE && inner->inputs[i] >= 0 && own[inner->inputs[i]])
                marked[arg->value] = true;
        }
        for (int k = 0; k < call->n_outs; k++)
            if (call->outs[k] >= 0 && (!fits || tti_any_marked(&inner->outputs[k], own)))
                marked[call->outs[k]] = true;
        free(own);
    }
}

static void mark_dependents(tti_building *b, const tti_block *block, bool *marked) {
    for (int i = 0; i < block->n_calls && tti_good(b); i++) {
        const tti_op_call *call = &block->calls[i];
        bool any = false, in_place = false;
        for (int k = 0; k < call->n_args && !any; k++)
            any = tti_any_marked(&call->args[k].arg, marked);
        if (tti_runs_block(call->target)) {
            mark_inside(b, call, marked);
            continue;
        }
        if (!any) continue;
        mark_results(call, marked);
        tti_row_for(b, call->target, &in_place);
        if (in_place && call->args[0].arg.kind == TTI_ARG_VALUE)
            marked[call->args[0].arg.value] = true;
    }
}

/* True if a result of the model depends on input `number` of the main block. */
static bool reaches_result(tti_building *b, int number) {
    const tti_block *block = &tti_program_of(b)->main;
    bool *marked = tti_build_alloc(b, (size_t)block->n_values + 1);
    if (!marked) return true;
    marked[number] = true;
    mark_dependents(b, block, marked);
    for (int i = 0; i < block->n_outputs; i++)
        if (tti_is_user_output(&tti_program_of(b)->outputs[i]) &&
            tti_any_marked(&block->outputs[i], marked))
            return true;
    return false;
}

/* True if input i is an integer on which no result depends, such as the step counter of a batch
 * norm. */
static bool is_counter(tti_building *b, int i) {
    const tti_input_spec *spec = &tti_program_of(b)->inputs[i];
    return !tti_elem_is_float(spec->elem) && tti_import_n_elems(&spec->shape) == 1 &&
           !reaches_result(b, tti_program_of(b)->main.inputs[i]);
}

/* The call of the main block that computes a value; -1: none. */
static int maker_of(const tti_building *b, int value) {
    const tti_block *block = &tti_program_of(b)->main;
    for (int i = 0; i < block->n_calls; i++)
        for (int k = 0; k < block->calls[i].n_outs; k++)
            if (block->calls[i].outs[k] == value) return i;
    return -1;
}

/* True if the new value of a buffer is computed by a batch norm, or is the old value. */
static bool is_kept(const tti_building *b, int buffer, int value) {
    const tti_block *block = &tti_program_of(b)->main;
    int maker = maker_of(b, value);
    return value == block->inputs[buffer] ||
           (maker >= 0 && strstr(block->calls[maker].target, "batch_norm") != NULL);
}

/* The input of the main block that a mutation changes; -1: none. */
static int buffer_of_mutation(const tti_building *b, int k) {
    const tti_program_file *p = tti_program_of(b);
    if (p->outputs[k].kind != TTI_RESULT_MUTATION) return -1;
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_BUFFER && p->main.inputs[i] >= 0 && p->inputs[i].name &&
            strcmp(p->inputs[i].name, p->outputs[k].name) == 0)
            return i;
    return -1;
}

/* The same, except for a mutation that keeps the old value or belongs to a batch norm: -1. */
static int changed_by(const tti_building *b, int k) {
    const tti_arg *made = &tti_program_of(b)->main.outputs[k];
    int i = buffer_of_mutation(b, k);
    return i >= 0 && made->kind == TTI_ARG_VALUE && !is_kept(b, i, made->value) ? i : -1;
}

/* Records that `call`, of the main block, changes input `spec`. */
static void record_change(tti_building *b, int spec, int call) {
    if (!tti_elem_is_float(tti_program_of(b)->inputs[spec].elem)) return;
    tti_changes *own = tti_changes_of(b);
    own->changed[spec] = true;
    own->last_write[spec] = call;
}

/* Records the buffers that calls of a block write to. buffer [n_values]: 1 + the input of the main
 * block whose memory a value shares, or 0. outer: the call of the main block that runs the block;
 * -1: it is the main block. */
static void find_writes(tti_building *b, const tti_block *block, int outer, int *buffer);

static void find_writes_inside(tti_building *b, const tti_op_call *call, int outer,
                               const int *buffer) {
    for (int at = 0; at < call->n_args && tti_good(b); at++) {
        const tti_block *inner = call->args[at].arg.block;
        if (call->args[at].arg.kind != TTI_ARG_BLOCK) continue;
        int *own = calloc((size_t)inner->n_values + 1, sizeof *own);
        if (!own) {
            tti_no_memory(b);
            return;
        }
        for (int i = 0; i < inner->n_inputs && at + 1 + i < call->n_args; i++) {
            const tti_arg *arg = &call->args[at + 1 + i].arg;
            if (arg->kind == TTI_ARG_VALUE && inner->inputs[i] >= 0)
                own[inner->inputs[i]] = buffer[arg->value];
        }
        find_writes(b, inner, outer, own);
        free(own);
    }
}

static void find_writes(tti_building *b, const tti_block *block, int outer, int *buffer) {
    for (int i = 0; i < block->n_calls && tti_good(b); i++) {
        const tti_op_call *call = &block->calls[i];
        bool in_place = false;
        if (tti_runs_block(call->target)) {
            find_writes_inside(b, call, outer < 0 ? i : outer, buffer);
            continue;
        }
        const tti_operator *row = tti_row_for(b, call->target, &in_place);
        const tti_arg *self = call->n_args > 0 ? &call->args[0].arg : NULL;
        if (!row || !self || self->kind != TTI_ARG_VALUE || buffer[self->value] == 0) continue;
        if (in_place) record_change(b, buffer[self->value] - 1, outer < 0 ? i : outer);
        for (int k = 0; k < call->n_outs && (in_place || row->view); k++)
            if (call->outs[k] >= 0) buffer[call->outs[k]] = buffer[self->value];
    }
}

void tti_find_changes(tti_building *b) {
    const tti_program_file *p = tti_program_of(b);
    tti_changes *own = tti_changes_of(b);
    size_t n = (size_t)p->main.n_inputs + 1;
    *own = (tti_changes){.changed = tti_build_alloc(b, n),
                         .last_write = tti_build_alloc(b, n * sizeof *own->last_write),
                         .sources = tti_build_alloc(b, n * sizeof(tutti_value *)),
                         .momentum = tti_build_alloc(b, n * sizeof(double))};
    int *buffer = tti_build_alloc(b, ((size_t)p->main.n_values + 1) * sizeof *buffer);
    if (!tti_good(b)) return;
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_BUFFER && p->main.inputs[i] >= 0)
            buffer[p->main.inputs[i]] = i + 1;
    find_writes(b, &p->main, -1, buffer);
    for (int k = 0; k < p->main.n_outputs && tti_good(b); k++) {
        int i = changed_by(b, k);
        if (i < 0) continue;
        int maker = maker_of(b, p->main.outputs[k].value);
        record_change(b, i, maker >= 0 ? maker : p->main.n_calls - 1);
    }
}

void tti_add_changed(tti_building *b, int i, tti_operand *out) {
    const tti_input_spec *spec = &tti_program_of(b)->inputs[i];
    tutti_shape shape = tti_shape_of_spec(spec);
    tutti_value *value = tutti_buffer(tti_graph_of(b), spec->name, &shape, 0, 1);
    tti_set_value(b, out, value, spec->elem, false);
    if (!tti_good(b)) return;
    out->of_buffer = true;
    tti_changes_of(b)->sources[i] = value;
    tti_name_tensor(b, i);
}

/* ---- values that a step stores ---- */

static void leave(tti_building *b, int i, const tti_arg *arg) {
    const tti_input_spec *spec = &tti_program_of(b)->inputs[i];
    tutti_shape shape = tti_shape_of_spec(spec);
    const tti_operand *x = tti_operand_of(b, arg);
    tutti_value *source = tti_changes_of(b)->sources[i];
    if (!tti_good(b) || (x->kind == TTI_OPERAND_GRAPH && x->value == source)) return;
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (!tti_good(b)) return;
    tutti_shape own = tutti_value_type(value).shape;
    bool fits = own.n_dims == shape.n_dims && memcmp(own.dim, shape.dim, sizeof own.dim) == 0;
    if (!fits || tti_sample_dims(b, value, ~0u) != 0)
        tti_refuse(b,
                   "the model changes its buffer '%s' to values that belong to single samples, "
                   "which is not supported",
                   spec->name);
    if (tti_good(b)) tutti_move_buffer(tti_graph_of(b), source, value);
    tti_check_graph(b);
}

void tti_record_changes(tti_building *b, int call) {
    const tti_program_file *p = tti_program_of(b);
    const tti_changes *own = tti_changes_of(b);
    if (!tutti_graph_is_training(tti_graph_of(b))) return;
    for (int i = 0; i < p->main.n_inputs && tti_good(b); i++) {
        tti_arg arg = {.kind = TTI_ARG_VALUE, .value = p->main.inputs[i]};
        if (!own->changed[i] || !own->sources[i] || own->last_write[i] != call) continue;
        for (int k = 0; k < p->main.n_outputs; k++)
            if (buffer_of_mutation(b, k) == i) arg = p->main.outputs[k];
        leave(b, i, &arg);
    }
}

/* ---- changes that are refused ---- */

static void refuse_change(tti_building *b, int i) {
    const tti_input_spec *spec = &tti_program_of(b)->inputs[i];
    bool is_param = spec->kind == TTI_SPEC_PARAM;
    if (!is_param && is_counter(b, i)) return;
    tti_clear_call(b);
    tti_refuse(b,
               "the model itself changes its %s '%s' of type %s in training, which is supported "
               "only of floating buffers; export the model in evaluation mode, or without that",
               is_param ? "parameter" : "buffer", spec->name, tti_elem_text(spec->elem));
}

void tti_refuse_changes(tti_building *b) {
    const tti_program_file *p = tti_program_of(b);
    tutti_value *const *sources = tti_changes_of(b)->sources;
    for (int i = 0; i < p->main.n_inputs && tti_good(b); i++) {
        tti_spec_kind kind = p->inputs[i].kind;
        const tti_arg arg = {.kind = TTI_ARG_VALUE, .value = p->main.inputs[i]};
        const tti_operand *x = p->main.inputs[i] >= 0 ? tti_operand_named(b, &arg) : NULL;
        if (!x || x->kind == TTI_OPERAND_NONE || sources[i]) continue;
        if (kind != TTI_SPEC_PARAM && kind != TTI_SPEC_BUFFER) continue;
        if (x->spec != i + 1 || (x->kind == TTI_OPERAND_HOST && x->host.use->written))
            refuse_change(b, i);
    }
    for (int k = 0; k < p->main.n_outputs && tti_good(b); k++) {
        int i = changed_by(b, k);
        if (i >= 0 && !sources[i]) refuse_change(b, i);
    }
}
