/* predict_files.c - tutti_predict: picture files through a trained model, in order.
 *
 * Every picture, whatever its file, becomes an RGB picture, then a sample as the job's data set
 * stores them, then what the model is fed by the data set's own chain: the way of a test sample. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/idx.h"
#include "data/image_set.h"
#include "train/predictor.h"
#include "tutti/eval.h"

/* A picture that is waiting for its batch to be full. */
typedef struct waiting {
    const char *file;
    int64_t index, n_in_file;
} waiting;

typedef struct prediction_run {
    tti_predictor *p;
    const tti_blueprint *b;
    const tutti_dataset *ds;
    tutti_predict_fn fn;
    void *user;
    int64_t n_rows, n_waiting; /* rows of a batch; of them filled */
    size_t row_bytes;
    float *x;       /* [n_rows, ...] */
    int32_t *y;     /* [rows of a shard, targets]: nobody knows */
    waiting *wait;  /* [n_rows] */
    void *chain[2]; /* of the data set's chain */
    tti_workspace ws;
    tti_buffer grey; /* RGB of a picture of an IDX file */
} prediction_run;

/* ---- a batch ---- */

static void take_top(tutti_prediction *out, const float *logits, int64_t n,
                     const tutti_dataset *ds) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    out->n_top = (int)TTI_MIN(n, (int64_t)TUTTI_PREDICT_TOP);
    for (int k = 0; k < out->n_top; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool taken = false;
            for (int t = 0; t < k; t++) taken |= out->top[t].label == i;
            if (!taken && (best < 0 || logits[i] > logits[best])) best = i;
        }
        out->top[k].label = best;
        out->top[k].name = tutti_dataset_class_name(ds, best);
        out->top[k].probability = exp((double)logits[best] - most) / sum;
    }
}

static void tell(prediction_run *r, int64_t row, const float *logits) {
    const waiting *w = &r->wait[row];
    tutti_prediction out = {.file = w->file, .index = w->index, .n_in_file = w->n_in_file};
    take_top(&out, logits, r->b->model_params.n_classes, r->ds);
    r->fn(r->user, &out);
}

static tutti_status flush(prediction_run *r) {
    int64_t b = r->b->rows_per_shard, n_classes = r->b->model_params.n_classes;
    tti_shard_data shards[TTI_MAX_WORKERS];
    tti_predicted out[TTI_MAX_WORKERS];
    int n_shards = (int)((r->n_waiting + b - 1) / b);
    if (n_shards == 0) return TUTTI_OK;
    for (int s = 0; s < n_shards; s++)
        shards[s] = (tti_shard_data){(char *)r->x + (size_t)(s * b) * r->row_bytes, r->y,
                                     (int32_t)TTI_MIN(b, r->n_waiting - s * b)};
    TTI_TRY(tti_predictor_run(r->p, shards, n_shards, out));
    for (int64_t row = 0; row < r->n_waiting; row++)
        tell(r, row, out[row / b].logits + row % b * n_classes);
    r->n_waiting = 0;
    return TUTTI_OK;
}

/* ---- a picture ---- */

/* As a picture of one channel, of the size that the model takes. */
static tutti_status place_grey(prediction_run *r, const tti_image *image, uint8_t *x) {
    int64_t h = r->ds->stored.shape.dim[1], w = r->ds->stored.shape.dim[2];
    const uint8_t *rgb = image->rgb;
    if (image->h != h || image->w != w) {
        tti_resize how = {{0, 0, image->h, image->w}, h, w, {0, 0, h, w}, false};
        TTI_TRY(tti_buffer_reserve(&r->ws.file, (size_t)(h * w * 3)));
        TTI_TRY(tti_image_resize(image, &how, &r->ws, r->ws.file.bytes));
        rgb = r->ws.file.bytes;
    }
    for (int64_t i = 0; i < h * w; i++) /* as PIL converts to "L" */
        x[i] = (uint8_t)((rgb[3 * i] * 19595 + rgb[3 * i + 1] * 38470 + rgb[3 * i + 2] * 7471 +
                          0x8000) >>
                         16);
    return TUTTI_OK;
}

static bool is_grey(const tutti_dataset *ds) { return ds->stored.shape.dim[0] == 1; }

static tutti_status add_picture(prediction_run *r, const tti_image *image, waiting who) {
    static const tti_sample_key key;
    if (is_grey(r->ds))
        TTI_TRY(place_grey(r, image, r->chain[0]));
    else
        TTI_TRY(tti_image_set_place(r->ds->state, &key, image, &r->ws, r->chain[0]));
    tti_chain_apply(&r->ds->decode, &key, r->chain,
                    (size_t)tutti_shape_n_elems(&r->ds->stored.shape),
                    (char *)r->x + (size_t)r->n_waiting * r->row_bytes);
    r->wait[r->n_waiting++] = who;
    return r->n_waiting == r->n_rows ? flush(r) : TUTTI_OK;
}

/* ---- files ---- */

static tutti_status add_idx_picture(prediction_run *r, const tti_idx_header *head,
                                    const uint8_t *pixels, waiting who) {
    int64_t h = head->shape.dim[1], w = head->shape.dim[2];
    for (int64_t i = 0; i < h * w; i++) memset(r->grey.bytes + 3 * i, pixels[i], 3);
    return add_picture(r, &(tti_image){h, w, r->grey.bytes}, who);
}

static tutti_status add_idx(prediction_run *r, tti_reader *reader, const char *file) {
    tti_idx_header head;
    uint8_t *pixels = NULL;
    TTI_TRY(tti_idx_read_header(reader, 3, &head));
    int64_t h = head.shape.dim[1], w = head.shape.dim[2], n = head.shape.dim[0];
    if (h > TTI_MAX_IMAGE_SIDE || w > TTI_MAX_IMAGE_SIDE || h * w > TTI_MAX_IMAGE_PIXELS)
        return tti_fail(TUTTI_E_DATA, "%s: pictures of %lld x %lld are too large", file,
                        (long long)h, (long long)w);
    TTI_TRY(tti_buffer_reserve(&r->grey, (size_t)(h * w * 3) + TTI_IMAGE_PAD_BYTES));
    TTI_TRY(tti_idx_read_elems(reader, &head, &pixels));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < n && st == TUTTI_OK; i++)
        st = add_idx_picture(r, &head, pixels + i * h * w, (waiting){file, i, n});
    free(pixels);
    return st;
}

static tutti_status add_encoded(prediction_run *r, const char *file) {
    tti_image_head head;
    tti_image image;
    TTI_TRY(tti_fetch_bytes(file, 0, 0, &r->ws));
    tti_blob blob = {r->ws.file.bytes, r->ws.file.n_bytes, file};
    TTI_TRY(tti_image_read_head(&blob, &head));
    TTI_TRY(tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &r->ws, &image));
    return add_picture(r, &image, (waiting){file, 0, 1});
}

/* IDX files, plain or gzipped, begin with two zeros; no encoded picture does. */
static tutti_status add_file(prediction_run *r, const char *file) {
    uint8_t magic[2];
    tti_reader *reader;
    TTI_TRY(tti_reader_open(file, &reader));
    tutti_status st = tti_reader_read(reader, magic, sizeof magic, "header");
    tti_reader_close(reader);
    TTI_TRY(st);
    if (magic[0] != 0 || magic[1] != 0) return add_encoded(r, file);
    TTI_TRY(tti_reader_open(file, &reader));
    st = add_idx(r, reader, file);
    tti_reader_close(reader);
    return st;
}

/* ---- the call ---- */

static tutti_status check_model(const prediction_run *r) {
    static const char *const sets[] = {"images", "tar", "packed", "cifar10", "cifar100"};
    const tutti_type *stored = &r->ds->stored;
    const char *format = r->b->config.data.format;
    bool pictures = tutti_dataset_get_info(r->ds)->y.shape.n_dims == 0 &&
                    stored->dtype == TUTTI_U8 && stored->shape.n_dims == 3;
    bool set = false;
    for (size_t i = 0; i < TTI_COUNT(sets); i++) set |= strcmp(format, sets[i]) == 0;
    if (pictures && (set || is_grey(r->ds))) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "predict: a model of data.format=%s is not fed with "
                    "pictures",
                    format);
}

static tutti_status prepare(prediction_run *r) {
    tutti_type type;
    size_t chain_bytes;
    TTI_TRY(check_model(r));
    TTI_TRY(tti_chain_infer(&r->ds->decode, &r->ds->stored, &type, &chain_bytes));
    int64_t n_targets = r->b->rows_per_shard;
    r->n_rows = r->b->rows_per_shard * tti_predictor_n_lanes(r->p);
    r->row_bytes = tti_type_bytes(&type);
    r->x = calloc((size_t)r->n_rows, r->row_bytes);
    r->y = malloc((size_t)n_targets * sizeof *r->y);
    r->wait = calloc((size_t)r->n_rows, sizeof *r->wait);
    for (int i = 0; i < 2; i++) r->chain[i] = aligned_alloc(64, TTI_MAX(chain_bytes, (size_t)64));
    if (!r->x || !r->y || !r->wait || !r->chain[0] || !r->chain[1])
        return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    for (int64_t i = 0; i < n_targets; i++) r->y[i] = -1;
    return TUTTI_OK;
}

static void finish(prediction_run *r) {
    free(r->x);
    free(r->y);
    free(r->wait);
    free(r->chain[0]);
    free(r->chain[1]);
    tti_workspace_free(&r->ws);
    free(r->grey.bytes);
    tti_predictor_close(r->p);
}

tutti_status tutti_predict(tutti_job *job, const char *run_dir, const char *const *files,
                           int n_files, tutti_predict_fn fn, void *user) {
    prediction_run r = {.fn = fn, .user = user};
    TTI_TRY(tti_predictor_open_one_row(job, run_dir, &r.p));
    r.b = tti_predictor_blueprint(r.p);
    r.ds = r.b->test;
    tutti_status st = prepare(&r), flushed = TUTTI_OK;
    for (int i = 0; i < n_files && st == TUTTI_OK; i++) st = add_file(&r, files[i]);
    /* What came before a bad file is told, and then the file. */
    char text[2048];
    if (st != TUTTI_OK) snprintf(text, sizeof text, "%s", tutti_last_error());
    if (r.wait) flushed = flush(&r);
    if (st != TUTTI_OK) tti_fail(st, "%s", text);
    finish(&r);
    return tti_job_say_where(job, st != TUTTI_OK ? st : flushed);
}

static void add_class(tti_json *j, const char *key, int64_t label, const char *name) {
    if (name)
        tti_json_text(j, key, name);
    else
        tti_json_int(j, key, label);
}

char *tutti_prediction_print(const tutti_prediction *p) {
    tti_str out = {0};
    tti_json j = tti_json_begin(&out, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "file", p->file);
    if (p->n_in_file > 1) tti_json_int(&j, "index", p->index);
    add_class(&j, "class", p->top[0].label, p->top[0].name);
    tti_json_double(&j, "probability", p->top[0].probability);
    tti_json_array(&j, "top5");
    for (int i = 0; i < p->n_top; i++) {
        tti_json_object(&j, NULL);
        add_class(&j, "class", p->top[i].label, p->top[i].name);
        tti_json_double(&j, "probability", p->top[i].probability);
        tti_json_end(&j);
    }
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(&out, "\n");
    if (out.failed) tti_str_free(&out);
    return out.text;
}
