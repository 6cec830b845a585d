/* rotary.c - rotary positions: rotates pairs of a head by an angle that depends on the position;
 * f32.
 *
 * Sines and cosines of every position are computed once when the node is prepared, in double,
 * unless the position is an input, as in decoding.  They are the same for all heads and samples. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/simd.h"

typedef struct rotary {
    size_t n_t, width, heads, half; /* half: of the width of a head */
    double base, start, sign;
} rotary;

static rotary read_rotary(const tti_node *node) {
    const int64_t *dim = node->in[0]->type.shape.dim;
    rotary r = {.n_t = (size_t)dim[1], .width = (size_t)dim[2]};
    r.heads = (size_t)tti_attr_int(node, "heads");
    r.half = (size_t)tti_attr_int(node, "dim") / 2;
    r.base = tti_attr_float(node, "base");
    r.start = (double)tti_attr_int(node, "start");
    r.sign = tti_attr_int(node, "inverse") ? -1 : 1;
    return r;
}

static bool has_position(const tti_node *node) { return node->n_in == 2; }

/* Cosines [n_t][half], then sines. */
static size_t table_elems(const rotary *r) { return 2 * r->n_t * r->half; }

static void fill_table(const rotary *r, double start, float *cosine) {
    float *sine = cosine + r->n_t * r->half;
    for (size_t i = 0; i < r->half; i++) {
        double speed = pow(r->base, -(double)i / (double)r->half);
        for (size_t t = 0; t < r->n_t; t++) {
            double angle = r->sign * (start + (double)t) * speed;
            cosine[t * r->half + i] = (float)cos(angle);
            sine[t * r->half + i] = (float)sin(angle);
        }
    }
}

static tutti_status prepare(const tti_node *node, void **state) {
    rotary r = read_rotary(node);
    *state = NULL;
    if (has_position(node)) return TUTTI_OK;
    float *table = calloc(table_elems(&r) + 1, sizeof *table);
    if (!table) return tti_fail(TUTTI_E_NOMEM, "rotary '%s': out of memory", node->name);
    fill_table(&r, r.start, table);
    *state = table;
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    rotary r = read_rotary(node);
    (void)state;
    return has_position(node) ? table_elems(&r) * sizeof(float) : 0;
}

static void turn(const float *x, const float *cosine, const float *sine, size_t half, float *y) {
    TTI_IVDEP
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
    }
}

static tutti_status run_rotary(void *state, const tti_kargs *a) {
    rotary r = read_rotary(a->node);
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0] * r.n_t,
           turned = 2 * r.half * r.heads;
    const float *x = a->in[0], *table = state;
    float *y = a->out[0];
    if (has_position(a->node)) {
        fill_table(&r, r.start + (double)*(const int32_t *)a->in[1], a->scratch);
        table = a->scratch;
    }
    for (size_t row = 0; row < n_rows; row++, x += r.width, y += r.width) {
        const float *cosine = table + row % r.n_t * r.half, *sine = cosine + r.n_t * r.half;
        for (size_t h = 0; h < r.heads; h++)
            turn(x + 2 * r.half * h, cosine, sine, r.half, y + 2 * r.half * h);
        memcpy(y + turned, x + turned, (r.width - turned) * sizeof *y);
    }
    return TUTTI_OK;
}

static bool can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && node->out[0]->type.dtype == TUTTI_F32;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_rotary)[];
const tti_kernel TTI_VARIANT(tti_kernels_rotary)[] = {
    {.op = "rotary",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .prepare = prepare,
     .scratch_bytes = scratch_bytes,
     .run = run_rotary,
     .release = free},
    {0},
};
