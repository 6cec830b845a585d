/* aten_formula.c - evaluates formulas that define operators by other operators, as in PyTorch's
 * documentation.
 *
 * A formula is a list of steps "name = value", ended by ;, and the results, separated by commas.
 * Values are arguments by name, earlier steps, numbers, 'text', None, True, False, lists [a, b],
 * x[2] (result or element 2), + - * /, and calls f(a, b) of rows of the operator table: "f" is
 * aten.f with the overload default, Tensor, self, int or dim. Five functions are not in the table:
 * size(x, d) and rank(x) are numbers; only(x, y) refuses an argument x that is not y; choose(c, x,
 * y) is x if the number c is not 0, else y; given(c, x, y) is x unless c is None. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

enum { MAX_NAMES = 24, MAX_ARGUMENTS = 12, MAX_RESULTS = 4 };

typedef struct name {
    const char *text;
    int n;
} name;

typedef struct reading {
    tti_building *b;
    const tti_call *call;
    const char *at;
    bool skips; /* the value is not needed, so nothing is built */
    name names[MAX_NAMES];
    tti_arg values[MAX_NAMES];
    int n_names;
} reading;

static tti_arg sum_at(reading *r);

static void skip_blanks(reading *r) {
    while (*r->at == ' ') r->at++;
}

static bool take(reading *r, char c) {
    skip_blanks(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static void expect(reading *r, char c) {
    bool found = take(r, c);
    TTI_ASSERT(found);
    (void)found;
}

static bool is_name(name x, const char *text) {
    return (size_t)x.n == strlen(text) && memcmp(x.text, text, (size_t)x.n) == 0;
}

static name name_at(reading *r) {
    skip_blanks(r);
    name found = {r->at, 0};
    while (isalnum((unsigned char)r->at[found.n]) || r->at[found.n] == '_' || r->at[found.n] == '.')
        found.n++;
    r->at += found.n;
    return found;
}

/* ---- calls ---- */

static tti_operand *new_operand(tti_building *b) { return tti_build_alloc(b, sizeof(tti_operand)); }

/* Runs a row and returns its result k. */
static tti_arg call_row(reading *r, const char *target, const tti_arg *args, int n, int k) {
    tti_operand *outs[MAX_RESULTS] = {NULL};
    if (!tti_good(r->b)) return (tti_arg){0};
    outs[k] = new_operand(r->b);
    if (!outs[k]) return (tti_arg){0};
    tti_call_row(r->b, target, args, n, outs, k + 1);
    return tti_operand_arg(outs[k]);
}

static tti_arg call_of(reading *r, name f, const tti_arg *args, int n, int k) {
    static const char *const overloads[] = {"", ".default", ".Tensor", ".self", ".int", ".dim"};
    char target[96];
    bool in_place;
    for (size_t i = 0; i < TTI_COUNT(overloads); i++) {
        snprintf(target, sizeof target, "aten.%.*s%s", f.n, f.text, overloads[i]);
        if (tti_row_for(r->b, target, &in_place) && !in_place)
            return call_row(r, target, args, n, k);
    }
    bool formula_calls_a_row = false;
    TTI_ASSERT(formula_calls_a_row);
    return (tti_arg){0};
}

static bool is_number(const tti_arg *x) {
    return x->kind == TTI_ARG_INT || x->kind == TTI_ARG_FLOAT || x->kind == TTI_ARG_BOOL;
}

static double number_in(const tti_arg *x) { return x->kind == TTI_ARG_FLOAT ? x->f : (double)x->i; }

static tti_arg pair_of(reading *r, char op, tti_arg x, tti_arg y) {
    static const char *const targets[] = {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor",
                                          "aten.div.Tensor"};
    int which = op == '+' ? 0 : op == '-' ? 1 : op == '*' ? 2 : 3;
    if (r->skips) return (tti_arg){0};
    if (!is_number(&x) || !is_number(&y))
        return call_row(r, targets[which], (tti_arg[]){x, y}, 2, 0);
    double p = number_in(&x), q = number_in(&y);
    double value = op == '+' ? p + q : op == '-' ? p - q : op == '*' ? p * q : p / q;
    bool whole = op != '/' && x.kind != TTI_ARG_FLOAT && y.kind != TTI_ARG_FLOAT;
    return whole ? tti_int_arg((int64_t)value) : tti_float_arg(value);
}

/* choose(c, x, y), given(c, x, y): only one of x and y is built. */
static tti_arg choose_at(reading *r, bool by_number) {
    bool outer = r->skips;
    tti_arg c = sum_at(r);
    bool first = by_number ? number_in(&c) != 0 : c.kind != TTI_ARG_NONE;
    expect(r, ',');
    r->skips = outer || !first;
    tti_arg x = sum_at(r);
    expect(r, ',');
    r->skips = outer || first;
    tti_arg y = sum_at(r);
    expect(r, ')');
    r->skips = outer;
    return first ? x : y;
}

static bool same_args(const tti_arg *x, const tti_arg *y) {
    if (is_number(x) && is_number(y)) return number_in(x) == number_in(y);
    if (x->kind == TTI_ARG_TEXT && y->kind == TTI_ARG_TEXT) return strcmp(x->text, y->text) == 0;
    return x->kind == y->kind && x->kind == TTI_ARG_NONE;
}

static void refuse_argument(tti_building *b, const tti_arg *x) {
    if (x->kind == TTI_ARG_TEXT)
        tti_refuse(b, "the argument '%s' is not supported", x->text);
    else if (x->kind == TTI_ARG_BOOL)
        tti_refuse(b, "the argument %s is not supported", x->i ? "True" : "False");
    else if (is_number(x))
        tti_refuse(b, "the argument %g is not supported", number_in(x));
    else
        tti_refuse(b, "one of its arguments has an unsupported value");
}

static int64_t size_of(reading *r, const tti_arg *args, int n) {
    tutti_shape shape = tti_shape_of(tti_operand_of(r->b, &args[0]));
    if (n < 2) return shape.n_dims;
    int d = tti_wrap_dim(r->b, (int64_t)number_in(&args[1]), shape.n_dims);
    return tti_good(r->b) ? shape.dim[d] : 1;
}

/* Reads the index [k] after a value; 0 if there is none. */
static int index_at(reading *r) {
    if (!take(r, '[')) return 0;
    int k = (int)strtol(r->at, NULL, 10);
    r->at += strspn(r->at, "0123456789");
    expect(r, ']');
    TTI_ASSERT(k < MAX_RESULTS);
    return k;
}

static tti_arg call_at(reading *r, name f) {
    tti_arg args[MAX_ARGUMENTS];
    int n = 0;
    if (is_name(f, "choose") || is_name(f, "given")) return choose_at(r, is_name(f, "choose"));
    while (!take(r, ')')) {
        TTI_ASSERT(n < MAX_ARGUMENTS);
        args[n++] = sum_at(r);
        take(r, ',');
    }
    int k = index_at(r);
    if (r->skips || !tti_good(r->b)) return (tti_arg){0};
    if (is_name(f, "size")) return tti_int_arg(size_of(r, args, n));
    if (is_name(f, "rank")) return tti_int_arg(size_of(r, args, 1));
    if (!is_name(f, "only")) return call_of(r, f, args, n, k);
    if (!same_args(&args[0], &args[1])) refuse_argument(r->b, &args[0]);
    return args[0];
}

/* ---- values ---- */

static tti_arg list_at(reading *r) {
    tti_arg *items = tti_build_alloc(r->b, MAX_ARGUMENTS * sizeof *items);
    int n = 0;
    while (!take(r, ']')) {
        TTI_ASSERT(n < MAX_ARGUMENTS);
        tti_arg item = sum_at(r);
        if (items) items[n++] = item;
        take(r, ',');
    }
    return (tti_arg){.kind = TTI_ARG_LIST, .items = items, .n = n};
}

static tti_arg number_at(reading *r) {
    char *end;
    size_t n = strspn(r->at, "0123456789");
    bool whole = r->at[n] != '.' && r->at[n] != 'e';
    double value = strtod(r->at, &end);
    r->at = end;
    return whole ? tti_int_arg((int64_t)value) : tti_float_arg(value);
}

static tti_arg text_at(reading *r) {
    size_t n = strcspn(r->at, "'");
    char *text = tti_build_alloc(r->b, n + 1);
    if (text) memcpy(text, r->at, n);
    r->at += n + 1;
    return tti_text_arg(text ? text : "");
}

static tti_arg value_of_name(reading *r, name x) {
    const tti_arg *found = NULL;
    if (is_name(x, "None")) return (tti_arg){0};
    if (is_name(x, "True") || is_name(x, "False")) return tti_bool_arg(x.text[0] == 'T');
    for (int i = 0; i < r->n_names; i++)
        if (r->names[i].n == x.n && memcmp(r->names[i].text, x.text, (size_t)x.n) == 0)
            found = &r->values[i];
    if (!found) found = tti_arg_called(tti_row_of(r->b), r->call, x.text, x.n);
    TTI_ASSERT(found);
    if (found->kind != TTI_ARG_LIST || *r->at != '[') return *found;
    int k = index_at(r);
    if (k >= found->n && !r->skips) tti_refuse(r->b, "a list is too short");
    return k < found->n ? found->items[k] : (tti_arg){0};
}

static tti_arg factor_at(reading *r) {
    if (take(r, '-')) {
        tti_arg x = factor_at(r);
        return pair_of(r, '*', x, tti_int_arg(-1));
    }
    if (take(r, '(')) {
        tti_arg x = sum_at(r);
        expect(r, ')');
        return x;
    }
    if (take(r, '[')) return list_at(r);
    if (take(r, '\'')) return text_at(r);
    if (isdigit((unsigned char)*r->at)) return number_at(r);
    name x = name_at(r);
    return take(r, '(') ? call_at(r, x) : value_of_name(r, x);
}

static tti_arg product_at(reading *r) {
    tti_arg x = factor_at(r);
    for (skip_blanks(r); *r->at == '*' || *r->at == '/'; skip_blanks(r)) {
        char op = *r->at++;
        tti_arg y = factor_at(r);
        x = pair_of(r, op, x, y);
    }
    return x;
}

static tti_arg sum_at(reading *r) {
    tti_arg x = product_at(r);
    for (skip_blanks(r); *r->at == '+' || *r->at == '-'; skip_blanks(r)) {
        char op = *r->at++;
        tti_arg y = product_at(r);
        x = pair_of(r, op, x, y);
    }
    return x;
}

/* ---- steps and results ---- */

static bool step_at(reading *r) {
    const char *start = r->at;
    name x = name_at(r);
    if (x.n == 0 || !take(r, '=')) {
        r->at = start;
        return false;
    }
    tti_arg value = sum_at(r);
    expect(r, ';');
    TTI_ASSERT(r->n_names < MAX_NAMES);
    r->names[r->n_names] = x;
    r->values[r->n_names++] = value;
    return true;
}

static void set_result(reading *r, int i, const tti_arg *value) {
    if (!tti_good(r->b) || i >= r->call->n_outs || !r->call->out[i]) return;
    const tti_operand *x = tti_operand_of(r->b, value);
    if (tti_good(r->b)) tti_set(r->call->out[i], x);
}

void tti_build_formula(tti_building *b, const tti_call *c) {
    reading r = {.b = b, .call = c, .at = tti_row_of(b)->as};
    tti_arg results[MAX_RESULTS];
    int n = 0;
    while (tti_good(b) && step_at(&r)) continue;
    while (tti_good(b)) {
        TTI_ASSERT(n < MAX_RESULTS);
        results[n++] = sum_at(&r);
        if (!take(&r, ',')) break;
    }
    for (int i = 0; i < n; i++) set_result(&r, i, &results[i]);
}
