/* onnx_params.c - decides which tensors of an ONNX model are parameters.
 *
 * ONNX has only tensors, no parameters. PyTorch's newer exporter annotates the kind of tensors that
 * kept their names. For all others the use decides. Parameters are weights, biases and scales of
 * layers, tables, and tensors that are added to or multiplied with values of the samples, also
 * after operators that only move or round elements. Scalars and tensors that look like masks are
 * constants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "import/onnx/onnx.h"

typedef enum role {
    ROLE_NONE,
    ROLE_ADDED,  /* operand of an element-wise operator */
    ROLE_BUFFER, /* running statistics */
    ROLE_WEIGHT
} role;

/* Operators and the inputs that are weights: bit k for input k. */
static const struct {
    const char *op;
    unsigned weights, buffers;
} layers[] = {
    {"Conv", 6, 0},
    {"ConvTranspose", 6, 0},
    {"Gemm", 7, 0},
    {"MatMul", 3, 0},
    {"Einsum", 3, 0},
    {"BatchNormalization", 6, 24},
    {"InstanceNormalization", 6, 0},
    {"LayerNormalization", 6, 0},
    {"RMSNormalization", 2, 0},
    {"SimplifiedLayerNormalization", 2, 0},
    {"GroupNormalization", 6, 0},
    {"PRelu", 2, 0},
    {"LSTM", 14, 0},
    {"GRU", 14, 0},
    {"RNN", 14, 0},
    {"Gather", 1, 0},
};
static const char *const element_wise[] = {"Add", "Sub", "Mul", "Div"};
static const char *const moving[] = {"Transpose", "Reshape", "Unsqueeze", "Squeeze",
                                     "Identity",  "Cast",    "Concat",    "Expand",
                                     "Slice",     "Split",   "Flatten",   "CastLike"};

/* Functions that PyTorch's older exporter keeps between a parameter and its use, such as exp(w) of
 * a decay w. It folds functions of constants, so their argument is a parameter. */
static const char *const functions[] = {"Exp", "Softplus", "Sigmoid", "Tanh",       "Softmax",
                                        "Neg", "Abs",      "Relu",    "LogSoftmax", "Clip"};
/* Operators whose first input is followed by a scale and a zero point. */
static const char *const rounding[] = {"QuantizeLinear", "DequantizeLinear"};

static bool is_one_of(const char *op, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(op, list[i]) == 0) return true;
    return false;
}

static void raise_role(role *to, role r) {
    if (r > *to) *to = r;
}

/* Operators through which no gradient reaches their inputs. */
static const char *const flat[] = {
    "Equal",  "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not",
    "And",    "Or",   "Xor",         "Shape",   "Size",           "IsNaN",
    "ArgMax", "Sign", "Floor",       "Ceil",    "Round",          "ConstantOfShape"};

/* True if a gradient flows from the operator's outputs to input k. */
static bool has_gradient(const char *op, int k) {
    if (strcmp(op, "Where") == 0) return k > 0;
    if (strncmp(op, "Gather", 6) == 0 || is_one_of(op, rounding, TTI_COUNT(rounding)))
        return k == 0;
    return !is_one_of(op, flat, TTI_COUNT(flat));
}

static const tti_arg *find_named(const tti_op_call *call, const char *name) {
    for (int i = 0; i < call->n_args; i++)
        if (strcmp(call->args[i].name, name) == 0) return &call->args[i].arg;
    return NULL;
}

/* Facts about the values of a block, [n_values] each. */
typedef struct marks {
    role *roles;
    bool *live;    /* a gradient reaches the value */
    bool is_torch; /* PyTorch exported the file */
} marks;

/* Loop-carried values: input `in` + i of the body is output `out` + i of the previous iteration. */
typedef struct carried {
    int in, out, n;
} carried;

static bool mark_block(const tti_block *block, const marks *outside, const tti_named_arg *inputs,
                       carried c);

/* Marks the inputs of a node with graphs inside (onnx_inner.c). The first inputs of a Loop's body,
 * iteration and condition, are not inputs of the node. */
static bool mark_inner(const tti_op_call *call, const marks *known, const char *op) {
    bool is_loop = strcmp(op, "Loop") == 0, is_scan = strcmp(op, "Scan") == 0;
    const tti_arg *n_scanned = find_named(call, "num_scan_inputs");
    int n_own = 0;
    while (n_own < call->n_args && !call->args[n_own].name[0]) n_own++;
    for (int k = n_own; k < call->n_args; k++) {
        const tti_block *block = call->args[k].arg.block;
        int n_captured = 0;
        if (call->args[k].arg.kind != TTI_ARG_BLOCK) continue;
        while (k + 1 + n_captured < call->n_args &&
               strcmp(call->args[k + 1 + n_captured].name, TTI_CAPTURED) == 0)
            n_captured++;
        int n_formal = block->n_inputs - n_captured;
        tti_named_arg *inputs = calloc((size_t)block->n_inputs + 1, sizeof *inputs);
        if (!inputs) return false;
        for (int i = 0; i < n_captured; i++) inputs[n_formal + i] = call->args[k + 1 + i];
        int skipped = is_loop ? 2 : 0, n_given = is_loop || is_scan ? n_own : 0;
        for (int i = skipped; i < n_formal && i < n_given; i++) inputs[i] = call->args[i];
        carried c = {skipped, is_loop, n_given - skipped};
        if (is_scan && n_scanned) c.n -= (int)TTI_MIN(TTI_MAX(n_scanned->i, 0), c.n);
        bool good = mark_block(block, known, inputs, c);
        free(inputs);
        if (!good) return false;
    }
    return true;
}

/* Derives the roles of a call's inputs from those of its outputs; false: out of memory. */
static bool mark_call(const tti_op_call *call, const marks *known) {
    role *roles = known->roles;
    bool *live = known->live;
    const char *dot = strrchr(call->target, '.'), *op = dot ? dot + 1 : call->target;
    bool any_live = false;
    for (int i = 0; i < call->n_outs; i++) any_live |= call->outs[i] >= 0 && live[call->outs[i]];
    if (!any_live) return true;
    if (tti_runs_block(call->target)) return mark_inner(call, known, op);
    unsigned weights = 0, buffers = 0;
    role moved = ROLE_NONE;
    for (size_t i = 0; i < TTI_COUNT(layers); i++)
        if (strcmp(op, layers[i].op) == 0) weights = layers[i].weights, buffers = layers[i].buffers;
    bool adds = is_one_of(op, element_wise, TTI_COUNT(element_wise));
    bool moves =
        is_one_of(op, moving, TTI_COUNT(moving)) || is_one_of(op, rounding, TTI_COUNT(rounding));
    bool computes = known->is_torch && is_one_of(op, functions, TTI_COUNT(functions));
    for (int i = 0; (moves || computes) && i < call->n_outs; i++)
        if (call->outs[i] >= 0) raise_role(&moved, roles[call->outs[i]]);
    if (computes && moved != ROLE_NONE) moved = ROLE_ADDED;
    /* One repeated number is not a weight, but for example an initial state of zeros. */
    if (strcmp(op, "Expand") == 0 && moved == ROLE_WEIGHT) moved = ROLE_ADDED;
    for (int k = 0; k < call->n_args && !call->args[k].name[0]; k++) {
        if (call->args[k].arg.kind != TTI_ARG_VALUE) continue;
        if (!has_gradient(op, k)) continue;
        role *to = &roles[call->args[k].arg.value];
        live[call->args[k].arg.value] = true;
        if (k < 32 && weights >> k & 1u) raise_role(to, ROLE_WEIGHT);
        if (k < 32 && buffers >> k & 1u) raise_role(to, ROLE_BUFFER);
        if (adds) raise_role(to, ROLE_ADDED);
        if ((moves || computes) && (k == 0 || strcmp(op, "Concat") == 0)) raise_role(to, moved);
    }
    return true;
}

/* Marks the calls of a block inside a call. Roles of the block's inputs apply to the outside values
 * that are passed to them. */
static bool mark_block(const tti_block *block, const marks *outside, const tti_named_arg *inputs,
                       carried c) {
    size_t n = (size_t)block->n_values + 1;
    marks own = {calloc(n, sizeof *own.roles), calloc(n, sizeof *own.live), outside->is_torch};
    bool good = own.roles && own.live;
    for (int i = 0; good && i < block->n_outputs; i++) own.live[block->outputs[i].value] = true;
    for (int round = 0; good && round < 2; round++) {
        for (int i = block->n_calls - 1; good && i >= 0; i--)
            good = mark_call(&block->calls[i], &own);
        for (int i = 0; good && i < c.n; i++)
            if (c.in + i < block->n_inputs && c.out + i < block->n_outputs)
                raise_role(&own.roles[block->outputs[c.out + i].value],
                           own.roles[block->inputs[c.in + i]]);
    }
    for (int i = 0; good && i < block->n_inputs; i++) {
        if (inputs[i].arg.kind != TTI_ARG_VALUE) continue;
        raise_role(&outside->roles[inputs[i].arg.value], own.roles[block->inputs[i]]);
        outside->live[inputs[i].arg.value] |= own.live[block->inputs[i]];
    }
    free(own.roles);
    free(own.live);
    return good;
}

/* Sets *out if a tensor has elements typical of masks: infinite or huge. */
static tutti_status looks_like_mask(const tti_onnx *m, const tti_input_spec *spec, bool *out) {
    int64_t n = tti_import_n_elems(&spec->shape);
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    if (!x) return tti_onnx_no_memory(m);
    tutti_status st = tti_program_load(m->program, spec, x);
    *out = false;
    for (int64_t i = 0; st == TUTTI_OK && i < n && !*out; i++) *out = !(x[i] > -9e3 && x[i] < 9e3);
    free(x);
    return st;
}

/* True for names that PyTorch gives to results of constant folding. */
static bool is_folded_name(const tti_onnx *m, const char *name) {
    if (m->signature) return true; /* all other tensors are marked */
    return m->is_torch && (name[0] == '/' || strncmp(name, "onnx::", 6) == 0);
}

/* True if PyTorch's list contains a tensor of that kind and name. */
static bool is_listed(const tti_onnx *m, const char *kind, const char *name) {
    char text[600];
    int n = snprintf(text, sizeof text, "%s target='%s'", kind, name);
    return m->signature && n < (int)sizeof text && strstr(m->signature, text);
}

/* Returns the exporter's annotation of a tensor; -1: none. */
static int mark_of(const tti_onnx *m, const char *name) {
    int mark = tti_onnx_names_find(&m->marked, name);
    if (mark >= 0) return mark;
    if (is_listed(m, "PARAMETER", name)) return TTI_ONNX_PARAM;
    return is_listed(m, "BUFFER", name) ? 0 : -1;
}

static tutti_status judge(const tti_onnx *m, tti_input_spec *spec, role r) {
    int mark = mark_of(m, spec->name);
    bool is_float = tti_elem_is_float(spec->elem), is_mask = false;
    if (mark >= 0) {
        spec->kind = mark & TTI_ONNX_PARAM && is_float ? TTI_SPEC_PARAM : TTI_SPEC_BUFFER;
        spec->persistent = !(mark & TTI_ONNX_NOT_STORED);
        return TUTTI_OK;
    }
    spec->kind = TTI_SPEC_CONSTANT;
    if (r == ROLE_BUFFER) spec->kind = TTI_SPEC_BUFFER;
    if (!is_float || r == ROLE_NONE || r == ROLE_BUFFER) return TUTTI_OK;
    if (r == ROLE_ADDED) {
        if (tti_import_n_elems(&spec->shape) < 2 || is_folded_name(m, spec->name)) return TUTTI_OK;
        TTI_TRY(looks_like_mask(m, spec, &is_mask));
    }
    if (!is_mask) spec->kind = TTI_SPEC_PARAM;
    return TUTTI_OK;
}

/* ---- merged tensors ---- */

/* PyTorch's exporter merges tensors with equal elements, such as zeros. If its annotations list a
 * tensor of the node's module that the file lacks, the node gets a copy with that name. */
static const char *own_name(const tti_onnx *m, const tti_op_call *call, int k, char name[512]) {
    static const char *const norm[] = {"weight", "bias", "running_mean", "running_var"};
    const char *dot = strrchr(call->target, '.'), *op = dot ? dot + 1 : call->target, *leaf = NULL;
    bool is_norm = strstr(op, "Normalization") != NULL;
    if (k >= 1 && k <= (is_norm ? 4 : 2)) leaf = norm[k - 1];
    if (strcmp(op, "Add") == 0) leaf = "bias";
    if (!is_norm && strcmp(op, "Add") != 0 && strcmp(op, "Gemm") != 0 && strcmp(op, "Conv") != 0 &&
        strcmp(op, "ConvTranspose") != 0)
        return NULL;
    if (!leaf || snprintf(name, 512, "target='%.400s.%s'", call->module, leaf) >= 512) return NULL;
    if (!strstr(m->signature, name)) return NULL;
    snprintf(name, 512, "%.400s.%s", call->module, leaf);
    return tti_onnx_names_find(&m->block->values, name) < 0 ? name : NULL;
}

static tutti_status copy_tensor(tti_onnx *m, int spec_at, const char *name, int *value) {
    tti_input_spec spec = m->specs[spec_at];
    spec.name = tti_arena_strdup(m->arena, name);
    if (!spec.name) return tti_onnx_no_memory(m);
    spec.own = ++m->n_copies;
    TTI_TRY(tti_ckpt_check_name(m->path, name));
    TTI_TRY(tti_onnx_add_spec(m, &spec, value));
    return tti_onnx_define(m, spec.name, *value);
}

tutti_status tti_onnx_restore(tti_onnx *m) {
    int n_calls = m->block->n_calls, n_values = m->block->n_values;
    int *spec_of =
        calloc((size_t)n_values + 1, sizeof *spec_of); /* index + 1; 0: no tensor of the file */
    int *n_uses = calloc((size_t)n_values + 1, sizeof *n_uses);
    tutti_status st = spec_of && n_uses ? TUTTI_OK : tti_onnx_no_memory(m);
    for (int i = 0; n_uses && i < n_calls; i++)
        for (int k = 0; k < m->block->calls[i].n_args; k++)
            if (m->block->calls[i].args[k].arg.kind == TTI_ARG_VALUE)
                n_uses[m->block->calls[i].args[k].arg.value]++;
    for (int i = 0; spec_of && i < m->n_specs; i++)
        if (m->specs[i].kind == TTI_SPEC_BUFFER) spec_of[m->spec_values[i]] = i + 1;
    for (int i = 0; m->signature && st == TUTTI_OK && i < n_calls; i++) {
        const tti_op_call *call = &m->block->calls[i];
        for (int k = 0; k < call->n_args && !call->args[k].name[0] && st == TUTTI_OK; k++) {
            tti_arg *arg = (tti_arg *)(uintptr_t)&call->args[k].arg;
            int at = arg->kind == TTI_ARG_VALUE && arg->value < n_values ? spec_of[arg->value] : 0;
            char text[512];
            bool is_shared = at > 0 && n_uses[arg->value] > 1 && m->specs[at - 1].shape.n_dims == 1;
            const char *name = is_shared ? own_name(m, call, k, text) : NULL;
            if (name) st = copy_tensor(m, at - 1, name, &arg->value);
        }
    }
    free(spec_of);
    free(n_uses);
    return st;
}

/* ---- losses of exports for inference ---- */

/* Counts running means among the inputs in PyTorch's list. In training mode the outputs list their
 * updates too. */
static int count_means(const char *signature) {
    static const char part[] = "running_mean'";
    const char *outputs = strstr(signature, "# outputs");
    int n = 0;
    for (const char *p = strstr(signature, part); p && !(outputs && p > outputs);
         p = strstr(p + sizeof part - 1, part))
        n++;
    return n;
}

/* Counts batch norms that were folded into weights, from the list of buffers, or from the names
 * that the older exporter gives to changed weights. */
static int count_folded(const tti_onnx *m) {
    const tti_block *block = &m->program->main;
    int n_norms = 0, n_changed = 0;
    for (int i = 0; i < block->n_calls; i++) {
        const tti_op_call *call = &block->calls[i];
        bool has_bias = call->n_args > 2 && call->args[2].arg.kind == TTI_ARG_VALUE;
        n_norms += strcmp(call->target, "onnx.BatchNormalization") == 0;
        if (strcmp(call->target, "onnx.Conv") == 0 && has_bias)
            n_changed += strncmp(block->names[call->args[2].arg.value], "onnx::Conv_", 11) == 0;
    }
    if (!m->signature) return n_changed;
    int n_before = count_means(m->signature);
    return n_before > n_norms ? n_before - n_norms : 0;
}

/* Counts parameters of PyTorch's list whose names are missing in the file. */
static int count_lost(const tti_onnx *m) {
    static const char start[] = "PARAMETER target='";
    int n = 0;
    for (const char *p = m->signature ? strstr(m->signature, start) : NULL; p;
         p = strstr(p, start)) {
        p += sizeof start - 1;
        size_t n_name = strcspn(p, "'");
        char name[512];
        if (n_name >= sizeof name) continue;
        memcpy(name, p, n_name);
        name[n_name] = '\0';
        n += tti_onnx_names_find(&m->block->values, name) < 0;
    }
    return n;
}

static bool has_unmarked_weights(const tti_onnx *m) {
    const tti_program_file *p = m->program;
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_PARAM && mark_of(m, p->inputs[i].name) < 0) return true;
    return false;
}

/* Counts batch norms of Keras that tf2onnx folded: only tensors computed from theirs remain, such
 * as LAYER/batchnorm/sub:0. */
static tutti_status count_folded_keras(tti_onnx *m, int *out) {
    static const char mark[] = "/batchnorm/";
    const tti_program_file *p = m->program;
    tti_onnx_names seen = {0};
    bool good = true;
    for (int i = 0; i < p->main.n_inputs && good; i++) {
        const char *name = p->inputs[i].name, *at = strstr(name, mark);
        if (p->inputs[i].kind != TTI_SPEC_PARAM || !at) continue;
        const char *layer = tti_arena_printf(m->arena, "%.*s", (int)(at - name), name);
        good = layer && tti_onnx_names_put(&seen, layer, i);
    }
    *out = seen.n;
    tti_onnx_names_free(&seen);
    return good ? TUTTI_OK : tti_onnx_no_memory(m);
}

static tutti_status add_note(tti_onnx *m) {
    tti_program_file *p = m->program;
    int n_folded = count_folded(m), n_lost = count_lost(m) - 2 * n_folded, n_keras;
    TTI_TRY(count_folded_keras(m, &n_keras));
    if (n_keras > 0)
        p->note = tti_arena_printf(
            m->arena,
            "exported for inference: %d batch norm%s folded into other layers, and no longer %s "
            "statistics of the batch",
            n_keras, n_keras > 1 ? "s were" : " was", n_keras > 1 ? "use" : "uses");
    else if (n_folded > 0)
        p->note = tti_arena_printf(
            m->arena,
            "exported for inference: %d batch norm%s folded into convolutions; export .pt2, or "
            "ONNX with optimize=False, to train them",
            n_folded, n_folded > 1 ? "s were" : " was");
    else if (n_lost > 0 && has_unmarked_weights(m))
        p->note = tti_arena_printf(
            m->arena,
            "exported for inference: %d parameter%s no longer under the name of the module, and "
            "parameters with equal values may have become one; export .pt2, or ONNX with "
            "optimize=False, to train them apart",
            n_lost, n_lost > 1 ? "s are" : " is");
    else
        return TUTTI_OK;
    return p->note ? TUTTI_OK : tti_onnx_no_memory(m);
}

tutti_status tti_onnx_classify(tti_onnx *m) {
    tti_program_file *p = m->program;
    size_t n = (size_t)p->main.n_values + 1;
    const marks known = {calloc(n, sizeof *known.roles), calloc(n, sizeof *known.live),
                         m->is_torch};
    tutti_status st = known.roles && known.live ? TUTTI_OK : tti_onnx_no_memory(m);
    for (int i = 0; st == TUTTI_OK && i < p->main.n_outputs; i++)
        known.live[p->main.outputs[i].value] = true;
    for (int i = p->main.n_calls - 1; st == TUTTI_OK && i >= 0; i--)
        if (!mark_call(&p->main.calls[i], &known)) st = tti_onnx_no_memory(m);
    for (int i = 0; st == TUTTI_OK && i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_BUFFER)
            st = judge(m, &p->inputs[i], known.roles[p->main.inputs[i]]);
    free(known.roles);
    free(known.live);
    return st == TUTTI_OK ? add_note(m) : st;
}
