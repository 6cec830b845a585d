/* sum_table.c - the table of measured all-reduce times between devices.
 *
 * The text has a line with the library, a line of names, and a line for each size; "-" stands for
 * an unavailable algorithm.  The input may be anything: any deviation from this format is refused.
 */
#include "exec/device/bench/sum_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "exec/device/bench/bench_devices.h"

static const char heading[] = "bytes direct tree ring", first_word[] = "library ";

/* ---- text ---- */

void tti_sum_table_print(const tti_sum_table *table, tti_str *text) {
    char number[TTI_NUMBER_TEXT];
    tti_str_printf(text, "%s%s\n%s\n", first_word, table->library, heading);
    for (int i = 0; i < table->n_rows; i++) {
        tti_str_printf(text, "%lld", (long long)table->rows[i].n_bytes);
        for (int w = 0; w < TTI_N_SUM_ALGORITHMS; w++) {
            double us = table->rows[i].us[w];
            tti_str_printf(text, " %s", us > 0 ? tti_format_double(number, us) : "-");
        }
        tti_str_add(text, "\n");
    }
}

/* A text that is read line by line. */
typedef struct reader {
    const char *at, *end;
    int n_lines;
} reader;

static tutti_status bad(const reader *r, const char *what) {
    return tti_fail(TUTTI_E_INVALID, "table of sums, line %d: %s", r->n_lines, what);
}

/* The next line without its end; TUTTI_E_INVALID: too long, not ended, or none. */
static tutti_status next_line(reader *r, char *line, size_t n) {
    size_t left = (size_t)(r->end - r->at);
    const char *end = left ? memchr(r->at, '\n', left) : NULL;
    r->n_lines++;
    if (!end || (size_t)(end - r->at) >= n) return bad(r, "it does not end");
    size_t length = (size_t)(end - r->at);
    memcpy(line, r->at, length);
    line[length] = '\0';
    if (strlen(line) != length) return bad(r, "a zero byte");
    r->at = end + 1;
    return TUTTI_OK;
}

/* The next word of a line, which a blank ends; NULL: there is none. */
static char *next_word(char **at) {
    char *word = *at;
    if (!word || !*word) return NULL;
    char *end = strchr(word, ' ');
    if (end) *end = '\0';
    *at = end ? end + 1 : NULL;
    return word;
}

static tutti_status read_row(const reader *r, char *line, tti_sum_row *row) {
    char *at = line, *word = next_word(&at);
    if (!word || tti_parse_int(word, &row->n_bytes) != TTI_NUMBER_OK || row->n_bytes <= 0)
        return bad(r, "want a number of bytes first");
    for (int w = 0; w < TTI_N_SUM_ALGORITHMS; w++) {
        word = next_word(&at);
        row->us[w] = 0;
        if (!word) return bad(r, "want a time for each algorithm");
        if (strcmp(word, "-") == 0) continue;
        bool good = tti_parse_double(word, &row->us[w]) == TTI_NUMBER_OK && row->us[w] > 0 &&
                    row->us[w] < 1e12;
        if (!good) return bad(r, "want microseconds or -");
    }
    return at ? bad(r, "more than one time for each algorithm") : TUTTI_OK;
}

static tutti_status read_head(reader *r, tti_sum_table *t) {
    char line[128];
    size_t n = strlen(first_word);
    TTI_TRY(next_line(r, line, sizeof line));
    if (strncmp(line, first_word, n) != 0 || strlen(line + n) >= sizeof t->library)
        return bad(r, "want the name of the library");
    memcpy(t->library, line + n, strlen(line + n) + 1);
    TTI_TRY(next_line(r, line, sizeof line));
    return strcmp(line, heading) == 0 ? TUTTI_OK : bad(r, "want the names of the algorithms");
}

tutti_status tti_sum_table_parse(const char *text, size_t n_bytes, tti_sum_table *out) {
    reader r = {.at = text, .end = text + n_bytes};
    tti_sum_table t = {.n_rows = 0};
    char line[256];
    TTI_TRY(read_head(&r, &t));
    while (r.at < r.end) {
        TTI_TRY(next_line(&r, line, sizeof line));
        if (t.n_rows == TTI_SUM_ROWS) return bad(&r, "too many sizes");
        TTI_TRY(read_row(&r, line, &t.rows[t.n_rows]));
        if (t.n_rows > 0 && t.rows[t.n_rows].n_bytes <= t.rows[t.n_rows - 1].n_bytes)
            return bad(&r, "sizes must go up");
        t.n_rows++;
    }
    if (t.n_rows == 0) return bad(&r, "no sizes");
    *out = t;
    return TUTTI_OK;
}

/* ---- which algorithm ---- */

/* Microseconds of so many bytes; 0: not known. */
static double time_of(const tti_sum_table *t, tti_sum_algorithm algorithm, int64_t n_bytes) {
    int i = 0;
    while (i < t->n_rows && t->rows[i].n_bytes < n_bytes) i++;
    if (t->n_rows == 0) return 0;
    const tti_sum_row *above = &t->rows[TTI_MIN(i, t->n_rows - 1)];
    if (i == 0 || n_bytes == above->n_bytes) return above->us[algorithm];
    if (i == t->n_rows) return above->us[algorithm] * ((double)n_bytes / (double)above->n_bytes);
    const tti_sum_row *below = above - 1;
    if (below->us[algorithm] <= 0 || above->us[algorithm] <= 0) return 0;
    double part = (double)(n_bytes - below->n_bytes) / (double)(above->n_bytes - below->n_bytes);
    return below->us[algorithm] + part * (above->us[algorithm] - below->us[algorithm]);
}

bool tti_sum_table_prefers_library(const tti_sum_table *table, int64_t n_bytes, bool fast) {
    double direct = time_of(table, TTI_SUM_DIRECT, n_bytes);
    double library = time_of(table, fast ? TTI_SUM_RING : TTI_SUM_TREE, n_bytes);
    return direct > 0 && library > 0 && library < direct;
}

/* ---- the file ---- */

void tti_sum_table_kind(const tti_backend *backend, int index, tti_sum_kind *kind) {
    tti_str text = {0};
    memset(kind, 0, sizeof *kind);
    if (backend->device->kind) backend->device->kind(index, &text);
    snprintf(kind->text, sizeof kind->text, "%s", tti_str_text(&text));
    tti_str_free(&text);
}

/* Neighbours of one kind are counted. */
void tti_sum_table_key(const tti_backend *backend, const tti_sum_kind *kinds, int n,
                       char key[TTI_SUM_KEY]) {
    tti_str text = {0};
    int n_same = 0;
    tti_str_printf(&text, "sums 1; tutti %s; ", TUTTI_VERSION);
    if (backend->describe) backend->describe(&text);
    for (int i = 0; i < n; i++) {
        n_same++;
        if (i + 1 < n && strcmp(kinds[i].text, kinds[i + 1].text) == 0) continue;
        tti_str_printf(&text, "; %d x %s", n_same, kinds[i].text);
        n_same = 0;
    }
    snprintf(key, TTI_SUM_KEY, "%s", tti_str_text(&text));
    tti_str_free(&text);
}

void tti_sum_table_name(int n, char name[64]) { snprintf(name, 64, "sums-of-%d-devices", n); }

tti_cache_found tti_sum_table_load(const char *key, int n, tti_sum_table *out) {
    char name[64], *data;
    size_t n_bytes;
    tti_sum_table_name(n, name);
    tti_cache_found found = tti_cache_find(name, key, &data, &n_bytes);
    if (found == TTI_CACHE_GOOD && tti_sum_table_parse(data, n_bytes, out) != TUTTI_OK) {
        tti_clear_error();
        found = TTI_CACHE_DAMAGED;
    }
    free(data);
    return found;
}

bool tti_sum_table_save(const char *key, int n, const tti_sum_table *table) {
    char name[64];
    tti_str text = {0};
    tti_sum_table_name(n, name);
    tti_sum_table_print(table, &text);
    bool saved = !text.failed && tti_cache_write(name, key, tti_str_text(&text), text.n_bytes);
    tti_str_free(&text);
    return saved;
}

/* ---- measured ---- */

static void take_row(const tutti_bench_devices_row *row, void *user) {
    static const char *const names[TTI_N_SUM_ALGORITHMS] = {"direct", "tree", "ring"};
    tti_sum_table *t = user;
    int i = 0, w = 0;
    while (w < TTI_N_SUM_ALGORITHMS && strcmp(row->algorithm, names[w]) != 0) w++;
    while (i < t->n_rows && t->rows[i].n_bytes < (int64_t)row->n_bytes) i++;
    if (w == TTI_N_SUM_ALGORITHMS || i == TTI_SUM_ROWS) return;
    if (i == t->n_rows) t->rows[t->n_rows++] = (tti_sum_row){.n_bytes = (int64_t)row->n_bytes};
    t->rows[i].us[w] = row->us;
    if (w != TTI_SUM_DIRECT) snprintf(t->library, sizeof t->library, "%s", row->transport);
}

tutti_status tti_sum_table_measure(const tti_backend *backend, int n, size_t n_most,
                                   tti_sum_table *out) {
    *out = (tti_sum_table){.n_rows = 0};
    tutti_bench_devices_desc desc = {.n_devices = n, .max_bytes = n_most};
    TTI_TRY(tti_bench_device_algorithms(backend, &desc, take_row, out));
    if (out->n_rows > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "no algorithm reduces between these devices");
}
