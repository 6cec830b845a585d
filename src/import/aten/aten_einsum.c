/* aten_einsum.c - einsum of any number of operands: first diagonals and sums of single operands,
 * then a matrix product for each further operand, from left to right. */
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* Letters are numbered. Dimensions of an ellipsis have the following numbers; the last dimension
 * has the last one. */
enum { LETTERS = 52, ALL = LETTERS + TUTTI_MAX_DIMS, MAX_FACTORS = 8 };

typedef struct term {
    int letter[TUTTI_MAX_DIMS], n;
} term;

/* An intermediate operand, whose dimensions are distinct letters. */
typedef struct factor {
    tti_operand x;
    term t;
} factor;

static int letter_of(char ch) {
    if (ch >= 'a' && ch <= 'z') return ch - 'a';
    if (ch >= 'A' && ch <= 'Z') return ch - 'A' + 26;
    return -1;
}

static int place_of(const term *t, int letter) {
    for (int i = 0; i < t->n; i++)
        if (t->letter[i] == letter) return i;
    return -1;
}

static bool add_letter(term *t, int letter) {
    if (t->n == TUTTI_MAX_DIMS) return false;
    t->letter[t->n++] = letter;
    return true;
}

/* ---- the equation ---- */

/* Reads a term up to a comma, an arrow or the end. An ellipsis represents n_rest dimensions. */
static bool read_term(const char **p, int n_rest, term *out) {
    out->n = 0;
    for (; **p && **p != ',' && strncmp(*p, "->", 2) != 0; (*p)++) {
        if (**p == ' ') continue;
        if (strncmp(*p, "...", 3) == 0) {
            for (int i = 0; i < n_rest; i++)
                if (!add_letter(out, ALL - n_rest + i)) return false;
            *p += 2;
            continue;
        }
        int letter = letter_of(**p);
        if (letter < 0 || !add_letter(out, letter)) return false;
    }
    return true;
}

/* The number of dimensions that a term's ellipsis represents, for an operand with n_dims
 * dimensions. */
static int rest_of(const char *p, int n_dims) {
    int n = 0;
    bool has = false;
    for (; *p && *p != ',' && strncmp(p, "->", 2) != 0; p++) {
        has |= *p == '.';
        n += letter_of(*p) >= 0;
    }
    return has && n_dims > n ? n_dims - n : 0;
}

/* The result without an arrow: the ellipsis, then letters that occur once, in alphabetic order. */
static bool implied_result(const factor *f, int n, int most_rest, term *out) {
    int count[ALL] = {0};
    out->n = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < f[i].t.n; k++) count[f[i].t.letter[k]]++;
    for (int l = ALL - most_rest; l < ALL; l++)
        if (!add_letter(out, l)) return false;
    for (int l = 0; l < LETTERS; l++) {
        int letter = l < 26 ? l + 26 : l - 26; /* capital letters first, as in ASCII */
        if (count[letter] == 1 && !add_letter(out, letter)) return false;
    }
    return true;
}

static bool read_equation(const char *text, factor *f, int n, term *out) {
    const char *p = text;
    int most_rest = 0;
    for (int i = 0; i < n; i++) {
        int rest = rest_of(p, tti_shape_of(&f[i].x).n_dims);
        most_rest = TTI_MAX(most_rest, rest);
        if (!read_term(&p, rest, &f[i].t) || f[i].t.n != tti_shape_of(&f[i].x).n_dims) return false;
        if (i + 1 < n && *p++ != ',') return false;
    }
    if (*p == '\0') return implied_result(f, n, most_rest, out);
    if (strncmp(p, "->", 2) != 0) return false;
    p += 2;
    if (!read_term(&p, most_rest, out) || *p != '\0') return false;
    for (int i = 0; i < out->n; i++) {
        bool found = false;
        for (int k = 0; k < n; k++) found |= place_of(&f[k].t, out->letter[i]) >= 0;
        if (!found || place_of(out, out->letter[i]) != i) return false;
    }
    return true;
}

/* ---- one operand ---- */

static void reshape(tti_building *b, tti_operand *x, const tutti_shape *to) {
    tti_operand made = {0};
    tti_do_reshape(b, x, to, &made);
    *x = made;
}

/* Permutes the dimensions to the order of letters[n], which are all letters of f. */
static void arrange(tti_building *b, factor *f, const int *letters) {
    int perm[TUTTI_MAX_DIMS];
    bool same = true;
    term t = {.n = f->t.n};
    for (int i = 0; i < t.n; i++) {
        perm[i] = place_of(&f->t, letters[i]);
        t.letter[i] = letters[i];
        same &= perm[i] == i;
    }
    tti_operand made = {0};
    if (same || !tti_good(b)) return;
    tti_do_permute(b, &f->x, perm, &made);
    f->x = made;
    f->t = t;
}

/* Takes the diagonal for a letter that occurs twice. */
static void take_diagonal(tti_building *b, factor *f) {
    for (int i = 0; i < f->t.n && tti_good(b); i++)
        for (int k = i + 1; k < f->t.n && tti_good(b); k++) {
            if (f->t.letter[i] != f->t.letter[k]) continue;
            int perm[TUTTI_MAX_DIMS], n = 0;
            tutti_shape from = tti_shape_of(&f->x), to = {0};
            int64_t size = from.dim[i];
            term t = {0};
            tti_host ids;
            for (int d = 0; d < f->t.n; d++)
                if (d != i && d != k) {
                    t.letter[t.n++] = f->t.letter[d];
                    to.dim[to.n_dims++] = from.dim[d];
                    perm[n++] = d;
                }
            perm[n] = i, perm[n + 1] = k;
            if (from.dim[k] != size) tti_refuse(b, "a letter of the equation has two sizes");
            if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(size), &ids)) return;
            for (int64_t e = 0; e < size; e++) ids.data[e] = (double)(e * (size + 1));
            tti_operand transpose_of = {0}, places = {0}, made = {0};
            tti_do_permute(b, &f->x, perm, &transpose_of);
            to.dim[to.n_dims++] = size * size;
            reshape(b, &transpose_of, &to);
            tti_set_host(&places, &ids);
            if (tti_good(b))
                tti_call_row(b, "aten.index_select.default",
                             (tti_arg[]){tti_operand_arg(&transpose_of), tti_int_arg(n),
                                         tti_operand_arg(&places)},
                             3, (tti_operand *[]){&made}, 1);
            t.letter[t.n++] = f->t.letter[i];
            f->x = made;
            f->t = t;
            i = -1; /* restarts the search */
            break;
        }
}

/* Sums over letters that nothing else needs. */
static void sum_unneeded(tti_building *b, factor *f, const bool *needed) {
    int64_t dims[TUTTI_MAX_DIMS];
    int n = 0;
    term t = {0};
    for (int i = 0; i < f->t.n; i++) {
        if (needed[f->t.letter[i]])
            t.letter[t.n++] = f->t.letter[i];
        else
            dims[n++] = i;
    }
    tti_operand made = {0};
    if (n == 0 || !tti_good(b)) return;
    tti_call_row(b, "aten.sum.dim_IntList",
                 (tti_arg[]){tti_operand_arg(&f->x), tti_ints_arg(b, dims, n)}, 2,
                 (tti_operand *[]){&made}, 1);
    f->x = made;
    f->t = t;
}

/* ---- two operands ---- */

/* Drops dimensions of size 1 that are larger in the other operand. */
static void drop_ones(tti_building *b, factor *f, const factor *other) {
    tutti_shape from = tti_shape_of(&f->x), to = {0};
    term t = {0};
    for (int i = 0; i < f->t.n; i++) {
        int at = place_of(&other->t, f->t.letter[i]);
        int64_t size = at < 0 ? 1 : tti_shape_of(&other->x).dim[at];
        if (at >= 0 && size != from.dim[i] && size != 1 && from.dim[i] != 1)
            tti_refuse(b, "a letter of the equation has two sizes");
        if (from.dim[i] == 1 && size > 1) continue;
        t.letter[t.n++] = f->t.letter[i];
        to.dim[to.n_dims++] = from.dim[i];
    }
    if (t.n == f->t.n || !tti_good(b)) return;
    reshape(b, &f->x, &to);
    f->t = t;
}

/* Groups of letters: kept and in both operands, in one operand only, summed over. */
typedef struct plan {
    term both, left, right, sum;
} plan;

static plan make_plan(const factor *x, const factor *y, const bool *needed) {
    plan p = {{{0}, 0}, {{0}, 0}, {{0}, 0}, {{0}, 0}};
    for (int i = 0; i < x->t.n; i++) {
        int letter = x->t.letter[i];
        bool other = place_of(&y->t, letter) >= 0;
        add_letter(!other ? &p.left : needed[letter] ? &p.both : &p.sum, letter);
    }
    for (int i = 0; i < y->t.n; i++)
        if (place_of(&x->t, y->t.letter[i]) < 0) add_letter(&p.right, y->t.letter[i]);
    return p;
}

static int append(int *letters, int n, const term *more) {
    for (int i = 0; i < more->n; i++) letters[n + i] = more->letter[i];
    return n + more->n;
}

static int64_t size_of(const factor *f, const term *t) {
    tutti_shape s = tti_shape_of(&f->x);
    int64_t size = 1;
    for (int i = 0; i < t->n; i++) size *= s.dim[place_of(&f->t, t->letter[i])];
    return size;
}

/* Reshapes f to [both.., rows, columns]. */
static void as_matrices(tti_building *b, factor *f, const plan *p, const term *rows,
                        const term *columns) {
    int letters[3 * TUTTI_MAX_DIMS], n = append(letters, 0, &p->both);
    tutti_shape s = tti_shape_of(&f->x), to = {0};
    n = append(letters, n, rows);
    append(letters, n, columns);
    for (int i = 0; i < p->both.n; i++)
        to.dim[to.n_dims++] = s.dim[place_of(&f->t, p->both.letter[i])];
    to.dim[to.n_dims++] = size_of(f, rows);
    to.dim[to.n_dims++] = size_of(f, columns);
    arrange(b, f, letters);
    if (tti_good(b)) reshape(b, &f->x, &to);
}

/* Replaces x by the product of x and y, summed over letters that are not needed. */
static void multiply(tti_building *b, factor *x, factor *y, const bool *needed) {
    if (!tti_of_batch(&x->x) && tti_of_batch(&y->x)) { /* samples must be on the left */
        factor other = *x;
        *x = *y;
        *y = other;
    }
    drop_ones(b, x, y);
    drop_ones(b, y, x);
    plan p = make_plan(x, y, needed);
    term t = p.both;
    tutti_shape to = {0};
    if (p.both.n > TUTTI_MAX_DIMS - 2 || p.both.n + p.left.n + p.right.n > TUTTI_MAX_DIMS)
        tti_refuse(b, "a product has too many dimensions");
    if (!tti_good(b)) return;
    const term *parts[3] = {&p.both, &p.left, &p.right};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < parts[k]->n; i++) {
            const factor *f = k < 2 ? x : y;
            to.dim[to.n_dims++] = tti_shape_of(&f->x).dim[place_of(&f->t, parts[k]->letter[i])];
            if (k > 0) add_letter(&t, parts[k]->letter[i]);
        }
    as_matrices(b, x, &p, &p.left, &p.sum);
    as_matrices(b, y, &p, &p.sum, &p.right);
    tti_operand made = {0};
    if (tti_good(b))
        tti_call_row(b, "aten.matmul.default",
                     (tti_arg[]){tti_operand_arg(&x->x), tti_operand_arg(&y->x)}, 2,
                     (tti_operand *[]){&made}, 1);
    if (tti_good(b)) reshape(b, &made, &to);
    x->x = made;
    x->t = t;
}

/* For a constant that repeats for the samples: takes one element along the batch letter, if every
 * factor with samples has that letter too. Returns the letter, which the result must repeat; -1:
 * none. so_far: the letter of previous factors. */
static int take_sample(tti_building *b, factor *f, const factor *all, int n, const term *out,
                       int so_far) {
    if (f->x.kind != TTI_OPERAND_HOST || f->x.host.batch_dim == 0) return so_far;
    int dim = f->x.host.batch_dim, letter = f->t.letter[dim];
    bool fits = place_of(out, letter) >= 0 && (so_far < 0 || so_far == letter), any = false;
    for (int i = 0; i < n; i++) {
        any |= all[i].x.kind == TTI_OPERAND_GRAPH;
        fits &= !tti_of_batch(&all[i].x) || place_of(&all[i].t, letter) >= 0;
    }
    tti_operand one = {0};
    if (!fits || !any || !tti_good(b)) return so_far;
    tti_do_slice(b, &f->x, dim, 0, 1, 1, &one);
    f->x = one;
    return letter;
}

/* Repeats the result for the samples along `letter`, if no factor had more than one element
 * there. */
static void repeat_sample(tti_building *b, factor *f, int letter) {
    int dim = place_of(&f->t, letter);
    tti_operand made = {0};
    if (!tti_good(b) || dim < 0 || tti_of_batch(&f->x) || tti_shape_of(&f->x).dim[dim] != 1) return;
    tutti_value *value = tti_as_float(b, tti_value_of(b, &f->x));
    tti_set_value(b, &made, tti_repeat_along(b, value, dim), tti_elem_of(&f->x), true);
    f->x = made;
}

/* equation tensors */
static void einsum(tti_building *b, const tti_call *c) {
    factor f[MAX_FACTORS] = {{{0}, {{0}, 0}}};
    term out = {{0}, 0};
    const tti_arg *list = tti_arg_at(c, 1);
    const char *equation = tti_text_at(b, c, 0);
    if (list->kind != TTI_ARG_LIST || list->n < 1 || list->n > MAX_FACTORS)
        tti_refuse(b, "1 to %d operands are supported", MAX_FACTORS);
    for (int i = 0; tti_good(b) && i < list->n; i++) f[i].x = *tti_operand_of(b, &list->items[i]);
    if (tti_good(b) && !read_equation(equation, f, list->n, &out))
        tti_refuse(b, "the equation '%.100s' does not fit its operands", equation);
    for (int i = 0; tti_good(b) && i < list->n; i++) take_diagonal(b, &f[i]);
    int repeated = -1;
    for (int i = 0; tti_good(b) && i < list->n; i++)
        repeated = take_sample(b, &f[i], f, list->n, &out, repeated);
    for (int i = 0; tti_good(b) && i < list->n; i++) {
        bool later[ALL] = {false}, needed[ALL];
        for (int k = 0; k < out.n; k++) later[out.letter[k]] = true;
        for (int j = i + 1; j < list->n; j++)
            for (int k = 0; k < f[j].t.n; k++) later[f[j].t.letter[k]] = true;
        memcpy(needed, later, sizeof needed);
        for (int k = 0; i > 0 && k < f[0].t.n; k++) needed[f[0].t.letter[k]] = true;
        sum_unneeded(b, &f[i], needed);
        if (i > 0 && tti_good(b)) multiply(b, &f[0], &f[i], later);
    }
    if (tti_good(b) && f[0].t.n != out.n) tti_refuse(b, "the equation does not fit its operands");
    if (tti_good(b)) arrange(b, &f[0], out.letter);
    if (repeated >= 0) repeat_sample(b, &f[0], repeated);
    if (tti_good(b)) tti_set(c->out[0], &f[0].x);
}

const tti_operator tti_operators_einsum[] = {
    {.target = "aten.einsum.default", .signature = "equation tensors path!=None", .build = einsum},
    {0},
};
