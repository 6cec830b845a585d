/* option_value.c - values of options by type.
 *
 * One parser and one formatter per type, in a table.  A parser gets a raw scalar and must consume
 * all of it; ranges are checked in one place.  Every error message states what the row expects, so
 * it explains the whole rule and not only the violated part. */
#include "base/options/option_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "base/options/nearest.h"
#include "base/utf8.h"

/* ---- words ---- */

void tti_each_word(const char *words, tti_word_fn visit, void *arg) {
    while (words && *words) {
        char word[TTI_CLIP];
        size_t n_bytes = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)TTI_MIN(n_bytes, sizeof word - 1), words);
        if (!visit(word, arg)) return;
        words += n_bytes + (words[n_bytes] == '|');
    }
}

typedef struct word_search {
    const char *typed;
    char best[TTI_CLIP];
    int distance; /* 0: found */
} word_search;

static bool visit_search(const char *word, void *arg) {
    word_search *s = arg;
    int distance = strcmp(word, s->typed) ? tti_nearness(s->typed, word) + 1 : 0;
    if (distance < s->distance) {
        s->distance = distance;
        strcpy(s->best, word);
    }
    return distance > 0;
}

static word_search search_word(const char *words, const char *typed) {
    word_search s = {.typed = typed, .distance = TTI_NOT_NEAR};
    tti_each_word(words, visit_search, &s);
    return s;
}

static bool visit_list(const char *word, void *arg) {
    tti_str *out = arg;
    if (out->n_bytes > 0 && out->text[out->n_bytes - 1] != ' ') tti_str_add(out, ", ");
    tti_str_add(out, word);
    return true;
}

/* Words that stand for numbers: the first for -1, the next for -2, ... */
typedef struct word_count {
    const char *typed;
    int64_t value;
    bool found;
} word_count;

static bool visit_count(const char *word, void *arg) {
    word_count *c = arg;
    c->value--;
    c->found = strcmp(word, c->typed) == 0;
    return !c->found;
}

/* The number that a word stands for; 0: it is none of the row's words. */
static int64_t number_of_word(const tti_option *row, const char *text) {
    word_count c = {.typed = text};
    tti_each_word(row->word, visit_count, &c);
    return c.found ? c.value : 0;
}

typedef struct word_at {
    int64_t left;
    char word[TTI_CLIP];
} word_at;

static bool visit_at(const char *word, void *arg) {
    word_at *at = arg;
    if (--at->left == 0) strcpy(at->word, word);
    return at->left > 0;
}

/* The word that stands for a number, written into out; false: none does. */
static bool add_word(const tti_option *row, double value, tti_str *out) {
    if (!row->word || !(value < 0 && value >= -TTI_MAX_WORDS)) return false;
    word_at at = {.left = (int64_t)-value};
    tti_each_word(row->word, visit_at, &at);
    if (*at.word) tti_str_add(out, at.word);
    return *at.word;
}

/* ---- reading ---- */

static bool in_range(const tti_option *row, double x) { return x >= row->min && x <= row->max; }

static bool read_int(const tti_option *row, const char *text, void *field) {
    int64_t x;
    int64_t word = number_of_word(row, text);
    if (word) {
        *(int64_t *)field = word;
        return true;
    }
    tti_number form =
        row->type == TTI_OPTION_SIZE ? tti_parse_bytes(text, &x) : tti_parse_int(text, &x);
    if (form != TTI_NUMBER_OK || !in_range(row, (double)x)) return false;
    *(int64_t *)field = x;
    return true;
}

static bool read_float(const tti_option *row, const char *text, void *field) {
    double x;
    int64_t word = number_of_word(row, text);
    if (word) {
        *(double *)field = (double)word;
        return true;
    }
    if (tti_parse_float(text, &x) != TTI_NUMBER_OK || !in_range(row, x)) return false;
    *(double *)field = x;
    return true;
}

static bool read_bool(const tti_option *row, const char *text, void *field) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    (void)row;
    for (size_t i = 0; i < TTI_COUNT(words); i++) {
        if (strcasecmp(text, words[i])) continue;
        *(bool *)field = i % 2 == 1;
        return true;
    }
    return false;
}

static bool read_text(const tti_option *row, const char *text, void *field) {
    size_t n_bytes = strlen(text);
    if (n_bytes >= TTI_TEXT_MAX || (double)n_bytes < row->min) return false;
    if (!tti_utf8_is_line(text)) return false;
    memcpy(field, text, n_bytes + 1);
    return true;
}

typedef struct pair_search {
    const char *typed;
    bool ignores_case; /* and the hyphens and underscores that tti_edit_distance ignores */
    char choice[TTI_CLIP];
} pair_search;

/* "fp16=f16" */
static bool visit_pair(const char *pair, void *arg) {
    pair_search *s = arg;
    char word[TTI_CLIP];
    const char *equals = strchr(pair, '=');
    snprintf(word, sizeof word, "%.*s", (int)(equals - pair), pair);
    bool same = s->ignores_case ? tti_edit_distance(s->typed, word) == 0 : !strcmp(s->typed, word);
    if (same) strcpy(s->choice, equals + 1);
    return !same;
}

static bool read_choice(const tti_option *row, const char *text, void *field) {
    pair_search alias = {.typed = text};
    tti_each_word(row->alias, visit_pair, &alias);
    if (*alias.choice) text = alias.choice;
    if (search_word(row->choices, text).distance != 0) return false;
    strcpy(field, text); /* as short as the choice */
    return true;
}

/* *culprit: the element that is wrong, or the list when it is too long. */
static bool read_list(const tti_option *row, const tti_yaml *node, tti_int_list *field,
                      const tti_yaml **culprit) {
    bool sequence = node->kind == TTI_YAML_SEQUENCE;
    tti_int_list list = {0};
    for (const tti_yaml *item = sequence ? node->first : node; item;
         item = sequence ? item->next : NULL) {
        if (list.n == TTI_LIST_MAX) return false;
        tti_option element = {.type = TTI_OPTION_INT, .min = row->min, .max = row->max};
        bool scalar = item->kind == TTI_YAML_SCALAR;
        if (!scalar || !read_int(&element, item->text, &list.v[list.n++])) {
            *culprit = item;
            return false;
        }
    }
    *field = list;
    return true;
}

/* As read_list, for texts; the rest of the field is zero, so that equal lists are equal bytes. */
static bool read_texts(const tti_option *row, const tti_yaml *node, tti_text_list *field,
                       const tti_yaml **culprit) {
    bool sequence = node->kind == TTI_YAML_SEQUENCE;
    tti_option element = {.type = TTI_OPTION_TEXT, .min = row->min};
    char text[TTI_TEXT_MAX];
    int n = 0;
    for (const tti_yaml *item = sequence ? node->first : node; item;
         item = sequence ? item->next : NULL) {
        if (n++ == TTI_LIST_MAX) return false;
        bool scalar = item->kind == TTI_YAML_SCALAR;
        if (scalar && read_text(&element, item->text, text)) continue;
        *culprit = item;
        return false;
    }
    memset(field, 0, sizeof *field);
    for (const tti_yaml *item = sequence ? node->first : node; item;
         item = sequence ? item->next : NULL)
        strcpy(field->v[field->n++], item->text); /* checked above */
    return true;
}

/* Appends a scalar to a joined text.  A separator in it would make two items of it. */
static bool join_part(const tti_yaml *part, const char *separators, tti_str *out) {
    if (part->kind != TTI_YAML_SCALAR || !*part->text || strpbrk(part->text, separators))
        return false;
    tti_str_add(out, part->text);
    return true;
}

/* A list as "a, b", keys and values as "a: b, c: d". */
static bool read_joined(const tti_option *row, const tti_yaml *node, void *field,
                        const tti_yaml **culprit) {
    tti_str text = {0};
    bool good = true;
    for (const tti_yaml *item = node->first; item && good; item = item->next) {
        if (item != node->first) tti_str_add(&text, ", ");
        *culprit = item->key ? item->key : item;
        if (item->key) good = join_part(item->key, ",", &text);
        bool is_key_alone =
            item->key && item->kind == TTI_YAML_SCALAR && item->plain && !*item->text;
        if (!good || is_key_alone) continue; /* {a:b} is one key in YAML */
        if (item->key) tti_str_add(&text, ": ");
        *culprit = item;
        good = join_part(item, item->key ? ",:" : ",", &text);
    }
    if (good) *culprit = node;
    good = good && !text.failed && read_text(row, tti_str_text(&text), field);
    tti_str_free(&text);
    return good;
}

typedef bool (*read_fn)(const tti_option *row, const char *text, void *field);

static const read_fn readers[TTI_N_OPTION_TYPES] = {
    [TTI_OPTION_INT] = read_int,   [TTI_OPTION_FLOAT] = read_float,
    [TTI_OPTION_BOOL] = read_bool, [TTI_OPTION_TEXT] = read_text,
    [TTI_OPTION_SIZE] = read_int,  [TTI_OPTION_CHOICE] = read_choice,
};

static bool read_any(const tti_option *row, const tti_yaml *node, void *field,
                     const tti_yaml **culprit) {
    if (row->joins && node->kind != TTI_YAML_SCALAR) return read_joined(row, node, field, culprit);
    if (node->kind == TTI_YAML_MAPPING) return false;
    if (row->type == TTI_OPTION_INT_LIST) return read_list(row, node, field, culprit);
    if (row->type == TTI_OPTION_TEXT_LIST) return read_texts(row, node, field, culprit);
    return node->kind == TTI_YAML_SCALAR && readers[row->type](row, node->text, field);
}

static int n_items(const tti_yaml *node) {
    int n = 0;
    for (const tti_yaml *item = node->first; item; item = item->next) n++;
    return n;
}

/* For a number that no value of the type can hold: adds why. */
static void explain_size(const tti_option *row, const char *text, tti_str *why) {
    double x;
    int64_t n_bytes;
    tti_number form = row->type == TTI_OPTION_FLOAT  ? tti_parse_float(text, &x)
                      : row->type == TTI_OPTION_SIZE ? tti_parse_bytes(text, &n_bytes)
                                                     : TTI_NUMBER_OK;
    if (form == TTI_NUMBER_TINY && row->min <= 0)
        tti_str_add(why, ", which is too small to compute with; write 0 if that is meant");
    if (form == TTI_NUMBER_RANGE && row->max >= TTI_NO_LIMIT)
        tti_str_add(why, ", which is too large to compute with");
}

static void explain(const tti_option *row, const tti_yaml *node, tti_str *why) {
    char clipped[TTI_CLIP];
    tti_str_add(why, "expected ");
    tti_option_expect(row, why);
    if (node->kind == TTI_YAML_SEQUENCE) tti_str_printf(why, ", got a list of %d", n_items(node));
    if (node->kind == TTI_YAML_MAPPING) tti_str_add(why, ", got keys and values");
    if (node->kind != TTI_YAML_SCALAR) return;
    tti_str_printf(why, ", got \"%s\"", tti_clip(clipped, node->text));
    explain_size(row, node->text, why);
    if (row->type != TTI_OPTION_CHOICE) return;
    pair_search meant = {.typed = clipped, .ignores_case = true};
    tti_each_word(row->meant, visit_pair, &meant);
    if (!*meant.choice) tti_each_word(row->alias, visit_pair, &meant);
    if (*meant.choice) {
        tti_str_printf(why, " (did you mean \"%s\"?)", meant.choice);
        return;
    }
    word_search near = search_word(row->choices, clipped);
    if (near.distance < TTI_NOT_NEAR) tti_str_printf(why, " (did you mean \"%s\"?)", near.best);
}

bool tti_option_read(const tti_option *row, const tti_yaml *node, void *config, tti_str *why,
                     const tti_yaml **culprit) {
    *culprit = node;
    if (node->kind == TTI_YAML_SCALAR && node->plain && !*node->text) {
        tti_str_add(why, "the value is missing (null means the default, \"\" an empty text)");
        return false;
    }
    if (read_any(row, node, tti_option_field(row, config), culprit)) return true;
    explain(row, *culprit, why);
    return false;
}

/* ---- text of an assignment ---- */

static tutti_status raw_node(const char *text, tti_arena *arena, const tti_yaml **out) {
    const char *end = text + strlen(text);
    while (end > text && (end[-1] == ' ' || end[-1] == '\t')) end--;
    tti_yaml *node = tti_arena_alloc(arena, sizeof *node);
    char *copy = tti_arena_alloc(arena, (size_t)(end - text) + 1);
    if (!node || !copy) return tti_fail(TUTTI_E_NOMEM, "options: out of memory");
    memcpy(copy, text, (size_t)(end - text));
    *node = (tti_yaml){.kind = TTI_YAML_SCALAR, .plain = true, .text = copy};
    *out = node;
    return TUTTI_OK;
}

tutti_status tti_option_node(const char *text, const char *source, tti_arena *arena,
                             const tti_yaml **out) {
    text += strspn(text, " \t");
    if (!*text || !strchr("[{\"'", *text)) return raw_node(text, arena, out);
    return tti_yaml_parse(text, strlen(text), source, arena, out);
}

/* ---- writing ---- */

/* Limits of integers are written as integers: 1000000000 and not 1e+09. */
static void format_limit(const tti_option *row, double limit, char text[TTI_NUMBER_TEXT]) {
    if (row->type == TTI_OPTION_FLOAT || fabs(limit) > 0x1p53)
        tti_format_double(text, limit);
    else
        snprintf(text, TTI_NUMBER_TEXT, "%.0f", limit);
}

void tti_option_expect(const tti_option *row, tti_str *out) {
    static const char *const nouns[TTI_N_OPTION_TYPES] = {
        [TTI_OPTION_INT] = "an integer",
        [TTI_OPTION_FLOAT] = "a number",
        [TTI_OPTION_BOOL] = "true or false",
        [TTI_OPTION_TEXT] = "one line of text",
        [TTI_OPTION_CHOICE] = "one of ",
        [TTI_OPTION_INT_LIST] = "a list of at most 16 integers",
        [TTI_OPTION_TEXT_LIST] = "a list of at most 16 texts",
        [TTI_OPTION_SIZE] = "a size such as 64MiB",
    };
    char min[TTI_NUMBER_TEXT], max[TTI_NUMBER_TEXT];
    tti_str_add(out, nouns[row->type]);
    if (row->type == TTI_OPTION_BOOL || row->type == TTI_OPTION_TEXT_LIST) return;
    if (row->type == TTI_OPTION_CHOICE) {
        tti_each_word(row->choices, visit_list, out);
        return;
    }
    if (row->type == TTI_OPTION_TEXT) {
        tti_str_printf(out, " of %s%d bytes", row->min > 0 ? "1 to " : "at most ",
                       TTI_TEXT_MAX - 1);
        if (row->joins) tti_str_add(out, ", or a list or keys and values that contain no commas");
        return;
    }
    format_limit(row, row->min, min);
    format_limit(row, row->max, max);
    if (row->max < TTI_NO_LIMIT)
        tti_str_printf(out, " from %s to %s", min, max);
    else if (row->min > -TTI_NO_LIMIT)
        tti_str_printf(out, " >= %s", min);
    if (row->word) {
        tti_str_add(out, " or ");
        tti_each_word(row->word, visit_list, out);
    }
}

/* Whether text may stand in YAML without quotes, whatever surrounds it. */
static bool is_bare(const char *text) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    return *text && *text != '-' && strspn(text, safe) == strlen(text) &&
           strcasecmp(text, "null") != 0;
}

static void format_text(const char *text, bool yaml, tti_str *out) {
    if (!yaml || is_bare(text)) {
        tti_str_add(out, text);
        return;
    }
    tti_str_add(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') tti_str_add(out, "\\");
        tti_str_add_bytes(out, text, 1);
    }
    tti_str_add(out, "\"");
}

static void format_list(const tti_int_list *list, tti_str *out) {
    tti_str_add(out, "[");
    for (int i = 0; i < list->n; i++)
        tti_str_printf(out, "%s%" PRId64, i > 0 ? ", " : "", list->v[i]);
    tti_str_add(out, "]");
}

/* Quoted wherever it must be, since commas and brackets mean something in a list. */
static void format_texts(const tti_text_list *list, tti_str *out) {
    tti_str_add(out, "[");
    for (int i = 0; i < list->n; i++) {
        if (i > 0) tti_str_add(out, ", ");
        format_text(list->v[i], true, out);
    }
    tti_str_add(out, "]");
}

static void format_float(const tti_option *row, double x, tti_str *out) {
    char text[TTI_NUMBER_TEXT];
    if (!add_word(row, x, out)) tti_str_add(out, tti_format_double(text, x));
}

void tti_option_format(const tti_option *row, const void *config, bool yaml, tti_str *out) {
    const void *field = tti_option_field(row, config);
    switch (row->type) {
        case TTI_OPTION_INT:
        case TTI_OPTION_SIZE:
            if (!add_word(row, (double)*(const int64_t *)field, out))
                tti_str_printf(out, "%" PRId64, *(const int64_t *)field);
            break;
        case TTI_OPTION_FLOAT:
            format_float(row, *(const double *)field, out);
            break;
        case TTI_OPTION_BOOL:
            tti_str_add(out, *(const bool *)field ? "true" : "false");
            break;
        case TTI_OPTION_INT_LIST:
            format_list(field, out);
            break;
        case TTI_OPTION_TEXT_LIST:
            format_texts(field, out);
            break;
        default:
            format_text(field, yaml, out);
    }
}
