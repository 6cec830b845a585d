/* csv_text.c - splits a CSV text in place into NUL-terminated cells. */
#include "data/table/csv_text.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/utf8.h"
#include "data/files/foreign_format.h"
#include "data/table/csv_value.h"

enum { SAMPLE_LINES = 20, SAMPLE_ROWS = 1000, FEW_COLUMNS = 3 };

static const char separators[] = {',', ';', '\t', '|'};

typedef struct cursor {
    const char *name; /* for messages */
    char *at, *end;
    char separator;
    int64_t line;
    char **cell; /* of the line that was read last */
    int n_cells, capacity;
    bool keeps_empty; /* from the second line on */
    int64_t n_empty;  /* lines of empty cells that were left out */
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

/* Excel's first line "sep=;" names the separator and is not a row. */
static bool take_separator(cursor *c, char *out) {
    static const char key[] = "sep=";
    size_t n = sizeof key - 1;
    if ((size_t)(c->end - c->at) < n + 2 || memcmp(c->at, key, n) != 0) return false;
    const char *after = c->at + n + 1;
    if (!memchr(separators, c->at[n], sizeof separators) || !is_newline(*after)) return false;
    *out = c->at[n];
    c->at += n + 2 + (*after == '\r' && after + 1 < c->end && after[1] == '\n');
    c->line++;
    return true;
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

/* Whether the line that was read last is a row. */
static bool is_row(cursor *c) {
    if (!is_empty(c)) return true;
    if (c->n_cells > 1 && c->keeps_empty) return true;
    c->n_empty += c->n_cells > 1;
    return false;
}

/* The next line that is a row; n_cells 0: there is none.  *line is where it begins. */
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
    } while (!is_row(c));
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

static tutti_status read_rows(cursor *c, bool keeps_empty, tti_csv_text *t) {
    int64_t capacity = 0, line = 0;
    size_t row_bytes;
    TTI_TRY(read_line(c, &line));
    c->keeps_empty = keeps_empty;
    c->n_empty = 0; /* lines above the first one are not rows */
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
    t->n_empty = c->n_empty;
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
    if (tti_value_date(first, &x) || tti_value_is_odd_number(first)) return VOTE_ROW;
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

/* Whether rows below the first line have a number that is not whole. */
static bool has_fractions(const tti_csv_text *t) {
    int64_t n = TTI_MIN(t->n_rows, (int64_t)SAMPLE_ROWS) * t->n_columns;
    double x;
    for (int64_t i = t->n_columns; i < n; i++)
        if (tti_value_number(t->cell[i], t->decimal_comma, &x) && x != nearbyint(x)) return true;
    return false;
}

/* Whether two of the next rows have the same text, as names of classes have. */
static bool repeats_texts(const tti_csv_text *t, int column) {
    int64_t n = TTI_MIN(t->n_rows, (int64_t)SAMPLE_LINES);
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = i + 1; k < n; k++)
            if (strcmp(tti_csv_cell(t, i, column), tti_csv_cell(t, k, column)) == 0) return true;
    return false;
}

/* Whether the numbers of the first line are names that count the columns: 0, 1, 2, as pandas writes
 * columns without names, or 2019, 2020 beside the name of a column of texts.  A few numbers
 * may also be data, so they need further evidence. */
static bool numbers_count(const tti_csv_text *t, const vote *votes) {
    double start = 0, last = 0, x;
    int n = 0, n_texts = 0, first = 0;
    for (int i = 0; i < t->n_columns; i++) {
        n_texts += votes[i] == VOTE_TEXT;
        if (votes[i] == VOTE_TEXT && !repeats_texts(t, i)) return false;
        if (!tti_value_number(t->cell[i], t->decimal_comma, &x)) continue;
        if (n > 0 && x != last + 1) return false;
        if (n++ == 0) start = x, first = i;
        last = x;
    }
    if (n < 2 || t->n_rows < 2) return false;
    if (n_texts > 0)
        return n + n_texts == t->n_columns && (n >= FEW_COLUMNS || (start >= 1900 && last <= 2100));
    bool has_index = first == 1 && !t->cell[0][0];
    if (start != 0 || n + has_index != t->n_columns) return false;
    return has_index || n > FEW_COLUMNS || (n == FEW_COLUMNS && has_fractions(t));
}

/* votes [n_columns] is memory for the function. */
static bool has_header(tti_csv_text *t, vote *votes) {
    bool any_header = false, any_number = false, all_text = true;
    for (int i = 0; i < t->n_columns; i++) {
        double x;
        votes[i] = vote_of(t, i);
        if (votes[i] == VOTE_ROW) return false;
        any_header |= votes[i] == VOTE_HEADER;
        any_number |= tti_value_number(t->cell[i], t->decimal_comma, &x);
        all_text &= votes[i] != VOTE_NONE || !t->cell[i][0];
    }
    if (any_header || (all_text && !any_number)) return true;
    return t->counts_names = numbers_count(t, votes);
}

static tutti_status find_header(tti_csv_text *t, const tti_csv_desc *desc, bool *out) {
    if (desc->n_names > 0) {
        *out = has_name(t, desc->names, desc->n_names);
        return TUTTI_OK;
    }
    vote *votes = malloc((size_t)t->n_columns * sizeof *votes);
    if (!votes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", t->name);
    *out = has_header(t, votes);
    free(votes);
    return TUTTI_OK;
}

static int compare_names(const void *a, const void *b) {
    const char *const *x = *(const char *const *const *)a, *const *y =
                                                               *(const char *const *const *)b;
    int order = strcmp(*x, *y);
    return order ? order : (x > y) - (x < y);
}

/* No two columns have the same name; any number may have none. */
static tutti_status check_names(const tti_csv_text *t) {
    char clipped[TTI_CLIP];
    size_t n = (size_t)t->n_columns;
    char ***sorted = malloc(n * sizeof *sorted);
    if (!sorted) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", t->name);
    for (size_t i = 0; i < n; i++) sorted[i] = &t->header[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    tutti_status st = TUTTI_OK;
    for (size_t i = 1; i < n && st == TUTTI_OK; i++)
        if (**sorted[i] && strcmp(*sorted[i - 1], *sorted[i]) == 0)
            st = tti_fail(TUTTI_E_DATA, "%s:%lld: columns %td and %td are both called '%s'",
                          t->name, (long long)t->line[0], sorted[i - 1] - t->header,
                          sorted[i] - t->header, tti_clip(clipped, *sorted[i]));
    free(sorted);
    return st;
}

static tutti_status take_header(tti_csv_text *t) {
    size_t n = (size_t)t->n_columns;
    t->header = malloc(n * sizeof *t->header);
    if (!t->header) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", t->name);
    memcpy(t->header, t->cell, n * sizeof *t->header);
    TTI_TRY(check_names(t));
    t->n_rows--;
    memmove(t->cell, t->cell + n, (size_t)t->n_rows * n * sizeof *t->cell);
    memmove(t->line, t->line + 1, (size_t)t->n_rows * sizeof *t->line);
    return TUTTI_OK;
}

/* ---- all of it ---- */

static tutti_status check_encoding(const char *name, const char *text, size_t n_bytes) {
    const char *mark = tti_utf8_other_mark(text, n_bytes);
    if (mark) return tti_fail(TUTTI_E_DATA, "%s: the text is %s; save it as UTF-8", name, mark);
    const char *other = tti_foreign_format(text, n_bytes);
    if (other)
        return tti_fail(TUTTI_E_DATA,
                        "%s: it is %s; save the table as CSV in UTF-8 (.csv or .csv.gz)", name,
                        other);
    size_t bad = tti_utf8_check(text, n_bytes);
    if (bad == n_bytes) return TUTTI_OK;
    int64_t line = 1;
    for (size_t i = 0; i < bad; i++) line += text[i] == '\n';
    return tti_fail(TUTTI_E_DATA,
                    "%s:%lld: the byte 0x%02X is not UTF-8; convert the file, for example with "
                    "iconv -f latin1 -t utf-8",
                    name, (long long)line, (unsigned char)text[bad]);
}

static tutti_status parse(cursor *c, const tti_csv_desc *desc, tti_csv_text *t) {
    TTI_TRY(read_rows(c, desc->keeps_empty, t));
    if (t->n_rows == 0) return tti_fail(TUTTI_E_DATA, "%s: there are no rows", t->name);
    bool has_names = false;
    TTI_TRY(find_decimal_comma(t));
    TTI_TRY(find_header(t, desc, &has_names));
    if (has_names) TTI_TRY(take_header(t));
    return t->n_rows > 0 ? TUTTI_OK : tti_fail(TUTTI_E_DATA, "%s: there are no rows", t->name);
}

tutti_status tti_csv_text_parse(const tti_csv_desc *desc, char *text, size_t n_bytes,
                                tti_csv_text *out) {
    const char *name = desc->name;
    size_t n_mark = n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    cursor c = {.name = name, .at = text + n_mark, .end = text + n_bytes, .line = 1};
    *out = (tti_csv_text){.name = strdup(name), .text = text};
    tutti_status st = out->name ? check_encoding(name, text, n_bytes)
                                : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", name);
    if (!take_separator(&c, &c.separator)) c.separator = find_separator(c.at, c.end);
    out->separator = c.separator;
    if (st == TUTTI_OK) st = parse(&c, desc, out);
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
