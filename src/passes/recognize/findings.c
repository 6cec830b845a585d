/* findings.c - reports what was recognized, what was not, and how much memory that costs.
 *
 * Modules that differ only in numbers are one line: layers.*.attn. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/recognize/recognize.h"

/* h.11.attn -> h.*.attn; owned by the caller, NULL: no memory. */
static char *without_numbers(const char *module) {
    char *text = malloc(strlen(module) + 1);
    size_t n = 0;
    for (const char *at = module; text && *at;) {
        size_t len = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (digits > 0 && digits == len) {
            text[n++] = '*';
            at += len;
        }
        while (*at && *at != '.') text[n++] = *at++;
        if (*at == '.') text[n++] = *at++;
    }
    if (text) text[n] = '\0';
    return text;
}

tti_finding *tti_findings_add(tti_findings *found, const char *name, const tti_node *at) {
    if (found->n == found->cap) {
        int cap = found->cap ? 2 * found->cap : 32;
        tti_finding *v = realloc(found->v, (size_t)cap * sizeof *v);
        found->failed = found->failed || !v;
        if (!v) return &found->lost;
        found->v = v, found->cap = cap;
    }
    tti_finding *made = &found->v[found->n];
    *made = (tti_finding){.name = name, .module = without_numbers(at->module)};
    found->failed = found->failed || !made->module;
    if (!made->module) return &found->lost;
    found->n++;
    return made;
}

void tti_findings_fini(tti_findings *found) {
    for (int i = 0; i < found->n; i++) free(found->v[i].module);
    free(found->v);
    *found = (tti_findings){0};
}

static bool same_line(const tti_finding *a, const tti_finding *b) {
    bool same_why = a->why ? b->why && strcmp(a->why, b->why) == 0 : !b->why;
    return same_why && strcmp(a->name, b->name) == 0 && strcmp(a->module, b->module) == 0;
}

static bool is_repeated(const tti_findings *found, int i) {
    for (int k = 0; k < i; k++)
        if (same_line(&found->v[k], &found->v[i])) return true;
    return false;
}

static void print_line(const tti_findings *found, int i, tti_str *out) {
    const tti_finding *f = &found->v[i];
    int n = 0;
    double n_bytes = 0;
    for (int k = i; k < found->n; k++) {
        if (!same_line(&found->v[k], f)) continue;
        n++;
        n_bytes += found->v[k].n_bytes;
    }
    tti_str_printf(out, "  %5d  %s", n, f->name);
    if (f->module[0]) tti_str_printf(out, "  %s", f->module);
    if (f->why) tti_str_printf(out, ": %s; %.0f more bytes per sample", f->why, n_bytes);
    tti_str_add(out, "\n");
}

static void print_part(const tti_findings *found, bool stayed, const char *title, tti_str *out) {
    bool any = false;
    for (int i = 0; i < found->n; i++) {
        if (!found->v[i].why == stayed || is_repeated(found, i)) continue;
        if (!any) tti_str_printf(out, "%s:\n", title);
        any = true;
        print_line(found, i, out);
    }
}

void tti_findings_print(const tti_findings *found, tti_str *out) {
    print_part(found, false, "recognized and replaced by one operation each", out);
    print_part(found, true, "not recognized, computed as written", out);
}

tutti_status tti_recognize_report(tutti_graph **g, int64_t n_samples, tti_str *out) {
    static const tti_target any_target = {0};
    tti_findings found = {0};
    tutti_status st = tti_pass_simplify(g, &any_target);
    if (st == TUTTI_OK) st = tti_recognize(g, &found);
    if (st == TUTTI_OK) st = tti_find_unrecognized(*g, n_samples, &found);
    if (st == TUTTI_OK && found.failed) st = tti_fail(TUTTI_E_NOMEM, "recognize: out of memory");
    if (st == TUTTI_OK) tti_findings_print(&found, out);
    tti_findings_fini(&found);
    return st;
}
