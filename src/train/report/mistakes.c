/* mistakes.c - embeds the misclassified images in the report page.
 *
 * Pixels come from the model input, stretched to the full range.  So all image formats are shown in
 * the same way, and no image is decoded twice. */
#include "train/report/mistakes.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "train/report/chart.h"

typedef struct search {
    const tti_blueprint *b;
    tti_mistakes *m;
} search;

bool tti_shows_images(const tti_blueprint *b) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->test);
    const tutti_shape *x = &info->x.shape;
    return info->x.dtype == TUTTI_F32 && info->y.shape.n_dims == 0 && x->n_dims == 3 &&
           (x->dim[0] == 1 || x->dim[0] == 3) && x->dim[1] >= 2 && x->dim[2] >= 2;
}

/* ---- pixels ---- */

static void range_of(const float *x, int64_t n, float *lo, float *scale) {
    float hi = x[0];
    *lo = x[0];
    for (int64_t i = 0; i < n; i++) *lo = fminf(*lo, x[i]), hi = fmaxf(hi, x[i]);
    *scale = hi > *lo ? 255.0f / (hi - *lo) : 0;
}

/* Converts x [C,H,W] to RGB, taking every k-th pixel of a large image. */
static void take_pixels(const float *x, const tutti_shape *shape, tti_mistake *out) {
    int64_t c = shape->dim[0], h = shape->dim[1], w = shape->dim[2];
    int64_t k = (TTI_MAX(h, w) + TTI_MISTAKE_SIDE - 1) / TTI_MISTAKE_SIDE;
    float lo, scale;
    range_of(x, c * h * w, &lo, &scale);
    out->h = (int)(h / k), out->w = (int)(w / k);
    for (int64_t i = 0; i < out->h; i++)
        for (int64_t j = 0; j < out->w; j++)
            for (int64_t channel = 0; channel < 3; channel++) {
                float v = x[((c == 3 ? channel : 0) * h + i * k) * w + j * k];
                float shown = (v - lo) * scale;
                out->rgb[(i * out->w + j) * 3 + channel] = (uint8_t)(shown >= 0 ? shown : 0);
            }
}

/* ---- the search ---- */

static double softmax_max(const float *logits, int64_t n, int64_t *at) {
    double sum = 0;
    *at = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[*at]) *at = i;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[*at]);
    return 1 / sum;
}

/* Returns the position of a new mistake in the list, the most confident first; -1: not in the
 * list. */
static int place_of(const tti_mistakes *m, double probability) {
    int at = m->n;
    while (at > 0 && m->found[at - 1].probability < probability) at--;
    return at < TTI_MAX_MISTAKES ? at : -1;
}

static void look_at(search *s, const float *logits, const float *x, int32_t label, int64_t index) {
    int64_t n_classes = s->b->model_params.n_classes, predicted;
    if (label < 0) return;
    double probability = softmax_max(logits, n_classes, &predicted);
    s->m->n_seen++;
    if (predicted == label) return;
    s->m->n_wrong++;
    int at = place_of(s->m, probability);
    if (at < 0) return;
    s->m->n = TTI_MIN(s->m->n + 1, (int)TTI_MAX_MISTAKES);
    for (int i = s->m->n - 1; i > at; i--) s->m->found[i] = s->m->found[i - 1];
    s->m->found[at] = (tti_mistake){
        .index = index, .label = label, .predicted = predicted, .probability = probability};
    take_pixels(x, &tutti_dataset_get_info(s->b->test)->x.shape, &s->m->found[at]);
}

static void look_at_shard(void *user, const tti_shard_data *data, const tti_predicted *out,
                          int64_t index) {
    search *s = user;
    int64_t n_classes = s->b->model_params.n_classes;
    int64_t n_x = tutti_shape_n_elems(&tutti_dataset_get_info(s->b->test)->x.shape);
    for (int64_t i = 0; i < data->n_rows; i++)
        look_at(s, out->logits + i * n_classes, (const float *)data->x + i * n_x,
                ((const int32_t *)data->target)[i], index + i);
}

tutti_status tti_mistakes_find(tti_predictor *p, int time_ms, tti_mistakes *out) {
    *out = (tti_mistakes){.found = calloc(TTI_MAX_MISTAKES, sizeof *out->found)};
    if (!out->found) return tti_fail(TUTTI_E_NOMEM, "report: out of memory");
    search s = {.b = tti_predictor_blueprint(p), .m = out};
    int64_t until_ns = tti_now_ns() + time_ms * TTI_NS_PER_MS;
    tutti_status st = tti_predictor_run_test(p, until_ns, look_at_shard, &s);
    if (st != TUTTI_OK) tti_mistakes_free(out);
    return st;
}

void tti_mistakes_free(tti_mistakes *m) {
    free(m->found);
    *m = (tti_mistakes){0};
}

/* ---- images in a page ---- */

static void add_base64(tti_str *out, const uint8_t *bytes, size_t n_bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n_bytes; i += 3) {
        uint32_t x = 0;
        char text[5] = "====";
        for (size_t k = 0; k < 3; k++) x = x << 8 | (i + k < n_bytes ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4 && i + k < n_bytes + 1; k++)
            text[k] = digits[x >> (18 - 6 * k) & 63];
        tti_str_add(out, text);
    }
}

static void put_le(uint8_t *at, uint32_t x) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(x >> (8 * i));
}

/* Writes a BMP file: a header of 54 bytes, then rows of BGR pixels from bottom to top, padded to 4
 * bytes. */
static void add_bmp(tti_str *out, const tti_mistake *m) {
    enum { HEAD = 54 };
    uint8_t file[HEAD + (TTI_MISTAKE_SIDE * 3 + 3) * TTI_MISTAKE_SIDE] = {0};
    size_t row = ((size_t)m->w * 3 + 3) & ~(size_t)3, n_bytes = HEAD + row * (size_t)m->h;
    file[0] = 'B', file[1] = 'M';
    put_le(file + 2, (uint32_t)n_bytes);
    put_le(file + 10, HEAD);
    put_le(file + 14, 40);
    put_le(file + 18, (uint32_t)m->w);
    put_le(file + 22, (uint32_t)m->h);
    file[26] = 1, file[28] = 24;
    for (int i = 0; i < m->h; i++)
        for (int j = 0; j < m->w; j++)
            for (int c = 0; c < 3; c++)
                file[HEAD + (size_t)(m->h - 1 - i) * row + (size_t)j * 3 + (size_t)c] =
                    m->rgb[(i * m->w + j) * 3 + 2 - c];
    add_base64(out, file, n_bytes);
}

static void add_name(tti_str *out, const tutti_dataset *names, int64_t label) {
    const char *name = tutti_dataset_class_name(names, label);
    if (name)
        tti_html_text(out, name);
    else
        tti_str_printf(out, "%lld", (long long)label);
}

void tti_mistakes_draw(tti_str *out, const tti_mistakes *m, const tutti_dataset *names) {
    tti_str_printf(out, "<p>%lld of %lld test images were misclassified%s.</p>",
                   (long long)m->n_wrong, (long long)m->n_seen,
                   m->n > 0 ? "; those predicted with the highest probability" : "");
    tti_str_add(out, "<div class=\"wrong\">");
    for (int i = 0; i < m->n; i++) {
        const tti_mistake *one = &m->found[i];
        tti_str_printf(out,
                       "<div title=\"test sample %lld\"><img alt=\"\" src=\"data:image/bmp;base64,",
                       (long long)one->index);
        add_bmp(out, one);
        tti_str_add(out, "\"><b>");
        add_name(out, names, one->predicted);
        tti_str_printf(out, " <small>%.0f %%</small></b><span>is ", 100 * one->probability);
        add_name(out, names, one->label);
        tti_str_add(out, "</span></div>");
    }
    tti_str_add(out, "</div>\n");
}
