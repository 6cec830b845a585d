/* unrecognized.c - finds computations that look like a pattern after the pass, and the reason why
 * they do not match.
 *
 * A rough search: each kind of pattern is found by an operator that hardly occurs elsewhere.  The
 * cost is the memory of values that the backward pass keeps and one op would not keep. */
#include "passes/passes.h"
#include "passes/recognize/attention.h"
#include "passes/recognize/recognize.h"

static const tti_node *maker(const tti_node *node, int i) { return node->in[i]->node; }

static bool is_last_axis(const tti_node *node, const char *attr) {
    const tti_attr *a = tti_attr_get(node, attr);
    int64_t last = node->in[0]->type.shape.n_dims - 1;
    bool one = node->op->attrs && a->n == 1;
    return one && (a->v[0] == last || a->v[0] == -1);
}

/* The node before some linear steps. */
static const tti_node *before_steps(tti_scene *s, const tutti_value *x) {
    double a, b;
    for (tutti_value *next; (next = tti_linear_step(s, x, &a, &b)) != NULL;) x = next;
    return x->node;
}

static bool is_square(const tti_node *node) {
    return tti_is_op(node, "square") || tti_is_op(node, "pow") ||
           (tti_is_op(node, "mul") && node->in[0] == node->in[1]);
}

/* An attention, with its reason. */
static const char *attention(tti_scene *s, const tti_node *node, double *n_elems) {
    tti_match m = {.scene = s, .root = node};
    tti_attention a;
    if (!tti_is_op(node, "matmul") || !tti_attention_read(&m, &a)) return NULL;
    bool drops = (maker(node, 0)->op->traits & TTI_RANDOM) != 0;
    *n_elems = (double)a.n_scores * (drops ? 2 : 1);
    return a.why ? a.why : "its scores or weights are used elsewhere too";
}

/* The root of a mean of squares. */
static const char *norm(tti_scene *s, const tti_node *node, double *n_elems) {
    if (!tti_is_op(node, "sqrt")) return NULL;
    const tti_node *reduced = before_steps(s, node->in[0]);
    if (tti_is_op(reduced, "reshape")) reduced = maker(reduced, 0);
    if (!tti_is_op(reduced, "mean") && !tti_is_op(reduced, "sum")) return NULL;
    if (!is_square(maker(reduced, 0)) || !s->of_input[node->out[0]->id]) return NULL;
    *n_elems = (double)tti_value_n_elems(reduced->in[0]);
    return is_last_axis(reduced, "axes") ? "it has none of the known forms"
                                         : "it does not run over the last axis";
}

static const char *gelu(tti_scene *s, const tti_node *node, double *n_elems) {
    (void)s;
    if (!tti_is_op(node, "erf")) return NULL;
    *n_elems = 2 * (double)tti_value_n_elems(node->out[0]);
    return "its constants are not those of GELU";
}

/* The value of which x is a slice, maybe through views; NULL: none. */
static const tutti_value *part_of(const tutti_value *x) {
    while (tti_is_op(x->node, "transpose") || tti_is_op(x->node, "reshape")) x = x->node->in[0];
    return tti_is_op(x->node, "slice") ? x->node->in[0] : NULL;
}

/* (-x2, x1) */
static const char *rotary(tti_scene *s, const tti_node *node, double *n_elems) {
    double a, b;
    if (!tti_is_op(node, "concat") || node->n_in != 2) return NULL;
    const tutti_value *x = tti_linear_step(s, node->in[0], &a, &b);
    if (!x || a != -1 || !part_of(x) || part_of(x) != part_of(node->in[1])) return NULL;
    *n_elems = 2 * (double)tti_value_n_elems(node->out[0]);
    return "its angles do not follow from one base, or are not constant";
}

/* Whether node is act(a) b of two values of one shape. */
static bool is_gate(const tti_scene *s, const tti_node *node, const char *act, double *n_elems) {
    if (!tti_is_op(node, "mul") || !s->of_input[node->in[0]->id]) return false;
    if (!tti_is_op(maker(node, 0), act) && !tti_is_op(maker(node, 1), act)) return false;
    *n_elems = (double)tti_value_n_elems(node->out[0]);
    return s->of_input[node->in[1]->id] &&
           tti_shape_equal(&node->in[0]->type.shape, &node->in[1]->type.shape);
}

static const char other_gate[] = "gate and value are not linear layers of the same input";

static const char *gate(tti_scene *s, const tti_node *node, double *n_elems) {
    return is_gate(s, node, "silu", n_elems) ? other_gate : NULL;
}

static const char *gelu_gate(tti_scene *s, const tti_node *node, double *n_elems) {
    return is_gate(s, node, "gelu", n_elems) ? other_gate : NULL;
}

static const char *entropy(tti_scene *s, const tti_node *node, double *n_elems) {
    if (!tti_is_op(node, "log_softmax")) return NULL;
    *n_elems = (double)tti_value_n_elems(node->out[0]);
    for (int i = s->first_user[node->out[0]->id]; i < s->first_user[node->out[0]->id + 1]; i++)
        if (tti_is_op(s->user[i], "take_along") || tti_is_op(s->user[i], "mul"))
            return "its rows are weighted or not summed";
    return NULL;
}

static const struct {
    const char *name;
    const char *(*why)(tti_scene *s, const tti_node *node, double *n_elems);
} kinds[] = {{"attention", attention},     {"norm", norm},   {"GELU", gelu},
             {"rotary positions", rotary}, {"SwiGLU", gate}, {"GeGLU", gelu_gate},
             {"cross entropy", entropy}};

tutti_status tti_find_unrecognized(const tutti_graph *g, int64_t n_samples, tti_findings *found) {
    tti_scene s;
    TTI_TRY(tti_scene_begin(&s, g));
    for (int i = 0; i < g->n_nodes; i++)
        for (size_t k = 0; k < TTI_COUNT(kinds); k++) {
            double n_elems = 0;
            const char *why = kinds[k].why(&s, g->nodes[i], &n_elems);
            if (!why) continue;
            tti_finding *f = tti_findings_add(found, kinds[k].name, g->nodes[i]);
            f->why = why;
            f->n_bytes = 4 * n_elems / (double)TTI_MAX(n_samples, 1);
        }
    tti_scene_end(&s);
    return TUTTI_OK;
}
