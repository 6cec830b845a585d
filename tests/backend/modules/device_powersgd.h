/* device_powersgd.h - PowerSGD of device_module.c, by exec/worker/compress_math.c, so
 * that the bits are those of compressing on the host. */
#ifndef TTI_TESTS_DEVICE_POWERSGD_H
#define TTI_TESTS_DEVICE_POWERSGD_H

#include "base/philox.h"
#include "exec/worker/compress.h"

typedef struct powersgd {
    tti_powersgd_desc desc;
    tti_powersgd_slot *slots;
    int *first;
} powersgd;

static float unit_of(const tti_step_args *args) {
    return (args->inv_rows > 0 ? rintf(1 / args->inv_rows) : 1) * args->loss_scale;
}

static tti_low_rank shape_of(const tti_powersgd_slot *s) {
    return (tti_low_rank){s->rows, s->cols, (int)s->r};
}

static size_t n_elems_of(const tti_powersgd_slot *s) { return (size_t)s->rows * s->cols; }

/* For each slot of the bucket of a command. */
static void each_slot(const command *c,
                      void (*work)(const powersgd *t, const tti_powersgd_slot *s)) {
    const powersgd *t = c->state;
    for (int i = t->first[c->n]; i < t->first[c->n + 1]; i++) work(t, &t->slots[i]);
}

static void redraw(const powersgd *t, const tti_powersgd_slot *s, float *q) {
    for (uint32_t k = 0; k < s->r; k++, q += s->cols) {
        if (tti_low_rank_norm(q, s->cols) != 0) continue;
        for (uint32_t i = 0; i < s->cols; i++) {
            uint64_t hi = t->desc.args->step << 16 | k;
            q[i] = 2 * tti_philox_unit(tti_philox_draw(s->key, hi, i).v[0]) - 1;
        }
    }
}

static void go_left(const powersgd *t, const tti_powersgd_slot *s) {
    tti_low_rank shape = shape_of(s);
    float *m = t->desc.grads + s->grads, *e = t->desc.residual + s->grads,
          unit = unit_of(t->desc.args);
    float *p = t->desc.message + s->left, *q = t->desc.message + s->right;
    if (s->r == 0) {
        memcpy(p, m, s->cols * sizeof *p);
        return;
    }
    for (size_t i = 0; i < n_elems_of(s); i++) m[i] += e[i] * unit;
    redraw(t, s, q);
    tti_low_rank_left(&shape, m, q, p);
}

static void go_right(const powersgd *t, const tti_powersgd_slot *s) {
    tti_low_rank shape = shape_of(s);
    float *p = t->desc.message + s->left, *q = t->desc.message + s->right;
    if (s->r == 0) return;
    tti_low_rank_orthonormalize(p, (int)s->r, s->rows);
    tti_low_rank_right(&shape, t->desc.grads + s->grads, p, q);
    memcpy(t->desc.own + s->right, q, (size_t)s->r * s->cols * sizeof *q);
}

static void go_on_to_end(const powersgd *t, const tti_powersgd_slot *s) {
    tti_low_rank shape = shape_of(s);
    float *m = t->desc.grads + s->grads, *e = t->desc.residual + s->grads,
          inv = 1 / unit_of(t->desc.args);
    const float *p = t->desc.message + s->left;
    if (s->r == 0) {
        memcpy(m, p, s->cols * sizeof *m);
        return;
    }
    tti_low_rank_subtract(&shape, p, t->desc.own + s->right, m);
    for (size_t i = 0; i < n_elems_of(s); i++) e[i] = m[i] * inv;
    tti_low_rank_product(&shape, p, t->desc.message + s->right, m);
}

static void run_left(command *c) { each_slot(c, go_left); }
static void run_right(command *c) { each_slot(c, go_right); }
static void run_end(command *c) { each_slot(c, go_on_to_end); }

static tutti_status put_powersgd(void (*run)(command *), void *state, int bucket) {
    return put(
        &(command){.run = run, .queue = TTI_QUEUE_COMM, .state = state, .n = (size_t)bucket});
}

static tutti_status powersgd_left(void *state, int bucket) {
    return put_powersgd(run_left, state, bucket);
}

static tutti_status powersgd_right(void *state, int bucket) {
    return put_powersgd(run_right, state, bucket);
}

static tutti_status powersgd_end(void *state, int bucket) {
    return put_powersgd(run_end, state, bucket);
}

static void powersgd_destroy(void *state) {
    powersgd *t = state;
    if (!t) return;
    free(t->slots);
    free(t->first);
    free(t);
}

static tutti_status powersgd_create(const tti_powersgd_desc *desc, void **out) {
    size_t n_buckets = (size_t)desc->n_buckets, n_slots = (size_t)desc->first[n_buckets];
    powersgd *t = calloc(1, sizeof *t);
    TTI_ASSERT(t != NULL);
    *t = (powersgd){.desc = *desc,
                    .slots = calloc(n_slots + 1, sizeof *t->slots),
                    .first = calloc(n_buckets + 1, sizeof *t->first)};
    TTI_ASSERT(t->slots && t->first);
    memcpy(t->slots, desc->slots, n_slots * sizeof *t->slots);
    memcpy(t->first, desc->first, (n_buckets + 1) * sizeof *t->first);
    memset(desc->message, 0, desc->n_message * sizeof *desc->message);
    *out = t;
    return check();
}

#endif /* TTI_TESTS_DEVICE_POWERSGD_H */
