/* depthwise_plan.c - how a depthwise convolution is divided into tiles: arithmetic on the host.
 *
 * The plan depends on the shape and the type alone, never on the device, since the gradient of w
 * has one partial sum for each block. */
#include "backend/cuda/conv/depthwise.h"
#include "base/dtype.h"
#include "base/error.h"

/* Shared memory that a block has on every device; two blocks have it on a Hopper. */
static const int max_shared = 96 << 10;

/* Blocks to start; as many as an H100 runs together. */
enum { MULTIPROCESSORS = 132, PLAIN_BLOCKS = 64 };

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

bool tti_depthwise_supports(tutti_dtype dtype, const tti_cuda_conv *v) {
    const int64_t most = (int64_t)1 << 20;
    if (dtype != TUTTI_F32 && dtype != TUTTI_BF16 && dtype != TUTTI_F16) return false;
    if (v->groups < 2 || v->c != v->groups || v->o != v->groups) return false;
    if (!v->x_last || !v->y_last || v->c > most || v->r > 128 || v->s > 128) return false;
    for (int d = 0; d < 2; d++)
        if (v->stride[d] > most || v->pad[d] > most || v->dilation[d] > most) return false;
    if (v->h > most || v->w > most || v->p > most || v->q > most || v->n > most) return false;
    return (double)v->n * (double)v->h * (double)v->w < 1e9 &&
           (double)v->n * (double)v->p * (double)v->q < 1e9;
}

static tti_depthwise_axis make_axis(const tti_depthwise_plan *p, const tti_cuda_conv *v, int d,
                                    tti_depthwise_kind kind, int n_tasks) {
    bool turned = kind == TTI_DEPTHWISE_GRAD_X, transposed = p->mode == TTI_DEPTHWISE_TRANSPOSED;
    int in = (int)(d ? v->w : v->h), y = (int)(d ? v->q : v->p), pad = (int)v->pad[d];
    int per_task = d ? tti_depthwise_columns(p->mode) : TTI_DEPTHWISE_TASK_ROWS;
    tti_depthwise_axis a = {.source = turned ? y : in, .out = turned ? in : y, .n_tasks = n_tasks};
    int parity = tti_depthwise_parity(p->kernel);
    if (transposed && (pad + parity) % 2) a.out_base = -1;
    a.out_step = n_tasks * per_task;
    a.n_tiles = ceil_div(a.out - a.out_base, a.out_step);
    a.step = tti_depthwise_step(p->mode, a.out_step);
    a.span = tti_depthwise_span(p->mode, p->kernel, a.out_step);
    if (transposed)
        a.base = (a.out_base + pad - parity) / 2 - tti_depthwise_before(p->kernel);
    else
        a.base = turned ? pad - (p->kernel - 1) : -pad;
    return a;
}

/* Sizes that follow from the tasks of a tile.  False: too much shared memory. */
static bool fill_tile(tti_depthwise_plan *p, int element, tti_depthwise_kind kind) {
    const tti_depthwise_axis *h = &p->axis[0], *w = &p->axis[1];
    int n_tasks = p->n_images * h->n_tasks * w->n_tasks, area = p->kernel * p->kernel;
    bool grad_w = kind == TTI_DEPTHWISE_GRAD_W;
    p->n_threads = ceil_div(n_tasks, 2) * 2 * TTI_DEPTHWISE_LANES;
    p->n_tiles = ceil_div(p->n, p->n_images) * h->n_tiles * w->n_tiles;
    p->tile_elems = p->n_images * h->span * w->span * TTI_DEPTHWISE_CHANNELS;
    p->out_elems = grad_w ? p->n_images * h->out_step * w->out_step * TTI_DEPTHWISE_CHANNELS : 0;
    int tiles = 2 * (p->tile_elems + p->out_elems) * element;
    int weights = area * TTI_DEPTHWISE_CHANNELS * (int)sizeof(float);
    int sums = p->n_threads / 32 * (area + 1) * TTI_DEPTHWISE_CHANNELS * (int)sizeof(float);
    p->n_shared = grad_w ? TTI_MAX(tiles, sums) : tiles + weights;
    return p->n_shared <= max_shared;
}

/* Instructions of a group's blocks, roughly: multiply-adds, loads of a task and copies of a tile.
 */
static double cost_of(const tti_depthwise_plan *p) {
    int columns = tti_depthwise_columns(p->mode), rows = TTI_DEPTHWISE_TASK_ROWS;
    int reads = tti_depthwise_span(p->mode, p->kernel, rows) *
                tti_depthwise_span(p->mode, p->kernel, columns);
    double terms = 2.0 * rows * columns * p->kernel * p->kernel;
    if (p->mode == TTI_DEPTHWISE_TRANSPOSED) terms /= 4;
    double task = terms + 3.0 * reads + 4.0 * rows * columns;
    double copies = 6.0 * p->tile_elems / TTI_DEPTHWISE_CHANNELS;
    return p->n_tiles * (p->n_threads / 32 * task + copies);
}

/* The cheapest division; false: none has room. */
static bool find_tile(tti_depthwise_plan *best, const tti_cuda_conv *v, int element,
                      tti_depthwise_kind kind) {
    double least = -1;
    for (int rows = 1; rows <= TTI_DEPTHWISE_MAX_TASKS; rows++)
        for (int cols = 1; rows * cols <= TTI_DEPTHWISE_MAX_TASKS; cols++) {
            tti_depthwise_plan p = *best;
            p.axis[0] = make_axis(&p, v, 0, kind, rows);
            p.axis[1] = make_axis(&p, v, 1, kind, cols);
            bool whole = p.axis[0].n_tiles == 1 && p.axis[1].n_tiles == 1;
            int most = whole ? TTI_DEPTHWISE_MAX_TASKS / (rows * cols) : 1;
            for (p.n_images = 1; p.n_images <= most; p.n_images++) {
                if (!fill_tile(&p, element, kind)) continue;
                double cost = cost_of(&p);
                if (least >= 0 && cost >= least) continue;
                least = cost, *best = p;
            }
        }
    return least >= 0;
}

tti_depthwise_plan tti_depthwise_plan_of(tutti_dtype dtype, const tti_cuda_conv *v,
                                         tti_depthwise_kind kind) {
    tti_depthwise_plan p = {.n = (int)v->n, .c = (int)v->c};
    p.n_groups = ceil_div(p.c, TTI_DEPTHWISE_CHANNELS);
    p.n_blocks = (int)TTI_MIN(TTI_MAX(v->n * v->p, 1), PLAIN_BLOCKS);
    bool usual = v->r == v->s && (v->r == 3 || v->r == 5 || v->r == 7) &&
                 v->stride[0] == v->stride[1] && v->stride[0] <= 2 && v->dilation[0] == 1 &&
                 v->dilation[1] == 1 && v->h > 0 && v->w > 0;
    if (!usual) return p;
    bool turned = kind == TTI_DEPTHWISE_GRAD_X;
    p.kernel = (int)v->r;
    p.mode = v->stride[0] == 1 ? TTI_DEPTHWISE_ONE
             : turned          ? TTI_DEPTHWISE_TRANSPOSED
                               : TTI_DEPTHWISE_TWO;
    p.flip = turned && p.mode == TTI_DEPTHWISE_ONE;
    p.is_tiled = find_tile(&p, v, (int)tutti_dtype_bytes(dtype), kind);
    if (!p.is_tiled) return p;
    int64_t together =
        (int64_t)MULTIPROCESSORS * tti_depthwise_blocks(p.kernel, kind == TTI_DEPTHWISE_GRAD_W);
    int64_t turns = ((int64_t)p.n_tiles * p.n_groups + together - 1) / together;
    p.n_blocks = turns > 0 ? (int)((p.n_tiles + turns - 1) / turns) : 1;
    return p;
}
