/* predict_fields.c - runs samples with fields through a trained model.  They come from an .npz with
 * the arrays on which the output depends, or from a .npy if that is a single array.  Targets are
 * not needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/fields.h"
#include "data/files/zip_member.h"
#include "data/formats/npy_array.h"
#include "ir/graph.h"
#include "train/infer/named_outputs.h"
#include "train/infer/predicting.h"

tutti_status tti_predict_prepare_fields(tti_predicting *r) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    const tutti_graph *g = tti_predictor_graph(r->p);
    const tutti_value *out = tti_graph_output(g, "logits");
    TTI_TRY(tti_shard_graph_needs(g, out, info->fields, info->n_fields, &r->needs));
    r->n_outputs = tti_value_n_elems(out);
    r->values = calloc((size_t)r->n_outputs + 1, sizeof *r->values);
    r->gives_classes = r->b->has_accuracy && out->type.shape.n_dims == 2;
    if (tti_predict_takes_images(r))
        tti_predict_prepare_masks(r, r->b->config.train.loss, &out->type.shape);
    if (!r->values) return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    bool has_labels = tti_shard_graph_label_field(&r->b->config, info) >= 0;
    r->gives_labels = has_labels && out->type.shape.n_dims <= 2;
    if (r->gives_labels) TTI_TRY(tti_predict_take_names(r, r->n_outputs));
    if (out->type.shape.n_dims > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "predict: the model has no output besides its loss");
}

/* Finds the member NAME.npy or NAME_test.npy of an archive. */
static tutti_status find_member(const char *file, const char *name, bool *found, char out[128]) {
    tti_file_part part;
    snprintf(out, 128, "%s.npy", name);
    TTI_TRY(tti_zip_find(file, out, found, &part));
    if (*found) return TUTTI_OK;
    snprintf(out, 128, "%s_test.npy", name);
    return tti_zip_find(file, out, found, &part);
}

static tutti_status check_array(const tti_npy_array *a, const tutti_field *field) {
    tutti_type row = {.dtype = a->kind == 'f' ? TUTTI_F32 : TUTTI_I32,
                      .shape.n_dims = a->shape.n_dims - 1};
    char got[64], want[64];
    for (int d = 0; d < row.shape.n_dims; d++) row.shape.dim[d] = a->shape.dim[d + 1];
    if (row.dtype == field->type.dtype && tti_shape_equal(&row.shape, &field->type.shape))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: rows are %s, and the model was trained on %s", a->name,
                    tti_type_text(&row, got, sizeof got),
                    tti_type_text(&field->type, want, sizeof want));
}

/* Opens the arrays of the fields. array[i].fd -1 and no name: the field is missing, and its
 * elements are zeros. */
static tutti_status open_arrays(const tti_predicting *r, const char *file, tti_npy_array *array,
                                int64_t *n) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    int64_t max_unpacked = r->b->config.data.max_unpacked_mb << 20;
    bool is_archive = tti_predict_ends_in(file, ".npz"), found = false;
    int n_needed = 0;
    for (int i = 0; i < info->n_fields; i++) n_needed += r->needs[i];
    for (int i = 0; i < info->n_fields; i++) {
        char member[128];
        bool is_optional = tti_predict_is_optional(r, i);
        if (!r->needs[i] && !is_optional) continue;
        if (is_archive) TTI_TRY(find_member(file, info->fields[i].name, &found, member));
        if (!found && is_optional) continue;
        if (!found && (is_archive || n_needed > 1))
            return tti_fail(TUTTI_E_DATA, "%s: the model needs the array '%s', in an .npz", file,
                            info->fields[i].name);
        TTI_TRY(tti_npy_open(file, is_archive ? member : NULL, max_unpacked, &array[i]));
        TTI_TRY(check_array(&array[i], &info->fields[i]));
        if (*n >= 0 && *n != array[i].shape.dim[0])
            return tti_fail(TUTTI_E_DATA, "%s: has %lld rows, other arrays %lld", array[i].name,
                            (long long)array[i].shape.dim[0], (long long)*n);
        *n = array[i].shape.dim[0];
    }
    return TUTTI_OK;
}

static tutti_status read_row(const tti_predicting *r, const tti_npy_array *array, int64_t row) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    char *to = r->chain[0];
    for (int i = 0; i < info->n_fields; i++) {
        size_t n_bytes = tti_field_bytes(&info->fields[i]);
        if (!array[i].name)
            memset(to, 0, n_bytes);
        else if (info->fields[i].type.dtype == TUTTI_F32)
            TTI_TRY(tti_npy_read_f32(&array[i], row, (float *)(void *)to));
        else
            TTI_TRY(tti_npy_read_i32(&array[i], row, (int32_t *)(void *)to));
        to += n_bytes;
    }
    return TUTTI_OK;
}

static tutti_status add_rows(tti_predicting *r, const char *file, const tti_npy_array *array,
                             int64_t n) {
    bool has[TTI_MAX_FIELDS];
    for (int i = 0; i < TTI_MAX_FIELDS; i++) has[i] = array[i].name != NULL;
    TTI_TRY(tti_predict_flush(
        r)); /* waiting samples belong to another file, which may have other outputs */
    TTI_TRY(tti_predict_choose_outputs(r, file, has));
    for (int64_t row = 0; row < n; row++) {
        TTI_TRY(read_row(r, array, row));
        TTI_TRY(tti_predict_add(
            r, (tti_predict_sample){.file = file, .index = row, .n_in_file = n, .next = -1}));
    }
    return TUTTI_OK;
}

tutti_status tti_predict_fields(tti_predicting *r, const tti_predict_input *input) {
    const char *file = input->file;
    tti_npy_array array[TTI_MAX_FIELDS];
    int64_t n = -1;
    for (int i = 0; i < TTI_MAX_FIELDS; i++) array[i] = (tti_npy_array){.fd = -1};
    tutti_status st = open_arrays(r, file, array, &n);
    if (st == TUTTI_OK) st = add_rows(r, file, array, n);
    for (int i = 0; i < TTI_MAX_FIELDS; i++) tti_npy_close(&array[i]);
    return st;
}

/* Collects the arrays of samples on which the output depends. */
static tutti_status take_samples(const tti_predicting *r, const tutti_samples *samples,
                                 tti_npy_array *array) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    for (int i = 0; i < info->n_fields; i++) {
        int at = tti_field_find(samples->fields, samples->n_fields, info->fields[i].name);
        bool is_wanted = at >= 0 && tti_predict_is_optional(r, i);
        if (!r->needs[i] && !is_wanted) continue;
        if (at < 0)
            return tti_fail(TUTTI_E_INVALID, "samples: the model needs the field '%s'",
                            info->fields[i].name);
        TTI_TRY(tti_npy_of_samples(samples, at, &array[i]));
        TTI_TRY(check_array(&array[i], &info->fields[i]));
    }
    return TUTTI_OK;
}

tutti_status tti_predict_fields_of(tti_predicting *r, const tutti_samples *samples) {
    tti_npy_array array[TTI_MAX_FIELDS];
    for (int i = 0; i < TTI_MAX_FIELDS; i++) array[i] = (tti_npy_array){.fd = -1};
    tutti_status st = take_samples(r, samples, array);
    if (st == TUTTI_OK) st = add_rows(r, "samples", array, samples->n_samples);
    for (int i = 0; i < TTI_MAX_FIELDS; i++) tti_npy_close(&array[i]);
    return st;
}
