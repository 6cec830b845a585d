/* digit_pen.c - draws one digit: glyph points, a shaky hand, a warped sheet, a pen, a camera.
 *
 * Random variations act on the few points of the strokes (jitter, elastic warp, affine map), and
 * only then are the strokes painted, as distance to the nearest segment; so a digit costs
 * microseconds.  Elastic distortion after Simard, Steinkraus, Platt: Best Practices for
 * Convolutional Neural Networks (2003), with two plane waves as the smooth field.  The bits are the
 * same everywhere: only + - * / and sqrt in float, which IEEE 754 defines exactly, no contraction,
 * and no function of the C library. */
#include "data/formats/digit_pen.h"

#include <math.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/philox.h"
#include "data/formats/digit_glyphs.h"

enum { STEPS = 5, MAX_POINTS = (TTI_GLYPH_POINTS - 1) * STEPS + 1 };

typedef struct point {
    float x, y;
} point;

/* The random numbers of one digit, in the order of their use. */
typedef struct stream {
    uint64_t key, index, n_draws;
    tti_philox bits;
    unsigned n_left;
} stream;

static uint32_t next_bits(stream *s) {
    if (s->n_left == 0) {
        s->bits = tti_philox_draw(s->key, s->index, s->n_draws++);
        s->n_left = 4;
    }
    return s->bits.v[4 - s->n_left--];
}

static float uniform(stream *s, float low, float high) {
    return low + (high - low) * tti_philox_unit(next_bits(s));
}

/* Around 0, most often near it, at most a: the sum of two uniform ones, in either order. */
static float around(stream *s, float a) {
    return uniform(s, -a, a) * 0.5f + uniform(s, -a, a) * 0.5f;
}

/* In two statements: C leaves the order of evaluation within one to the compiler. */
static point draw_near(stream *s, float x, float y, float a) {
    x += around(s, a);
    y += around(s, a);
    return (point){x, y};
}

/* sin(2 pi t) by its Taylor series on a quarter turn; the error is below 4e-6. */
static float sin_turn(float t) {
    t -= (float)(int)t;
    if (t < 0) t += 1.0f;
    if (t > 0.75f)
        t -= 1.0f;
    else if (t > 0.25f)
        t = 0.5f - t;
    float a = t * 6.2831853f, q = a * a;
    return a * (1.0f + q * (-1.6666667e-1f +
                            q * (8.3333333e-3f + q * (-1.9841270e-4f + q * 2.7557319e-6f))));
}

static float cos_turn(float t) { return sin_turn(t + 0.25f); }

/* Everything about the sheet and the pen that holds for the whole digit. */
typedef struct hand {
    float xx, xy, yx, yy, x0, y0; /* unit box, centre at 0 -> pixels */
    float wave[2][5];             /* per wave: fx, fy (turns per pixel), phase, ax, ay (pixels) */
    float jitter;                 /* of each glyph point, in boxes */
    float radius, softness;       /* of the pen, in pixels */
    float ink, noise;             /* brightness of the stroke, of the speckles */
} hand;

static hand draw_hand(stream *s) {
    hand h = {0};
    float height = uniform(s, 15.5f, 21.5f), width = height * uniform(s, 0.55f, 0.95f);
    float turn = around(s, 0.085f), shear = around(s, 0.45f);
    float c = cos_turn(turn), n = sin_turn(turn);
    h.xx = c * width;
    h.xy = (c * -shear - n) * height;
    h.yx = n * width;
    h.yy = (n * -shear + c) * height;
    h.x0 = 13.5f + around(s, 3.0f);
    h.y0 = 13.5f + around(s, 3.0f);
    for (int i = 0; i < 2; i++) {
        h.wave[i][0] = uniform(s, -0.07f, 0.07f);
        h.wave[i][1] = uniform(s, -0.07f, 0.07f);
        h.wave[i][2] = uniform(s, 0.0f, 1.0f);
        h.wave[i][3] = around(s, 1.8f);
        h.wave[i][4] = around(s, 1.8f);
    }
    h.jitter = uniform(s, 0.01f, 0.045f);
    h.radius = height * uniform(s, 0.04f, 0.08f);
    h.softness = uniform(s, 0.8f, 1.6f);
    h.ink = uniform(s, 0.6f, 1.0f);
    h.noise = uniform(s, 0.0f, 0.12f);
    return h;
}

static point place(const hand *h, point p) {
    p.x -= 0.5f, p.y -= 0.5f;
    point q = {h->xx * p.x + h->xy * p.y, h->yx * p.x + h->yy * p.y};
    point out = {q.x + h->x0, q.y + h->y0};
    for (int i = 0; i < 2; i++) {
        const float *w = h->wave[i];
        float wave = sin_turn(w[0] * q.x + w[1] * q.y + w[2]);
        out.x += w[3] * wave, out.y += w[4] * wave;
    }
    return out;
}

/* Catmull-Rom: a smooth curve through the points; t in [0, 1] goes from b to c. */
static float curve(float a, float b, float c, float d, float t) {
    float u = (c - a) * 0.5f, v = (d - b) * 0.5f, e = b - c;
    return b + t * (u + t * (-3.0f * e - 2.0f * u - v + t * (2.0f * e + u + v)));
}

/* The stroke as a fine polyline in pixels; returns how many points. */
static int trace(const tti_glyph_stroke *stroke, const hand *h, stream *s, point *line) {
    point p[TTI_GLYPH_POINTS];
    int n = 0, last = stroke->n_points - 1;
    for (int i = 0; i <= last; i++) {
        const int8_t *at = stroke->point[i];
        bool corner = i > 0 && at[0] == at[-2] && at[1] == at[-1];
        if (corner)
            p[i] = p[i - 1];
        else
            p[i] = draw_near(s, (float)at[0] * 0.01f, (float)at[1] * 0.01f, h->jitter);
    }
    for (int i = 0; i < last; i++) {
        const point *a = &p[i > 0 ? i - 1 : 0], *b = &p[i], *c = &p[i + 1];
        const point *d = &p[i + 2 <= last ? i + 2 : last];
        if (b->x == c->x && b->y == c->y) continue;
        for (int k = 0; k < STEPS; k++) {
            float t = (float)k / STEPS;
            line[n++] = place(
                h, (point){curve(a->x, b->x, c->x, d->x, t), curve(a->y, b->y, c->y, d->y, t)});
        }
    }
    line[n++] = place(h, p[last]);
    return n;
}

/* Pixels from low to high, cut to the image. */
static void pixel_range(float low, float high, int *first, int *end) {
    *first = low > 0.0f ? (int)low : 0;
    *end = high < TTI_DIGIT_SIDE - 1 ? (int)high + 1 : TTI_DIGIT_SIDE;
}

/* dist2[pixel] = min(itself, squared distance to the segment a-b), where that is below reach. */
static void paint(float *dist2, point a, point b, float reach) {
    int x0, x1, y0, y1;
    pixel_range(TTI_MIN(a.x, b.x) - reach, TTI_MAX(a.x, b.x) + reach, &x0, &x1);
    pixel_range(TTI_MIN(a.y, b.y) - reach, TTI_MAX(a.y, b.y) + reach, &y0, &y1);
    float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    float scale = length2 > 1e-6f ? 1.0f / length2 : 0.0f;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) * scale;
            t = t < 0.0f ? 0.0f : t > 1.0f ? 1.0f : t;
            px -= t * dx, py -= t * dy;
            float d2 = px * px + py * py, *old = &dist2[y * TTI_DIGIT_SIDE + x];
            if (d2 < *old) *old = d2;
        }
}

/* A slip of the pen: a short line that belongs to no digit. */
static void paint_slip(float *dist2, stream *s, float reach) {
    point a = draw_near(s, 13.5f, 13.5f, 16.0f), b = draw_near(s, a.x, a.y, 8.0f);
    paint(dist2, a, b, reach);
}

/* Distance to brightness, with speckles, four pixels to a random word. */
static void develop(const float *dist2, const hand *h, stream *s, uint8_t *pixel) {
    float per_pixel = 1.0f / h->softness;
    for (int i = 0; i < TTI_DIGIT_PIXELS; i += 4) {
        uint32_t bits = next_bits(s);
        for (int k = 0; k < 4; k++, bits >>= 8) {
            float ink = 0.5f + (h->radius - sqrtf(dist2[i + k])) * per_pixel;
            ink = (ink < 0.0f ? 0.0f : ink > 1.0f ? 1.0f : ink) * h->ink;
            ink += h->noise * ((float)(bits & 255u) * (1.0f / 255.0f) - 0.5f);
            ink = ink < 0.0f ? 0.0f : ink > 1.0f ? 1.0f : ink;
            pixel[i + k] = (uint8_t)(int)(ink * 255.0f + 0.5f);
        }
    }
}

uint64_t tti_digit_key(uint64_t seed, int split) {
    return tti_mix64(tti_mix64(seed, tti_hash_name("digits")), (uint64_t)split);
}

int tti_digit_label(uint64_t key, uint64_t index) {
    int digit[10];
    stream s = {.key = tti_mix64(key, tti_hash_name("label")), .index = index / 10};
    for (int i = 0; i < 10; i++) {
        int j = (int)(next_bits(&s) % (uint32_t)(i + 1)); /* Fisher-Yates, inside out */
        digit[i] = digit[j];
        digit[j] = i;
    }
    return digit[index % 10];
}

void tti_digit_draw(uint64_t key, uint64_t index, uint8_t pixel[TTI_DIGIT_PIXELS]) {
    stream s = {.key = key, .index = index};
    const tti_glyph *style = tti_glyphs[tti_digit_label(key, index)];
    const tti_glyph *glyph = &style[next_bits(&s) % TTI_GLYPH_STYLES];
    hand h = draw_hand(&s);
    float dist2[TTI_DIGIT_PIXELS], reach = h.radius + h.softness * 0.5f + 0.01f;
    for (int i = 0; i < TTI_DIGIT_PIXELS; i++) dist2[i] = 1e4f;
    for (int k = 0; k < TTI_GLYPH_STROKES && glyph->stroke[k].n_points > 0; k++) {
        point line[MAX_POINTS];
        int n = trace(&glyph->stroke[k], &h, &s, line);
        for (int i = 0; i + 1 < n; i++) paint(dist2, line[i], line[i + 1], reach);
    }
    if (next_bits(&s) % 12 == 0) paint_slip(dist2, &s, reach);
    develop(dist2, &h, &s, pixel);
}
