/* import_run.c - runs a model file once on the host, for comparisons with the framework that wrote
 * it: import_run MODEL IN OUT [eval].
 *
 * IN holds the inputs as safetensors, "in.0", "in.1", ..; of training also a factor of the type of
 * each output, "cot.0", "cot.1", ..  OUT gets the outputs "out.0", ..; of training also the
 * gradients "grad.NAME" of the sum of the outputs times their factors.  The graph goes through all
 * passes, and each node through the kernel that a job would use.  Exit codes are those of tutti. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "ckpt/safetensors.h"
#include "import/import.h"
#include "ir/graph.h"
#include "ops/op_table.h"
#include "passes/passes.h"
#include "tutti/ops.h"

enum { MAX_TENSORS = 4096, MAX_VALUES = 64 };

typedef struct run {
    tti_import *model;
    tti_safetensors *in;
    tutti_graph *g;
    void **memory; /* [n_values] */
    bool training;
} run;

static const tti_safetensors_entry *entry_of(const run *r, const char *name) {
    for (size_t i = 0; i < r->in->n_entries; i++)
        if (strcmp(r->in->entries[i].name, name) == 0) return &r->in->entries[i];
    return NULL;
}

static tutti_value *input(run *r, const char *kind, int i) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", kind, i);
    const tti_safetensors_entry *entry = entry_of(r, name);
    if (!entry) {
        tutti_graph_refuse(r->g, "import_run: an input is missing in IN");
        return NULL;
    }
    return tutti_input(r->g, name, entry->type.dtype, &entry->type.shape);
}

static tutti_status build(run *r) {
    tutti_value *inputs[MAX_VALUES] = {NULL}, *outputs[MAX_VALUES] = {NULL}, *sum = NULL;
    int n_in = tti_import_n_inputs(r->model), n_out = tti_import_n_outputs(r->model);
    if (n_in > MAX_VALUES || n_out > MAX_VALUES)
        return tti_fail(TUTTI_E_UNSUPPORTED, "too many inputs or outputs");
    for (int i = 0; i < n_in; i++) inputs[i] = input(r, "in", i);
    TTI_TRY(tutti_graph_check(r->g));
    TTI_TRY(tti_import_build(r->model, r->g, &(tti_import_samples){.inputs = inputs}, outputs));
    for (int i = 0; i < n_out; i++) {
        char name[32];
        snprintf(name, sizeof name, "out.%d", i);
        if (!outputs[i]) continue;
        tutti_output(r->g, name, outputs[i]);
        if (!r->training) continue;
        tutti_value *term = tutti_mul(r->g, outputs[i], input(r, "cot", i));
        term = tutti_sum(r->g, term, NULL);
        sum = sum ? tutti_add(r->g, sum, term) : term;
    }
    if (r->training) tutti_output(r->g, "loss_sum", sum);
    return tutti_graph_check(r->g);
}

static tti_target cpu_target(void) {
    const tti_backend *cpu = &tti_backend_cpu;
    return (tti_target){.one_shard = getenv("IMPORT_RUN_ONE_SHARD") != NULL,
                        .prefers_channels_last = cpu->prefers_channels_last,
                        .fuses_pool = cpu->fuses_pool,
                        .fuse = true,
                        .fuse_linear_grad = cpu->joins_products != NULL,
                        .joins_products = cpu->joins_products,
                        .joins_exact_gelu = cpu->joins_exact_gelu,
                        .joins_gradient = cpu->joins_gradient,
                        .joins_head = cpu->joins_head,
                        .weights = cpu->weights};
}

/* ---- running ---- */

static tutti_status copy_part(void *user, int tensor, size_t first, size_t n_elems,
                              const float *data) {
    (void)tensor;
    memcpy((float *)user + first, data, n_elems * sizeof *data);
    return TUTTI_OK;
}

static tutti_status fill_source(run *r, const tti_node *node) {
    void *memory = r->memory[node->out[0]->id];
    tutti_type type = node->out[0]->type;
    size_t n = (size_t)tti_value_n_elems(node->out[0]);
    if (node->op->traits & TTI_CONSTANT) {
        for (size_t i = 0; i < n; i++) {
            double x = tti_constant_elem(node, i);
            if (type.dtype == TUTTI_I32)
                ((int32_t *)memory)[i] = (int32_t)x;
            else if (type.dtype == TUTTI_F32)
                ((float *)memory)[i] = (float)x;
            else
                return tti_fail(TUTTI_E_UNSUPPORTED, "a constant of another type");
        }
        return TUTTI_OK;
    }
    if (node->op->traits & (TTI_PARAM | TTI_BUFFER))
        return tti_import_load(r->model, &(tti_import_wanted){node->name, (int64_t)n}, 1, NULL,
                               copy_part, memory);
    if (strcmp(node->name, "rows") == 0) {
        *(int32_t *)memory = (int32_t)r->in->entries[0].type.shape.dim[0];
        return TUTTI_OK;
    }
    const tti_safetensors_entry *entry = entry_of(r, node->name);
    uint32_t crc;
    if (!entry) return tti_fail(TUTTI_E_UNSUPPORTED, "no tensor for input '%s'", node->name);
    return tti_safetensors_read(r->in, entry, memory, &crc);
}

static tutti_status run_node(run *r, const tti_node *node) {
    void *in[TTI_MAX_IN * 4], *out[TTI_MAX_OUT], *state = NULL, *scratch = NULL;
    const tti_run at = {.seed = 1};
    if (node->op->traits & TTI_SOURCE) return fill_source(r, node);
    const tti_kernel *kernel = tti_backend_cpu.select(node, false);
    if (!kernel) return tti_fail(TUTTI_E_INTERNAL, "no kernel for %s", node->op->name);
    for (int i = 0; i < node->n_in; i++) in[i] = r->memory[node->in[i]->id];
    for (int k = 0; k < node->op->n_out; k++) out[k] = r->memory[node->out[k]->id];
    tutti_status st = kernel->prepare ? kernel->prepare(node, &state) : TUTTI_OK;
    size_t n = st == TUTTI_OK && kernel->scratch_bytes ? kernel->scratch_bytes(node, state) : 0;
    if (n > 0) scratch = tti_backend_cpu.alloc(n);
    if (st == TUTTI_OK) st = kernel->run(state, &(tti_kargs){node, in, out, scratch, &at});
    if (n > 0) tti_backend_cpu.release(scratch, n);
    if (kernel->release) kernel->release(state);
    return st;
}

static tutti_status execute(run *r) {
    r->memory = calloc((size_t)r->g->n_values + 1, sizeof(void *));
    if (!r->memory) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    tti_backend_cpu.thread_init();
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        for (int k = 0; k < node->op->n_out; k++) {
            size_t n = tti_value_n_bytes(node->out[k]);
            r->memory[node->out[k]->id] = tti_backend_cpu.alloc(n > 0 ? n : 1);
        }
        TTI_TRY(run_node(r, node));
    }
    return TUTTI_OK;
}

static void release(run *r) {
    for (int i = 0; r->memory && i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        for (int k = 0; k < node->op->n_out; k++) {
            size_t n = tti_value_n_bytes(node->out[k]);
            void *memory = r->memory[node->out[k]->id];
            if (memory) tti_backend_cpu.release(memory, n > 0 ? n : 1);
        }
    }
    free(r->memory);
    tutti_graph_destroy(r->g);
    tti_safetensors_close(r->in);
    tti_import_close(r->model);
}

/* A 4-D value that lies with its channels innermost, as the others lie. */
static void *plain(const tutti_value *x, float *memory) {
    const int64_t *d = x->type.shape.dim;
    if (x->layout == TTI_PLAIN) return memory;
    float *to = malloc(tti_value_n_bytes(x) + 1);
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t c = 0; c < d[1]; c++)
            for (int64_t i = 0; i < d[2] * d[3]; i++)
                to[(n * d[1] + c) * d[2] * d[3] + i] = memory[(n * d[2] * d[3] + i) * d[1] + c];
    return to;
}

static tutti_status store(run *r, const char *path) {
    static tti_ckpt_tensor tensors[MAX_TENSORS];
    static bool is_copy[MAX_TENSORS];
    size_t n = 0;
    tti_safetensors *written = NULL;
    for (int i = 0; i < r->g->n_outputs && n < MAX_TENSORS; i++) {
        const tti_output *out = &r->g->outputs[i];
        if (strncmp(out->name, "out.", 4) != 0 && strncmp(out->name, "grad.", 5) != 0) continue;
        tensors[n].name = out->name;
        tensors[n].type = out->value->type;
        is_copy[n] = out->value->layout != TTI_PLAIN;
        tensors[n++].data = plain(out->value, r->memory[out->value->id]);
    }
    tutti_status st = tti_safetensors_write(path, tensors, n, &written);
    tti_safetensors_close(written);
    for (size_t i = 0; i < n; i++)
        if (is_copy[i]) free((void *)(uintptr_t)tensors[i].data);
    return st;
}

int main(int argc, char **argv) {
    run r = {.training = argc == 4};
    if (argc != 4 && !(argc == 5 && strcmp(argv[4], "eval") == 0)) {
        fprintf(stderr, "usage: import_run MODEL IN OUT [eval]\n");
        return 2;
    }
    tti_target target = cpu_target();
    tutti_status st = tti_import_open(argv[1], &r.model);
    if (st == TUTTI_OK) st = tti_safetensors_open(argv[2], &r.in);
    r.g = tutti_graph_create(r.training);
    if (st == TUTTI_OK) st = build(&r);
    if (st == TUTTI_OK && getenv("IMPORT_RUN_PRINT")) {
        char *text = tutti_graph_print(r.g);
        fputs(text ? text : "", stderr);
        free(text);
    }
    if (st == TUTTI_OK) st = tti_pipeline_run(&r.g, &target, NULL);
    if (st == TUTTI_OK) st = execute(&r);
    if (st == TUTTI_OK) st = store(&r, argv[3]);
    release(&r);
    if (st == TUTTI_OK) return 0;
    fprintf(stderr, "error: %s\n", tutti_last_error());
    return st == TUTTI_E_UNSUPPORTED ? 2 : 1;
}
