/* aten_random.c - dropout and random numbers.
 *
 * Exporters expand stochastic depth into one random number per sample, from bernoulli_ or as
 * floor(rand + keep). Both become drop_path of ones, which is the identity in evaluation. */
#include "base/error.h"
#include "import/aten/aten.h"

/* Returns ones of a shape whose dimension 0 is the batch. */
static tutti_value *ones_of(tti_building *b, const tutti_shape *shape) {
    tutti_shape one = *shape;
    if (tti_good(b) && (shape->n_dims < 1 || shape->dim[0] != b->batch))
        tti_refuse(b, "random numbers that belong to no sample of the batch are not supported");
    if (!tti_good(b)) return NULL;
    one.dim[0] = 1;
    return tti_repeat_rows(b, tutti_constant(b->graph, TUTTI_F32, &one, 1));
}

/* Returns a random number for each sample, or for each element: 1 with probability keep, else 0. */
static tutti_value *bernoulli_of(tti_building *b, const tutti_shape *shape, double keep) {
    tutti_value *ones = ones_of(b, shape);
    if (tti_good(b) && !(keep > 0 && keep <= 1))
        tti_refuse(b, "the probability %g is out of range", keep);
    if (!tti_good(b)) return NULL;
    bool by_sample = tutti_shape_n_elems(shape) == shape->dim[0];
    const char *name = tti_layer_name_of(b);
    tutti_value *drawn = by_sample ? tutti_drop_path(b->graph, ones, 1 - keep, name)
                                   : tutti_dropout(b->graph, ones, 1 - keep, name);
    return tutti_affine(b->graph, drawn, keep, 0);
}

/* self p */
static void bernoulli(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    double keep = tti_number_at(b, c, 1);
    tti_set_value(b, c->out[0], bernoulli_of(b, &shape, keep), tti_float_elem(tti_elem_of(x)),
                  true);
}

void tti_set_floor_of_noise(tti_building *b, const tti_operand *x, tti_operand *out) {
    tutti_shape shape = tti_shape_of(x);
    tti_set_value(b, out, bernoulli_of(b, &shape, x->noise_shift), x->elem, true);
}

static void noise(tti_building *b, const tutti_shape *shape, bool normal, tti_operand *out) {
    tutti_value *ones = ones_of(b, shape);
    if (!tti_good(b)) return;
    tti_set_value(b, out, tutti_noise(b->graph, ones, normal, tti_layer_name_of(b)), TTI_ELEM_F32,
                  true);
    if (out && tti_good(b)) out->is_noise = !normal;
}

static void noise_of_size(tti_building *b, const tti_call *c, bool normal) {
    tutti_shape shape = {0};
    shape.n_dims = tti_ints_at(b, c, 0, shape.dim);
    if (tti_good(b) && !tti_is_batch_item(b, c, 0, 0))
        tti_refuse(b, "random numbers that belong to no sample of the batch are not supported");
    if (tti_good(b)) noise(b, &shape, normal, c->out[0]);
}
static void rand_of_size(tti_building *b, const tti_call *c) { noise_of_size(b, c, false); }
static void randn_of_size(tti_building *b, const tti_call *c) { noise_of_size(b, c, true); }

static void noise_like(tti_building *b, const tti_call *c, bool normal) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    if (tti_good(b) && !tti_of_batch(x))
        tti_refuse(b, "random numbers that belong to no sample of the batch are not supported");
    if (tti_good(b)) noise(b, &shape, normal, c->out[0]);
}
static void rand_like(tti_building *b, const tti_call *c) { noise_like(b, c, false); }
static void randn_like(tti_building *b, const tti_call *c) { noise_like(b, c, true); }

/* ---- dropout: input p train ---- */

/* True if the layer is active: it was not frozen while others trained. */
static bool drops(tti_building *b, const tti_call *c, double *p) {
    *p = tti_number_at(b, c, 1);
    if (tti_good(b) && !(*p >= 0 && *p < 1)) tti_refuse(b, "p=%g", *p);
    bool trains = !tti_has(c, 2) || tti_bool_at(b, c, 2);
    return *p > 0 && (trains || !b->any_trains);
}

static void dropout(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double p;
    bool acts = drops(b, c, &p);
    if (!tti_good(b)) return;
    if (!acts) {
        tti_set(c->out[0], x);
        return;
    }
    tutti_shape shape = tti_shape_of(x);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    bool merged = tti_of_batch(x) && shape.n_dims > 0 && shape.dim[0] > b->batch &&
                  shape.dim[0] % b->batch == 0; /* one mask per sample, not per row */
    if (merged) value = tutti_reshape(b->graph, value, &TUTTI_SHAPE(b->batch, -1));
    value = tutti_dropout(b->graph, value, p, tti_layer_name_of(b));
    if (merged) value = tutti_reshape(b->graph, value, &shape);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

/* Drops whole channels: one random number for each sample and channel. */
static void feature_dropout(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x), mask = shape;
    double p;
    bool acts = drops(b, c, &p);
    if (tti_good(b) && shape.n_dims < 3)
        tti_refuse(b, "a tensor of %d dimensions is not supported", shape.n_dims);
    if (!tti_good(b)) return;
    if (!acts) {
        tti_set(c->out[0], x);
        return;
    }
    for (int d = 2; d < mask.n_dims; d++) mask.dim[d] = 1;
    tutti_value *drawn = tutti_dropout(b->graph, ones_of(b, &mask), p, tti_layer_name_of(b));
    tutti_value *value = tutti_mul(b->graph, tti_as_float(b, tti_value_of(b, x)), drawn);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), true);
}

#define KIND " dtype!=None layout!=None device!=None pin_memory!=None"

const tti_operator tti_operators_random[] = {
    TTI_BOTH("bernoulli.p", "self p generator!=None", bernoulli),
    TTI_BOTH("bernoulli.float", "self p=0.5 generator!=None", bernoulli),
    TTI_BOTH("rand.default", "size" KIND, rand_of_size),
    TTI_BOTH("randn.default", "size" KIND, randn_of_size),
    TTI_BOTH("rand_like.default", "self" KIND " memory_format!=None", rand_like),
    TTI_BOTH("randn_like.default", "self" KIND " memory_format!=None", randn_like),
    TTI_BOTH("dropout.default", "input p train=True", dropout),
    TTI_BOTH("native_dropout.default", "input p train=True", dropout),
    TTI_BOTH("feature_dropout.default", "input p train=True", feature_dropout),
    {0},
};
