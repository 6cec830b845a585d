/* predict_arrays.c - runs NumPy arrays, texts and token files through a trained model.
 *
 * A row of an array is a sample, with the same shape and kind of numbers as in training.  A text is
 * divided into windows of the model's context, like the test split. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/fields.h"
#include "data/files/byte_reader.h"
#include "data/files/foreign_format.h"
#include "data/files/zip_member.h"
#include "data/formats/npy_array.h"
#include "data/formats/token_stream.h"
#include "data/tokenizer/tokenizer.h"
#include "ir/graph.h"
#include "train/infer/predicting.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)

/* ---- arrays ---- */

/* Returns the number of tokens for which the model has a row. */
static int64_t n_known_tokens(const tti_predicting *r) {
    int64_t vocabulary = r->b->model_params.vocabulary;
    return vocabulary > 0 ? vocabulary : r->b->model_params.n_classes;
}

static tutti_status check_tokens(const tti_predicting *r, const char *name, const int32_t *x,
                                 int64_t n) {
    int64_t n_known = n_known_tokens(r);
    for (int64_t i = 0; i < n; i++)
        if (x[i] < 0 || x[i] >= n_known)
            return tti_fail(TUTTI_E_DATA, "%s: token %d at position %lld is not one of 0 .. %lld",
                            name, x[i], (long long)i, (long long)n_known - 1);
    return TUTTI_OK;
}

/* True if format npy would store numbers of this kind as samples of dtype `stored`. */
static bool is_kind(const tti_npy_array *a, tutti_dtype stored) {
    if (stored == TUTTI_U8) return a->kind == 'u' && a->width == 1;
    if (stored == TUTTI_F32) return a->kind == 'f';
    return a->kind != 'f';
}

/* Checks the array. *n: number of rows; the array may be one sample without an axis for rows. */
static tutti_status check_array(const tti_predicting *r, const tti_npy_array *a, int64_t *n) {
    const tutti_type *stored = tti_dataset_stored(r->ds);
    tutti_shape row = {.n_dims = TTI_MAX(a->shape.n_dims - 1, 0)};
    for (int i = 0; i < row.n_dims; i++) row.dim[i] = a->shape.dim[i + 1];
    char want[64], kind[8];
    bool alone = tti_shape_equal(&a->shape, &stored->shape);
    *n = alone ? 1 : a->shape.dim[0];
    if ((alone || tti_shape_equal(&row, &stored->shape)) && is_kind(a, stored->dtype))
        return TUTTI_OK;
    snprintf(kind, sizeof kind, "%c%d", a->kind, a->width);
    tti_str shape = {0};
    for (int i = 0; i < a->shape.n_dims; i++)
        tti_str_printf(&shape, "%s%lld", i ? "," : "", (long long)a->shape.dim[i]);
    tutti_status st = tti_fail(
        TUTTI_E_DATA,
        "%s: an array of type %s and shape [%s]; the model takes samples %s, one or as rows",
        a->name, kind, tti_str_text(&shape), tti_type_text(stored, want, sizeof want));
    tti_str_free(&shape);
    return st;
}

static tutti_status read_row(tti_predicting *r, const tti_npy_array *a, int64_t row) {
    tutti_dtype dtype = tti_dataset_stored(r->ds)->dtype;
    if (dtype == TUTTI_U8) return tti_npy_read_u8(a, row, r->chain[0]);
    if (dtype == TUTTI_F32) return tti_npy_read_f32(a, row, r->chain[0]);
    TTI_TRY(tti_npy_read_i32(a, row, r->chain[0]));
    return check_tokens(r, a->name, r->chain[0], (int64_t)a->row_elems);
}

static tutti_status add_rows(tti_predicting *r, const char *file, tti_npy_array *a) {
    int64_t n;
    TTI_TRY(check_array(r, a, &n));
    if (tti_shape_equal(&a->shape,
                        &tti_dataset_stored(r->ds)->shape)) /* a single sample, read as row 0 */
        a->row_elems = (size_t)tutti_shape_n_elems(&a->shape);
    for (int64_t i = 0; i < n; i++) {
        TTI_TRY(read_row(r, a, i));
        TTI_TRY(tti_predict_add(r, (tti_predict_sample){.file = file,
                                                        .index = i,
                                                        .n_in_file = n,
                                                        .n_tokens = (int64_t)a->row_elems,
                                                        .next = -1}));
    }
    return TUTTI_OK;
}

/* Finds the member of an archive that holds samples. */
static tutti_status find_member(const char *file, const char **out) {
    static const char *const usual[] = {"x.npy",     "x_test.npy", "test_x.npy",
                                        "x_val.npy", "val_x.npy",  "arr_0.npy"};
    for (size_t i = 0; i < TTI_COUNT(usual); i++) {
        tti_file_part member;
        bool found;
        TTI_TRY(tti_zip_find(file, usual[i], &found, &member));
        *out = usual[i];
        if (found) return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_DATA, "%s: has no array x, x_test, x_val or arr_0", file);
}

tutti_status tti_predict_array(tti_predicting *r, const tti_predict_input *input) {
    const char *file = input->file;
    const char *member = NULL;
    tti_npy_array a;
    if (tti_predict_ends_in(file, ".npz")) TTI_TRY(find_member(file, &member));
    TTI_TRY(tti_npy_open(file, member, r->b->config.data.max_unpacked_mb << 20, &a));
    tutti_status st = add_rows(r, file, &a);
    tti_npy_close(&a);
    return st;
}

tutti_status tti_predict_array_of(tti_predicting *r, const tutti_samples *samples) {
    tti_npy_array a;
    int x = tti_field_find(samples->fields, samples->n_fields, "x");
    if (x < 0) return tti_fail(TUTTI_E_INVALID, "samples: there is no field 'x'");
    TTI_TRY(tti_npy_of_samples(samples, x, &a));
    tutti_status st = add_rows(r, "samples", &a);
    tti_npy_close(&a);
    return st;
}

/* ---- texts ---- */

static tutti_status read_text(const tti_predicting *r, const tti_predict_input *input,
                              int32_t **tokens, int64_t *n) {
    tti_reader *reader;
    char *text;
    size_t n_bytes;
    if (!tutti_dataset_get_tokenizer(r->ds))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: the run has no tokenizer, so its model reads files of tokens (.bin), "
                        "not text",
                        input->name);
    TTI_TRY(input->bytes
                ? tti_reader_open_memory(input->bytes, input->n_bytes, input->name, &reader)
                : tti_reader_open(input->file, &reader));
    tutti_status st = tti_reader_read_text(reader, MAX_TEXT_BYTES, &text, &n_bytes);
    tti_reader_close(reader);
    TTI_TRY(st);
    const tutti_tokenizer *t = tutti_dataset_get_tokenizer(r->ds);
    if (t->kind != &tti_tokenizer_bytes) st = tti_check_plain_text(input->name, text, n_bytes);
    if (st == TUTTI_OK) {
        st = tutti_tokenizer_encode(t, text, n_bytes, tokens, n);
        if (st != TUTTI_OK) tti_fail_context("%s: ", input->name);
    }
    free(text);
    return st;
}

static tutti_status read_tokens(const char *file, int32_t **tokens, int64_t *n) {
    tti_token_stream stream = {0};
    TTI_TRY(tti_token_file_open(file, &stream));
    *n = stream.n_tokens;
    *tokens = malloc((size_t)*n * sizeof **tokens + 1);
    tutti_status st = *tokens ? tti_token_stream_read(&stream, 0, *n, *tokens)
                              : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", file);
    tti_token_stream_free(&stream);
    if (st != TUTTI_OK) free(*tokens);
    return st;
}

/* Adds the windows of a text.  The last one may be short, because later positions do not influence
 * earlier tokens. */
static tutti_status add_windows(tti_predicting *r, const tti_predict_input *input,
                                const int32_t *tokens, int64_t n) {
    int64_t context = tti_dataset_stored(r->ds)->shape.dim[0],
            n_windows = (n + context - 1) / context;
    if (n == 0) return tti_fail(TUTTI_E_DATA, "%s: holds no tokens", input->name);
    TTI_TRY(check_tokens(r, input->name, tokens, n));
    for (int64_t i = 0; i < n_windows; i++) {
        int64_t at = i * context, n_here = TTI_MIN(context, n - at);
        memset(r->chain[0], 0, (size_t)context * sizeof *tokens);
        memcpy(r->chain[0], tokens + at, (size_t)n_here * sizeof *tokens);
        TTI_TRY(tti_predict_add(
            r, (tti_predict_sample){.file = input->file,
                                    .index = i,
                                    .n_in_file = n_windows,
                                    .n_tokens = n_here,
                                    .next = at + n_here < n ? tokens[at + n_here] : -1}));
    }
    return TUTTI_OK;
}

tutti_status tti_predict_text(tti_predicting *r, const tti_predict_input *input) {
    bool is_bin = tti_predict_ends_in(input->file, ".bin");
    int32_t *tokens = NULL;
    int64_t n = 0;
    TTI_TRY(is_bin ? read_tokens(input->file, &tokens, &n) : read_text(r, input, &tokens, &n));
    tutti_status st = add_windows(r, input, tokens, n);
    free(tokens);
    return st;
}
