/* init.c - computes the initial values of a parameter.
 *
 * For a tensor shard elements are counted in the whole parameter, so its values are those that one
 * worker would have drawn. */
#include "ops/init.h"

#include <math.h>

#include "ops/tensor_shard.h"

/* dims[0] x area and dims[1] x area, as PyTorch counts them; a vector has fan 1 and itself. */
static void fans_of(const tti_node *param, double *fan_in, double *fan_out) {
    const tutti_shape shape = tti_tensor_shard_whole(param);
    int64_t given = tti_attr_int(param, "fan_in");
    double area = 1;
    for (int d = 2; d < shape.n_dims; d++) area *= (double)shape.dim[d];
    *fan_in = given ? (double)given : area * (shape.n_dims > 1 ? (double)shape.dim[1] : 1);
    *fan_out = area * (shape.n_dims > 0 ? (double)shape.dim[0] : 1);
    *fan_in = fmax(*fan_in, 1), *fan_out = fmax(*fan_out, 1);
}

/* The distribution of tti_draws. */
typedef struct distribution {
    bool is_normal;
    double offset, scale;
} distribution;

static distribution uniform_from(double lo, double hi) {
    return (distribution){false, lo, hi - lo};
}
static distribution uniform_within(double bound) { return uniform_from(-bound, bound); }
static distribution normal_around(double mean, double std) {
    return (distribution){true, mean, std};
}

static distribution distribution_of(const tti_node *param) {
    double a = tti_attr_float(param, "a"), b = tti_attr_float(param, "b"), fan_in, fan_out;
    fans_of(param, &fan_in, &fan_out);
    switch ((tutti_init_kind)tti_attr_int(param, "init")) {
        case TUTTI_INIT_UNIFORM:
            return uniform_from(a, b);
        case TUTTI_INIT_NORMAL:
            return normal_around(a, b);
        case TUTTI_INIT_HE_NORMAL:
            return normal_around(0, sqrt(2 / fan_in));
        case TUTTI_INIT_HE_UNIFORM:
            return uniform_within(sqrt(6 / fan_in));
        case TUTTI_INIT_XAVIER_NORMAL:
            return normal_around(0, sqrt(2 / (fan_in + fan_out)));
        case TUTTI_INIT_XAVIER_UNIFORM:
            return uniform_within(sqrt(6 / (fan_in + fan_out)));
        case TUTTI_INIT_FAN_IN_UNIFORM:
            return uniform_within(1 / sqrt(fan_in));
        case TUTTI_INIT_CONSTANT:
            return uniform_from(a, a);
        case TUTTI_INIT_ZEROS:
        case TUTTI_N_INIT_KINDS:
            break;
    }
    return (distribution){false, 0, 0};
}

bool tti_init_next(const tti_node *param, uint64_t seed, size_t *first, size_t last,
                   tti_draws *out) {
    if (*first >= last) return false;
    distribution d = distribution_of(param);
    tti_tensor_shard_run run =
        tti_tensor_shard_run_at(param, *first / tti_tensor_shard_run_at(param, 0).n_elems);
    size_t skip = *first - run.in_shard;
    *out = (tti_draws){.key = tti_mix64(seed, tti_hash_name(param->name)),
                       .first = run.in_whole + skip,
                       .n_elems = TTI_MIN(run.n_elems - skip, last - *first),
                       .offset = d.offset,
                       .scale = d.scale,
                       .is_normal = d.is_normal};
    *first += out->n_elems;
    return true;
}

void tti_init_param_range(const tti_node *param, uint64_t seed, size_t first, size_t last,
                          float *out) {
    tti_draws draws;
    for (size_t at = 0; tti_init_next(param, seed, &first, last, &draws); at += draws.n_elems) {
        draws.at = at;
        tti_draw(&draws, out);
    }
}

void tti_init_param(const tti_node *param, uint64_t seed, float *out) {
    tti_init_param_range(param, seed, 0, (size_t)tti_value_n_elems(param->out[0]), out);
}
