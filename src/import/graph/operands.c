/* operands.c - functions that operators use: reading arguments, converting operands to graph values
 * or host tensors, setting results, and refusing calls. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "import/graph/building.h"

/* ---- failures ---- */

bool tti_good(const tti_building *b) { return b->st == TUTTI_OK; }
tti_reuse **tti_reuse_of(tti_building *b) { return b->keeps_repeats ? NULL : &b->reuse; }

static const char *where(const tti_building *b, char text[512]) {
    const tti_op_call *call = b->call;
    if (!call)
        snprintf(text, 512, "%.400s", b->program->path);
    else if (call->module[0])
        snprintf(text, 512, "%.250s: %.100s of '%.100s'", b->program->path, call->target,
                 call->module);
    else
        snprintf(text, 512, "%.250s: %.100s", b->program->path, call->target);
    return text;
}

void tti_refuse(tti_building *b, const char *format, ...) {
    char text[1024], place[512];
    va_list args;
    if (!tti_good(b)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    b->st = tti_fail(TUTTI_E_UNSUPPORTED, "%s: %s", where(b, place), text);
    b->why = tti_arena_strdup(&b->arena, tutti_last_error());
}

void tti_no_memory(tti_building *b) {
    if (tti_good(b)) b->st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", b->program->path);
}

/* Limits the memory that a file can request during the build, because loops may repeat requests. */
#define MAX_ALLOC_BYTES ((size_t)1 << 34)

void *tti_build_alloc(tti_building *b, size_t n_bytes) {
    if (n_bytes > MAX_ALLOC_BYTES - b->n_alloc_bytes) {
        tti_refuse(b, "its constant tensors have more than %zu bytes in all", MAX_ALLOC_BYTES);
        return NULL;
    }
    b->n_alloc_bytes += n_bytes;
    void *room = tti_arena_alloc(&b->arena, n_bytes);
    if (!room) tti_no_memory(b);
    return room;
}

bool tti_add_work(tti_building *b, double n) {
    b->work += n;
    if (b->work > b->max_work)
        tti_refuse(b,
                   "its constants take more than %.0f steps to compute, which is more than a model "
                   "with inputs and tensors of such sizes needs",
                   b->max_work);
    return tti_good(b);
}

void tti_check_graph(tti_building *b) {
    char place[512];
    if (!tti_good(b)) return;
    tutti_status st = tutti_graph_check(b->graph);
    if (st == TUTTI_OK) return;
    tti_fail_context("%s: ", where(b, place));
    b->st = st == TUTTI_E_INVALID ? TUTTI_E_UNSUPPORTED : st;
}

/* ---- arguments ---- */

static const tti_arg none_arg;

const tti_arg *tti_arg_at(const tti_call *c, int k) {
    return k < c->n_args && c->arg[k] ? c->arg[k] : &none_arg;
}

bool tti_has(const tti_call *c, int k) { return tti_arg_at(c, k)->kind != TTI_ARG_NONE; }

/* Returns the operand of a value, which must not have been written to through another name. */
static tti_operand *value_at(tti_building *b, int number) {
    tti_operand *x = &b->values[number];
    if (x->kind == TTI_OPERAND_GRAPH && x->stamp < b->writes[x->group])
        tti_refuse(b,
                   "'%s' shares memory with a value that was changed in place since; this is "
                   "not supported",
                   b->block->names[number]);
    return x;
}

/* Refuses the use of a result that the operator's row does not compute. */
static void refuse_missing(tti_building *b, int number) {
    for (int i = 0; i < b->block->n_calls; i++)
        for (int k = 0; k < b->block->calls[i].n_outs; k++)
            if (b->block->calls[i].outs[k] == number) {
                b->call = &b->block->calls[i];
                tti_refuse(b, "its result %d is not supported", k);
                return;
            }
    tti_refuse(b, "'%s' is not a tensor that can be used", b->block->names[number]);
}

const tti_operand *tti_operand_named(const tti_building *b, const tti_arg *arg) {
    if (arg->kind == TTI_ARG_OPERAND) return arg->operand;
    return arg->kind == TTI_ARG_VALUE ? &b->values[arg->value] : NULL;
}

tti_operand *tti_operand_of(tti_building *b, const tti_arg *arg) {
    if (arg->kind == TTI_ARG_OPERAND) return (tti_operand *)(uintptr_t)arg->operand;
    if (arg->kind == TTI_ARG_VALUE) {
        tti_operand *x = value_at(b, arg->value);
        if (x->kind == TTI_OPERAND_NONE) refuse_missing(b, arg->value);
        if (x->kind == TTI_OPERAND_HOST && x->host.use->replaced)
            tti_refuse(b,
                       "'%s' looks at a constant of which a part was overwritten; read the part "
                       "from the whole tensor again",
                       b->block->names[arg->value]);
        return x;
    }
    if (arg->kind != TTI_ARG_INT && arg->kind != TTI_ARG_FLOAT && arg->kind != TTI_ARG_BOOL) {
        tti_refuse(b, "an argument is not a tensor");
        return &b->nothing;
    }
    tti_operand *x = tti_arena_alloc(&b->arena, sizeof *x);
    if (!x) {
        tti_no_memory(b);
        return &b->nothing;
    }
    if (arg->kind == TTI_ARG_FLOAT)
        tti_set_number(x, arg->f, TTI_ELEM_F64, false);
    else
        tti_set_number(x, (double)arg->i, arg->kind == TTI_ARG_INT ? TTI_ELEM_I64 : TTI_ELEM_BOOL,
                       false);
    return x;
}

tti_operand *tti_operand_at(tti_building *b, const tti_call *c, int k) {
    return tti_operand_of(b, tti_arg_at(c, k));
}

/* Reads a number that must be known while the graph is built. */
static double number_of(tti_building *b, const tti_arg *arg) {
    if (arg->kind == TTI_ARG_INT || arg->kind == TTI_ARG_BOOL || arg->kind == TTI_ARG_DTYPE)
        return (double)arg->i;
    if (arg->kind == TTI_ARG_FLOAT) return arg->f;
    if (arg->kind == TTI_ARG_VALUE || arg->kind == TTI_ARG_OPERAND) {
        const tti_operand *x = tti_operand_of(b, arg);
        if (x->kind == TTI_OPERAND_NUMBER) return x->number;
        if (x->kind == TTI_OPERAND_HOST && tti_host_n(&x->host) == 1)
            return tti_host_at(&x->host, 0);
        tti_refuse(b, "'%s' must be known before the model runs, and depends on its inputs",
                   arg->kind == TTI_ARG_VALUE ? b->block->names[arg->value] : "an argument");
        return 0;
    }
    tti_refuse(b, "an argument is not a number");
    return 0;
}

static int64_t integer_of(tti_building *b, const tti_arg *arg) {
    if (arg->kind == TTI_ARG_INT) return arg->i; /* exact for all 64 bits */
    double x = number_of(b, arg);
    if (!(x >= -0x1p53 && x <= 0x1p53)) tti_refuse(b, "an integer is out of range");
    return tti_good(b) ? (int64_t)x : 0;
}

int64_t tti_int_at(tti_building *b, const tti_call *c, int k) {
    return integer_of(b, tti_arg_at(c, k));
}
double tti_number_at(tti_building *b, const tti_call *c, int k) {
    return number_of(b, tti_arg_at(c, k));
}
bool tti_bool_at(tti_building *b, const tti_call *c, int k) {
    return number_of(b, tti_arg_at(c, k)) != 0;
}

const char *tti_text_at(tti_building *b, const tti_call *c, int k) {
    const tti_arg *arg = tti_arg_at(c, k);
    if (arg->kind == TTI_ARG_TEXT) return arg->text;
    tti_refuse(b, "an argument is not text");
    return "";
}

int tti_ints_at(tti_building *b, const tti_call *c, int k, int64_t out[TUTTI_MAX_DIMS]) {
    const tti_arg *arg = tti_arg_at(c, k);
    if (arg->kind != TTI_ARG_LIST) {
        out[0] = integer_of(b, arg);
        return 1;
    }
    if (arg->n > TUTTI_MAX_DIMS) {
        tti_refuse(b, "a list has %d elements, at most %d are supported", arg->n, TUTTI_MAX_DIMS);
        return 0;
    }
    for (int i = 0; i < arg->n; i++) out[i] = integer_of(b, &arg->items[i]);
    return arg->n;
}

const int64_t *tti_list_at(tti_building *b, const tti_call *c, int k, int *n) {
    const tti_arg *arg = tti_arg_at(c, k);
    const tti_operand *x = tti_operand_named(b, arg);
    *n = 0;
    if (x && x->kind != TTI_OPERAND_HOST && x->kind != TTI_OPERAND_NUMBER)
        tti_refuse(b, "a list of numbers depends on the model's inputs, which is not supported");
    if (!tti_good(b)) return NULL;
    int64_t most = x && x->kind == TTI_OPERAND_HOST ? tti_host_n(&x->host)
                   : arg->kind == TTI_ARG_LIST      ? arg->n
                                                    : 1;
    int64_t *list = tti_arena_alloc(&b->arena, ((size_t)most + 1) * sizeof *list);
    if (!list) tti_no_memory(b);
    for (int64_t i = 0; list && i < most; i++) {
        if (x && x->kind == TTI_OPERAND_HOST)
            list[i] = tti_to_int(tti_host_at(&x->host, i));
        else if (arg->kind == TTI_ARG_LIST && arg->items[i].kind == TTI_ARG_INT)
            list[i] = arg->items[i].i;
        else
            list[i] = tti_to_int(number_of(b, arg->kind == TTI_ARG_LIST ? &arg->items[i] : arg));
    }
    if (most > INT32_MAX) tti_refuse(b, "a list has too many elements");
    *n = tti_good(b) ? (int)most : 0;
    return tti_good(b) ? list : NULL;
}

bool tti_is_batch_item(tti_building *b, const tti_call *c, int k, int i) {
    const tti_arg *arg = tti_arg_at(c, k);
    if (arg->kind == TTI_ARG_LIST) arg = i < arg->n ? &arg->items[i] : &none_arg;
    if (b->fixed_batch && i == 0 && arg->kind == TTI_ARG_INT) return arg->i == b->batch;
    const tti_operand *x = tti_operand_named(b, arg);
    return x && x->kind == TTI_OPERAND_NUMBER && x->is_batch;
}

void tti_pair_at(tti_building *b, const tti_call *c, int k, int64_t out[2]) {
    int64_t list[TUTTI_MAX_DIMS] = {0};
    int n = tti_ints_at(b, c, k, list);
    if (tti_good(b) && n != 1 && n != 2)
        tti_refuse(b, "one or two numbers are expected, not %d", n);
    out[0] = list[0];
    out[1] = n == 2 ? list[1] : list[0];
}

int tti_wrap_dim(tti_building *b, int64_t dim, int n_dims) {
    if (dim < 0) dim += TTI_MAX(n_dims, 1);
    if (dim >= 0 && dim < TTI_MAX(n_dims, 1)) return (int)dim;
    tti_refuse(b, "there is no dimension %lld in a tensor of %d", (long long)dim, n_dims);
    return 0;
}

int tti_dim_at(tti_building *b, const tti_call *c, int k, int n_dims) {
    return tti_wrap_dim(b, tti_int_at(b, c, k), n_dims);
}

/* ---- operands ---- */

tutti_shape tti_shape_of(const tti_operand *x) {
    if (x->kind == TTI_OPERAND_HOST) return x->host.shape;
    if (x->kind != TTI_OPERAND_GRAPH) return (tutti_shape){0};
    tutti_shape shape = x->folded ? x->shape : tutti_value_type(x->value).shape;
    if (x->rows > 0) shape.dim[0] = x->rows;
    return shape;
}

tti_elem tti_elem_of(const tti_operand *x) {
    return x->kind == TTI_OPERAND_HOST ? x->host.elem : x->elem;
}

bool tti_of_batch(const tti_operand *x) { return x->of_input || x->rows > 0; }

tti_elem tti_float_elem(tti_elem elem) { return tti_elem_is_float(elem) ? elem : TTI_ELEM_F32; }

bool tti_on_host(const tti_operand *x) {
    return x->kind == TTI_OPERAND_HOST || x->kind == TTI_OPERAND_NUMBER;
}

tutti_value *tti_as_float(tti_building *b, tutti_value *x) {
    return tutti_value_type(x).dtype == TUTTI_F32 ? x : tutti_cast(b->graph, x, TUTTI_F32);
}

static tutti_value *new_constant(tti_building *b, const tti_host *x, tutti_dtype dtype) {
    double value;
    double n_own = 1; /* number of elements in memory */
    for (int d = 0; d < x->shape.n_dims; d++)
        if (x->stride[d] != 0) n_own *= (double)x->shape.dim[d];
    if (!tti_add_work(b, n_own)) return NULL;
    if (tti_host_uniform(x, &value)) return tutti_constant(b->graph, dtype, &x->shape, value);
    size_t n = (size_t)tti_host_n(x);
    if (!tti_add_work(b, (double)n)) return NULL;
    float *floats = tti_arena_alloc(&b->arena, (n + 1) * sizeof *floats);
    if (!floats) {
        tti_no_memory(b);
        return NULL;
    }
    tti_host_walk w = tti_host_begin(x);
    int32_t *ints = (int32_t *)(void *)floats; /* same size */
    double e[TTI_HOST_GROUP];
    for (size_t i = 0; i < n; i += TTI_HOST_GROUP) {
        size_t n_group = TTI_MIN(n - i, TTI_HOST_GROUP);
        tti_host_copy_next(&w, e, (int64_t)n_group);
        for (size_t k = 0; k < n_group && dtype == TUTTI_F32; k++) floats[i + k] = (float)e[k];
        for (size_t k = 0; k < n_group && dtype != TUTTI_F32; k++)
            ints[i + k] = e[k] >= -0x1p31 && e[k] < 0x1p31 ? (int32_t)e[k] : -1;
    }
    return tutti_constant_array(b->graph, dtype, &x->shape, floats);
}

static tutti_value *constant_of(tti_building *b, const tti_host *x, tutti_dtype dtype) {
    int form = TTI_KNOWN_CONSTANT + (int)dtype;
    tutti_value *value = tti_reuse_constant(b, x, form);
    if (value) return value;
    value = new_constant(b, x, dtype);
    tti_store_constant(b, x, form, value);
    return value;
}

/* tti_host_repeats, evaluated once for each tensor, because it reads all elements. */
static bool repeats_along(tti_building *b, const tti_host *x, int d) {
    int64_t answer = 0;
    if (x->stride[d] == 0 || x->shape.dim[d] < 2) return tti_host_repeats(x, d);
    if (!tti_reuse_answer(b, x, TTI_KNOWN_REPEATS + d, &answer)) {
        answer = tti_host_repeats(x, d);
        tti_store_answer(b, x, TTI_KNOWN_REPEATS + d, answer);
    }
    return answer != 0;
}

/* Returns zeros i32 [batch], one for each sample. */
static tutti_value *row_zeros(tti_building *b) {
    tutti_graph *g = b->graph;
    if (b->row_zeros) return b->row_zeros;
    tutti_shape shape = tutti_value_type(b->first).shape;
    tutti_value *x = tutti_flatten(g, b->first);
    if (shape.n_dims < 1 || tutti_value_type(x).shape.dim[1] < 1) {
        tti_refuse(b, "the input has no elements to take the batch from");
        return NULL;
    }
    x = tutti_reshape(g, tutti_slice(g, x, 1, 0, 1), &TUTTI_SHAPE(shape.dim[0]));
    x = tutti_affine(g, tti_as_float(b, x), 0, 0); /* the cast converts NaN to 0 */
    b->row_zeros = tutti_cast(g, x, TUTTI_I32);
    return b->row_zeros;
}

/* Looks up row 0 for each sample, so that the gradient is summed over the batch. */
tutti_value *tti_repeat_rows(tti_building *b, tutti_value *x) {
    tutti_graph *g = b->graph;
    tutti_shape shape = tutti_value_type(x).shape;
    bool is_float = tutti_value_type(x).dtype == TUTTI_F32;
    if (!x || shape.n_dims < 1) return NULL;
    tutti_value *table = tutti_reshape(g, tti_as_float(b, x), &TUTTI_SHAPE(1, -1));
    tutti_value *rows = tutti_lookup(g, table, row_zeros(b));
    shape.dim[0] = b->batch;
    rows = tutti_reshape(g, rows, &shape);
    return is_float ? rows : tutti_cast(g, rows, TUTTI_I32);
}

tutti_value *tti_repeat_along(tti_building *b, tutti_value *x, int dim) {
    tutti_shape shape = x ? tutti_value_type(x).shape : (tutti_shape){0}, to = shape;
    int perm[TUTTI_MAX_DIMS];
    if (!x || dim == 0) return tti_repeat_rows(b, x);
    for (int d = 0; d < shape.n_dims; d++) {
        perm[d] = d < dim ? d + 1 : d == dim ? 0 : d;
        if (d <= dim) to.dim[d] = d == 0 ? 1 : shape.dim[d - 1];
    }
    x = tti_repeat_rows(b, tutti_reshape(b->graph, x, &to));
    return tutti_permute(b->graph, x, perm, shape.n_dims);
}

/* Repeats a constant that is equal for all samples along its batch_dim. */
static tutti_value *repeat_constant(tti_building *b, const tti_host *x) {
    tti_host one = *x;
    if (x->shape.dim[x->batch_dim] > 1 && !repeats_along(b, x, x->batch_dim))
        tti_refuse(b, "a constant differs between the samples of a batch; this is not supported");
    if (!tti_good(b)) return NULL;
    one.shape.dim[x->batch_dim] = 1;
    return tti_repeat_along(b, constant_of(b, &one, TUTTI_F32), x->batch_dim);
}

tti_operand tti_repeat_over_batch(tti_building *b, const tti_operand *x) {
    tti_operand out = *x;
    if (x->kind != TTI_OPERAND_HOST || !tti_good(b)) return out;
    bool in_front = x->host.of_batch && x->host.shape.n_dims > 0 &&
                    x->host.shape.dim[0] == b->batch && repeats_along(b, &x->host, 0);
    if (x->host.batch_dim > 0)
        tti_set_value(b, &out, repeat_constant(b, &x->host), tti_elem_of(x), true);
    else if (in_front)
        tti_set_value(b, &out, tti_as_float(b, tti_batch_value(b, x)), tti_elem_of(x), true);
    return out;
}

tutti_value *tti_value_of(tti_building *b, const tti_operand *x) {
    if (!tti_good(b)) return NULL;
    if (x->kind == TTI_OPERAND_NUMBER && x->live) return x->live;
    if (x->kind == TTI_OPERAND_LIST) {
        tti_refuse(b, "a list of tensors is given where one is expected");
        return NULL;
    }
    if (x->kind == TTI_OPERAND_GRAPH && x->folded)
        return tutti_reshape(b->graph, x->value, &x->shape);
    if (x->kind == TTI_OPERAND_GRAPH) return x->rows > 0 ? tti_repeat_rows(b, x->value) : x->value;
    if (x->kind == TTI_OPERAND_HOST) return constant_of(b, &x->host, TUTTI_F32);
    return tutti_constant(b->graph, TUTTI_F32, &(tutti_shape){0}, x->number);
}

tutti_value *tti_batch_value(tti_building *b, const tti_operand *x) {
    tutti_shape shape = tti_shape_of(x);
    bool is_whole = x->kind == TTI_OPERAND_HOST || (!x->of_input && x->rows == 0);
    if (x->kind == TTI_OPERAND_HOST && x->host.batch_dim > 0)
        return tti_good(b) ? repeat_constant(b, &x->host) : NULL;
    if (!is_whole || shape.n_dims < 1 || shape.dim[0] != b->batch) return tti_value_of(b, x);
    tti_operand one = *x;
    bool repeats = b->batch == 1;
    if (x->kind == TTI_OPERAND_HOST && repeats_along(b, &x->host, 0)) {
        one.host.shape.dim[0] = 1;
        repeats = true;
    }
    if (!repeats)
        tti_refuse(b, "a constant differs between the samples of a batch; this is not supported");
    return tti_repeat_rows(b, tti_value_of(b, &one));
}

tutti_value *tti_compact_value(tti_building *b, const tti_operand *x) {
    if (!tti_good(b)) return NULL;
    if (x->kind == TTI_OPERAND_GRAPH && x->rows > 0) return tti_as_float(b, x->value);
    if (x->kind != TTI_OPERAND_HOST) return tti_as_float(b, tti_value_of(b, x));
    tti_host host = x->host;
    tutti_shape shape = host.shape;
    if (host.of_batch && shape.n_dims > 0 && shape.n_dims < TUTTI_MAX_DIMS &&
        shape.dim[0] > b->batch &&
        shape.dim[0] % b->batch == 0) { /* the rows of one sample, repeated */
        tutti_shape wide = {.n_dims = shape.n_dims + 1, .dim = {1, shape.dim[0] / b->batch}};
        for (int d = 1; d < shape.n_dims; d++) wide.dim[d + 1] = shape.dim[d];
        host.shape.dim[0] = wide.dim[1];
        tutti_value *value = tutti_reshape(b->graph, constant_of(b, &host, TUTTI_F32), &wide);
        return tutti_reshape(b->graph, tti_repeat_rows(b, value), &shape);
    }
    for (int d = 0; d < host.shape.n_dims; d++)
        if (repeats_along(b, &host, d)) host.shape.dim[d] = 1;
    return constant_of(b, &host, TUTTI_F32);
}

tutti_value *tti_as_index(tti_building *b, const tti_operand *x) {
    if (!tti_good(b)) return NULL;
    if (x->kind == TTI_OPERAND_HOST) return constant_of(b, &x->host, TUTTI_I32);
    tutti_value *value = tti_value_of(b, x);
    return tutti_value_type(value).dtype == TUTTI_I32 ? value
                                                      : tutti_cast(b->graph, value, TUTTI_I32);
}

static int new_group(tti_building *b) {
    if (b->n_groups == b->cap_groups) {
        int cap = b->cap_groups ? 2 * b->cap_groups : 256;
        int *writes = realloc(b->writes, (size_t)cap * sizeof *writes);
        if (!writes) {
            tti_no_memory(b);
            return 0;
        }
        b->writes = writes;
        b->cap_groups = cap;
    }
    b->writes[b->n_groups] = 0;
    return b->n_groups++;
}

void tti_set_host(tti_operand *out, const tti_host *host) {
    if (out) *out = (tti_operand){.kind = TTI_OPERAND_HOST, .host = *host};
}

void tti_set_value(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                   bool of_input) {
    tti_check_graph(b);
    if (!out || !tti_good(b)) return;
    *out = (tti_operand){.kind = TTI_OPERAND_GRAPH,
                         .value = value,
                         .elem = elem,
                         .of_input = of_input,
                         .group = new_group(b)};
}

tutti_value *tti_row_wise_value(tti_building *b, const tti_operand *x) {
    if (x->kind == TTI_OPERAND_GRAPH && x->folded) return tti_as_float(b, x->value);
    return tti_as_float(b, tti_value_of(b, x));
}

void tti_set_row_wise(tti_building *b, tti_operand *out, tutti_value *value, const tti_operand *x) {
    tti_set_value(b, out, value, x->elem, x->of_input || x->rows > 0);
    if (!out || !x->folded || !tti_good(b)) return;
    tutti_shape own = tutti_value_type(value).shape;
    out->folded = true;
    out->shape = x->shape;
    out->shape.dim[x->shape.n_dims - 1] = own.dim[own.n_dims - 1];
}

void tti_set_number(tti_operand *out, double x, tti_elem elem, bool is_batch) {
    if (out)
        *out = (tti_operand){
            .kind = TTI_OPERAND_NUMBER, .number = x, .elem = elem, .is_batch = is_batch};
}

void tti_set_live(tti_building *b, tti_operand *out, tutti_value *live) {
    if (out && b->present && tti_good(b)) out->live = live;
}

void tti_set(tti_operand *out, const tti_operand *x) {
    if (x->kind == TTI_OPERAND_HOST) x->host.use->shared = true;
    if (!out) return;
    *out = *x;
    out->part = (tti_view_part){0}; /* the caller states which memory out shares */
}

const char *tti_layer_name_of(tti_building *b) {
    const char *module = b->call && b->call->module[0] ? b->call->module : "model";
    const char *name = tti_arena_printf(&b->arena, "%.150s.%d", module, b->n_layers++);
    if (!name) tti_no_memory(b);
    return name ? name : "";
}
