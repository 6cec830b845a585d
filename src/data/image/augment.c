/* augment.c - parses data.augment, and draws random crops and flips.
 *
 * Each step has its own random numbers, by name: adding a step to a job does not move the crops. */
#include "data/image/augment.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/philox.h"

/* ---- words ---- */

typedef struct word {
    const char *name;
    size_t offset; /* of the field in tti_augment */
    bool is_int;
    double usual, min, max;
} word;

#define AT(field) offsetof(tti_augment, field)

static const word words[] = {
    {"random_resized_crop", AT(min_area), false, 0.08, 0.001, 1},
    {"flip", AT(flip), false, 0.5, 0, 1},
    {"colour_jitter", AT(jitter), false, 0.4, 0, 1},
    {"color_jitter", AT(jitter), false, 0.4, 0, 1},
    {"pad_crop", AT(pad), true, 4, 0, 1024},
    {"cutout", AT(cutout), true, 16, 0, 4096},
};

static const word *find_word(const char *name, size_t n_bytes) {
    for (size_t i = 0; i < TTI_COUNT(words); i++)
        if (strlen(words[i].name) == n_bytes && memcmp(words[i].name, name, n_bytes) == 0)
            return &words[i];
    return NULL;
}

/* A number without blanks around it; false if it is none. */
static bool read_number(const char *text, size_t n_bytes, double *out) {
    char copy[64];
    if (n_bytes == 0 || n_bytes >= sizeof copy) return false;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    return tti_parse_float(copy, out) == TTI_NUMBER_OK;
}

/* The part up to the next comma, without blanks around it. */
static const char *next_part(const char **text, size_t *n_bytes) {
    const char *start = *text + strspn(*text, " \t");
    const char *end = start + strcspn(start, ",");
    *text = *end ? end + 1 : end;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *n_bytes = (size_t)(end - start);
    return start;
}

static tutti_status take_word(const char *part, size_t n_bytes, tti_augment *out) {
    const char *equals = memchr(part, '=', n_bytes);
    size_t n_name = equals ? (size_t)(equals - part) : n_bytes;
    const word *w = find_word(part, n_name);
    if (!w)
        return tti_fail(TUTTI_E_INVALID,
                        "data.augment: unknown step '%.*s' (known: random_resized_crop, flip, "
                        "colour_jitter, pad_crop, cutout, none)",
                        (int)n_name, part);
    double value = w->usual;
    bool good = !equals || read_number(equals + 1, n_bytes - n_name - 1, &value);
    if (!good || value < w->min || value > w->max || (w->is_int && value != rint(value)))
        return tti_fail(TUTTI_E_INVALID, "data.augment: '%.*s': expected a%s number from %g to %g",
                        (int)n_bytes, part, w->is_int ? " whole" : "", w->min, w->max);
    if (w->is_int)
        *(int64_t *)(void *)((char *)out + w->offset) = (int64_t)value;
    else
        *(double *)(void *)((char *)out + w->offset) = value;
    return TUTTI_OK;
}

tutti_status tti_augment_parse(const char *text, const tti_augment *usual, tti_augment *out) {
    tti_augment augment = {0};
    bool is_auto = !text || strcmp(text, "auto") == 0;
    if (is_auto) augment = *usual;
    while (!is_auto && *text) {
        size_t n_bytes;
        const char *part = next_part(&text, &n_bytes);
        if (n_bytes == 0 || (n_bytes == 4 && memcmp(part, "none", 4) == 0)) continue;
        TTI_TRY(take_word(part, n_bytes, &augment));
    }
    if (augment.min_area > 0 && augment.pad > 0)
        return tti_fail(TUTTI_E_INVALID,
                        "data.augment: random_resized_crop and pad_crop exclude each other");
    *out = augment;
    return TUTTI_OK;
}

void tti_augment_print(const tti_augment *a, tti_str *out) {
    char text[TTI_NUMBER_TEXT];
    size_t start = out->n_bytes;
    for (size_t i = 0; i < TTI_COUNT(words); i++) {
        const void *field = (const char *)a + words[i].offset;
        double value = words[i].is_int ? (double)*(const int64_t *)field : *(const double *)field;
        bool is_alias = i > 0 && words[i].offset == words[i - 1].offset;
        if (value == 0 || is_alias) continue;
        tti_str_printf(out, "%s%s=%s", out->n_bytes > start ? ", " : "", words[i].name,
                       tti_format_double(text, value));
    }
    if (out->n_bytes == start) tti_str_add(out, "none");
}

bool tti_augment_is_none(const tti_augment *a) {
    return a->min_area == 0 && a->flip == 0 && a->jitter == 0 && a->pad == 0 && a->cutout == 0;
}

tutti_status tti_channels_parse(const char *text, const char *key, const double usual[3],
                                double out[3]) {
    if (!text || strcmp(text, "auto") == 0) {
        memcpy(out, usual, 3 * sizeof *out);
        return TUTTI_OK;
    }
    double value[3];
    bool good = true;
    const char *rest = text;
    for (int i = 0; i < 3; i++) {
        size_t n_bytes;
        const char *part = next_part(&rest, &n_bytes);
        good = good && read_number(part, n_bytes, &value[i]);
    }
    if (!good || *rest)
        return tti_fail(
            TUTTI_E_INVALID,
            "%s: expected three numbers, such as 0.485, 0.456, 0.406, or auto; got '%s'", key,
            text);
    memcpy(out, value, sizeof value);
    return TUTTI_OK;
}

/* ---- draws ---- */

static tti_philox draw(const char *name, uint64_t which, const tti_sample_key *key) {
    uint64_t stream = tti_mix64(tti_mix64(key->seed, tti_hash_name(name)), which);
    return tti_philox_draw(stream, key->epoch, key->index);
}

/* exp of a small number by its series: the same bits wherever doubles are IEEE's. */
static double small_exp(double x) {
    double sum = 1;
    for (int i = 14; i >= 1; i--) sum = 1 + x / i * sum;
    return sum;
}

/* The middle of the image, no flatter than 4/3 and no steeper than 3/4. */
static tti_box middle_box(int64_t h, int64_t w) {
    double ratio = (double)w / (double)h;
    tti_box box = {.h = h, .w = w};
    if (ratio < 3.0 / 4.0)
        box.h = TTI_MIN((int64_t)rint((double)w / (3.0 / 4.0)), h);
    else if (ratio > 4.0 / 3.0)
        box.w = TTI_MIN((int64_t)rint((double)h * (4.0 / 3.0)), w);
    box.y = (h - box.h) / 2;
    box.x = (w - box.w) / 2;
    return box;
}

static int64_t draw_below(uint32_t bits, int64_t n) {
    return (int64_t)(((uint64_t)bits * (uint64_t)n) >> 32);
}

tti_box tti_random_box(int64_t h, int64_t w, double min_area, const tti_sample_key *key) {
    const double log_ratio = 0.28768207245178085; /* log(4/3) */
    for (uint64_t i = 0; i < 10; i++) {
        tti_philox d = draw("random_resized_crop", i, key);
        double share = min_area + (1 - min_area) * (double)tti_philox_unit(d.v[0]);
        double area = (double)h * (double)w * share;
        double ratio = small_exp(log_ratio * (2 * (double)tti_philox_unit(d.v[1]) - 1));
        tti_box box = {.h = (int64_t)rint(sqrt(area / ratio)),
                       .w = (int64_t)rint(sqrt(area * ratio))};
        if (box.h < 1 || box.h > h || box.w < 1 || box.w > w) continue;
        box.y = draw_below(d.v[2], h - box.h + 1);
        box.x = draw_below(d.v[3], w - box.w + 1);
        return box;
    }
    return middle_box(h, w);
}

bool tti_random_flip(double probability, const tti_sample_key *key) {
    return (double)tti_philox_unit(draw("flip", 0, key).v[0]) < probability;
}
