/* csv_text.c - splits a CSV text in place into NUL-terminated cells. */
#include "data/table/csv_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/utf8.h"
#include "data/table/csv_value.h"

enum { SAMPLE_LINES = 20, SAMPLE_ROWS = 1000 };

static const char separators[] = {',', ';', '\t', '|'};

typedef struct cursor {
    const char *name; /* for messages */
    char *at, *end;
    char separator;
    int64_t line;
    char **cell; /* of the line that was read last */
    int n_cells, capacity;
} cursor;

static tutti_status fail_line(const cursor *c, const char *what) {
    return tti_fail(TUTTI_E_DATA, "%s:%lld: %s", c->name, (long long)c->line, what);
}

/* ---- the separator ---- */

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* Counts each separator outside quotes in the line at *at, and moves *at past it. */
static void count_line(const char **at, const char *end, int count[TTI_COUNT(separators)]) {
    bool quoted = false;
    memset(count, 0, TTI_COUNT(separators) * sizeof *count);
    for (; *at < end && (quoted || !is_newline(**at)); ++*at) {
        if (**at == '"') quoted = !quoted;
        for (size_t i = 0; i < TTI_COUNT(separators) && !quoted; i++)
            count[i] += **at == separators[i];
    }
    while (*at < end && is_newline(**at)) ++*at;
}

/* How many of the first lines have as many of each separator as the first line. */
static char find_separator(const char *text, const char *end) {
    int first[TTI_COUNT(separators)], count[TTI_COUNT(separators)];
    int agree[TTI_COUNT(separators)] = {0};
    size_t best = 0;
    while (text < end && is_newline(*text)) text++;
    count_line(&text, end, first);
    for (int line = 1; text < end && line < SAMPLE_LINES; line++) {
        count_line(&text, end, count);
        for (size_t i = 0; i < TTI_COUNT(separators); i++) agree[i] += count[i] == first[i];
    }
    /* A comma may also be a decimal comma, so every other separator goes before it. */
    for (size_t i = 1; i < TTI_COUNT(separators); i++) {
        bool better = agree[i] > agree[best] ||
                      (agree[i] == agree[best] && (best == 0 || first[i] > first[best]));
        if (first[i] > 0 && (first[best] == 0 || better)) best = i;
    }
    return separators[best];
}

/* ---- lines ---- */

static tutti_status add_cell(cursor *c, char *cell) {
    if (c->n_cells == TTI_CSV_MAX_COLUMNS) return fail_line(c, "more than 65536 columns");
    if (c->n_cells == c->capacity) {
        int wanted = 2 * c->capacity + 16;
        char **more = realloc(c->cell, (size_t)wanted * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", c->name);
        c->cell = more;
        c->capacity = wanted;
    }
    c->cell[c->n_cells++] = cell;
    return TUTTI_OK;
}

/* Blanks; a tab that separates is none. */
static bool is_blank(const cursor *c, char x) {
    return x == ' ' || (x == '\t' && c->separator != '\t');
}

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) text[--n] = '\0';
    return text;
}

/* Reads a quoted cell and unescapes it in place; c->at is after the opening quote.  The NUL may
 * overwrite the closing quote, never the byte after it. */
static tutti_status read_quoted(cursor *c, char **out) {
    int64_t line = c->line;
    char *to = c->at;
    *out = to;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '\0') return fail_line(c, "a NUL byte; the file is not text in UTF-8");
        if (*c->at == '\n') c->line++;
        if (*c->at == '"' && (c->at + 1 == c->end || c->at[1] != '"')) break;
        if (*c->at == '"') c->at++;
        *to++ = *c->at;
    }
    if (c->at == c->end) {
        c->line = line;
        return fail_line(c, "a quote is not closed");
    }
    c->at++;
    *to = '\0';
    while (c->at < c->end && is_blank(c, *c->at)) c->at++;
    return TUTTI_OK;
}

static bool ends_line(const cursor *c) { return c->at >= c->end || is_newline(*c->at); }

static tutti_status read_cell(cursor *c, char **out, bool *more) {
    while (c->at < c->end && is_blank(c, *c->at)) c->at++;
    if (c->at < c->end && *c->at == '"') {
        c->at++;
        TTI_TRY(read_quoted(c, out));
    } else {
        *out = c->at;
        while (!ends_line(c) && *c->at != c->separator && *c->at != '\0') c->at++;
    }
    if (c->at < c->end && *c->at == '\0')
        return fail_line(c, "a NUL byte; the file is not text in UTF-8");
    if (!ends_line(c) && *c->at != c->separator) return fail_line(c, "text after a closed quote");
    *more = !ends_line(c);
    bool two = c->at + 1 < c->end && *c->at == '\r' && c->at[1] == '\n';
    *c->at = '\0'; /* the text has one byte more than its end */
    c->at += two ? 2 : 1;
    *out = trim(*out);
    return TUTTI_OK;
}

static bool is_empty(const cursor *c) {
    for (int i = 0; i < c->n_cells; i++)
        if (c->cell[i][0]) return false;
    return true;
}

/* The next line that has a value; n_cells 0: there is none.  *line is where it begins. */
static tutti_status read_line(cursor *c, int64_t *line) {
    do {
        c->n_cells = 0;
        if (c->at >= c->end) return TUTTI_OK;
        *line = c->line;
        for (bool more = true; more;) {
            char *cell;
            TTI_TRY(read_cell(c, &cell, &more));
            TTI_TRY(add_cell(c, cell));
        }
        c->line++;
    } while (is_empty(c));
    return TUTTI_OK;
}

/* ---- rows ---- */

static tutti_status grow(tti_csv_text *t, int64_t *capacity) {
    if (t->n_rows < *capacity) return TUTTI_OK;
    int64_t wanted = *capacity + *capacity / 2 + 64;
    char **cell = realloc(t->cell, (size_t)wanted * (size_t)t->n_columns * sizeof *cell);
    if (cell) t->cell = cell;
    int64_t *line = cell ? realloc(t->line, (size_t)wanted * sizeof *line) : NULL;
    if (line) t->line = line;
    if (!line)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %lld rows", t->name,
                        (long long)wanted);
    *capacity = wanted;
    return TUTTI_OK;
}

static tutti_status read_rows(cursor *c, tti_csv_text *t) {
    int64_t capacity = 0, line = 0;
    size_t row_bytes;
    TTI_TRY(read_line(c, &line));
    t->n_columns = c->n_cells;
    row_bytes = (size_t)t->n_columns * sizeof *t->cell;
    while (c->n_cells > 0) {
        if (c->n_cells != t->n_columns)
            return tti_fail(TUTTI_E_DATA, "%s:%lld: %d fields, the first line has %d", c->name,
                            (long long)line, c->n_cells, t->n_columns);
        TTI_TRY(grow(t, &capacity));
        memcpy(t->cell + (size_t)t->n_rows * (size_t)t->n_columns, c->cell, row_bytes);
        t->line[t->n_rows++] = line;
        TTI_TRY(read_line(c, &line));
    }
    return TUTTI_OK;
}

/* A file with ; has decimal commas if a cell of it is such a number.  A point in another number
 * may then divide thousands. */
static tutti_status find_decimal_comma(tti_csv_text *t) {
    double x;
    char clipped[2][TTI_CLIP];
    const char *with_comma = NULL, *with_point = NULL;
    int64_t n_cells = t->n_rows * t->n_columns;
    for (int64_t i = 0; i < n_cells && t->separator == ';'; i++) {
        const char *cell = t->cell[i];
        bool comma = strchr(cell, ',') != NULL, point = strchr(cell, '.') != NULL;
        if (comma && !with_comma && tti_value_number(cell, true, &x)) with_comma = cell;
        if (point && !with_point && tti_value_number(cell, false, &x)) with_point = cell;
    }
    t->decimal_comma = with_comma != NULL;
    if (!with_comma || !with_point) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: numbers have a decimal comma (%s) and a decimal point (%s); use one of "
                    "them everywhere",
                    t->name, tti_clip(clipped[0], with_comma), tti_clip(clipped[1], with_point));
}

/* ---- the header ---- */

static bool has_name(const tti_csv_text *t, const char *const *names, int n_names) {
    for (int i = 0; i < t->n_columns; i++)
        for (int k = 0; k < n_names; k++)
            if (names[k][0] && strcmp(t->cell[i], names[k]) == 0) return true;
    return false;
}

static bool is_measure(const tti_csv_text *t, const char *cell) {
    double x;
    bool truth;
    return tti_value_number(cell, t->decimal_comma, &x) || tti_value_date(cell, &x) ||
           tti_value_boolean(cell, &truth);
}

/* A column's vote on whether the first line is a header. */
typedef enum vote { VOTE_NONE, VOTE_HEADER, VOTE_ROW, VOTE_TEXT } vote;

static vote vote_of(const tti_csv_text *t, int column) {
    const char *first = t->cell[column];
    int64_t n = TTI_MIN(t->n_rows, (int64_t)SAMPLE_ROWS), n_values = 0;
    bool measures = true, repeated = false;
    double x;
    bool truth;
    if (tti_value_number(first, t->decimal_comma, &x))
        return x == (double)(int64_t)x ? VOTE_NONE : VOTE_ROW;
    if (tti_value_date(first, &x)) return VOTE_ROW;
    if (tti_value_is_missing(first)) return VOTE_NONE;
    bool is_truth = tti_value_boolean(first, &truth), truths = is_truth;
    for (int64_t i = 1; i < n; i++) {
        const char *cell = tti_csv_cell(t, i, column);
        if (tti_value_is_missing(cell)) continue;
        measures = measures && is_measure(t, cell);
        truths = truths && tti_value_boolean(cell, &truth);
        repeated = repeated || strcmp(cell, first) == 0;
        n_values++;
    }
    if (repeated || (truths && n_values > 0)) return VOTE_ROW;
    return measures && n_values > 0 ? VOTE_HEADER : VOTE_TEXT;
}

static bool has_header(const tti_csv_text *t, const char *const *names, int n_names) {
    bool any_header = false, any_number = false, all_text = true;
    if (n_names > 0) return has_name(t, names, n_names);
    for (int i = 0; i < t->n_columns; i++) {
        vote v = vote_of(t, i);
        double x;
        if (v == VOTE_ROW) return false;
        any_header |= v == VOTE_HEADER;
        any_number |= tti_value_number(t->cell[i], t->decimal_comma, &x);
        all_text &= v != VOTE_NONE || !t->cell[i][0];
    }
    return any_header || (all_text && !any_number);
}

static tutti_status take_header(tti_csv_text *t) {
    char clipped[TTI_CLIP];
    size_t n = (size_t)t->n_columns;
    t->header = malloc(n * sizeof *t->header);
    if (!t->header) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", t->name);
    memcpy(t->header, t->cell, n * sizeof *t->header);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i && n <= 4096; k++)
            if (t->header[i][0] && strcmp(t->header[i], t->header[k]) == 0)
                return tti_fail(TUTTI_E_DATA, "%s:%lld: columns %zu and %zu are both called '%s'",
                                t->name, (long long)t->line[0], k, i,
                                tti_clip(clipped, t->header[i]));
    t->n_rows--;
    memmove(t->cell, t->cell + n, (size_t)t->n_rows * n * sizeof *t->cell);
    memmove(t->line, t->line + 1, (size_t)t->n_rows * sizeof *t->line);
    return TUTTI_OK;
}

/* ---- all of it ---- */

static tutti_status check_encoding(const char *name, const char *text, size_t n_bytes) {
    bool utf16 = n_bytes >= 2 && (!memcmp(text, "\xFF\xFE", 2) || !memcmp(text, "\xFE\xFF", 2));
    if (utf16) return tti_fail(TUTTI_E_DATA, "%s: the text is UTF-16; save it as UTF-8", name);
    size_t bad = tti_utf8_check(text, n_bytes);
    if (bad == n_bytes) return TUTTI_OK;
    int64_t line = 1;
    for (size_t i = 0; i < bad; i++) line += text[i] == '\n';
    return tti_fail(TUTTI_E_DATA,
                    "%s:%lld: the byte 0x%02X is not UTF-8; convert the file, for example with "
                    "iconv -f latin1 -t utf-8",
                    name, (long long)line, (unsigned char)text[bad]);
}

static tutti_status parse(cursor *c, const char *const *names, int n_names, tti_csv_text *t) {
    TTI_TRY(read_rows(c, t));
    if (t->n_rows == 0) return tti_fail(TUTTI_E_DATA, "%s: there are no rows", t->name);
    TTI_TRY(find_decimal_comma(t));
    if (has_header(t, names, n_names)) TTI_TRY(take_header(t));
    return t->n_rows > 0 ? TUTTI_OK : tti_fail(TUTTI_E_DATA, "%s: there are no rows", t->name);
}

tutti_status tti_csv_text_parse(const char *name, char *text, size_t n_bytes,
                                const char *const *names, int n_names, tti_csv_text *out) {
    size_t n_mark = n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    cursor c = {.name = name, .at = text + n_mark, .end = text + n_bytes, .line = 1};
    *out = (tti_csv_text){.name = strdup(name), .text = text};
    tutti_status st = out->name ? check_encoding(name, text, n_bytes)
                                : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", name);
    c.separator = out->separator = find_separator(c.at, c.end);
    if (st == TUTTI_OK) st = parse(&c, names, n_names, out);
    free(c.cell);
    if (st != TUTTI_OK) tti_csv_text_free(out);
    return st;
}

void tti_csv_text_free(tti_csv_text *csv) {
    free(csv->name);
    free(csv->cell);
    free(csv->line);
    free(csv->header);
    free(csv->text);
    *csv = (tti_csv_text){0};
}
