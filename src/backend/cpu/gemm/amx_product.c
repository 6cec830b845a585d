/* amx_product.c - f32 matrix products on the tile unit of x86 processors (AMX), which multiplies
 * bf16 sixteen times as fast as vectors multiply f32.
 *
 * An f32 is the sum of three bf16, x = x1 + x2 + x3, exactly (8 + 8 + 8 bits), and tiles multiply
 * bf16 without rounding and add in f32.  The six largest of the nine products of terms are
 * computed.  The others are at most 2^-23 of the product and mostly below 2^-26, as much as a
 * rounding of f32, so the result is as accurate as any product in f32 (amx_test compares), for six
 * sixteenths of the time.
 *
 * At the ends of the range it is not: parts below 2^-126 are zero, and an infinity, or a value
 * above the largest bf16, becomes NaN where f32 might give an infinity.
 *
 * 32 rows of a are packed at a time and stay in the nearest cache, while the panels of b, packed
 * once, come from the next one.  The bits depend on the shape only.  This file is compiled for
 * these processors: nothing in it may run unless tti_amx_is_usable returns true. */
#include "backend/cpu/gemm/amx.h"

#if TTI_HAVE_AMX

#include <immintrin.h>

#include "backend/cpu/simd.h"

/* A block of c is EDGE x EDGE, four tiles; a step of k is the depth of a tile. */
enum { EDGE = 32, STEP = 32, TILE = 512, PARTS = 3, STEP_ELEMS = 2 * PARTS * TILE };
/* 32 x KC of a are packed at a time, and NC columns of b, in at most PACKED_B_BYTES; if a is
 * transposed, only so many rows that those of a stay in cache too. */
enum { KC = 4 * STEP, NC = 512, PACKED_B_BYTES = 1 << 20, ROWS_ACROSS = 2 * KC };

/* ---- tiles ---- */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void open_tiles(void) {
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("" : : "r"(&config) : "memory"); /* all of it is there */
    _tile_loadconfig(&config);
}

/* ---- three bf16 for an f32 ---- */

/* The nearest bf16, as f32. */
static inline __m512 rounded(__m512 x) {
    __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x10000)));
}

/* Pairs (low, high) of 16 lanes, by the upper halves. */
static inline __m512i paired(__m512 low, __m512 high) {
    __m512i below = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    __m512i above = _mm512_and_si512(_mm512_castps_si512(high), _mm512_set1_epi32(-0x10000));
    return _mm512_or_si512(below, above);
}

/* Splits 16 pairs into the rows of the three tiles of parts.  The third part is the remainder: it
 * has no more bits than a bf16, and preserves every NaN. */
static inline void store_pairs(__m512 low, __m512 high, uint16_t *to) {
    __m512 l = rounded(low), h = rounded(high);
    _mm512_store_si512(to, paired(l, h));
    low = _mm512_sub_ps(low, l), high = _mm512_sub_ps(high, h);
    l = rounded(low), h = rounded(high);
    _mm512_store_si512(to + 2 * TILE, paired(l, h));
    _mm512_store_si512(to + 4 * TILE, paired(_mm512_sub_ps(low, l), _mm512_sub_ps(high, h)));
}

/* ---- squares of 16 x 16 ---- */

/* x[i * row_step + j * col_step], i < n_rows, j < n_cols; one step is 1. */
typedef struct view {
    const float *x;
    size_t row_step, col_step;
    size_t n_rows, n_cols;
} view;

static inline size_t left_of(size_t n, size_t i) { return n > i ? n - i : 0; }

static inline __mmask16 first_lanes(size_t n) {
    return (__mmask16)(0xFFFFu >> (16 - TTI_MIN(n, (size_t)16)));
}

static inline void transpose(__m512 r[16]) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for (int c = 0; c < 4; c++) {
        __m512 even0 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x88);
        __m512 even1 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x88);
        __m512 odd0 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xDD);
        __m512 odd1 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xDD);
        t[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        t[c + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        t[c + 8] = _mm512_shuffle_f32x4(even0, even1, 0xDD);
        t[c + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xDD);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* The square at (i, j) as 16 rows, zeros beyond the edges. */
static inline void load_square(const view *v, size_t i, size_t j, __m512 r[16]) {
    size_t n_rows = left_of(v->n_rows, i), n_cols = left_of(v->n_cols, j);
    const float *x = v->x + i * v->row_step + j * v->col_step;
    bool turned = v->col_step != 1;
    size_t n = turned ? n_cols : n_rows, step = turned ? v->col_step : v->row_step;
    __mmask16 lanes = first_lanes(turned ? n_rows : n_cols);
    for (size_t k = 0; k < 16; k++)
        r[k] = k < n ? _mm512_maskz_loadu_ps(lanes, x + k * step) : _mm512_setzero_ps();
    if (turned) transpose(r);
}

/* ---- packing: [step of k][part][two tiles][TILE]; a pair is k and k + 16 of a step ---- */

/* A row of a tile is 16 pairs of a row of a. */
static void pack_a_plain(const view *a, size_t i, size_t k, size_t n_k, uint16_t *to) {
    for (size_t r = 0; r < EDGE; r++, to += STEP) {
        const float *x = a->x + (i + r) * a->row_step;
        uint16_t *row = to;
        for (size_t s = k; s < k + n_k; s += STEP, row += STEP_ELEMS) {
            size_t n = i + r < a->n_rows ? left_of(a->n_cols, s) : 0;
            __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), x + s);
            __m512 high = _mm512_maskz_loadu_ps(first_lanes(left_of(n, 16)), x + s + 16);
            store_pairs(low, high, row);
        }
    }
}

static void pack_a_turned(const view *a, size_t i, size_t k, size_t n_k, uint16_t *to) {
    for (size_t s = k; s < k + n_k; s += STEP, to += STEP_ELEMS)
        for (size_t half = 0; half < 2; half++) {
            __m512 low[16], high[16];
            load_square(a, i + 16 * half, s, low);
            load_square(a, i + 16 * half, s + 16, high);
            for (size_t r = 0; r < 16; r++)
                store_pairs(low[r], high[r], to + half * TILE + r * STEP);
        }
}

/* Rows i .. i+31 and columns k .. k+n_k-1 of a. */
static void pack_a(const view *a, size_t i, size_t k, size_t n_k, uint16_t *to) {
    (a->col_step == 1 ? pack_a_plain : pack_a_turned)(a, i, k, n_k, to);
}

/* A step of k and 32 columns from j on: a row of a tile is 16 pairs of two rows of b. */
static void pack_b(const view *b, size_t k, size_t j, uint16_t *to) {
    for (size_t half = 0; half < 2; half++, to += TILE, j += 16) {
        __m512 low[16], high[16];
        load_square(b, k, j, low);
        load_square(b, k + 16, j, high);
        for (size_t p = 0; p < 16; p++) store_pairs(low[p], high[p], to + p * STEP);
    }
}

/* ---- a block of c ---- */

#define LOAD_A(p)                         \
    _tile_loadd(4, a + 2 * (p)*TILE, 64); \
    _tile_loadd(5, a + (2 * (p) + 1) * TILE, 64)
#define LOAD_B(p)                         \
    _tile_loadd(6, b + 2 * (p)*TILE, 64); \
    _tile_loadd(7, b + (2 * (p) + 1) * TILE, 64)
#define MULTIPLY()           \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(1, 4, 7); \
    _tile_dpbf16ps(2, 5, 6); \
    _tile_dpbf16ps(3, 5, 7)

/* Tile instructions do not tell the compiler which memory they access. */
static inline void settle_memory(void) { __asm__ volatile("" ::: "memory"); }

/* c[EDGE][EDGE] = what start holds, plus a b; rows of start are start_bytes apart, or it is one. */
static void multiply_block(const uint16_t *a, const uint16_t *b, size_t n_k, const float *start,
                           size_t start_step, float *c, size_t c_step) {
    size_t from = start_step * sizeof *start, to = c_step * sizeof *c;
    settle_memory();
    _tile_loadd(0, start, from);
    _tile_loadd(1, start + 16, from);
    _tile_loadd(2, start + 16 * start_step, from);
    _tile_loadd(3, start + 16 * start_step + 16, from);
    for (size_t s = 0; s < n_k; s += STEP, a += STEP_ELEMS, b += STEP_ELEMS) {
        LOAD_A(2);
        LOAD_B(0);
        MULTIPLY();
        LOAD_A(1);
        MULTIPLY();
        LOAD_B(1);
        MULTIPLY();
        LOAD_A(0);
        MULTIPLY();
        LOAD_B(2);
        MULTIPLY();
        LOAD_B(0);
        MULTIPLY(); /* the largest last: it alone rounds at its size */
    }
    _tile_stored(0, c, to);
    _tile_stored(1, c + 16, to);
    _tile_stored(2, c + 16 * c_step, to);
    _tile_stored(3, c + 16 * c_step + 16, to);
    settle_memory();
}

/* ---- the product ---- */

typedef struct packed {
    uint16_t *a, *b; /* 32 rows by KC; panels of 32 columns by n_deep rows */
    float *edge;     /* [EDGE][EDGE] */
    float *start;    /* [NC]: the bias, zeros beyond the columns */
    size_t n_deep;   /* at a time */
} packed;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t width_of(size_t n) { return round_up(TTI_MIN(n, (size_t)NC), EDGE); }

/* Rows of b that are packed at a time. */
static size_t depth_of(size_t n, size_t k) {
    size_t most = PACKED_B_BYTES / (width_of(n) * PARTS * sizeof(uint16_t)) / KC * KC;
    return TTI_MIN(most, round_up(k, STEP));
}

/* The bytes that the packed b of any product up to this size needs: fewer columns are packed
 * deeper. */
size_t tti_amx_scratch_bytes(size_t n, size_t k) {
    size_t b = width_of(n) * round_up(k, STEP) * PARTS * sizeof(uint16_t);
    size_t a = EDGE * KC * PARTS * sizeof(uint16_t);
    return TTI_MIN(b, (size_t)PACKED_B_BYTES) + a + (EDGE * EDGE + NC) * sizeof(float);
}

static packed place(const tti_product *g, void *scratch) {
    packed at = {.b = scratch, .n_deep = depth_of(g->n, g->k)};
    at.a = at.b + width_of(g->n) * at.n_deep * PARTS;
    at.edge = (float *)(void *)(at.a + EDGE * KC * PARTS);
    at.start = at.edge + EDGE * EDGE;
    if (g->trans_a) at.n_deep = TTI_MIN(at.n_deep, (size_t)ROWS_ACROSS);
    return at;
}

/* A block that reaches beyond c: by way of a whole one. */
static void edge_block(const packed *p, const uint16_t *b, size_t n_k, const tti_gemm *at,
                       const float *start) {
    float *edge = p->edge;
    for (size_t i = 0; i < EDGE; i++, edge += EDGE)
        for (size_t j = 0; j < EDGE; j++) {
            bool inside = i < at->m && j < at->n;
            edge[j] = start ? start[j] : inside ? at->c[i * at->ldc + j] : 0.0f;
        }
    multiply_block(p->a, b, n_k, p->edge, EDGE, p->edge, EDGE);
    for (size_t i = 0; i < at->m; i++)
        memcpy(at->c + i * at->ldc, p->edge + i * EDGE, at->n * sizeof *at->c);
}

/* 32 rows of c, from the packed a and the panels of b, which are n_panel apart; start: what c
 * starts from in each row, NULL: from c. */
static void row_of_blocks(const packed *p, const uint16_t *b, size_t n_panel, size_t n_k,
                          const tti_gemm *rows, const float *start) {
    for (size_t j = 0; j < rows->n; j += EDGE, b += n_panel) {
        tti_gemm at = *rows;
        const float *from = start ? start + j : NULL;
        at.c += j, at.n = TTI_MIN((size_t)EDGE, rows->n - j);
        if (at.n < EDGE || at.m < EDGE)
            edge_block(p, b, n_k, &at, from);
        else
            multiply_block(p->a, b, n_k, from ? from : at.c, from ? 0 : at.ldc, at.c, at.ldc);
    }
}

/* ---- what finishes rows of c ---- */

/* 2^y for |y| <= 126; error below 2 units in the last place. */
static inline __m512 power_of_two(__m512 y) {
    __m512 whole = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(y, whole), p = _mm512_set1_ps(1.535336188e-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, whole);
}

/* gelu(x) = x s, s = 1 / (1 + e^(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3); square: x^2. */
static inline __m512 gelu_gate(__m512 x, __m512 square) {
    const __m512 linear = _mm512_set1_ps(-2.30220820f), cubic = _mm512_set1_ps(-0.10294324f);
    const __m512 most = _mm512_set1_ps(126.0f), least = _mm512_set1_ps(-126.0f);
    __m512 y = _mm512_mul_ps(_mm512_fmadd_ps(square, cubic, linear), x); /* of 2^y */
    y = _mm512_max_ps(least, _mm512_min_ps(most, y));                    /* NaN stays */
    __m512 d = _mm512_add_ps(power_of_two(y), _mm512_set1_ps(1.0f)), r = _mm512_rcp14_ps(d);
    return _mm512_mul_ps(r, _mm512_fnmadd_ps(d, r, _mm512_set1_ps(2.0f)));
}

static inline __m512 gelu(__m512 x) { return _mm512_mul_ps(x, gelu_gate(x, _mm512_mul_ps(x, x))); }

/* s + s (1 - s) x 2 u'(x) */
static inline __m512 gelu_slope(__m512 x) {
    const __m512 linear = _mm512_set1_ps(1.59576912f), cubic = _mm512_set1_ps(0.21406445f);
    __m512 square = _mm512_mul_ps(x, x), s = gelu_gate(x, square);
    __m512 w = _mm512_mul_ps(_mm512_fmadd_ps(square, cubic, linear), x);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(s, s, s), w, s);
}

/* 16 elements of c, or fewer; other and more may be NULL where they are not used. */
static inline void finish_vector(tti_amx_finish finish, __mmask16 lanes, float *c,
                                 const float *other, float *more) {
    __m512 x = _mm512_maskz_loadu_ps(lanes, c);
    if (finish == TTI_AMX_GELU) {
        _mm512_mask_storeu_ps(more, lanes, gelu(x));
        return;
    }
    __m512 y = other ? _mm512_maskz_loadu_ps(lanes, other) : _mm512_setzero_ps();
    if (finish == TTI_AMX_RELU) /* NaN stays */
        x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), y);
    else if (finish == TTI_AMX_GELU_GRAD)
        x = _mm512_mul_ps(x, gelu_slope(y));
    else
        x = _mm512_add_ps(x, y);
    _mm512_mask_storeu_ps(c, lanes, x);
}

static void finish_rows(const tti_amx_product *product, const tti_gemm *rows) {
    size_t at = (size_t)(rows->c - product->g.c);
    const float *other = product->other ? product->other + at : NULL;
    float *more = product->more ? product->more + at : NULL;
    for (size_t i = 0; i < rows->m; i++)
        for (size_t j = 0; j < rows->n; j += 16) {
            size_t k = i * rows->ldc + j;
            finish_vector(product->finish, first_lanes(rows->n - j), rows->c + k,
                          other ? other + k : NULL, more ? more + k : NULL);
        }
}

/* ---- all of c ---- */

/* n_deep rows of b from k0 on, times their columns of a; n is at most NC.  finish: NULL before the
 * last of them. */
static void slab(const tti_gemm *g, const packed *p, size_t k0, size_t n_deep,
                 const tti_amx_product *finish) {
    view a = {g->a, g->a_row, g->a_col, g->m, g->k}, b = {g->b, g->b_row, g->b_col, g->k, g->n};
    size_t n_panel = n_deep / STEP * STEP_ELEMS;
    for (size_t s = 0; s < n_deep; s += STEP)
        for (size_t j = 0; j < g->n; j += EDGE)
            pack_b(&b, k0 + s, j, p->b + j / EDGE * n_panel + s / STEP * STEP_ELEMS);
    for (size_t i = 0; i < g->m; i += EDGE) {
        tti_gemm rows = {.m = TTI_MIN((size_t)EDGE, g->m - i), .n = g->n, .ldc = g->ldc};
        rows.c = g->c + i * g->ldc;
        for (size_t k = 0; k < n_deep; k += KC) {
            size_t n_k = TTI_MIN((size_t)KC, n_deep - k);
            bool first = k0 + k == 0 && !g->add;
            pack_a(&a, i, k0 + k, n_k, p->a);
            row_of_blocks(p, p->b + k / STEP * STEP_ELEMS, n_panel, n_k, &rows,
                          first ? p->start : NULL);
        }
        if (finish) finish_rows(finish, &rows);
    }
}

/* Columns j .. j+n-1 of c, at most NC. */
static void columns(const tti_amx_product *product, const packed *p, size_t j, size_t n) {
    const tti_product *of = &product->g;
    bool ta = of->trans_a, tb = of->trans_b;
    tti_gemm g = {.m = of->m, .n = n, .k = of->k, .a = of->a, .ldc = of->c_row, .add = of->add};
    g.a_row = ta ? 1 : of->a_row, g.a_col = ta ? of->a_row : 1;
    g.b_row = tb ? 1 : of->b_row, g.b_col = tb ? of->b_row : 1;
    g.b = of->b + j * g.b_col, g.c = of->c + j;
    memset(p->start, 0, NC * sizeof *p->start);
    if (product->bias) memcpy(p->start, product->bias + j, n * sizeof *p->start);
    const tti_amx_product *finish = product->finish != TTI_AMX_NOTHING ? product : NULL;
    size_t n_all = round_up(g.k, STEP);
    for (size_t k = 0; k < n_all; k += p->n_deep) {
        size_t n_deep = TTI_MIN(p->n_deep, n_all - k);
        if (product->sums && j == 0) /* also fetches these rows of a, in order */
            tti_add_columns(g.a + k * g.a_col, TTI_MIN(n_deep, g.k - k), g.m, product->sums);
        slab(&g, p, k, n_deep, k + n_deep == n_all ? finish : NULL);
    }
}

void tti_amx_run(const tti_amx_product *product, void *scratch) {
    packed p = place(&product->g, scratch);
    if (product->sums) memset(product->sums, 0, product->g.m * sizeof *product->sums);
    open_tiles();
    for (size_t j = 0; j < product->g.n; j += NC)
        columns(product, &p, j, TTI_MIN((size_t)NC, product->g.n - j));
    _tile_release();
}

#else

size_t tti_amx_scratch_bytes(size_t n, size_t k) {
    (void)n, (void)k;
    return 0;
}

void tti_amx_run(const tti_amx_product *product, void *scratch) { (void)product, (void)scratch; }

#endif
