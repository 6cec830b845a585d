/* read.c - reads the text form that print.c writes.
 *
 * Every line is one statement.  Types after ':' are compared with the result of infer, so an
 * inconsistent text is refused with its position.  Fused nodes are made by a pass and cannot be
 * read back: print before fuse. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

enum { MAX_NAME = 512, MAX_VALUES = 1 << 20 };

typedef struct reader {
    const char *p, *line_start;
    int line;
    const char *source;
    tti_op_finder find;
    tutti_graph *g;
    tutti_value **values; /* by the number in the text */
    int n_values;
} reader;

static tutti_status complain(const reader *r, const char *what) {
    return tti_fail(TUTTI_E_INVALID, "%s:%d:%d: error: %s", r->source, r->line,
                    (int)(r->p - r->line_start) + 1, what);
}

static void skip_spaces(reader *r) {
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\r') r->p++;
}

static bool take(reader *r, const char *token) {
    skip_spaces(r);
    size_t n = strlen(token);
    if (strncmp(r->p, token, n) != 0) return false;
    r->p += n;
    return true;
}

static tutti_status expect(reader *r, const char *token) {
    if (take(r, token)) return TUTTI_OK;
    char text[64];
    snprintf(text, sizeof text, "expected '%s'", token);
    return complain(r, text);
}

static tutti_status read_word(reader *r, char *out) {
    skip_spaces(r);
    size_t n = 0;
    while ((r->p[n] >= 'a' && r->p[n] <= 'z') || (r->p[n] >= '0' && r->p[n] <= '9') ||
           r->p[n] == '_')
        n++;
    if (n == 0 || n >= MAX_NAME) return complain(r, "expected a name of lower-case letters");
    memcpy(out, r->p, n);
    out[n] = '\0';
    r->p += n;
    return TUTTI_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* Reads one character of a quoted name and resolves escapes; -1 if malformed. */
static int read_name_char(reader *r) {
    char c = *r->p;
    if (c == '\0' || c == '\n') return -1;
    r->p++;
    if (c != '\\') return (unsigned char)c;
    c = *r->p;
    if (c == '"' || c == '\\') {
        r->p++;
        return c;
    }
    if (c != 'x' || hex_digit(r->p[1]) < 0 || hex_digit(r->p[2]) < 0) return -1;
    int code = hex_digit(r->p[1]) * 16 + hex_digit(r->p[2]);
    r->p += 3;
    return code ? code : -1;
}

static tutti_status read_quoted(reader *r, char *out) {
    TTI_TRY(expect(r, "\""));
    for (size_t n = 0; n < MAX_NAME; n++) {
        if (*r->p == '"') {
            r->p++;
            out[n] = '\0';
            return TUTTI_OK;
        }
        int c = read_name_char(r);
        if (c < 0) return complain(r, "bad character or escape in a quoted name");
        out[n] = (char)c;
    }
    return complain(r, "a name is too long");
}

static tutti_status read_value_number(reader *r, int *out) {
    TTI_TRY(expect(r, "%"));
    char *end;
    if (*r->p < '0' || *r->p > '9') return complain(r, "expected a value number");
    long n = strtol(r->p, &end, 10);
    if (n < 0 || n >= MAX_VALUES) return complain(r, "value number out of range");
    r->p = end;
    *out = (int)n;
    return TUTTI_OK;
}

static tutti_status read_value(reader *r, tutti_value **out) {
    int n;
    TTI_TRY(read_value_number(r, &n));
    if (n >= r->n_values || !r->values[n]) return complain(r, "this value is not defined above");
    *out = r->values[n];
    return TUTTI_OK;
}

static tutti_status define(reader *r, int number, tutti_value *value) {
    if (number >= r->n_values) {
        tutti_value **more = realloc(r->values, (size_t)(number + 1) * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "graph text: out of memory");
        memset(more + r->n_values, 0, (size_t)(number + 1 - r->n_values) * sizeof *more);
        r->values = more;
        r->n_values = number + 1;
    }
    if (r->values[number]) return complain(r, "this value is defined twice");
    r->values[number] = value;
    return TUTTI_OK;
}

static tutti_status read_types(reader *r, const tti_node *node) {
    TTI_TRY(expect(r, ":"));
    for (int k = 0; k < node->op->n_out; k++) {
        if (k > 0) TTI_TRY(expect(r, ","));
        skip_spaces(r);
        tutti_type type;
        if (tti_type_parse(&r->p, &type) != TUTTI_OK) return complain(r, tutti_last_error());
        if (type.dtype != node->out[k]->type.dtype ||
            !tti_shape_equal(&type.shape, &node->out[k]->type.shape))
            return complain(r, "the type is not what the op makes of its inputs");
        if (take(r, "channels_last")) {
            if (type.shape.n_dims != 4) return complain(r, "channels_last needs 4 dimensions");
            node->out[k]->layout = TTI_CHANNELS_LAST_BYTES;
        }
    }
    return TUTTI_OK;
}

static tutti_status read_inputs(reader *r, tutti_value **in, int *n_in) {
    TTI_TRY(expect(r, "("));
    *n_in = 0;
    if (take(r, ")")) return TUTTI_OK;
    do {
        if (*n_in == TTI_MAX_IN) return complain(r, "too many inputs");
        TTI_TRY(read_value(r, &in[(*n_in)++]));
    } while (take(r, ","));
    return expect(r, ")");
}

static tutti_status read_node(reader *r) {
    int numbers[TTI_MAX_OUT], n_out = 0, n_in = 0;
    do {
        if (n_out == TTI_MAX_OUT) return complain(r, "too many outputs");
        TTI_TRY(read_value_number(r, &numbers[n_out++]));
    } while (take(r, ","));
    TTI_TRY(expect(r, "="));
    char op_name[MAX_NAME], name[MAX_NAME];
    TTI_TRY(read_word(r, op_name));
    const tti_op *op = r->find(op_name);
    if (!op) return complain(r, "unknown op");
    if (op->traits & TTI_FUSED) return complain(r, "fused nodes do not read back");
    if (op->n_out != n_out) return complain(r, "the op has another number of outputs");
    TTI_TRY(read_quoted(r, name));
    tutti_value *in[TTI_MAX_IN];
    TTI_TRY(read_inputs(r, in, &n_in));
    TTI_TRY(expect(r, "{"));
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    if (tti_attrs_parse(op, &r->p, &r->g->arena, attrs, TTI_MAX_ATTRS) != TUTTI_OK)
        return complain(r, tutti_last_error());
    TTI_TRY(expect(r, "}"));
    bool named = (op->traits & TTI_SOURCE) && !(op->traits & TTI_CONSTANT);
    if (named && (!name[0] || tti_graph_find_source(r->g, name)))
        return complain(r, "an input or parameter needs a name of its own");
    tti_node_desc desc = {.op = op, .name = name, .in = in, .n_in = n_in, .attrs = attrs};
    tti_node *node = tti_graph_add(r->g, &desc);
    if (!node) return complain(r, tutti_graph_check(r->g) ? tutti_last_error() : "failed");
    for (int k = 0; k < n_out; k++) TTI_TRY(define(r, numbers[k], node->out[k]));
    return read_types(r, node);
}

static tutti_status read_output(reader *r) {
    char name[MAX_NAME];
    tutti_value *value;
    TTI_TRY(read_quoted(r, name));
    TTI_TRY(read_value(r, &value));
    tutti_output(r->g, name, value);
    if (tutti_graph_check(r->g) != TUTTI_OK) return complain(r, tutti_last_error());
    return TUTTI_OK;
}

static tutti_status read_line(reader *r) {
    skip_spaces(r);
    if (*r->p == '%')
        TTI_TRY(read_node(r));
    else if (take(r, "output"))
        TTI_TRY(read_output(r));
    skip_spaces(r);
    if (*r->p == '#')
        while (*r->p && *r->p != '\n') r->p++;
    if (*r->p != '\n' && *r->p != '\0') return complain(r, "expected the end of the line");
    return TUTTI_OK;
}

static tutti_status read_lines(reader *r) {
    if (take(r, "graph training"))
        r->g->training = true;
    else if (!take(r, "graph inference"))
        return complain(r, "expected 'graph training' or 'graph inference'");
    for (;;) {
        TTI_TRY(read_line(r));
        if (*r->p == '\0') return TUTTI_OK;
        r->line_start = ++r->p;
        r->line++;
    }
}

tutti_status tti_graph_read(const char *text, const char *source, tti_op_finder find,
                            tutti_graph **out) {
    *out = NULL;
    reader r = {.p = text, .line_start = text, .line = 1, .source = source, .find = find};
    r.g = tti_graph_new(false, find);
    if (!r.g) return tti_fail(TUTTI_E_NOMEM, "graph text: out of memory");
    tutti_status st = read_lines(&r);
    free(r.values);
    if (st != TUTTI_OK) {
        tutti_graph_destroy(r.g);
        return st;
    }
    *out = r.g;
    return TUTTI_OK;
}

/* ---- attributes, also used for the samples of the op table ---- */

static const tti_attr_spec *find_spec(const tti_op *op, const char *name, size_t n_bytes) {
    for (const tti_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        if (strlen(spec->name) == n_bytes && memcmp(spec->name, name, n_bytes) == 0) return spec;
    return NULL;
}

static bool parse_int(const char **p, int64_t *out) {
    char *end;
    if (**p != '-' && (**p < '0' || **p > '9')) return false;
    errno = 0;
    *out = strtoll(*p, &end, 10);
    bool good = end != *p && errno == 0;
    *p = end;
    return good;
}

/* Reads a number as print_attr writes it.  Leading blanks, which strtod would skip, are refused. */
static bool parse_float(const char **p, double *out) {
    char *end;
    if (!**p || strchr(" \t\r\n\v\f", **p)) return false;
    *out = strtod(*p, &end);
    bool any = end != *p;
    *p = end;
    return any;
}

/* Two hex digits for each byte. */
static bool parse_bytes(const char **p, tti_arena *arena, tti_attr *out) {
    size_t n_digits = strspn(*p, "0123456789abcdef");
    uint8_t *bytes = n_digits % 2 == 0 ? tti_arena_alloc(arena, n_digits / 2 + 1) : NULL;
    if (!bytes) return false;
    for (size_t i = 0; i < n_digits / 2; i++)
        bytes[i] = (uint8_t)(hex_digit((*p)[2 * i]) * 16 + hex_digit((*p)[2 * i + 1]));
    *p += n_digits;
    out->i = (int64_t)(n_digits / 2);
    out->bytes = bytes;
    return true;
}

static bool parse_attr_value(const char **p, tti_attr_kind kind, tti_arena *arena, tti_attr *out) {
    if (kind == TTI_ATTR_BYTES) return parse_bytes(p, arena, out);
    if (kind == TTI_ATTR_INT) return parse_int(p, &out->i);
    if (kind == TTI_ATTR_FLOAT) return parse_float(p, &out->f);
    if (*(*p)++ != '[') return false;
    while (**p != ']') {
        if (out->n == TUTTI_MAX_DIMS || !parse_int(p, &out->v[out->n++])) return false;
        if (**p == ',')
            (*p)++;
        else if (**p != ']')
            return false;
    }
    (*p)++;
    return true;
}

tutti_status tti_attrs_parse(const tti_op *op, const char **text, tti_arena *arena,
                             tti_attr_arg *out, int max) {
    const char *p = *text;
    int n = 0;
    for (;;) {
        while (*p == ' ' || *p == ',') p++;
        if (*p == '\0' || *p == '}') break;
        size_t n_bytes = strcspn(p, "= ,}\n");
        const tti_attr_spec *spec = find_spec(op, p, n_bytes);
        if (!spec || p[n_bytes] != '=')
            return tti_fail(TUTTI_E_INVALID, "%s has no attribute '%.*s'", op->name,
                            (int)TTI_MIN(n_bytes, 64), p);
        if (n == max) return tti_fail(TUTTI_E_INVALID, "too many attributes");
        p += n_bytes + 1;
        out[n] = (tti_attr_arg){.name = spec->name};
        if (!parse_attr_value(&p, spec->kind, arena, &out[n++].value))
            return tti_fail(TUTTI_E_INVALID, "attribute '%s': malformed value", spec->name);
    }
    *text = p;
    return TUTTI_OK;
}
