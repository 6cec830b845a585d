/* sum_table_fuzz.c - any bytes as a table of sums: an answer, never a crash; and what is accepted
 * is written as it was read. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/device/bench/sum_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_sum_table table, again;
    tti_str text = {0};
    tutti_status st = tti_sum_table_parse((const char *)data, n_bytes, &table);
    if (st != TUTTI_OK && *tutti_last_error() == '\0') abort();
    if (st != TUTTI_OK) return 0;
    for (int64_t n = 1; n < INT64_MAX / 8; n *= 8)
        for (int fast = 0; fast < 2; fast++)
            if (tti_sum_table_prefers_library(&table, n, fast) && table.rows[0].n_bytes <= 0)
                abort();
    tti_sum_table_print(&table, &text);
    if (text.failed || tti_sum_table_parse(text.text, text.n_bytes, &again) != TUTTI_OK) abort();
    if (again.n_rows != table.n_rows || strcmp(again.library, table.library) != 0) abort();
    for (int i = 0; i < table.n_rows; i++)
        if (memcmp(&again.rows[i], &table.rows[i], sizeof table.rows[i]) != 0) abort();
    tti_str_free(&text);
    return 0;
}
