/* init.c - draws the initial values of a parameter.
 *
 * The idea to know: element i is drawn from Philox with a key of seed and parameter name and the
 * counter i / 4, so any element can be drawn alone, in any order, by any worker.  Of a piece i
 * counts in the whole, so pieces are the parts of what one worker would have drawn. */
#include "ops/init.h"

#include <math.h>

#include "base/philox.h"
#include "ops/piece.h"

static const double pi = 3.14159265358979323846;

/* dims[0] x area and dims[1] x area, as PyTorch counts them; a vector has fan 1 and itself. */
static void fans_of(const tti_node *param, double *fan_in, double *fan_out) {
    const tutti_shape shape = tti_piece_whole(param);
    int64_t given = tti_attr_int(param, "fan_in");
    double area = 1;
    for (int d = 2; d < shape.n_dims; d++) area *= (double)shape.dim[d];
    *fan_in = given ? (double)given : area * (shape.n_dims > 1 ? (double)shape.dim[1] : 1);
    *fan_out = area * (shape.n_dims > 0 ? (double)shape.dim[0] : 1);
    *fan_in = fmax(*fan_in, 1), *fan_out = fmax(*fan_out, 1);
}

/* Uniform in [lo, hi), or normal with mean lo and standard deviation hi. */
typedef struct distribution {
    bool normal;
    double lo, hi;
} distribution;

static distribution uniform_within(double bound) { return (distribution){false, -bound, bound}; }
static distribution normal_around(double mean, double std) {
    return (distribution){true, mean, std};
}

static distribution distribution_of(const tti_node *param) {
    double a = tti_attr_float(param, "a"), b = tti_attr_float(param, "b"), fan_in, fan_out;
    fans_of(param, &fan_in, &fan_out);
    switch ((tutti_init_kind)tti_attr_int(param, "init")) {
        case TUTTI_INIT_UNIFORM:
            return (distribution){false, a, b};
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
            return (distribution){false, a, a};
        case TUTTI_INIT_ZEROS:
        case TUTTI_N_INIT_KINDS:
            break;
    }
    return (distribution){false, 0, 0};
}

/* Box and Muller (1958): lanes 0, 1 and lanes 2, 3 are pairs.  1 - u lies in (0, 1]. */
static void draw_normal(const tti_philox *r, double x[4]) {
    for (int pair = 0; pair < 4; pair += 2) {
        double u = tti_philox_unit(r->v[pair]), v = tti_philox_unit(r->v[pair + 1]);
        double radius = sqrt(-2 * log(1 - u));
        x[pair] = radius * cos(2 * pi * v);
        x[pair + 1] = radius * sin(2 * pi * v);
    }
}

static void draw_uniform(const tti_philox *r, double x[4]) {
    for (int lane = 0; lane < 4; lane++) x[lane] = (double)tti_philox_unit(r->v[lane]);
}

/* Elements first .. last-1 of the whole; lanes before first of the first draw are left out. */
static void draw_range(const distribution *d, uint64_t key, size_t first, size_t last, float *out) {
    double offset = d->lo, scale = d->normal ? d->hi : d->hi - d->lo;
    for (size_t i = first; i < last && scale == 0; i++) out[i - first] = (float)offset;
    for (size_t i = first; i < last && scale != 0; i += 4 - i % 4) {
        double x[4];
        tti_philox r = tti_philox_draw(key, 0, i / 4);
        (d->normal ? draw_normal : draw_uniform)(&r, x);
        for (size_t k = i % 4; k < 4 && i - i % 4 + k < last; k++)
            out[i - i % 4 + k - first] = (float)(offset + scale * x[k]);
    }
}

void tti_init_param_range(const tti_node *param, uint64_t seed, size_t first, size_t last,
                          float *out) {
    distribution d = distribution_of(param);
    uint64_t key = tti_mix64(seed, tti_hash_name(param->name));
    size_t run_elems = tti_piece_run_at(param, 0).n_elems;
    for (size_t i = first; i < last;) {
        tti_piece_run run = tti_piece_run_at(param, i / run_elems);
        size_t skip = i - run.in_piece, n = TTI_MIN(run.n_elems - skip, last - i);
        draw_range(&d, key, run.in_whole + skip, run.in_whole + skip + n, out + (i - first));
        i += n;
    }
}

void tti_init_param(const tti_node *param, uint64_t seed, float *out) {
    tti_init_param_range(param, seed, 0, (size_t)tti_value_n_elems(param->out[0]), out);
}
