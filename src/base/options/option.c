/* option.c - a table of options bound to a config struct.
 *
 * Values are stored directly in the struct, so the program reads plain fields; only origins and
 * problems are stored separately.  Keys may be nested or flat, `optimizer: {lr: 1}` or
 * `optimizer.lr: 1`, so duplicates are detected here, where both have become the same row. */
#include "base/options/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options/nearest.h"
#include "base/options/option_value.h"
#include "base/yaml.h"

enum { KEY_MAX = 256 };

static bool is_name_of(const tti_option *row, const char *key) {
    return strcmp(row->key, key) == 0 || (row->former && strcmp(row->former, key) == 0);
}

static size_t find_row(const tti_option_table *table, const char *key) {
    size_t i = 0;
    while (i < table->n_rows && !is_name_of(&table->rows[i], key)) i++;
    return i;
}

static bool is_group(const tti_option_table *table, const char *key) {
    for (size_t i = 0; i < table->n_groups; i++)
        if (!strcmp(table->groups[i].name, key)) return true;
    return false;
}

const tti_option_state *tti_options_state(const tti_options *o, const char *key) {
    size_t i = find_row(o->table, key);
    return i < o->table->n_rows ? &o->state[i] : NULL;
}

/* ---- which key was meant ---- */

static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

typedef struct other_name {
    const char *typed;
    bool found;
} other_name;

static bool visit_other(const char *word, void *arg) {
    other_name *other = arg;
    other->found = tti_edit_distance(other->typed, word) == 0;
    return !other->found;
}

static int name_distance(const tti_option *row, const char *name) {
    other_name other = {.typed = name};
    tti_each_word(row->also, visit_other, &other);
    if (other.found) return 0;
    int distance = tti_nearness(name, last_part(row->key));
    return row->former ? TTI_MIN(distance, tti_nearness(name, last_part(row->former))) : distance;
}

/* The distance of a typed key's group from that of a row, less important than the name. */
static int group_distance(const tti_option *row, const char *typed) {
    size_t n_typed = (size_t)(last_part(typed) - typed);
    size_t n_row = (size_t)(last_part(row->key) - row->key);
    if (n_typed == n_row && !strncmp(typed, row->key, n_row)) return 0;
    char a[KEY_MAX], b[KEY_MAX];
    snprintf(a, sizeof a, "%.*s", (int)TTI_MIN(n_typed, sizeof a - 1), typed);
    snprintf(b, sizeof b, "%.*s", (int)TTI_MIN(n_row, sizeof b - 1), row->key);
    return tti_nearness(a, b) < TTI_NOT_NEAR ? 1 : 2;
}

/* The nearest key or group, NULL if nothing is near. */
static const char *nearest_key(const tti_option_table *table, const char *typed) {
    const char *best = NULL;
    int best_score = TTI_NOT_NEAR;
    for (size_t i = 0; i < table->n_rows; i++) {
        int distance = name_distance(&table->rows[i], last_part(typed));
        if (distance >= TTI_NOT_NEAR) continue;
        int score = 4 * distance + group_distance(&table->rows[i], typed);
        if (score >= best_score) continue;
        best_score = score;
        best = table->rows[i].key;
    }
    for (size_t i = 0; i < table->n_groups && !strchr(typed, '.'); i++) {
        int score = 4 * tti_nearness(typed, table->groups[i].name);
        if (score >= best_score) continue;
        best_score = score;
        best = table->groups[i].name;
    }
    return best;
}

/* ---- taking values ---- */

typedef struct loader {
    tti_options *o;
    const char *source;
    int n_load; /* 0: an assignment, where repeating a key is not a mistake */
} loader;

static tti_place place_of(const loader *l, const tti_yaml *node) {
    bool lines = l->n_load > 0; /* a position inside one argument is not useful */
    return (tti_place){l->source, lines ? node->line : 0, lines ? node->column : 0};
}

const char *tti_option_table_find(const tti_option_table *table, const char *typed) {
    size_t i = find_row(table, typed);
    return i < table->n_rows ? table->rows[i].key : nearest_key(table, typed);
}

static const char *find_answer(const tti_option_table *table, const char *typed) {
    for (size_t i = 0; i < table->n_answers; i++) {
        other_name other = {.typed = last_part(typed)};
        tti_each_word(table->answers[i].words, visit_other, &other);
        if (other.found) return table->answers[i].text;
    }
    return NULL;
}

static void unknown_key(const loader *l, const char *key, const char *prefix,
                        const tti_yaml *name) {
    char clipped[TTI_CLIP];
    tti_place place = place_of(l, name);
    const char *near = nearest_key(l->o->table, key), *answer = find_answer(l->o->table, key);
    tti_clip(clipped, key);
    if (answer) {
        tti_problems_add(&l->o->problems, &place, "%s: unknown key; %s", clipped, answer);
        return;
    }
    if (!near) {
        tti_problems_add(&l->o->problems, &place, "%s: unknown key", clipped);
        return;
    }
    size_t n_prefix = strlen(prefix); /* do not repeat what the line above states */
    if (!strncmp(near, prefix, n_prefix)) near += n_prefix;
    tti_problems_add(&l->o->problems, &place, "%s: unknown key (did you mean \"%s\"?)", clipped,
                     near);
}

static void set_default(tti_options *o, size_t i) {
    const tti_option *row = &o->table->rows[i];
    tti_arena arena = {0};
    tti_str why = {0};
    const tti_yaml *node = NULL, *culprit = NULL;
    bool ok = tti_option_node(row->value, row->key, &arena, &node) == TUTTI_OK &&
              tti_option_read(row, node, o->config, &why, &culprit);
    TTI_ASSERT(ok || tti_arena_failed(&arena) || why.failed); /* a row whose default does not fit */
    tti_str_free(&why);
    tti_arena_free(&arena);
    o->state[i].place = (tti_place){0};
    o->state[i].is_own = false;
}

static bool is_null(const tti_yaml *node) {
    static const char *const words[] = {"null", "Null", "NULL", "~"};
    for (size_t i = 0; node->kind == TTI_YAML_SCALAR && node->plain && i < TTI_COUNT(words); i++)
        if (!strcmp(node->text, words[i])) return true;
    return false;
}

/* Two names of one key from one source are a mistake, also on the command line. */
static bool has_other_name(const loader *l, size_t i, const char *name) {
    const tti_option_state *state = &l->o->state[i];
    bool again = l->n_load > 0 ? state->n_load == l->n_load
                               : state->place.source && !strcmp(state->place.source, l->source);
    return again && state->name && strcmp(state->name, name) != 0;
}

/* True if this source has named the row before; says so. */
static bool is_duplicate(const loader *l, size_t i, const char *key, const tti_yaml *name) {
    tti_option_state *state = &l->o->state[i];
    tti_place place = place_of(l, name);
    if (has_other_name(l, i, key)) {
        tti_problems_add(&l->o->problems, &place,
                         "%s: %s is also given, and both are the same key; keep only %s", key,
                         state->name, l->o->table->rows[i].key);
        return true;
    }
    if (l->n_load == 0) return false;
    bool again = state->n_load == l->n_load;
    if (again)
        tti_problems_add(&l->o->problems, &place, "%s: given twice (first at line %d, column %d)",
                         l->o->table->rows[i].key, state->last.line, state->last.column);
    else
        state->last = place;
    state->n_load = l->n_load;
    return again;
}

/* Once for each key. */
static void warn_if_former(const loader *l, size_t i, const char *key, const tti_yaml *name) {
    const tti_option *row = &l->o->table->rows[i];
    tti_option_state *state = &l->o->state[i];
    tti_place place = place_of(l, name);
    if (state->warned || strcmp(key, row->key) == 0) return;
    if (l->o->warnings.n_bytes > 0) tti_str_add(&l->o->warnings, "\n");
    tti_place_print(&place, &l->o->warnings);
    tti_str_printf(&l->o->warnings, "%s is now called %s", row->former, row->key);
    state->warned = true;
}

static void warn_if_old_choice(const loader *l, size_t i, const tti_yaml *value) {
    const tti_option *row = &l->o->table->rows[i];
    const char *text = (const char *)l->o->config + row->offset;
    tti_place place = place_of(l, value);
    if (!row->old_choice || strcmp(text, row->old_choice) != 0) return;
    if (l->o->warnings.n_bytes > 0) tti_str_add(&l->o->warnings, "\n");
    tti_place_print(&place, &l->o->warnings);
    tti_str_printf(&l->o->warnings, "%s=%s is deprecated; give %s", row->key, row->old_choice,
                   row->instead);
}

/* key: the name of row i that stands in the source. */
static void take_value(const loader *l, size_t i, const char *key, const tti_yaml *name,
                       const tti_yaml *value) {
    tti_options *o = l->o;
    const tti_option *row = &o->table->rows[i];
    if (is_duplicate(l, i, key, name)) return;
    warn_if_former(l, i, key, name);
    o->state[i].name = strcmp(key, row->key) == 0 ? row->key : row->former;
    if (is_null(value)) {
        set_default(o, i);
        return;
    }
    tti_str why = {0};
    const tti_yaml *culprit = NULL;
    if (tti_option_read(row, value, o->config, &why, &culprit)) {
        o->state[i].place = place_of(l, value);
        o->state[i].is_own = false;
        warn_if_old_choice(l, i, value);
    } else {
        tti_place place = place_of(l, culprit);
        o->state[i].bad = true;
        tti_problems_add(&o->problems, &place, "%s: %s", row->key, tti_str_text(&why));
    }
    tti_str_free(&why);
}

static void take_mapping(const loader *l, const tti_yaml *mapping, const char *prefix);

static void take_group(const loader *l, const char *key, const tti_yaml *value) {
    char prefix[KEY_MAX], clipped[TTI_CLIP];
    bool empty = value->kind == TTI_YAML_SCALAR && value->plain && !*value->text;
    tti_place place = place_of(l, value);
    snprintf(prefix, sizeof prefix, "%s.", key);
    if (value->kind == TTI_YAML_MAPPING)
        take_mapping(l, value, prefix);
    else if (!empty && !is_null(value))
        tti_problems_add(&l->o->problems, &place, "%s: a group takes keys and values, got %s%s%s",
                         key, value->text ? "\"" : "",
                         value->text ? tti_clip(clipped, value->text) : "a list",
                         value->text ? "\"" : "");
}

/* One entry of a mapping, or one assignment; name carries the place of the key. */
static void take_entry(const loader *l, const char *key, const char *prefix, const tti_yaml *name,
                       const tti_yaml *value) {
    size_t i = find_row(l->o->table, key);
    if (i < l->o->table->n_rows)
        take_value(l, i, key, name, value);
    else if (is_group(l->o->table, key))
        take_group(l, key, value);
    else
        unknown_key(l, key, prefix, name);
}

/* A group that stands twice in one mapping.  The scan is short: every entry before is a row, a
 * group or a problem, and problems are bounded. */
static bool repeats_group(const loader *l, const tti_yaml *mapping, const tti_yaml *entry) {
    if (!is_group(l->o->table, entry->key->text)) return false;
    tti_place place = place_of(l, entry->key);
    for (const tti_yaml *e = mapping->first; e != entry; e = e->next) {
        if (strcmp(e->key->text, entry->key->text) != 0) continue;
        tti_problems_add(&l->o->problems, &place, "%s: given twice (first at line %d, column %d)",
                         entry->key->text, e->key->line, e->key->column);
        return true;
    }
    return false;
}

static void take_mapping(const loader *l, const tti_yaml *mapping, const char *prefix) {
    for (const tti_yaml *e = mapping->first; e; e = e->next) {
        char key[KEY_MAX];
        if (l->o->problems.n > TTI_MAX_PROBLEMS) return;
        snprintf(key, sizeof key, "%s%s", prefix, e->key->text);
        if (*prefix || !repeats_group(l, mapping, e)) take_entry(l, key, prefix, e->key, e);
    }
}

tutti_status tti_options_load(tti_options *o, const char *text, size_t n_bytes,
                              const char *source) {
    tti_arena arena = {0};
    const tti_yaml *root = NULL;
    const char *name = tti_arena_strdup(&o->sources, source);
    if (!name) return tti_fail(TUTTI_E_NOMEM, "options: out of memory");
    tutti_status st = tti_yaml_parse(text, n_bytes, source, &arena, &root);
    if (st == TUTTI_OK) {
        loader l = {.o = o, .source = name, .n_load = ++o->n_loads};
        tti_place place = place_of(&l, root);
        if (root->kind == TTI_YAML_MAPPING)
            take_mapping(&l, root, "");
        else
            tti_problems_add(&o->problems, &place, "expected keys and values, such as \"%s: %s\"",
                             o->table->rows[0].key, o->table->rows[0].value);
    }
    tti_arena_free(&arena);
    return st;
}

/* The value of an assignment; YAML's complaint about it becomes one of the key's problems. */
static void take_assignment(const loader *l, const char *key, const char *value) {
    tti_arena arena = {0};
    const tti_yaml *node = NULL;
    const tti_yaml name = {0};
    char clipped[TTI_CLIP];
    if (tti_option_node(value, key, &arena, &node) == TUTTI_OK) {
        take_entry(l, key, "", &name, node);
    } else {
        const char *what = strstr(tutti_last_error(), "error: ");
        tti_place place = {l->source, 0, 0};
        tti_problems_add(&l->o->problems, &place, "%s: %s", tti_clip(clipped, key),
                         what ? what + strlen("error: ") : tutti_last_error());
    }
    tti_arena_free(&arena);
}

void tti_options_assign(tti_options *o, const char *assignment, const char *origin) {
    char key[KEY_MAX], clipped[TTI_CLIP];
    loader l = {.o = o, .source = tti_arena_strdup(&o->sources, origin)};
    tti_place place = {l.source, 0, 0};
    const char *start = strncmp(assignment, "--", 2) ? assignment : assignment + 2;
    const char *equals = strchr(start, '=');
    if (!l.source) {
        o->problems.text.failed = true;
        o->problems.n++;
    } else if (!equals || equals == start) {
        tti_problems_add(&o->problems, &place, "\"%s\": expected key=value",
                         tti_clip(clipped, assignment));
    } else {
        size_t n_key = TTI_MIN((size_t)(equals - start), sizeof key - 1);
        snprintf(key, sizeof key, "%.*s", (int)n_key, start);
        take_assignment(&l, key, equals + 1);
    }
}

void tti_options_put(tti_options *o, const char *key, const char *value, const char *origin) {
    int n_before = o->problems.n;
    char assignment[KEY_MAX + TTI_TEXT_MAX];
    snprintf(assignment, sizeof assignment, "%s=%s", key, value);
    tti_options_assign(o, assignment, origin);
    TTI_ASSERT(o->problems.n == n_before || o->problems.text.failed);
    o->state[find_row(o->table, key)].is_own = true;
}

/* ---- coming back ---- */

tutti_status tti_options_keep(const tti_options *o, tti_options_kept *kept) {
    size_t n = o->table->n_rows, n_bytes = o->table->n_config_bytes;
    *kept = (tti_options_kept){malloc(n_bytes), calloc(n, sizeof *kept->state)};
    if (!kept->config || !kept->state) {
        free(kept->config);
        free(kept->state);
        *kept = (tti_options_kept){0};
        return tti_fail(TUTTI_E_NOMEM, "options: out of memory");
    }
    memcpy(kept->config, o->config, n_bytes);
    memcpy(kept->state, o->state, n * sizeof *kept->state);
    return TUTTI_OK;
}

void tti_options_restore(tti_options *o, tti_options_kept *kept) {
    if (!kept->config) return;
    memcpy(o->config, kept->config, o->table->n_config_bytes);
    for (size_t i = 0; i < o->table->n_rows; i++) {
        o->state[i].place = kept->state[i].place;
        o->state[i].is_own = kept->state[i].is_own;
    }
    free(kept->config);
    free(kept->state);
    *kept = (tti_options_kept){0};
}

tutti_status tti_options_copy(tti_options *to, const tti_options *from) {
    TTI_ASSERT(to->table == from->table);
    memcpy(to->config, from->config, to->table->n_config_bytes);
    for (size_t i = 0; i < to->table->n_rows; i++) {
        const tti_option_state *state = &from->state[i];
        tti_place *place = &to->state[i].place;
        *place = state->place;
        if (state->place.source)
            place->source = tti_arena_strdup(&to->sources, state->place.source);
        to->state[i].is_own = state->is_own;
    }
    return to->sources.failed ? tti_fail(TUTTI_E_NOMEM, "options: out of memory") : TUTTI_OK;
}

/* ---- asking ---- */

void tti_options_problem(tti_options *o, const char *key, const char *format, ...) {
    char text[512];
    const tti_option_state *state = tti_options_state(o, key);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tti_problems_add(&o->problems, &state->place, "%s: %s", key, text);
}

tutti_status tti_options_check(const tti_options *o) {
    return tti_problems_status(&o->problems, TUTTI_E_CONFIG);
}

const char *tti_options_get(tti_options *o, const char *key) {
    size_t i = find_row(o->table, key);
    if (i == o->table->n_rows) return NULL;
    tti_str text = {0};
    tti_str_add(&text, "");
    tti_option_format(&o->table->rows[i], o->config, false, &text);
    free(o->state[i].text);
    o->state[i].text = text.text;
    return text.failed ? NULL : text.text;
}

/* ---- life ---- */

tutti_status tti_options_init(tti_options *o, const tti_option_table *table, void *config) {
    *o = (tti_options){.table = table, .config = config};
    o->state = calloc(table->n_rows, sizeof *o->state);
    if (!o->state) return tti_fail(TUTTI_E_NOMEM, "options: out of memory");
    for (size_t i = 0; i < table->n_rows; i++) set_default(o, i);
    return TUTTI_OK;
}

void tti_options_fini(tti_options *o) {
    for (size_t i = 0; o->state && i < o->table->n_rows; i++) free(o->state[i].text);
    free(o->state);
    tti_problems_free(&o->problems);
    tti_str_free(&o->warnings);
    tti_arena_free(&o->sources);
    *o = (tti_options){0};
}
