/* feed.c - tensors of the caller become the samples and targets of a worker's shards, as a loader
 * would make them (data/loader/loader.h), with one copy. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/target.h"
#include "ir/graph.h"
#include "session/session_state.h"

enum { X = 0, Y = 1 }; /* inputs of samples that are not fields */

bool tti_feed_has_fields(const tutti_session *s) {
    return tutti_dataset_get_info(s->b->train)->n_fields > 0;
}

static int find_input(const tutti_session *s, const char *name) {
    for (int i = 0; i < s->n_inputs; i++)
        if (strcmp(s->inputs[i].name, name) == 0) return i;
    return -1;
}

/* ---- inputs in device memory that the host reads ---- */

/* On the thread of worker 0, which has opened a device. */
static tutti_status copy_to_host(tti_session_worker *w, void *arg) {
    const tti_staged *staged = arg;
    if (w != &w->session->workers[0]) return TUTTI_OK;
    for (int i = 0; i < staged->n; i++) {
        if (!staged->memory[i]) continue;
        size_t n_bytes = tti_type_bytes(&staged->tensors[i].type);
        TTI_TRY(tti_worker_copy(w, staged->memory[i], staged->from[i], n_bytes));
    }
    return tti_exec_wait_for_copies(w->exec); /* but not for steps in flight */
}

static bool is_direct(const tutti_session *s, const tutti_tensor *t) {
    int i = t->name ? find_input(s, t->name) : -1;
    return i >= 0 && tti_feed_is_direct(s, i, t);
}

static tutti_status take_staging(const tutti_session *s, tti_staged *staged,
                                 const tutti_tensor *inputs) {
    for (int i = 0; i < staged->n; i++) {
        tutti_tensor *t = &staged->tensors[i];
        *t = inputs[i];
        if (t->device == 0 || is_direct(s, t)) continue;
        TTI_TRY(tti_tensor_check(s, "input", t));
        t->device = 0;
        staged->from[i] = t->data;
        staged->memory[i] = t->data = aligned_alloc(64, (tti_type_bytes(&t->type) + 127) / 64 * 64);
        if (!t->data)
            return tti_fail(TUTTI_E_NOMEM, "session: out of memory for an input on a device");
        staged->any = true;
    }
    return TUTTI_OK;
}

tutti_status tti_feed_stage(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                            tti_staged *out) {
    *out = (tti_staged){.n = n_inputs};
    bool on_devices = tti_session_device_ops(s) != NULL;
    if (!inputs || n_inputs < 1 || n_inputs > TTI_MAX_FIELDS || !on_devices) return TUTTI_OK;
    TTI_TRY(take_staging(s, out, inputs));
    return out->any ? tti_session_run(s, copy_to_host, out) : TUTTI_OK;
}

const tutti_tensor *tti_feed_staged(const tti_staged *staged, const tutti_tensor *inputs) {
    return staged->any ? staged->tensors : inputs;
}

void tti_feed_unstage(tti_staged *staged) {
    for (int i = 0; i < TTI_MAX_FIELDS; i++) free(staged->memory[i]);
}

/* ---- checks, on the caller's thread ---- */

static tutti_status unknown_input(const tutti_session *s, const char *name) {
    tti_str known = {0};
    for (int i = 0; i < s->n_inputs; i++)
        tti_str_printf(&known, "%s%s", i ? ", " : "", s->inputs[i].name);
    tutti_status st = tti_fail(TUTTI_E_INVALID, "session: there is no input '%s'; inputs are %s",
                               name, tti_str_text(&known));
    tti_str_free(&known);
    return st;
}

/* A row of the tensor has these dimensions. */
static bool has_row_shape(const tutti_tensor *t, const tutti_shape *row) {
    const tutti_shape *shape = &t->type.shape;
    if (shape->n_dims != row->n_dims + 1) return false;
    for (int i = 0; i < row->n_dims; i++)
        if (shape->dim[i + 1] != row->dim[i]) return false;
    return true;
}

static bool is_float(tutti_dtype dtype) {
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* x as the data set stores it, such as pixels. */
static bool is_stored(const tutti_session *s, int i, const tutti_tensor *t) {
    const tutti_dataset *ds = s->b->train;
    return i == X && !tti_feed_has_fields(s) && tti_dataset_decode(ds)->n > 0 &&
           t->type.dtype == tti_dataset_stored(ds)->dtype &&
           has_row_shape(t, &tti_dataset_stored(ds)->shape);
}

static bool is_regression(const tutti_session *s, int i) {
    return i == Y && !tti_feed_has_fields(s) && tutti_dataset_get_info(s->b->train)->is_value;
}

/* "f32 [n, 1,28,28]" */
static tutti_status bad_type(const tutti_session *s, int i, const tutti_tensor *t) {
    char want[128], got[128];
    tutti_type type = {is_regression(s, i) ? TUTTI_F32 : s->inputs[i].type.dtype,
                       {.n_dims = s->inputs[i].type.shape.n_dims + 1, .dim = {s->info.n_rows}}};
    for (int k = 0; k + 1 < type.shape.n_dims; k++)
        type.shape.dim[k + 1] = s->inputs[i].type.shape.dim[k];
    return tti_fail(TUTTI_E_INVALID, "session: input '%s' must be %s (or fewer rows), got %s",
                    t->name, tti_type_text(&type, want, sizeof want),
                    tti_type_text(&t->type, got, sizeof got));
}

/* A rank of a group may have no row of a short batch. */
static tutti_status check_rows(const tutti_session *s, const tutti_tensor *t, tti_feed *out) {
    int64_t n = t->type.shape.dim[0], least = s->comm ? 0 : 1;
    if (n < least || n > s->info.n_rows)
        return tti_fail(TUTTI_E_INVALID,
                        "session: input '%s' has %" PRId64 " rows; %" PRId64 " .. %" PRId64
                        " are supported (train.batch)",
                        t->name, n, least, s->info.n_rows);
    if (out->n_rows >= 0 && out->n_rows != n)
        return tti_fail(TUTTI_E_INVALID,
                        "session: input '%s' has %" PRId64 " rows, and another input %" PRId64,
                        t->name, n, out->n_rows);
    out->n_rows = n;
    return TUTTI_OK;
}

/* Whole numbers below least or above most; the first is reported. */
static tutti_status check_range(const tutti_tensor *t, int64_t n_rows, double least, double most) {
    size_t n = (size_t)tutti_shape_n_elems(&t->type.shape);
    const char *what =
        t->type.dtype == TUTTI_I32 || t->type.dtype == TUTTI_I64 || t->type.dtype == TUTTI_U8
            ? ""
            : " and whole";
    for (size_t i = 0; i < n; i++) {
        double v = tti_load_elem(t->type.dtype, t->data, i);
        if (v >= least && v <= most && v == rint(v)) continue;
        return tti_fail(TUTTI_E_INVALID,
                        "session: input '%s': %g in row %zu; values must be %.0f .. %.0f%s",
                        t->name, v, i / (n / (size_t)n_rows), least, most, what);
    }
    return TUTTI_OK;
}

/* Element at of a regression's targets. */
static bool encode_target(const tutti_session *s, const tutti_tensor *t, int64_t at, int32_t *out) {
    const tti_target_spec *target = &tti_dataset_spec(s->b->train)->target;
    int64_t k = at % target->n;
    double value = tti_load_elem(t->type.dtype, t->data, (size_t)at);
    return tti_target_encode((value - target->mean[k]) / target->std[k], out);
}

static tutti_status check_targets(const tutti_session *s, const tutti_tensor *t) {
    int64_t n = tutti_shape_n_elems(&t->type.shape);
    int64_t each = n / TTI_MAX(t->type.shape.dim[0], 1);
    int32_t code;
    for (int64_t i = 0; i < n; i++)
        if (!encode_target(s, t, i, &code))
            return tti_fail(TUTTI_E_INVALID,
                            "session: input 'y': %g in row %" PRId64
                            " is not finite, or farther than %d standard deviations from the mean",
                            tti_load_elem(t->type.dtype, t->data, (size_t)i), i / each,
                            TTI_TARGET_MOST);
    return TUTTI_OK;
}

static tutti_status check_values(const tutti_session *s, int i, const tutti_tensor *t) {
    const tutti_dataset_info *info = tutti_dataset_get_info(s->b->train);
    int64_t n_rows = t->type.shape.dim[0];
    if (is_regression(s, i)) return check_targets(s, t);
    if (s->inputs[i].type.dtype != TUTTI_I32) return TUTTI_OK;
    if (!tti_feed_has_fields(s) && i == Y)
        return check_range(t, n_rows, -1, (double)info->n_classes - 1); /* -1 does not count */
    if (!tti_feed_has_fields(s) && info->n_tokens > 0)
        return check_range(t, n_rows, 0, (double)info->n_tokens - 1);
    if (t->type.dtype == TUTTI_I32 || t->type.dtype == TUTTI_U8) return TUTTI_OK;
    return check_range(t, n_rows, INT32_MIN, INT32_MAX);
}

static tutti_status check_one(const tutti_session *s, const tutti_tensor *t, tti_feed *out) {
    TTI_TRY(tti_tensor_check(s, "input", t));
    int i = find_input(s, t->name);
    if (i < 0) return unknown_input(s, t->name);
    if (out->tensor[i])
        return tti_fail(TUTTI_E_INVALID, "session: input '%s' is given twice", t->name);
    bool stored = is_stored(s, i, t), takes_floats = s->inputs[i].type.dtype == TUTTI_F32;
    bool fits = has_row_shape(t, &s->inputs[i].type.shape) &&
                (takes_floats || is_regression(s, i) || !is_float(t->type.dtype));
    if (takes_floats && !is_float(t->type.dtype) && !stored) fits = false;
    if (!fits && !stored) return bad_type(s, i, t);
    TTI_TRY(check_rows(s, t, out));
    out->on_device[i] = t->device > 0;
    out->any_on_device |= out->on_device[i];
    if (!stored && !out->on_device[i]) TTI_TRY(check_values(s, i, t));
    out->tensor[i] = t;
    out->stored |= stored;
    return TUTTI_OK;
}

tutti_status tti_feed_check(tutti_session *s, const tutti_tensor *inputs, int n_inputs, bool labels,
                            tti_feed *out) {
    *out = (tti_feed){.n_rows = -1};
    if (!inputs || n_inputs < 1)
        return tti_fail(TUTTI_E_INVALID, "session: inputs is %s", inputs ? "empty" : "NULL");
    if (n_inputs > s->n_inputs)
        return tti_fail(TUTTI_E_INVALID, "session: n_inputs is %d; the session has %d inputs",
                        n_inputs, s->n_inputs);
    if (s->b->config.data.mixup > 0 && labels)
        return tti_fail(
            TUTTI_E_UNSUPPORTED,
            "session: data.mixup mixes samples of the job's data; give data.mixup=0, or "
            "no inputs");
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].name)
            return tti_fail(TUTTI_E_INVALID, "session: inputs[%d].name is NULL", i);
        TTI_TRY(check_one(s, &inputs[i], out));
    }
    for (int i = 0; i < s->n_inputs; i++)
        if (!out->tensor[i] && (labels || s->is_needed[i]))
            return tti_fail(TUTTI_E_INVALID, "session: the input '%s' is missing",
                            s->inputs[i].name);
    out->n_rows_global = out->n_rows;
    return TUTTI_OK;
}

/* ---- copies, on the worker's thread ---- */

void tti_feed_rows(const tti_session_worker *w, const tti_feed *f, int64_t *first, int64_t *last) {
    int64_t b = w->b->rows_per_shard, base = 0;
    int from = tti_exec_first_shard(w->exec), to = tti_exec_last_shard(w->exec);
    if (w->session->comm) base = from * b; /* the process has the rows of its shards alone */
    *first = TTI_MIN(from * b - base, f->n_rows);
    *last = TTI_MIN(to * b - base, f->n_rows);
}

static bool is_same_type(const tutti_tensor *t, tutti_dtype dtype) {
    return t->type.dtype == dtype;
}

/* n elements of a tensor from element at on, as dtype. */
static void convert(const tutti_tensor *t, size_t at, size_t n, tutti_dtype dtype, void *to) {
    size_t width = tutti_dtype_bytes(dtype);
    if (is_same_type(t, dtype)) {
        memcpy(to, (const char *)t->data + at * width, n * width);
        return;
    }
    for (size_t i = 0; i < n; i++)
        tti_store_elem(dtype, to, i, tti_load_elem(t->type.dtype, t->data, at + i));
}

/* Rows first .. first+n-1 of input i to the first rows of `to`. */
static void put_rows(const tutti_session *s, const tti_feed *f, int i, int64_t first, int64_t n,
                     void *to) {
    const tutti_field *field = &s->inputs[i];
    size_t elems = (size_t)tutti_shape_n_elems(&field->type.shape);
    if (f->on_device[i] && f->n_rows > 0) return; /* tti_feed_to_device copies them */
    if (f->tensor[i] && f->n_rows > 0)
        convert(f->tensor[i], (size_t)first * elems, (size_t)n * elems, field->type.dtype, to);
    else
        memset(to, 0, (size_t)n * tti_field_bytes(field));
}

static tutti_status put_stored(const tutti_session *s, const tti_feed *f, int64_t first, int64_t n,
                               uint8_t *to) {
    const tutti_dataset *ds = s->b->train;
    static const tti_sample_key key;
    size_t stored_bytes = tti_type_bytes(tti_dataset_stored(ds)),
           x_bytes = tti_type_bytes(&tutti_dataset_get_info(ds)->x);
    tutti_type type;
    size_t max_bytes;
    TTI_TRY(tti_chain_infer(tti_dataset_decode(ds), tti_dataset_stored(ds), &type, &max_bytes));
    char *memory = malloc(2 * max_bytes);
    if (!memory) return tti_fail(TUTTI_E_NOMEM, "session: out of memory for a sample");
    void *const scratch[2] = {memory, memory + max_bytes};
    for (int64_t r = 0; r < n; r++) {
        memcpy(memory, (const char *)f->tensor[X]->data + (size_t)(first + r) * stored_bytes,
               stored_bytes);
        tti_chain_apply(tti_dataset_decode(ds), &key, scratch, stored_bytes,
                        to + (size_t)r * x_bytes);
    }
    free(memory);
    return TUTTI_OK;
}

/* Values of a regression, standardized; check_targets has seen them. */
static void put_values(const tutti_session *s, const tutti_tensor *t, int64_t first, int64_t n,
                       int32_t *to) {
    for (int64_t i = 0; i < n * tti_dataset_spec(s->b->train)->target.n; i++) {
        bool fits =
            encode_target(s, t, first * tti_dataset_spec(s->b->train)->target.n + i, &to[i]);
        TTI_ASSERT(fits);
    }
}

static void fill_missing(int32_t *to, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = -1;
}

/* Samples x with labels. */
static tutti_status put_sample_rows(tti_session_worker *w, const tti_feed *f, int64_t first,
                                    int64_t n, uint8_t *x, int32_t *y) {
    const tutti_session *s = w->session;
    const tutti_dataset_info *info = tutti_dataset_get_info(s->b->train);
    int64_t rows = w->b->rows_per_shard;
    size_t x_bytes = tti_type_bytes(&info->x);
    size_t y_elems = (size_t)tutti_shape_n_elems(&info->y.shape);
    if (f->stored)
        TTI_TRY(put_stored(s, f, first, n, x));
    else
        put_rows(s, f, X, first, n, x);
    memset(x + (size_t)n * x_bytes, 0, (size_t)(rows - n) * x_bytes);
    if (!f->tensor[Y])
        fill_missing(y, (size_t)n * y_elems);
    else if (info->is_value)
        put_values(s, f->tensor[Y], first, n, y);
    else
        put_rows(s, f, Y, first, n, y);
    fill_missing(y + (size_t)n * y_elems, (size_t)(rows - n) * y_elems);
    return TUTTI_OK;
}

/* Samples with fields; rows that are not there are copies of the first row of the batch. */
static void put_field_rows(tti_session_worker *w, const tti_feed *f, int64_t first, int64_t n,
                           uint8_t *x, int32_t *y) {
    const tutti_session *s = w->session;
    int64_t rows = w->b->rows_per_shard;
    for (int i = 0; i < s->n_inputs; i++) {
        uint8_t *block = x + tti_field_offset(s->inputs, i, rows);
        size_t n_bytes = tti_field_bytes(&s->inputs[i]);
        put_rows(s, f, i, first, n, block);
        for (int64_t r = n; r < rows; r++) put_rows(s, f, i, 0, 1, block + (size_t)r * n_bytes);
    }
    for (int64_t r = 0; r < rows; r++) y[r] = r < n ? 0 : -1;
}

tutti_status tti_feed_put(tti_session_worker *w, const tti_feed *f) {
    int64_t first, last, rows = w->b->rows_per_shard;
    tti_feed_rows(w, f, &first, &last);
    for (int i = 0; i < w->n_shards; i++) {
        int64_t at = TTI_MIN(first + i * rows, last), n = TTI_MIN(last - at, rows);
        uint8_t *x = w->samples + (size_t)i * w->samples_bytes;
        int32_t *y = (int32_t *)(void *)(w->targets + (size_t)i * w->targets_bytes);
        if (tti_feed_has_fields(w->session))
            put_field_rows(w, f, at, n, x, y);
        else
            TTI_TRY(put_sample_rows(w, f, at, n, x, y));
        w->shards[i] = (tti_shard_data){.x = x, .target = y, .n_rows = (int32_t)n};
    }
    return f->any_on_device ? tti_feed_to_device(w, f) : TUTTI_OK;
}

void tti_feed_put_seeds(tti_session_worker *w, const tti_feed *f, const tutti_tensor *seeds,
                        double count) {
    const tutti_session *s = w->session;
    int64_t first, last, rows = w->b->rows_per_shard;
    tti_feed_rows(w, f, &first, &last);
    for (int i = 0; i < w->n_shards; i++) {
        int64_t at = TTI_MIN(first + i * rows, last), n = TTI_MIN(last - at, rows);
        uint8_t *x = w->samples + (size_t)i * w->samples_bytes;
        for (int k = 0; k < s->n_outputs; k++) {
            const tti_session_output *out = &s->outputs[k];
            if (out->seed == 0) continue;
            memset(x + out->seed, 0, (size_t)rows * out->row_bytes);
            if (seeds)
                memcpy(x + out->seed, (const char *)seeds[k].data + (size_t)at * out->row_bytes,
                       (size_t)n * out->row_bytes);
        }
        float *counts = (float *)(void *)(x + s->count_seed);
        memset(counts, 0, (size_t)rows * sizeof *counts);
        if (at == 0 && n > 0) counts[0] = (float)count; /* in the first row of the process */
    }
}
