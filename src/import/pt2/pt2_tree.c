/* pt2_tree.c - reads the names of a model's outputs, which are the keys and fields of the result of
 * forward().
 *
 * The file has the structure of the result as text (torch.utils._pytree): nested nodes, each with
 * its keys in a "context", which is JSON for dicts and dataclasses. Names are optional, so an
 * unreadable structure is not an error: the outputs remain unnamed. */
#include <string.h>

#include "base/str.h"
#include "import/pt2/pt2.h"

enum { MAX_TREE_DEPTH = 16, MAX_NAME = 200 };

typedef struct naming {
    tti_arena *arena;
    const char **names; /* [n_most] */
    int n, n_most;
    bool failed; /* more leaves than outputs, or out of memory */
} naming;

/* The keys of a node: a list, or the first list of two (a dataclass); NULL: they are numbers. */
static const json_t *keys_of(const json_t *context, size_t n_children) {
    const json_t *list = json_object_get(context, "keys");
    if (json_is_array(json_array_get(list, 0))) list = json_array_get(list, 0);
    return json_is_array(list) && json_array_size(list) == n_children ? list : NULL;
}

/* Parses a context, which is text with JSON inside; NULL: it has none. */
static json_t *read_context(const json_t *node) {
    const char *text = json_string_value(json_object_get(node, "context"));
    tti_str whole = {0};
    json_t *out = NULL;
    if (!text) return NULL;
    tti_str_printf(&whole, "{\"keys\":%s}", text);
    if (!whole.failed && tti_json_parse("", whole.text, whole.n_bytes, &out) != TUTTI_OK)
        out = NULL;
    tti_str_free(&whole);
    return out;
}

/* PREFIX.KEY; a number at the top is output_NUMBER. */
static void name_child(const char *prefix, const json_t *key, size_t i, tti_str *out) {
    const char *text = json_string_value(key);
    if (prefix[0])
        tti_str_printf(out, "%s.", prefix);
    else if (!text)
        tti_str_add(out, "output_");
    if (text)
        tti_str_add(out, text);
    else
        tti_str_printf(out, "%lld",
                       json_is_integer(key) ? (long long)json_integer_value(key) : (long long)i);
}

static void add_leaf(naming *w, const char *name) {
    w->failed |= w->n == w->n_most;
    if (w->failed) return;
    bool is_short = strlen(name) <= MAX_NAME;
    w->names[w->n] = tti_arena_strdup(w->arena, is_short ? name : "");
    w->failed |= !w->names[w->n++];
}

static void walk(naming *w, const json_t *node, const char *name, int depth) {
    const json_t *children = json_object_get(node, "children_spec");
    size_t n = json_array_size(children);
    if (json_is_null(json_object_get(node, "type"))) {
        add_leaf(w, name);
        return;
    }
    json_t *context = read_context(node);
    const json_t *keys = keys_of(context, n);
    w->failed |= depth > MAX_TREE_DEPTH || !json_is_array(children);
    for (size_t i = 0; i < n && !w->failed; i++) {
        tti_str child = {0};
        name_child(name, json_array_get(keys, i), i, &child);
        walk(w, json_array_get(children, i), tti_str_text(&child), depth + 1);
        tti_str_free(&child);
    }
    json_decref(context);
}

void tti_pt2_output_names(tti_arena *arena, const json_t *module, int n, const char **names) {
    const json_t *calls = json_object_get(module, "module_call_graph");
    const json_t *signature = json_object_get(json_array_get(calls, 0), "signature");
    const char *text = json_string_value(json_object_get(signature, "out_spec"));
    const char *first = text ? strchr(text, '{') : NULL, *last = text ? strrchr(text, '}') : NULL;
    json_t *tree;
    naming w = {.arena = arena, .names = names, .n_most = n};
    memset(names, 0, (size_t)n * sizeof *names);
    if (!first || !last || last < first) return;
    if (tti_json_parse("", first, (size_t)(last - first) + 1, &tree) != TUTTI_OK) return;
    walk(&w, tree, "", 0);
    if (w.failed || w.n < n) memset(names, 0, (size_t)n * sizeof *names);
    json_decref(tree);
}
