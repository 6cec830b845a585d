/* onnx_inner.c - graphs inside nodes: the branches of If, the bodies of Loop and Scan.
 *
 * Such a graph may use values of the enclosing graphs. They become inputs of its block, after its
 * own inputs, and arguments of the call, after the block. So a block is self-contained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "import/onnx/onnx.h"

tutti_status tti_onnx_finish_block(const tti_onnx *m, const tti_onnx_block *b, const int *inputs,
                                   int n_inputs, tti_block *out) {
    size_t n_own = (size_t)n_inputs, n = (size_t)b->n_captured;
    int *all = tti_arena_alloc(m->arena, (n_own + n + 1) * sizeof *all);
    out->n_inputs = n_inputs + b->n_captured;
    out->n_calls = b->n_calls;
    out->n_values = b->n_values;
    out->inputs = all;
    out->calls = tti_arena_copy(m->arena, b->calls, (size_t)b->n_calls * sizeof *b->calls);
    out->names =
        tti_arena_copy(m->arena, b->value_names, (size_t)b->n_values * sizeof *b->value_names);
    if (!all || (!out->calls && b->n_calls > 0) || (!out->names && b->n_values > 0))
        return tti_onnx_no_memory(m);
    if (n_own > 0) memcpy(all, inputs, n_own * sizeof *all);
    if (n > 0) memcpy(all + n_own, b->captured_as, n * sizeof *all);
    return TUTTI_OK;
}

void tti_onnx_free_block(tti_onnx_block *b) {
    tti_onnx_names_free(&b->values);
    free(b->value_names);
    free(b->calls);
    free(b->captured);
    free(b->captured_as);
}

/* ---- a GraphProto ---- */

static tutti_status read_name(const tti_onnx *m, const char *what, tti_pb info, const char **out) {
    tti_pb_field f;
    bool more;
    *out = "";
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &info, what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 1 && f.wire == TTI_PB_BYTES) TTI_TRY(tti_onnx_text(m, &f.bytes, what, out));
    }
}

static tutti_status count(const tti_onnx *m, const char *what, tti_pb graph, uint32_t number,
                          size_t *out) {
    tti_pb_field f;
    bool more;
    *out = 0;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &graph, what, &f, &more));
        if (!more) return TUTTI_OK;
        *out += f.number == number && f.wire == TTI_PB_BYTES;
    }
}

static tutti_status add_input(tti_onnx *m, const char *what, tti_pb info, int *out) {
    const char *name;
    TTI_TRY(read_name(m, what, info, &name));
    TTI_TRY(tti_onnx_add_value(m, name, out));
    return tti_onnx_define(m, name, *out);
}

/* Different graphs inside nodes may use the same name for their own tensors, but tensors of the
 * model need unique names. */
static tutti_status add_tensor(tti_onnx *m, const char *what, tti_pb message) {
    tti_input_spec spec;
    int value, twin = 0;
    TTI_TRY(tti_onnx_tensor(m, message, NULL, &spec));
    const char *name = spec.name;
    if (!name[0]) return tti_onnx_damaged(m, what, "a tensor has no name");
    TTI_TRY(tti_ckpt_check_name(m->path, name));
    while (tti_onnx_names_find(&m->inner_tensors, spec.name) >= 0 ||
           tti_onnx_names_find(&m->main.values, spec.name) >= 0) {
        spec.name = tti_arena_printf(m->arena, "%s.%d", name, ++twin);
        if (!spec.name) return tti_onnx_no_memory(m);
    }
    if (!tti_onnx_names_put(&m->inner_tensors, spec.name, 0)) return tti_onnx_no_memory(m);
    spec.kind = TTI_SPEC_BUFFER; /* see tti_onnx_classify */
    TTI_TRY(tti_onnx_add_spec(m, &spec, &value));
    return tti_onnx_define(m, name, value);
}

static tutti_status add_output(tti_onnx *m, const char *what, tti_pb info, tti_arg *out) {
    const char *name;
    char why[300];
    int value;
    TTI_TRY(read_name(m, what, info, &name));
    TTI_TRY(tti_onnx_find_value(m, name, &value));
    snprintf(why, sizeof why, "no node computes the output '%.200s'", name);
    if (value < 0 || value >= m->block->n_values) return tti_onnx_damaged(m, what, why);
    *out = (tti_arg){.kind = TTI_ARG_VALUE, .value = value};
    return TUTTI_OK;
}

tutti_status tti_onnx_outputs(tti_onnx *m, const char *what, tti_pb graph, tti_block *out, int *n) {
    size_t most;
    tti_pb_field f;
    bool more;
    TTI_TRY(count(m, what, graph, 12, &most));
    tti_arg *outputs = tti_arena_alloc(m->arena, (most + 1) * sizeof *outputs);
    if (!outputs) return tti_onnx_no_memory(m);
    for (*n = 0;;) {
        TTI_TRY(tti_onnx_next_field(m, &graph, what, &f, &more));
        if (!more) break;
        if (f.number == 12 && f.wire == TTI_PB_BYTES)
            TTI_TRY(add_output(m, what, f.bytes, &outputs[(*n)++]));
    }
    out->outputs = outputs;
    out->n_outputs = *n;
    return TUTTI_OK;
}

/* Reads the inputs, then the tensors, whatever their order in the file. *inputs [*n] is in the
 * arena. */
static tutti_status read_sources(tti_onnx *m, const char *what, tti_pb graph, int **inputs,
                                 int *n) {
    static const uint32_t parts[] = {11, 5};
    size_t most;
    TTI_TRY(count(m, what, graph, 11, &most));
    *n = 0;
    *inputs = tti_arena_alloc(m->arena, (most + 1) * sizeof **inputs);
    if (!*inputs) return tti_onnx_no_memory(m);
    for (size_t k = 0; k < TTI_COUNT(parts); k++)
        for (tti_pb g = graph;;) {
            tti_pb_field f;
            bool more;
            TTI_TRY(tti_onnx_next_field(m, &g, what, &f, &more));
            if (!more) break;
            if (f.wire != TTI_PB_BYTES) continue;
            if (f.number == 15)
                return tti_fail(TUTTI_E_UNSUPPORTED, "%s: sparse tensors are not supported",
                                m->path);
            if (f.number != parts[k]) continue;
            if (f.number == 11) TTI_TRY(add_input(m, what, f.bytes, &(*inputs)[(*n)++]));
            if (f.number == 5) TTI_TRY(add_tensor(m, what, f.bytes));
        }
    return TUTTI_OK;
}

static tutti_status read_graph(tti_onnx *m, const char *what, tti_pb graph, tti_block *out) {
    int *inputs, n, n_outputs;
    TTI_TRY(read_sources(m, what, graph, &inputs, &n));
    TTI_TRY(tti_onnx_nodes(m, graph));
    TTI_TRY(tti_onnx_outputs(m, what, graph, out, &n_outputs));
    return tti_onnx_finish_block(m, m->block, inputs, n, out);
}

tutti_status tti_onnx_inner(tti_onnx *m, const char *what, tti_pb graph, tti_arg *out,
                            const int **captured, int *n_captured) {
    tti_onnx_block own = {.around = m->block};
    tti_block *block = tti_arena_alloc(m->arena, sizeof *block);
    if (!block) return tti_onnx_no_memory(m);
    if (m->depth == TTI_ONNX_MAX_DEPTH)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: %s: graphs inside graphs, more than %d deep",
                        m->path, what, TTI_ONNX_MAX_DEPTH);
    *block = (tti_block){0};
    m->depth++;
    m->block = &own;
    tutti_status st = read_graph(m, what, graph, block);
    m->block = own.around;
    m->depth--;
    *n_captured = own.n_captured;
    *captured = tti_arena_copy(m->arena, own.captured, (size_t)own.n_captured * sizeof(int));
    if (st == TUTTI_OK && !*captured && own.n_captured > 0) st = tti_onnx_no_memory(m);
    *out = (tti_arg){.kind = TTI_ARG_BLOCK, .block = block};
    tti_onnx_free_block(&own);
    return st;
}
