/* predict_table.c - reads the rows of a table as in training; labels are not needed. */
#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "train/infer/predicting.h"

/* Prints a line for each kind of cell that was filled in or is unknown. */
static tutti_status report_notices(tti_predicting *r, const char *file, const tutti_dataset *rows) {
    char line[1024];
    const char *text = tutti_dataset_notices(rows);
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        TTI_TRY(tti_predict_report(r, &(tutti_prediction){.file = file, .notice = line}));
    }
    return TUTTI_OK;
}

tutti_status tti_predict_table(tti_predicting *r, const tti_predict_input *input) {
    const char *file = input->file;
    tutti_dataset *rows;
    const tutti_dataset_desc desc = {.format = "csv",
                                     .dir = input->name,
                                     .rows = input->bytes,
                                     .n_row_bytes = input->n_bytes,
                                     .split = TUTTI_TEST,
                                     .spec = tti_dataset_spec(r->ds),
                                     .rows_only = true};
    TTI_TRY(tutti_dataset_open(&desc, &rows));
    tutti_status st = report_notices(r, file, rows);
    int64_t n = tutti_dataset_get_info(rows)->n_samples;
    for (int64_t i = 0; st == TUTTI_OK && i < n; i++) {
        const void *bytes;
        size_t n_bytes;
        /* r->y stays -1: labels are not read */
        st = tti_dataset_fetch(rows, i, &r->ws, r->chain[0], r->y, &bytes, &n_bytes);
        if (st == TUTTI_OK)
            st = tti_predict_add(
                r, (tti_predict_sample){.file = file, .index = i, .n_in_file = n, .next = -1});
    }
    tutti_dataset_destroy(rows);
    return st;
}
