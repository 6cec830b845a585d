/* table_text.c - prints the columns of a table for `tutti data info`. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/problem.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/table/csv_value.h"

enum { SHOWN = 8 };

static void print_range(const tti_column *c, tti_str *out) {
    char text[TTI_NUMBER_TEXT];
    if (c->kind == TTI_COLUMN_CATEGORY) {
        for (int i = 0; i < c->n_categories && i < SHOWN; i++) {
            char clipped[TTI_CLIP];
            tti_str_printf(out, "%s%s", i ? ", " : "", tti_clip(clipped, c->category[i]));
        }
        if (c->n_categories > SHOWN) tti_str_printf(out, ", ... (%d categories)", c->n_categories);
    } else if (c->kind != TTI_COLUMN_IGNORE && c->kind != TTI_COLUMN_LABEL) {
        tti_str_printf(out, "%s", tti_value_text(text, c->min));
        tti_str_printf(out, " .. %s", tti_value_text(text, c->max));
        tti_str_printf(out, ", mean %.6g, std %.6g", c->mean, c->std);
    }
}

static void print_target(const tti_data_spec *spec, int column, tti_str *out) {
    const tti_target_spec *target = &spec->target;
    if (spec->table->labels == TTI_LABEL_YES_NO)
        tti_str_printf(out, "0 or 1, %.4g %% are 1", 100 * spec->table->column[column].mean);
    else if (target->n == 0)
        tti_str_printf(out, "%" PRId64 " classes", spec->n_classes);
    for (int64_t k = 0; k < target->n; k++)
        if (spec->table->label[k] == column)
            tti_str_printf(out, "value to predict, mean %.6g, std %.6g", target->mean[k],
                           target->std[k]);
}

char *tutti_dataset_print_columns(const tutti_dataset *ds) {
    const tti_table_spec *t = tti_dataset_spec(ds)->table;
    tti_str out = {0};
    if (!t) return tutti_dataset_get_info(ds)->n_fields > 0 ? tti_fields_print(ds) : NULL;
    tti_str_add(&out, "  column  kind       missing  name: values\n");
    for (int i = 0; i < t->n_columns; i++) {
        const tti_column *c = &t->column[i];
        char clipped[TTI_CLIP];
        tti_str_printf(&out, "%8d  %-8s %9" PRId64 "  %s%s", i, tti_column_kind_names[c->kind],
                       c->n_missing, tti_clip(clipped, c->name), c->name[0] ? ": " : "");
        print_range(c, &out);
        if (c->kind == TTI_COLUMN_LABEL) print_target(tti_dataset_spec(ds), i, &out);
        tti_str_add(&out, "\n");
    }
    char *fields = tutti_dataset_get_info(ds)->n_fields > 0 ? tti_fields_print(ds) : NULL;
    if (fields) tti_str_add(&out, fields);
    free(fields);
    return out.text;
}
