/* onnx_input.c - adds the input of an ONNX file, which takes stored samples and includes
 * preprocessing, and the metadata for users.
 *
 * Pixels are bytes: [N,S,S,3] RGB as in image libraries, or the array of the training data.  Tokens
 * are i64, which every reader supports. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "data/dataset.h"
#include "train/export/onnx_emit.h"

#define OP(op, ...) TTI_ONNX_OP(e, op, NULL, __VA_ARGS__)

static const char *cast(tti_onnx_emit *e, const char *x, tutti_dtype to) {
    tti_onnx_attr attrs[] = {TTI_ONNX_I("to", tti_onnx_dtype(to)), {0}};
    return TTI_ONNX_OP(e, "Cast", attrs, x);
}

/* Computes (pixel/255 - mean) / std; std 0 means 1. */
static const char *normalise(tti_onnx_emit *e, const char *x, const tti_pixel_spec *p) {
    tutti_shape shape = {0}; /* shape of a scalar */
    float scale[3], shift[3];
    if (p->n_channels == 3) shape = TUTTI_SHAPE(3, 1, 1);
    for (int i = 0; i < p->n_channels; i++) {
        double std = p->std[i] > 0 ? p->std[i] : 1;
        scale[i] = (float)(1 / (255 * std));
        shift[i] = (float)(-p->mean[i] / std);
    }
    x = OP("Mul", x, tti_onnx_floats(e, &shape, scale));
    return OP("Add", x, tti_onnx_floats(e, &shape, shift));
}

/* The offset that users must subtract from a value first, because f32 cannot represent numbers
 * whose mean is large compared with their deviation, such as timestamps. */
static double offset_of(const tti_column *c) {
    return c->kind != TTI_COLUMN_CATEGORY && fabs(c->mean) > 1000 * c->std ? c->mean : 0;
}

/* Limits for f32 inputs: below them, differences of a column become denormal numbers; above them, a
 * value or its square may become infinite. */
static const double least_std = 1e-30, most_std = 1e30, most_number = 1e36;

tutti_status tti_onnx_check_input(const tti_data_spec *spec) {
    for (int i = 0; spec->table && i < spec->table->n_columns; i++) {
        const tti_column *c = &spec->table->column[i];
        if (tti_column_n_features(c) == 0 || c->kind == TTI_COLUMN_CATEGORY) continue;
        double most = fmax(fabs(c->min - offset_of(c)), fabs(c->max - offset_of(c)));
        bool fits = c->std == 0 || (c->std >= least_std && c->std <= most_std);
        if (fits && most <= most_number) continue;
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: column '%s' has numbers from %g to %g with a standard deviation "
                        "of %g; ONNX files take f32, which cannot hold them. Multiply the column "
                        "by a power of ten, or leave it out (data.columns: {'%s': ignore}), and "
                        "train again",
                        c->name, c->min, c->max, c->std, c->name);
    }
    return TUTTI_OK;
}

/* Applies (x - mean) / std to number columns; category features stay unchanged. */
static const char *standardise(tti_onnx_emit *e, const char *x, const tti_table_spec *table) {
    int64_t n = tti_table_n_features(table), k = 0;
    float *mean = calloc((size_t)n, sizeof *mean), *scale = calloc((size_t)n, sizeof *scale);
    for (int i = 0; i < table->n_columns && mean && scale; i++) {
        const tti_column *c = &table->column[i];
        bool category = c->kind == TTI_COLUMN_CATEGORY;
        for (int64_t f = tti_column_n_features(c); f > 0; f--, k++) {
            mean[k] = category ? 0 : (float)(c->mean - offset_of(c));
            scale[k] = category ? 1 : c->std > 0 ? (float)(1 / c->std) : 0;
        }
    }
    if (mean && scale) {
        x = OP("Sub", x, tti_onnx_floats(e, &TUTTI_SHAPE(n), mean));
        x = OP("Mul", x, tti_onnx_floats(e, &TUTTI_SHAPE(n), scale));
    } else {
        e->file.metadata.failed = true;
    }
    free(mean);
    free(scale);
    return x;
}

void tti_onnx_add_raw_input(tti_onnx_emit *e, const tti_data_spec *spec, const tti_node *node,
                            unsigned open, const char **out) {
    const tti_pixel_spec *pixels = &spec->pixels;
    tutti_type type = node->out[0]->type; /* with a batch axis */
    const char *input = strncmp(node->name, "field.", 6) == 0 ? node->name + 6 : "x";
    bool is_image = pixels->n_channels > 0 && strcmp(input, "x") == 0;
    *out = input;
    if (is_image) {
        tutti_shape stored = spec->stored.shape;
        if (spec->n_fields > 0) stored = TUTTI_SHAPE(type.shape.dim[2], type.shape.dim[3], 3);
        type = (tutti_type){TUTTI_U8, {.n_dims = stored.n_dims + 1}};
        for (int i = 1; i < type.shape.n_dims; i++) type.shape.dim[i] = stored.dim[i - 1];
        type.shape.dim[0] = node->out[0]->type.shape.dim[0];
        *out = cast(e, *out, TUTTI_F32);
        if (pixels->n_channels == 3) *out = tti_onnx_transpose(e, *out, 4, (int64_t[]){0, 3, 1, 2});
        *out = normalise(e, *out, pixels);
    } else if (type.dtype == TUTTI_I32) {
        type.dtype = TUTTI_I64;
        *out = cast(e, *out, TUTTI_I32);
    } else if (spec->table) {
        *out = standardise(e, *out, spec->table);
    }
    tti_onnx_add_input(&e->file, input, &type, open);
}

/* ---- metadata ---- */

static void describe_input(const tti_data_spec *spec, tti_str *out) {
    static const char *const fits[TTI_N_FITS] = {
        "the shorter side resized to 8/7 of S, then the middle S x S",
        "the shorter side resized to S, then the middle S x S", "resized to S x S"};
    if (spec->pixels.n_channels == 3)
        tti_str_printf(out,
                       "x: u8 [N,S,S,3] with S=%lld, RGB images: %s; the normalization is in the "
                       "graph",
                       (long long)(spec->n_fields > 0 ? spec->fields[0].type.shape.dim[1]
                                                      : spec->stored.shape.dim[0]),
                       fits[spec->pixels.fit]);
    else if (spec->n_fields > 0 && !spec->table)
        tti_str_add(out, "fields of a sample, as in the training data: floats f32, others i64");
    else if (spec->pixels.n_channels == 1)
        tti_str_add(out, "x: u8, grey pixels 0 to 255; the normalization is in the graph");
    else if (spec->x.dtype == TUTTI_I32)
        tti_str_add(out, "x: i64, token numbers");
    else if (spec->table)
        tti_str_add(out,
                    "x: f32, one number per entry of \"features\": of a category 1 or 0 (missing: "
                    "fill); else the value (true 1, false 0; dates in seconds since 1970; "
                    "missing: fill) minus offset; the standardization is in the graph");
    else
        tti_str_add(out, "x: f32, as in the training data");
}

static void list_features(const tti_table_spec *table, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_array(&j, NULL);
    for (int i = 0; i < table->n_columns; i++)
        for (int64_t f = 0; f < tti_column_n_features(&table->column[i]); f++) {
            const tti_column *c = &table->column[i];
            bool category = c->kind == TTI_COLUMN_CATEGORY;
            tti_json_object(&j, NULL);
            tti_json_text(&j, "column", c->name);
            tti_json_int(&j, "number", i);
            tti_json_text(&j, "kind", tti_column_kind_names[c->kind]);
            if (category) tti_json_text(&j, "category", c->category[f]);
            tti_json_double(&j, "fill", category ? (double)(c->fill == (double)f) : c->fill);
            if (!category) tti_json_double(&j, "offset", offset_of(c));
            tti_json_end(&j);
        }
    tti_json_end(&j);
}

static void describe_output(const tti_data_spec *spec, tti_str *out) {
    const tti_target_spec *target = &spec->target;
    bool yes_no = spec->table && spec->table->labels == TTI_LABEL_YES_NO;
    char mean[TTI_NUMBER_TEXT], std[TTI_NUMBER_TEXT];
    if (target->n == 1)
        tti_str_printf(out, "logits: the predicted value is logits * %s + %s",
                       tti_format_double(std, target->std[0]),
                       tti_format_double(mean, target->mean[0]));
    else if (target->n > 1)
        tti_str_add(out,
                    "logits: [N,K]; the predicted value of target k is logits[:,k] * std + mean, "
                    "which \"targets\" lists for each");
    else if (yes_no)
        tti_str_add(out,
                    "logits: [N,K]; the sigmoid of each is the probability of 1 of the label that "
                    "\"labels\" names");
    else
        tti_str_add(out, "logits: softmax over the last axis gives the probabilities");
}

static void list_targets(const tti_data_spec *spec, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_array(&j, NULL);
    for (int64_t k = 0; k < spec->target.n; k++) {
        const char *name = tti_data_spec_target_name(spec, k);
        tti_json_object(&j, NULL);
        if (name) tti_json_text(&j, "name", name);
        tti_json_double(&j, "mean", spec->target.mean[k]);
        tti_json_double(&j, "std", spec->target.std[k]);
        tti_json_end(&j);
    }
    tti_json_end(&j);
}

/* Lists the columns of binary labels; columns without a name by their numbers. */
static void list_labels(const tti_table_spec *table, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_array(&j, NULL);
    for (int k = 0; k < table->n_labels; k++) {
        if (table->has_names)
            tti_json_text(&j, NULL, table->column[table->label[k]].name);
        else
            tti_json_int(&j, NULL, table->label[k]);
    }
    tti_json_end(&j);
}

static void list_classes(const tti_data_spec *spec, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_array(&j, NULL);
    for (int64_t i = 0; i < spec->n_classes; i++) tti_json_text(&j, NULL, spec->class_names[i]);
    tti_json_end(&j);
}

static void add_text(tti_onnx_emit *e, const char *key, tti_str *text) {
    if (text->failed) e->file.metadata.failed = true;
    tti_onnx_add_metadata(&e->file, key, tti_str_text(text));
    tti_str_free(text);
}

void tti_onnx_add_info(tti_onnx_emit *e, const tti_exporting *x) {
    const tti_data_spec *spec = tti_dataset_spec(x->b->train);
    tti_str text = {0};
    describe_input(spec, &text);
    add_text(e, "input", &text);
    if (e->has_names)
        tti_str_add(&text,
                    "the outputs of the model's file, under their names; targets of a "
                    "regression are standardized");
    else
        describe_output(spec, &text);
    add_text(e, "output", &text);
    if (spec->target.n > 0) {
        list_targets(spec, &text);
        add_text(e, "targets", &text);
    }
    if (spec->table) {
        list_features(spec->table, &text);
        add_text(e, "features", &text);
    }
    if (spec->table && spec->table->labels == TTI_LABEL_YES_NO) {
        list_labels(spec->table, &text);
        add_text(e, "labels", &text);
    }
    if (!spec->class_names) return;
    list_classes(spec, &text);
    add_text(e, "class_names", &text);
}
