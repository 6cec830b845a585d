/* pt2_fuzz.c - any bytes as a .pt2 file: refused, or read so that it can be described, its tensors
 * loaded, and a graph built or refused. */
#include <stdlib.h>

#include "base/error.h"
#include "base/str.h"
#include "import/operators.h"
#include "import/pt2/pt2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MAX_INPUTS = 8 };
#define MAX_ELEMS ((int64_t)1 << 16)
#define MAX_INPUT_ELEMS ((int64_t)1 << 10) /* larger inputs allow more computing of constants */

static bool is_small(const tti_import_shape *shape, int64_t most) {
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims; d++)
        if (shape->dim[d] > most || (n *= shape->dim[d] < 1 ? 1 : shape->dim[d]) > most)
            return false;
    return true;
}

static void load_tensors(const tti_program_file *p) {
    for (int i = 0; i < p->main.n_inputs; i++) {
        const tti_input_spec *spec = &p->inputs[i];
        if (spec->kind == TTI_SPEC_INPUT || spec->kind == TTI_SPEC_NOTHING) continue;
        if (!is_small(&spec->shape, MAX_ELEMS)) continue;
        double *x = malloc(((size_t)tti_import_n_elems(&spec->shape) + 1) * sizeof *x);
        TTI_ASSERT(x);
        (void)!tti_program_load(p, spec, x);
        free(x);
    }
}

/* As the trainer would build it: a batch of two rows where the file leaves it open. */
static void build(const tti_program_file *p) {
    tutti_value *inputs[MAX_INPUTS],
        **outputs = calloc((size_t)p->main.n_outputs + 1, sizeof *outputs);
    tutti_graph *g = tutti_graph_create(true);
    int n = 0;
    bool small = g && outputs;
    for (int i = 0; small && i < p->main.n_inputs; i++) {
        const tti_input_spec *spec = &p->inputs[i];
        bool is_input = spec->kind == TTI_SPEC_INPUT;
        small = is_small(&spec->shape, is_input ? MAX_INPUT_ELEMS : MAX_ELEMS) && n < MAX_INPUTS;
        if (!is_input || !small) continue;
        tutti_shape shape = {.n_dims = spec->shape.n_dims};
        for (int d = 0; d < shape.n_dims; d++)
            shape.dim[d] = spec->shape.symbol[d] ? 2 : spec->shape.dim[d];
        inputs[n++] = tutti_input(g, spec->name,
                                  tti_elem_is_float(spec->elem) ? TUTTI_F32 : TUTTI_I32, &shape);
    }
    tutti_value *present = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(2));
    if (small && n > 0)
        (void)!tti_program_build(p, tti_operator_find, g, inputs, present, NULL, outputs);
    tutti_graph_destroy(g);
    free(outputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_archive *archive;
    tti_program_file *program;
    if (tti_archive_open_memory(data, n_bytes, "fuzz", &archive) != TUTTI_OK) return 0;
    if (tti_pt2_read(archive, &program) != TUTTI_OK) return 0;
    load_tensors(program);
    build(program);
    tti_program_close(program);
    return 0;
}
