/* operators_page.c - generates docs/operators.md, the page of all operators that model files may
 * use. */
#include <string.h>

#include "base/error.h"
#include "import/import.h"
#include "import/operators.h"

/* Cases that operators refuse, for the column of limits. */
static const struct {
    const char *target, *text;
} limits[] = {
    {"aten.avg_pool2d.default", "without divisor_override"},
    {"aten.avg_pool3d.default", "without divisor_override"},
    {"aten.batch_norm.default", "without running statistics: weights, but not samples"},
    {"aten.cross_entropy_loss.default", "targets are classes of several samples"},
    {"aten.embedding.default", "scale_grad_by_freq and sparse are False"},
    {"aten.gru.input", "an initial state is zeros, or of the samples"},
    {"aten.index.Tensor", "none that depends on inputs is boolean; of adjacent dimensions"},
    {"aten.instance_norm.default", "no running statistics"},
    {"aten.lgamma.default", "above -8"},
    {"aten.lstm.input", "without proj_size; an initial state is zeros, or of the samples"},
    {"aten.scatter_add.default", "the index is as large as the tensor, except along dim"},
    {"aten.scatter.src", "the index is as large as the tensor, except along dim"},
    {"onnx.Attention", "without past keys and values, padded lengths and softcap"},
    {"onnx.AveragePool", "dilations are 1; uneven pads with count_include_pad=1"},
    {"onnx.ConvTranspose", "without output_shape and auto_pad=SAME"},
    {"onnx.GRU", "linear_before_reset=1, sequences of one length, usual activations, layout=0"},
    {"onnx.GatherND", "batch_dims=0"},
    {"onnx.GridSample", "mode=linear of images; no reflection"},
    {"onnx.LSTM", "no peepholes, clip and input_forget; one length, usual activations, layout=0"},
    {"onnx.OneHot", "a constant depth, the last axis"},
    {"onnx.PRelu", "one slope, or one for each channel"},
    {"onnx.ReduceProd", "all elements of a constant"},
    {"onnx.Resize", "no tf_crop_and_resize"},
    {"onnx.ScatterND", "constant indices"},
};

static const char *limit_of(const char *target) {
    for (size_t i = 0; i < TTI_COUNT(limits); i++)
        if (strcmp(limits[i].target, target) == 0) return limits[i].text;
    return NULL;
}

/* Appends a signature without ignored arguments: "self other alpha=1". */
static void add_arguments(tti_str *out, const char *signature) {
    const char *between = "";
    for (const char *p = signature; *p;) {
        size_t n = strcspn(p, " "), n_name = strcspn(p, " =!");
        if (n > 0 && p[n_name] != '!') {
            tti_str_printf(out, "%s%.*s", between, (int)n, p);
            between = " ";
        }
        p += n + (p[n] == ' ');
    }
}

static void add_row(tti_str *out, const char *target) {
    bool in_place;
    const tti_operator *row = tti_operator_find(target, &in_place);
    const char *limit = limit_of(target);
    tti_str_printf(out, "| `%s` | `", target);
    add_arguments(out, row->signature);
    tti_str_printf(out, "` | %s%s%s |\n", row->build ? "" : "of constants and shapes",
                   !row->build && limit ? "; " : "", limit ? limit : "");
}

static bool is_onnx(const char *target) {
    return strncmp(target, "onnx.", 5) == 0 || strncmp(target, "com.", 4) == 0;
}

static void add_table(tti_str *out, const char *title, const char *text, bool of_onnx) {
    tti_str_printf(out, "\n## %s\n\n%s\n\n| operator | arguments | limits |\n|---|---|---|\n",
                   title, text);
    for (int i = 0; tti_operator_name_at(i); i++)
        if (is_onnx(tti_operator_name_at(i)) == of_onnx &&
            strncmp(tti_operator_name_at(i), "complex.", 8) != 0)
            add_row(out, tti_operator_name_at(i));
}

void tti_operators_page(tti_str *out) {
    bool in_place;
    for (size_t i = 0; i < TTI_COUNT(limits); i++)
        TTI_ASSERT(tti_operator_find(limits[i].target, &in_place));
    add_table(out, "PyTorch",
              "Overloads of ATen in `.pt2` files, with the arguments that Tutti reads and their "
              "defaults. The in-place form of each is\nsupported too (`aten.relu_.default`). "
              "`higher_order.wrap_with_set_grad_enabled` and `wrap_with_autocast` are followed.",
              false);
    add_table(out, "ONNX",
              "Operators of opset 13 to 24: inputs, then attributes. `If`, `Loop` and `Scan` are "
              "unrolled if their conditions and numbers\nof iterations are constant.",
              true);
}
