/* csv_table.c - reads CSV as RFC 4180 has it, numbers only.
 *
 * The one idea: the text is cut in place, field by field; a field is a NUL-terminated piece of it,
 * so that nothing but the table itself takes memory. */
#include "data/csv_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/problem.h"

enum { MAX_COLUMNS = 1 << 16, MAX_FIELD = 1 << 16 };

typedef struct cursor {
    const char *name; /* for messages */
    char *at, *end;
    char comma;
    int64_t line;
    char **field; /* of the line that was read last */
    int n_fields, capacity;
} cursor;

/* ---- lines ---- */

static tutti_status bad(const cursor *c, const char *what) {
    return tti_fail(TUTTI_E_DATA, "%s:%lld: %s", c->name, (long long)c->line, what);
}

static tutti_status add_field(cursor *c, char *field) {
    if (c->n_fields == MAX_COLUMNS) return bad(c, "more than 65536 columns");
    if (c->n_fields == c->capacity) {
        int wanted = 2 * c->capacity + 16;
        char **more = realloc(c->field, (size_t)wanted * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", c->name);
        c->field = more;
        c->capacity = wanted;
    }
    c->field[c->n_fields++] = field;
    return TUTTI_OK;
}

/* A field in quotes, moved together in place; c->at is behind the first quote. */
static tutti_status read_quoted(cursor *c, char **out) {
    char *to = c->at;
    *out = to;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '\n') c->line++;
        if (*c->at == '"' && (c->at + 1 == c->end || c->at[1] != '"')) break;
        if (*c->at == '"') c->at++;
        *to++ = *c->at;
    }
    if (c->at == c->end) return bad(c, "a quote is not closed");
    c->at++;
    *to = '\0';
    return TUTTI_OK;
}

static bool ends_line(const cursor *c) {
    return c->at == c->end || *c->at == '\n' || (*c->at == '\r' && c->at[1] == '\n');
}

static tutti_status read_field(cursor *c, char **out, bool *more) {
    bool quoted = *c->at == '"';
    if (quoted) {
        c->at++;
        TTI_TRY(read_quoted(c, out));
    } else {
        *out = c->at;
        while (!ends_line(c) && *c->at != c->comma && *c->at != '\0') c->at++;
    }
    if (c->at < c->end && *c->at == '\0') return bad(c, "a NUL byte");
    if (!ends_line(c) && *c->at != c->comma) return bad(c, "text after a closed quote");
    *more = !ends_line(c);
    bool carriage = c->at < c->end && *c->at == '\r';
    *c->at = '\0'; /* the text has one byte more than its end */
    c->at += carriage ? 2 : 1;
    return TUTTI_OK;
}

/* The next line that is not empty; n_fields 0: there is none. */
static tutti_status read_line(cursor *c) {
    c->n_fields = 0;
    while (c->at < c->end && ends_line(c)) {
        c->at += *c->at == '\r' ? 2 : 1;
        c->line++;
    }
    if (c->at >= c->end) return TUTTI_OK;
    for (bool more = true; more;) {
        char *field;
        TTI_TRY(read_field(c, &field, &more));
        TTI_TRY(add_field(c, field));
    }
    return TUTTI_OK;
}

/* ---- numbers ---- */

static char *without_blanks(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) text[--n] = '\0';
    return text;
}

static bool is_number(char *field) {
    double x;
    return tti_parse_double(without_blanks(field), &x) != TTI_NUMBER_MALFORMED;
}

static tutti_status bad_field(const cursor *c, int column, const char *wanted) {
    char clipped[TTI_CLIP];
    return tti_fail(TUTTI_E_DATA, "%s:%lld: column %d: %s is expected, got '%s'", c->name,
                    (long long)c->line, column, wanted, tti_clip(clipped, c->field[column]));
}

static tutti_status read_row(const cursor *c, int label, float *x, int32_t *y) {
    for (int i = 0, k = 0; i < c->n_fields; i++) {
        char *field = without_blanks(c->field[i]);
        double value;
        int64_t number;
        if (i == label) {
            if (tti_parse_int(field, &number) != TTI_NUMBER_OK || number < 0 || number >= INT32_MAX)
                return bad_field(c, i, "a label, a whole number >= 0,");
            *y = (int32_t)number;
        } else {
            if (tti_parse_double(field, &value) != TTI_NUMBER_OK || !isfinite((float)value))
                return bad_field(c, i, "a number");
            x[k++] = (float)value;
        }
    }
    return TUTTI_OK;
}

/* ---- the table ---- */

static tutti_status find_label(const cursor *c, const char *label, bool has_header, int *out) {
    static const char *const usual[] = {"label", "class", "target", "y"};
    int64_t number;
    char clipped[TTI_CLIP];
    *out = c->n_fields - 1;
    bool named = label && label[0];
    for (int i = 0; has_header && i < c->n_fields; i++) {
        if (named && strcmp(c->field[i], label) == 0) return *out = i, TUTTI_OK;
        for (size_t k = 0; !named && k < TTI_COUNT(usual); k++)
            if (strcasecmp(c->field[i], usual[k]) == 0) return *out = i, TUTTI_OK;
    }
    if (!named) return TUTTI_OK;
    if (tti_parse_int(label, &number) != TTI_NUMBER_OK || number < 0 || number >= c->n_fields)
        return tti_fail(TUTTI_E_DATA,
                        "%s: data.label: no column is called '%s', and it is no number below %d",
                        c->name, tti_clip(clipped, label), c->n_fields);
    *out = (int)number;
    return TUTTI_OK;
}

static tutti_status grow(tti_csv_table *t, int64_t *capacity) {
    if (t->n_rows < *capacity) return TUTTI_OK;
    int64_t wanted = *capacity + *capacity / 2 + 64;
    size_t row = (size_t)t->n_columns * sizeof *t->x;
    float *x = realloc(t->x, (size_t)wanted * row);
    if (x) t->x = x;
    int32_t *y = x ? realloc(t->y, (size_t)wanted * sizeof *y) : NULL;
    if (!y) return tti_fail(TUTTI_E_NOMEM, "csv: out of memory for %lld rows", (long long)wanted);
    t->y = y;
    *capacity = wanted;
    return TUTTI_OK;
}

static tutti_status read_rows(cursor *c, int n_fields, int label, tti_csv_table *t) {
    int64_t capacity = 0;
    while (c->n_fields > 0) {
        if (c->n_fields != n_fields)
            return tti_fail(TUTTI_E_DATA, "%s:%lld: %d fields, the first line has %d", c->name,
                            (long long)c->line, c->n_fields, n_fields);
        TTI_TRY(grow(t, &capacity));
        TTI_TRY(
            read_row(c, label, t->x + (size_t)t->n_rows * (size_t)t->n_columns, &t->y[t->n_rows]));
        t->n_rows++;
        c->line++;
        TTI_TRY(read_line(c));
    }
    return TUTTI_OK;
}

static tutti_status read_table(cursor *c, const char *label, tti_csv_table *t) {
    TTI_TRY(read_line(c));
    bool has_header = false;
    for (int i = 0; i < c->n_fields; i++) has_header |= !is_number(c->field[i]);
    int n_fields = c->n_fields, label_column = 0;
    if (n_fields < 2)
        return tti_fail(TUTTI_E_DATA, "%s: %d columns, a feature and a label are needed", c->name,
                        n_fields);
    TTI_TRY(find_label(c, label, has_header, &label_column));
    t->n_columns = n_fields - 1;
    if (has_header) {
        c->line++;
        TTI_TRY(read_line(c));
    }
    TTI_TRY(read_rows(c, n_fields, label_column, t));
    if (t->n_rows == 0) return tti_fail(TUTTI_E_DATA, "%s: there are no rows", c->name);
    return TUTTI_OK;
}

/* What stands between the fields of the first line. */
static char find_comma(const char *text, size_t n_bytes) {
    const char *newline = memchr(text, '\n', n_bytes);
    size_t n = newline ? (size_t)(newline - text) : n_bytes;
    if (memchr(text, ',', n)) return ',';
    return memchr(text, ';', n) ? ';' : memchr(text, '\t', n) ? '\t' : ',';
}

tutti_status tti_csv_parse(const char *name, char *text, size_t n_bytes, const char *label,
                           tti_csv_table *out) {
    size_t n_mark = n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    cursor c = {.name = name,
                .at = text + n_mark,
                .end = text + n_bytes,
                .comma = find_comma(text, n_bytes),
                .line = 1};
    tti_csv_table table = {0};
    tutti_status st = read_table(&c, label, &table);
    free(c.field);
    if (st == TUTTI_OK)
        *out = table;
    else
        tti_csv_table_free(&table);
    return st;
}

void tti_csv_table_free(tti_csv_table *table) {
    free(table->x);
    free(table->y);
    *table = (tti_csv_table){0};
}
