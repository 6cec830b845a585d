/* option_print.c - a table of options as YAML, JSON schema and Markdown.
 * All three are made from the rows alone, so they cannot disagree with the parser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/options/option.h"
#include "base/options/option_value.h"

/* Columns before an origin. */
enum { ORIGIN_COLUMN = 40 };

static bool is_in_group(const char *key, const char *group) {
    size_t n_bytes = strlen(group);
    return !strncmp(key, group, n_bytes) && key[n_bytes] == '.';
}

static bool in_group(const tti_option *row, const char *group) {
    return is_in_group(row->key, group);
}

static const char *name_of(const char *key) { return strchr(key, '.') + 1; }

/* ---- YAML ---- */

static void add_origin(const tti_place *place, size_t n_columns, tti_str *out) {
    char clipped[TTI_CLIP];
    int n_blanks = n_columns < ORIGIN_COLUMN ? (int)(ORIGIN_COLUMN - n_columns) : 1;
    tti_str_printf(out, "%*s# %s", n_blanks, "",
                   place->source ? tti_clip(clipped, place->source) : "default");
    if (place->line > 0) tti_str_printf(out, ":%d", place->line);
}

void tti_options_print(const tti_options *o, bool origins,
                       bool (*applies)(const char *key, const void *user), const void *user,
                       tti_str *out) {
    const tti_option_table *table = o->table;
    for (size_t g = 0; g < table->n_groups; g++) {
        tti_str_printf(out, "%s:\n", table->groups[g].name);
        for (size_t i = 0; i < table->n_rows; i++) {
            const tti_option *row = &table->rows[i];
            if (!in_group(row, table->groups[g].name)) continue;
            if (applies && !applies(row->key, user)) continue;
            size_t start = out->n_bytes;
            tti_str_printf(out, "  %s: ", name_of(row->key));
            tti_option_format(row, o->config, true, out);
            if (origins) add_origin(&o->state[i].place, out->n_bytes - start, out);
            tti_str_add(out, "\n");
        }
    }
}

/* ---- JSON schema ---- */

static void add_number(tti_json *j, const char *key, const tti_option *row, double x) {
    if (row->type == TTI_OPTION_FLOAT)
        tti_json_double(j, key, x);
    else
        tti_json_int(j, key, (int64_t)x);
}

static void add_range(tti_json *j, const tti_option *row) {
    if (row->min > -TTI_NO_LIMIT) add_number(j, "minimum", row, row->min);
    if (row->max < TTI_NO_LIMIT) add_number(j, "maximum", row, row->max);
}

/* "red", or the word before the '=' of an alias. */
static bool visit_enum(const char *word, void *arg) {
    char text[TTI_CLIP];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(word, "="), word);
    tti_json_text(arg, NULL, text);
    return true;
}

/* The JSON types of a row that joins lists, and keys and values. */
static void add_joined_types(tti_json *j) {
    static const char *const types[] = {"string", "array", "object"};
    tti_json_array(j, "type");
    for (size_t i = 0; i < TTI_COUNT(types); i++) tti_json_text(j, NULL, types[i]);
    tti_json_end(j);
}

/* The JSON type of a row, as members of the open object. */
static void add_type(tti_json *j, const tti_option *row) {
    static const char *const types[TTI_N_OPTION_TYPES] = {
        [TTI_OPTION_INT] = "integer",   [TTI_OPTION_FLOAT] = "number",
        [TTI_OPTION_BOOL] = "boolean",  [TTI_OPTION_TEXT] = "string",
        [TTI_OPTION_CHOICE] = "string", [TTI_OPTION_INT_LIST] = "array",
        [TTI_OPTION_SIZE] = "integer",  [TTI_OPTION_TEXT_LIST] = "array",
    };
    if (row->joins)
        add_joined_types(j);
    else
        tti_json_text(j, "type", types[row->type]);
    if (row->type == TTI_OPTION_CHOICE) {
        tti_json_array(j, "enum");
        tti_each_word(row->choices, visit_enum, j);
        tti_each_word(row->alias, visit_enum, j);
        tti_json_end(j);
    } else if (row->type == TTI_OPTION_TEXT) {
        if (row->min > 0) tti_json_int(j, "minLength", 1);
        tti_json_int(j, "maxLength", TTI_TEXT_MAX - 1);
    } else if (row->type == TTI_OPTION_INT_LIST) {
        tti_json_int(j, "maxItems", TTI_LIST_MAX);
        tti_json_object(j, "items");
        tti_json_text(j, "type", "integer");
        add_range(j, row);
        tti_json_end(j);
    } else if (row->type == TTI_OPTION_TEXT_LIST) {
        tti_json_int(j, "maxItems", TTI_LIST_MAX);
        tti_json_object(j, "items");
        tti_json_text(j, "type", "string");
        if (row->min > 0) tti_json_int(j, "minLength", (int64_t)row->min);
        tti_json_int(j, "maxLength", TTI_TEXT_MAX - 1);
        tti_json_end(j);
    } else if (row->type != TTI_OPTION_BOOL) {
        add_range(j, row);
    }
}

static void add_constant(tti_json *j, const char *key, const char *word) {
    tti_json_object(j, NULL);
    tti_json_text(j, key, word);
    tti_json_end(j);
}

static bool visit_constant(const char *word, void *arg) {
    add_constant(arg, "const", word);
    return true;
}

static void add_list(tti_json *j, const char *key, const tti_int_list *list) {
    tti_json_array(j, key);
    for (int i = 0; i < list->n; i++) tti_json_int(j, NULL, list->v[i]);
    tti_json_end(j);
}

static void add_texts(tti_json *j, const char *key, const tti_text_list *list) {
    tti_json_array(j, key);
    for (int i = 0; i < list->n; i++) tti_json_text(j, NULL, list->v[i]);
    tti_json_end(j);
}

static void add_default(tti_json *j, const tti_option *row, const void *config) {
    const void *field = tti_option_field(row, config);
    bool integer = row->type == TTI_OPTION_INT || row->type == TTI_OPTION_SIZE;
    if (row->word && (integer ? *(const int64_t *)field < 0 : *(const double *)field < 0))
        tti_json_text(j, "default", row->value);
    else if (integer)
        tti_json_int(j, "default", *(const int64_t *)field);
    else if (row->type == TTI_OPTION_FLOAT)
        tti_json_double(j, "default", *(const double *)field);
    else if (row->type == TTI_OPTION_BOOL)
        tti_json_bool(j, "default", *(const bool *)field);
    else if (row->type == TTI_OPTION_INT_LIST)
        add_list(j, "default", field);
    else if (row->type == TTI_OPTION_TEXT_LIST)
        add_texts(j, "default", field);
    else
        tti_json_text(j, "default", field);
}

static void add_row(tti_json *j, const tti_option *row, const void *config) {
    tti_json_object(j, name_of(row->key));
    tti_json_text(j, "description", row->help);
    add_default(j, row, config);
    tti_json_array(j, "anyOf");
    tti_json_object(j, NULL);
    add_type(j, row);
    tti_json_end(j);
    tti_each_word(row->word, visit_constant, j);
    if (row->type == TTI_OPTION_SIZE) add_constant(j, "type", "string");
    add_constant(j, "type", "null");
    tti_json_end(j);
    tti_json_end(j);
}

static void add_closed_object(tti_json *j) {
    tti_json_text(j, "type", "object");
    tti_json_bool(j, "additionalProperties", false);
    tti_json_object(j, "properties");
}

/* Another spelling of a key. */
static void add_reference(tti_json *j, const char *name, const tti_option *row, bool deprecated) {
    char path[256];
    size_t n_group = strcspn(row->key, ".");
    snprintf(path, sizeof path, "#/properties/%.*s/properties/%s", (int)n_group, row->key,
             name_of(row->key));
    tti_json_object(j, name);
    tti_json_text(j, "$ref", path);
    if (deprecated) tti_json_bool(j, "deprecated", true);
    tti_json_end(j);
}

static void add_group(tti_json *j, const tti_option_table *table, const tti_option_group *group,
                      const void *config) {
    tti_json_object(j, group->name);
    tti_json_text(j, "description", group->help);
    add_closed_object(j);
    for (size_t i = 0; i < table->n_rows; i++) {
        const tti_option *row = &table->rows[i];
        if (in_group(row, group->name)) add_row(j, row, config);
        if (row->former && is_in_group(row->former, group->name))
            add_reference(j, name_of(row->former), row, true);
    }
    tti_json_end(j);
    tti_json_end(j);
}

/* The flat spelling of a key refers to the nested one. */
static void add_flat(tti_json *j, const tti_option *row) {
    add_reference(j, row->key, row, false);
    if (row->former) add_reference(j, row->former, row, true);
}

void tti_option_schema(const tti_option_table *table, const char *title, tti_str *out) {
    tti_options defaults;
    void *config = calloc(1, table->n_config_bytes);
    if (!config || tti_options_init(&defaults, table, config) != TUTTI_OK) {
        free(config);
        out->failed = true;
        return;
    }
    tti_json j = tti_json_begin(out, 2);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "$schema", "https://json-schema.org/draft/2020-12/schema");
    tti_json_text(&j, "title", title);
    add_closed_object(&j);
    for (size_t g = 0; g < table->n_groups; g++) add_group(&j, table, &table->groups[g], config);
    for (size_t i = 0; i < table->n_rows; i++) add_flat(&j, &table->rows[i]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
    tti_options_fini(&defaults);
    free(config);
}

/* ---- Markdown ---- */

static void add_reference_row(const tti_option *row, tti_str *out) {
    tti_str_printf(out, "| `%s` | ", row->key);
    tti_option_expect(row, out);
    if (*row->value)
        tti_str_printf(out, " | `%s` | ", row->value);
    else
        tti_str_add(out, " | empty | ");
    tti_str_add(out, row->help);
    if (row->example) tti_str_printf(out, ", for example `%s`", row->example);
    if (row->former) tti_str_printf(out, " (deprecated name: `%s`)", row->former);
    if (row->old_choice)
        tti_str_printf(out, " (deprecated: `%s`, give `%s`)", row->old_choice, row->instead);
    tti_str_add(out, " |\n");
}

void tti_option_reference(const tti_option_table *table, tti_str *out) {
    for (size_t g = 0; g < table->n_groups; g++) {
        const tti_option_group *group = &table->groups[g];
        tti_str_printf(out, "\n## %s\n\n%s.\n\n", group->name, group->help);
        tti_str_add(out, "| key | value | default | meaning |\n|---|---|---|---|\n");
        for (size_t i = 0; i < table->n_rows; i++)
            if (in_group(&table->rows[i], group->name)) add_reference_row(&table->rows[i], out);
    }
}
