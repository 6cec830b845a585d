/* onnx_names.c - hash tables from names to numbers, and checked texts of an ONNX model. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "import/onnx/onnx.h"

static size_t hash_of(const char *text) {
    size_t hash = 5381;
    for (; *text; text++) hash = hash * 33 + (unsigned char)*text;
    return hash;
}

static int *slot_of(const tti_onnx_names *v, const char *name) {
    size_t at = hash_of(name) & (v->n_slots - 1);
    while (v->slot[at] && strcmp(v->name[v->slot[at] - 1], name) != 0)
        at = (at + 1) & (v->n_slots - 1);
    return &v->slot[at];
}

static bool grow(tti_onnx_names *v) {
    int cap = v->cap ? 2 * v->cap : 32;
    const char **name = realloc(v->name, (size_t)cap * sizeof *name);
    if (name) v->name = name;
    int *number = realloc(v->number, (size_t)cap * sizeof *number);
    if (number) v->number = number;
    int *slot = calloc((size_t)cap * 2, sizeof *slot);
    if (!name || !number || !slot) {
        free(slot);
        return false;
    }
    free(v->slot);
    v->slot = slot;
    v->n_slots = (size_t)cap * 2;
    v->cap = cap;
    for (int i = 0; i < v->n; i++) *slot_of(v, v->name[i]) = i + 1;
    return true;
}

bool tti_onnx_names_put(tti_onnx_names *v, const char *name, int number) {
    if (v->n == v->cap && !grow(v)) return false;
    int *slot = slot_of(v, name);
    if (!*slot) {
        v->name[v->n++] = name;
        *slot = v->n;
    }
    v->number[*slot - 1] = number;
    return true;
}

int tti_onnx_names_find(const tti_onnx_names *v, const char *name) {
    int slot = v->n_slots ? *slot_of(v, name) : 0;
    return slot ? v->number[slot - 1] : -1;
}

void tti_onnx_names_free(tti_onnx_names *v) {
    free(v->name);
    free(v->number);
    free(v->slot);
    *v = (tti_onnx_names){0};
}

/* ---- failures and texts ---- */

tutti_status tti_onnx_damaged(const tti_onnx *m, const char *what, const char *why) {
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot be read as an ONNX model: %s: %s", m->path,
                    what, why);
}

tutti_status tti_onnx_no_memory(const tti_onnx *m) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", m->path);
}

bool tti_onnx_is_text(const tti_pb *bytes) {
    size_t n = tti_pb_n_bytes(bytes);
    const char *text = (const char *)bytes->at;
    bool good = n <= TTI_ONNX_MAX_TEXT && (n == 0 || tti_utf8_check(text, n) == n);
    for (size_t i = 0; good && i < n; i++) good = (unsigned char)text[i] >= 32 && text[i] != 127;
    return good;
}

tutti_status tti_onnx_text(const tti_onnx *m, const tti_pb *bytes, const char *what,
                           const char **out) {
    size_t n = tti_pb_n_bytes(bytes);
    const char *text = (const char *)bytes->at;
    if (!tti_onnx_is_text(bytes)) return tti_onnx_damaged(m, what, "a name is not text");
    char *copy = tti_arena_alloc(m->arena, n + 1);
    if (!copy) return tti_onnx_no_memory(m);
    if (n > 0) memcpy(copy, text, n);
    *out = copy;
    return TUTTI_OK;
}

tutti_status tti_onnx_next_field(const tti_onnx *m, tti_pb *message, const char *what,
                                 tti_pb_field *field, bool *more) {
    tti_pb_next next = tti_pb_read(message, field);
    *more = next == TTI_PB_FIELD;
    return next == TTI_PB_DAMAGED ? tti_onnx_damaged(m, what, "it is damaged or truncated")
                                  : TUTTI_OK;
}
