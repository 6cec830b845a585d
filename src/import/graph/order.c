/* order.c - virtually sorted rows: operators that keep the order virtual, and the real sort for all
 * others. */
#include "import/graph/order.h"

#include <string.h>

#include "base/error.h"

/* ---- virtually sorted operands ---- */

bool tti_sort_virtually(tti_building *b, const tti_operand *keys, bool descending,
                        tti_operand *sorted, tti_operand *places) {
    tti_host count;
    if (keys->kind != TTI_OPERAND_GRAPH || keys->role != TTI_ORDER_NONE || !tti_of_batch(keys) ||
        tti_shape_of(keys).n_dims != 1)
        return false;
    tti_order *order = tti_build_alloc(b, sizeof *order);
    if (!order) return true;
    *order = (tti_order){*keys, tti_shape_of(keys).dim[0], descending};
    if (!tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(order->n), &count)) return true;
    for (int64_t i = 0; i < order->n; i++) count.data[i] = (double)i;
    if (sorted) {
        *sorted = *keys;
        sorted->order = order;
        sorted->role = TTI_ORDER_KEYS;
    }
    if (places) {
        tti_set_host(places, &count);
        places->order = order;
        places->role = TTI_ORDER_ROWS;
    }
    return true;
}

tti_operand tti_unordered(const tti_operand *x) {
    tti_operand own = *x;
    own.order = NULL;
    own.role = TTI_ORDER_NONE;
    return own;
}

static bool is_in_order(const tti_operand *x) {
    return x->role == TTI_ORDER_ROWS || x->role == TTI_ORDER_KEYS;
}

bool tti_sort_rows(tti_building *b, const tti_operand *x, tti_operand *out) {
    const tti_order *order = x->order;
    tutti_graph *g = tti_graph_of(b);
    tti_operand own = tti_unordered(x);
    if (!order || !(is_in_order(x) || x->role == TTI_ORDER_INVERSE)) {
        *out = own;
        return tti_good(b);
    }
    tutti_value *keys = tti_as_float(b, tti_value_of(b, &order->keys));
    tutti_value *places = tutti_sort(g, keys, 0, order->descending).places, *value;
    if (x->role == TTI_ORDER_INVERSE)
        value = tutti_sort(g, tutti_cast(g, places, TUTTI_F32), 0, false).places;
    else
        value = tutti_gather(g, tti_as_float(b, tti_value_of(b, &own)), places, 0);
    tti_set_value(b, out, value, tti_elem_of(&own), true);
    return tti_good(b);
}

/* ---- calls with virtually sorted operands ---- */

static tti_order_role role_of(const tti_building *b, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) return x->role;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++) {
        tti_order_role role = role_of(b, &arg->items[i]);
        if (role != TTI_ORDER_NONE) return role;
    }
    return TTI_ORDER_NONE;
}

bool tti_any_order(const tti_building *b, const tti_call *c) {
    for (int k = 0; k < c->n_args; k++)
        if (role_of(b, c->arg[k]) != TTI_ORDER_NONE) return true;
    return false;
}

/* Returns arg with its operand really sorted, or in its original order. */
static tti_arg replaced(tti_building *b, const tti_arg *arg, bool sorts) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x && x->role != TTI_ORDER_NONE) {
        tti_operand *own = tti_build_alloc(b, sizeof *own);
        x = tti_operand_of(b, arg); /* refuses memory that was changed since */
        if (!own || !tti_good(b)) return *arg;
        *own = tti_unordered(x);
        if (sorts) tti_sort_rows(b, x, own);
        return tti_operand_arg(own);
    }
    if (arg->kind != TTI_ARG_LIST || role_of(b, arg) == TTI_ORDER_NONE) return *arg;
    tti_arg *items = tti_build_alloc(b, (size_t)arg->n * sizeof *items), list = *arg;
    for (int i = 0; items && i < arg->n; i++) items[i] = replaced(b, &arg->items[i], sorts);
    list.items = items;
    return items ? list : *arg;
}

static bool replace_args(tti_building *b, const tti_call *c, bool sorts, tti_call *out) {
    tti_arg *args = tti_build_alloc(b, TTI_COUNT(c->arg) * sizeof *args);
    if (!args) return false;
    *out = *c;
    for (int k = 0; k < c->n_args; k++) {
        args[k] = replaced(b, c->arg[k], sorts);
        out->arg[k] = &args[k];
    }
    return tti_good(b);
}

/* ---- operators that treat each row separately ---- */

static bool is_one_of(const char *target, const char *const *names, size_t n) {
    if (strncmp(target, "aten.", 5) != 0) return false;
    size_t length = strcspn(target + 5, ".");
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == length && memcmp(target + 5, names[i], length) == 0) return true;
    return false;
}
#define IS_ONE_OF(target, names) is_one_of(target, names, TTI_COUNT(names))

/* Operators that return the same elements, so that the result has the same role. */
static const char *const same_elements[] = {"to",     "_to_copy", "type_as",   "alias",
                                            "detach", "clone",    "contiguous"};

/* Element-wise operators. */
static const char *const by_element[] = {"add",
                                         "sub",
                                         "rsub",
                                         "mul",
                                         "div",
                                         "pow",
                                         "floor",
                                         "gelu",
                                         "elu",
                                         "celu",
                                         "leaky_relu",
                                         "softplus",
                                         "clamp",
                                         "clamp_min",
                                         "clamp_max",
                                         "hardtanh",
                                         "dropout",
                                         "masked_fill",
                                         "where",
                                         "eq",
                                         "ne",
                                         "lt",
                                         "le",
                                         "gt",
                                         "ge",
                                         "isnan",
                                         "logical_not",
                                         "empty_like",
                                         "zeros_like",
                                         "ones_like",
                                         "lift_fresh_copy"};

/* Operators with an argument dim (or dims), which must not be the dimension of the rows. */
static const char *const by_dim[] = {
    "chunk",  "split",   "split_with_sizes", "slice", "narrow", "select",
    "unbind", "softmax", "log_softmax",      "sum",   "mean",   "amax",
    "glu",    "cat"};

/* Operators whose first argument is sorted and whose other arguments are equal for all rows. */
static const char *const by_row[] = {
    "linear",       "matmul",  "mm",        "layer_norm", "rms_norm", "view",  "reshape",
    "_unsafe_view", "flatten", "unflatten", "unsqueeze",  "squeeze",  "expand"};

/* The index of the argument with that name in a call. */
static int place_of(const tti_operator *row, const char *name) {
    const char *p = row->signature;
    size_t n = strlen(name);
    for (int k = 0; *p;) {
        size_t length = strcspn(p, " =!");
        if (length == n && memcmp(p, name, n) == 0) return k;
        k += p[length] != '!';
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    return -1;
}

/* True if argument dim does not include the first dimension. */
static bool leaves_rows(tti_building *b, const tti_operator *row, const tti_call *c, int n_dims) {
    int place = place_of(row, "dim");
    const tti_arg *arg = place < 0 ? NULL : c->arg[place];
    if (!arg || arg->kind == TTI_ARG_NONE || (arg->kind == TTI_ARG_LIST && arg->n == 0))
        return false;
    int64_t dims[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, place, dims);
    for (int i = 0; i < n; i++)
        if (dims[i] == 0 || dims[i] == -n_dims) return false;
    return tti_good(b);
}

/* True if an operand without an order is the same for all rows of a result of n_dims dimensions. */
static bool is_same_for_all(const tti_operand *x, int n_dims) {
    tutti_shape shape = tti_shape_of(x);
    return shape.n_dims < n_dims || shape.dim[0] == 1;
}

/* Finds the only order of the operands of arg; false: there are two, or the rows of an operand have
 * no order. */
static bool collect_order(const tti_building *b, const tti_arg *arg, int n_dims,
                          const tti_order **order) {
    const tti_operand *x = tti_operand_named(b, arg);
    for (int i = 0; !x && arg->kind == TTI_ARG_LIST && i < arg->n; i++)
        if (!collect_order(b, &arg->items[i], n_dims, order)) return false;
    if (!x) return true;
    if (!is_in_order(x)) return x->role == TTI_ORDER_NONE && is_same_for_all(x, n_dims);
    if (*order && *order != x->order) return false;
    *order = x->order;
    return tti_shape_of(x).n_dims == n_dims;
}

/* The largest number of dimensions of a virtually sorted operand. */
static int most_dims(const tti_building *b, const tti_arg *arg) {
    const tti_operand *x = tti_operand_named(b, arg);
    if (x) return is_in_order(x) ? tti_shape_of(x).n_dims : 0;
    int n = 0;
    for (int i = 0; arg->kind == TTI_ARG_LIST && i < arg->n; i++)
        n = TTI_MAX(n, most_dims(b, &arg->items[i]));
    return n;
}

/* The order that the results of a call keep; NULL: none. */
static const tti_order *order_of(tti_building *b, const tti_operator *row, const tti_call *c) {
    const tti_order *order = NULL;
    int n_dims = 0;
    bool first_alone = IS_ONE_OF(row->target, by_row);
    bool elements = row->b1 || row->b2 || row->f2 || IS_ONE_OF(row->target, by_element) ||
                    IS_ONE_OF(row->target, same_elements);
    for (int k = 0; k < c->n_args; k++) n_dims = TTI_MAX(n_dims, most_dims(b, c->arg[k]));
    if (!first_alone && !elements &&
        !(IS_ONE_OF(row->target, by_dim) && leaves_rows(b, row, c, n_dims)))
        return NULL;
    for (int k = 0; k < c->n_args; k++) {
        if (first_alone && k > 0 && role_of(b, c->arg[k]) != TTI_ORDER_NONE) return NULL;
        if ((!first_alone || k == 0) && !collect_order(b, c->arg[k], n_dims, &order)) return NULL;
    }
    return order;
}

static void pass_on(const tti_call *c, const tti_order *order, tti_order_role role) {
    for (int i = 0; i < c->n_outs; i++) {
        if (!c->out[i] || c->out[i]->kind == TTI_OPERAND_NONE) continue;
        c->out[i]->order = order;
        c->out[i]->role = role;
    }
}

/* True if all results have the rows of the order. */
static bool keeps_rows(const tti_call *c, const tti_order *order) {
    for (int i = 0; i < c->n_outs; i++) {
        if (!c->out[i]) continue;
        tutti_shape shape = tti_shape_of(c->out[i]);
        if (shape.n_dims < 1 || shape.dim[0] != order->n) return false;
    }
    return true;
}

bool tti_apply_unordered(tti_building *b, const tti_call *c, const tti_order *order,
                         tti_order_role role) {
    tti_call own;
    if (replace_args(b, c, false, &own) && tti_apply_row(b, tti_row_of(b), &own) &&
        role != TTI_ORDER_NONE)
        pass_on(c, order, role);
    return true;
}

void tti_apply_ordered_row(tti_building *b, const tti_operator *row, const tti_call *c) {
    tti_call own;
    tti_order_role role = role_of(b, c->arg[0]);
    bool same = IS_ONE_OF(row->target, same_elements);
    if (row->ordered && row->ordered(b, c)) return;
    if (!tti_good(b)) return;
    const tti_order *order = order_of(b, row, c);
    bool of_keys = role == TTI_ORDER_COUNTS || role == TTI_ORDER_ENDS;
    if (same && of_keys) order = tti_operand_named(b, c->arg[0])->order;
    if (order && replace_args(b, c, false, &own) && tti_apply_row(b, row, &own)) {
        if (of_keys || keeps_rows(c, order)) {
            pass_on(c, order, same ? role : TTI_ORDER_ROWS);
            return;
        }
    }
    if (tti_good(b) && replace_args(b, c, true, &own)) tti_apply_row(b, row, &own);
}
