/* calibrate.c - the ceilings of a machine, the links between its workers, and stored figures of
 * devices that are not here.  The job's own programs run in calibrate_job.c. */
#include "planner/calibrate.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "train/job/numerics.h"
#include "train/profile/ceilings.h"
#include "train/setup/worker_exec.h"
#include "tutti/bench.h"

enum { SMALL_BYTES = 4096, LARGE_BYTES = 16 << 20, DEVICE_BYTES = 4 << 20, SUM_MS = 60 };

/* Most input channels of a convolution that reads images. */
enum { MAX_IMAGE_CHANNELS = 4 };

/* Approximate number of programs that share the time budget. */
static const double N_PROGRAMS = 20;

/* Attention reaches a smaller fraction of the tensor cores' speed than one product, because of the
 * softmax between its two products. */
static double flops_of(const tti_calibration *c, const tti_node *node) {
    bool is_attention = c->attention_share > 0 && strncmp(node->op->name, "attention", 9) == 0;
    bool is_wide = c->f32_share > 0 && node->n_in > 0 && node->in[0]->type.dtype == TUTTI_F32;
    return c->flops * (is_attention ? c->attention_share : 1) * (is_wide ? c->f32_share : 1);
}

static int64_t whole_tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

/* The weights [O,C,R,S] of a convolution that may read images; NULL: another operation. */
static const tutti_value *weights_of(const tti_node *node) {
    if (strcmp(node->op->name, "conv2d") == 0) return node->in[1];
    return strcmp(node->op->name, "conv2d_grad_w") == 0 ? node->out[0] : NULL;
}

bool tti_is_padded(const tti_calibration *c, const tti_node *node) {
    const tutti_value *w = weights_of(node);
    if (!w || c->tile <= 0 || tutti_dtype_bytes(node->in[0]->type.dtype) != 2) return false;
    int64_t n_out = w->type.shape.dim[0], n_in = w->type.shape.dim[1];
    bool is_own = n_out == c->tile; /* this common case has a kernel without padding */
    return n_in > 0 && n_in <= MAX_IMAGE_CHANNELS && n_out > 0 && !is_own &&
           tti_attr_int(node, "groups") == 1;
}

/* Ratio of executed to useful operations: a convolution over images reads and computes whole tiles
 * of channels although it has only a few. */
static double padding_of(const tti_calibration *c, const tti_node *node) {
    if (!tti_is_padded(c, node)) return 1;
    const int64_t *w = weights_of(node)->type.shape.dim;
    return (double)(whole_tiles(w[0], c->tile) * whole_tiles(w[1], c->tile)) /
           (double)(w[0] * w[1]);
}

double tti_steps_cost_s(const tti_calibration *c, const tti_program *program, int first, int last) {
    double s = 0;
    for (int i = first; i < last; i++) {
        const tti_node *node = program->steps[i];
        if (node->op->traits & TTI_COLLECTIVE) continue;
        tti_cost cost = {.flops = (double)tti_value_n_elems(node->out[0])};
        if (node->op->cost) node->op->cost(node, &cost);
        double flops = cost.flops * padding_of(c, node);
        s += c->kernel_overhead_s + fmax(flops / flops_of(c, node), cost.bytes / c->bytes);
    }
    return s;
}

double tti_program_cost_s(const tti_calibration *c, const tti_program *program) {
    return tti_steps_cost_s(c, program, 0, program->n_steps);
}

double tti_update_cost_s(const tti_calibration *c, const tti_plan *plan) {
    int n = c->is_device ? 1 : c->n_cores;
    return (double)plan->n_flat * sizeof(float) * (3 + 2 * plan->n_states) / c->bytes / n;
}

/* ---- the machine ---- */

static void record_row(const tutti_bench_comm_row *row, void *user) {
    tti_calibration *c = user;
    if (row->n_bytes <= SMALL_BYTES)
        c->sum_latency_s = row->latency_us * 1e-6;
    else
        c->sum_bytes_s = row->bus_gb_s * 1e9;
}

/* The smallest all-reduce gives the latency; the last two sizes give the bandwidth. */
typedef struct device_sums {
    tti_calibration *c;
    double us, moved; /* time and bytes of the previous row */
} device_sums;

static void record_device_row(const tutti_bench_devices_row *row, void *user) {
    device_sums *d = user;
    double moved = row->bus_gb_s * row->us * 1e3;
    if (d->us == 0) d->c->sum_latency_s = row->us * 1e-6;
    if (d->us > 0 && row->us > d->us)
        d->c->sum_bytes_s = (moved - d->moved) / (row->us - d->us) * 1e6;
    if (d->c->sum_bytes_s <= 0) d->c->sum_bytes_s = row->bus_gb_s * 1e9;
    d->us = row->us, d->moved = moved;
}

static tutti_status measure_sums(tti_calibration *c) {
    c->sum_latency_s = 0, c->sum_bytes_s = 0;
    if (c->n_ranks < 2) return TUTTI_OK;
    if (c->is_device && c->n_ranks <= c->n_cores)
        return tutti_bench_devices(&(tutti_bench_devices_desc){.n_devices = c->n_ranks,
                                                               .min_bytes = SMALL_BYTES,
                                                               .max_bytes = DEVICE_BYTES,
                                                               .quick = true},
                                   record_device_row, &(device_sums){.c = c});
    static const size_t sizes[] = {SMALL_BYTES, LARGE_BYTES};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++)
        TTI_TRY(tutti_bench_comm(&(tutti_bench_comm_desc){.n_ranks = c->n_ranks,
                                                          .min_bytes = sizes[i],
                                                          .max_bytes = sizes[i],
                                                          .min_ms = SUM_MS,
                                                          .no_memcpy = true},
                                 record_row, c));
    return TUTTI_OK;
}

double tti_process_bytes(double *of_files) {
    double pages = 0, file_pages = 0, page = (double)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*s %lf %lf", &pages, &file_pages) != 2) pages = file_pages = 0;
    if (file) fclose(file);
    if (of_files) *of_files = file_pages * page;
    return pages * page;
}

double tti_bytes_of_arrays(const tti_exec_memory *m) {
    return (double)(m->params + m->states + m->grads + m->arena + m->ema + m->gathered);
}

double tti_page_bytes(double n_bytes, double n_arrays) {
    const double page = 2 << 20;
    double each = n_arrays > 0 ? n_bytes / n_arrays : 0;
    return each >= page ? n_arrays * page * ceil(each / page) : n_bytes;
}

double tti_resident_page_bytes(const tti_exec_memory *m, const tti_plan *plan) {
    return tti_page_bytes((double)m->params, 1) + tti_page_bytes((double)m->ema, 1) +
           tti_page_bytes((double)m->states, plan->n_states);
}

double tti_working_page_bytes(const tti_exec_memory *m, const tti_plan *plan, bool is_alone) {
    double flat = (double)plan->n_flat * sizeof(float), grads = (double)m->grads;
    double arena = (double)TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes);
    if (is_alone && flat > 0) grads = tti_page_bytes(grads, grads / flat);
    if (arena > 0) arena = tti_page_bytes((double)m->arena, (double)m->arena / arena);
    return grads + arena + (double)m->gathered;
}

/* Measured on one host with H200s. An all-reduce of 498 MB through the host takes 122 ms longer
 * than between devices. A value of 12.6 MB takes 34 ms to another stage through pinned memory and
 * the mailbox. */
static const double HOST_STAGED_S = 1 / 4.1e9;
static const tti_link_speed message_host_staged = {60e-6, 0.4e9};
/* Speed of attention relative to a product with the same flops: GPT-2, forward and backward, on one
 * H200. */
static const double ATTENTION = 0.57;
/* Overhead of a captured kernel, and the additional overhead of a kernel that the host launches.
 * Fitted to ResNet-50 with 256 and with 64 images per shard, and in stages. */
static const double KERNEL_OVERHEAD_S = 6.5e-6, LAUNCH_OVERHEAD_S = 2.5e-6;
/* Channels per tile of a 16-bit product. */
enum { TILE = 64 };
/* Speed of collectives and messages relative to large all-reduces. Both need another launch.
 * Collectives use fewer blocks and wait for the slowest device; messages are faster because nothing
 * is added. */
static const double LAUNCH_S = 3e-6, TP_SHARE = 0.62, MESSAGE_SHARE = 1.05;

static void find_link_speeds(tti_calibration *c) {
    const tti_link_speed sums = {c->sum_latency_s, c->sum_bytes_s};
    double latency_s = c->sum_latency_s + LAUNCH_S;
    c->tp = c->message = sums;
    if (!c->is_device) return;
    if (c->n_ranks <= c->n_cores) c->tp = (tti_link_speed){latency_s, c->sum_bytes_s * TP_SHARE};
    c->message = c->has_p2p ? (tti_link_speed){latency_s, c->sum_bytes_s * MESSAGE_SHARE}
                            : message_host_staged;
    c->host_staged_s_per_byte = HOST_STAGED_S;
    c->attention_share = ATTENTION;
    c->kernel_overhead_s = KERNEL_OVERHEAD_S;
    c->launch_overhead_s = LAUNCH_OVERHEAD_S;
    c->tile = TILE;
    c->add_s = 3 * sizeof(float) / c->bytes;
}

static tutti_status measure_add(const tti_backend *backend, tti_calibration *c) {
    enum { N = 1 << 20, ROUNDS = 8 };
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    if (a && b && !backend->device) {
        int64_t start = tti_now_ns();
        for (int i = 0; i < ROUNDS; i++) backend->accumulate(a, b, N);
        c->add_s = (double)(tti_now_ns() - start) * 1e-9 / N / ROUNDS;
    }
    tutti_status st = a && b ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    free(a);
    free(b);
    return st;
}

/* True if stages on separate devices write to each other's memory. */
static bool has_p2p(const tti_backend *backend) {
    return backend->device && backend->device->p2p.send != NULL;
}

tutti_status tti_calibrate_machine(const tti_blueprint *b, int n_ranks, double budget_s,
                                   double base_bytes, tti_calibration *c) {
    const tti_devices *devices = tti_blueprint_devices(b);
    const tti_backend *backend = devices->backend;
    tti_ceilings ceilings;
    *c = (tti_calibration){.n_cores = backend->device ? devices->n : tti_cores_usable(),
                           .is_device = backend->device != NULL,
                           .n_ranks = n_ranks,
                           .slice_s = budget_s / N_PROGRAMS,
                           .base_bytes = base_bytes};
    if (backend->device)
        TTI_TRY(backend->device->open(&(tti_device_desc){.index = tti_devices_first(devices)}));
    tutti_status st =
        tti_ceilings_measure(backend, tti_blueprint_target(b).compute_dtype, &ceilings);
    if (backend->device) backend->device->close();
    TTI_TRY(st);
    c->flops = ceilings.flops, c->bytes = ceilings.bytes;
    c->has_p2p = c->n_ranks <= c->n_cores && has_p2p(backend);
    TTI_TRY(measure_add(backend, c));
    TTI_TRY(measure_sums(c));
    find_link_speeds(c);
    malloc_trim(0);
    c->start_bytes = tti_process_bytes(&c->start_file_bytes);
    return TUTTI_OK;
}

/* ---- known devices ---- */

/* The planner only checks that these functions exist; it never calls them. */
static tutti_status no_update(void *update) {
    (void)update;
    return tti_fail(TUTTI_E_INTERNAL, "plan: stored figures cannot run anything");
}

static tutti_status no_complete(void *update, int first, int n) {
    (void)update, (void)first, (void)n;
    return tti_fail(TUTTI_E_INTERNAL, "plan: stored figures cannot run anything");
}

static tutti_status no_tp(void *group, const tti_tp_collective *tp, bool overlapped) {
    (void)group, (void)tp, (void)overlapped;
    return tti_fail(TUTTI_E_INTERNAL, "plan: stored figures cannot run anything");
}

static tutti_status no_send(void *group, const tti_device_message *message, bool overlapped) {
    (void)group, (void)message, (void)overlapped;
    return tti_fail(TUTTI_E_INTERNAL, "plan: stored figures cannot run anything");
}

static tutti_status no_norm(void *group, const tti_device_norm *norm) {
    (void)group, (void)norm;
    return tti_fail(TUTTI_E_INTERNAL, "plan: stored figures cannot run anything");
}

/* True for products that send rows to other devices while they run, or start before all rows have
 * arrived. They are 16-bit, have whole tiles of rows, and at least one tile per multiprocessor. */
static bool moves_rows(const tti_node *product, size_t n_rows, int n_ranks) {
    enum { TILE_ROWS = 256, MIN_ELEMS = 132 * 128 * 192 };
    const tutti_value *made = product->out[0];
    bool is_product =
        strncmp(product->op->name, "linear", 6) == 0 || strcmp(product->op->name, "matmul") == 0;
    return is_product && n_ranks > 1 && tutti_dtype_bytes(made->type.dtype) == 2 &&
           n_rows % TILE_ROWS == 0 && tti_value_n_elems(made) >= MIN_ELEMS;
}

static bool prefers_channels_last(const tti_node *node) {
    return (node->op->traits & TTI_CHANNELS_LAST) != 0 && node->n_in > 0;
}

/* True for kernels of a 1x1 convolution that also compute batch norm's sums: they run if there are
 * at least two tiles per multiprocessor. */
static bool joins_gradient(const tti_node *grad_x, bool keeps) {
    enum { MIN_ELEMS = 2 * 132 * 128 * 128, MAX_SUMS = 512 };
    const int64_t *in = grad_x->in[0]->type.shape.dim, *w = grad_x->in[1]->type.shape.dim;
    const tutti_value *x = grad_x->out[0];
    const int64_t *made = x->type.shape.dim;
    bool is_point = w[2] == 1 && w[3] == 1 && in[2] == made[2] && in[3] == made[3];
    return is_point && x->type.dtype == TUTTI_BF16 && x->layout == TTI_CHANNELS_LAST_BYTES &&
           made[1] % 64 == 0 && in[1] % 8 == 0 && (!keeps || made[1] <= MAX_SUMS) &&
           tutti_shape_n_elems(&x->type.shape) >= MIN_ELEMS;
}

static bool joins_exact_gelu(const tti_node *product) {
    return tutti_dtype_bytes(product->out[0]->type.dtype) == 2;
}

static bool joins_head(const tti_node *logits) {
    enum { MIN_TABLE = 1 << 24 };
    return tti_value_n_elems(logits->in[1]) >= MIN_TABLE;
}

const tti_backend *tti_planning_device(void) {
    static const tti_device_ops none = {.update.low_copies = no_update,
                                        .update.complete = no_complete,
                                        .collectives.tp_collective = no_tp,
                                        .fusions.most_norm_ranks = 2,
                                        .fusions.norm = no_norm,
                                        .fusions.norm_grad = no_norm,
                                        .fusions.least_norm_grad = 1,
                                        .fusions.can_push = moves_rows,
                                        .fusions.gather_rows = no_norm,
                                        .fusions.can_pull = moves_rows,
                                        .p2p.send = no_send};
    static const tti_backend planning = {.name = "paper",
                                         .device = &none,
                                         .prefers_channels_last = prefers_channels_last,
                                         .strided = true,
                                         .joins_exact_gelu = joins_exact_gelu,
                                         .joins_gradient = joins_gradient,
                                         .joins_head = joins_head,
                                         .fuses_training = true,
                                         .weights = &tti_weights_gpu};
    return &planning;
}

/* From docs/lab/2026-11-performance.md: ceilings of `tutti doctor`; the fractions of them that
 * whole steps reach (four models on a GPU, ResNet-18 on a core); all-reduces over peer memory;
 * scratch bytes of large products on a GPU. */
static const struct {
    const char *name;
    bool is_device;
    double flops, bytes, flops_share, bytes_share, sum_latency_s, sum_bytes_s, scratch;
} known[] = {{"cpu", false, 250e9, 100e9, 0.77, 0.5, 3e-6, 10e9, 0},
             {"h200", true, 690e12, 4.07e12, 0.92, 0.91, 5.2e-6, 335e9, 32 << 20}};

bool tti_is_measured(const char *device) { return !device || strcmp(device, "measured") == 0; }

bool tti_is_known_device(const char *device) {
    for (size_t i = 0; i < TTI_COUNT(known); i++)
        if (!tti_is_measured(device) && strcmp(device, known[i].name) == 0)
            return known[i].is_device;
    return false;
}

void tti_calibration_for(const tti_job_config *config, tti_calibration *c) {
    const tti_weights *w = &tti_weights_gpu;
    bool is_tf32 = strcmp(config->train.precision, "tf32") == 0;
    if (c->is_device) c->f32_share = w->op_16_bit / (is_tf32 ? w->tf32_op : w->op);
}

tutti_status tti_calibration_of(const char *device, int n_ranks, tti_calibration *out) {
    for (size_t i = 0; i < TTI_COUNT(known); i++) {
        if (strcmp(device, known[i].name) != 0) continue;
        *out = (tti_calibration){.n_cores = n_ranks,
                                 .flops = known[i].flops * known[i].flops_share,
                                 .bytes = known[i].bytes * known[i].bytes_share,
                                 .sum_latency_s = known[i].sum_latency_s,
                                 .sum_bytes_s = known[i].sum_bytes_s,
                                 .n_ranks = n_ranks,
                                 .is_device = known[i].is_device,
                                 .has_p2p = known[i].is_device,
                                 .stored_scratch = known[i].scratch};
        out->add_s = 3 * sizeof(float) / out->bytes;
        find_link_speeds(out);
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_INVALID,
                    "plan: no speeds are known for device '%s'; known devices: measured, cpu, h200",
                    device);
}
