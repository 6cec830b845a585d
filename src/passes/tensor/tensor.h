/* tensor.h - how the nodes of a graph are divided over the workers of a tensor axis. */
#ifndef TTI_PASSES_TENSOR_H
#define TTI_PASSES_TENSOR_H

#include "base/str.h"
#include "passes/passes.h"

/* A cut in one byte, so that how all values lie is a short text. */
typedef uint8_t tti_cut_code;

enum {
    TTI_CODE_NONE, /* undecided */
    TTI_CODE_WHOLE,
    TTI_CODE_PARTIAL,
    TTI_CODE_OWN,
    TTI_CODE_SPLIT, /* + dim + TUTTI_MAX_DIMS * (groups - 1) */
    TTI_MAX_GROUPS = 3,
    TTI_N_CODES = TTI_CODE_SPLIT + TUTTI_MAX_DIMS * TTI_MAX_GROUPS
};

tti_cut_code tti_code_of(tti_cut cut);
tti_cut tti_cut_of(tti_cut_code code);
tti_cut_code tti_code_split(int dim, int groups);
bool tti_code_is_split(tti_cut_code code);

/* True if a value of that shape can be cut so for n workers. */
bool tti_code_divides(tti_cut_code code, const tutti_shape *shape, int n);

/* Whole, and all splits of such a value from dimension first_dim on that n workers can have, as
 * bits. */
uint32_t tti_tensor_codes(const tutti_shape *shape, int first_dim, int n);

/* One strategy to run a node: the placements of its inputs, and the resulting ones of its outputs.
 */
typedef struct tti_strategy {
    tti_cut_code in[TTI_MAX_IN], out[TTI_MAX_OUT];
    bool by_cut; /* op->cut allows it, op->emit_cut makes it */
    /* The workers' results are terms of a sum, to which the last input, a bias, is added when they
     * lie as out[0]. */
    bool adds_bias;
    bool divides; /* not every worker does all of it */
    double cost;  /* of it for one worker, with the sum before the bias */
} tti_strategy;

/* The chosen division. */
typedef struct tti_division {
    tti_strategy *strategies; /* [n_nodes]; not of sources */
    tti_cut_code *lie;        /* [n_values]: how its producer leaves it */
    bool *wanted;             /* [n_values]: a gradient flows into it */
    double share; /* fraction of all parameter elements that belong to divided parameters */
} tti_division;

/* The cheapest division over n workers: arithmetic, communicated bytes, and undivided parameters,
 * by the ops' rules and costs.  The same on every worker. like: the required placement of the
 * parameters of those names; NULL: the cheapest.  On success fini frees *out. */
tutti_status tti_tensor_divide(const tutti_graph *g, int n, const tti_cuts *like,
                               tti_division *out);
void tti_tensor_division_fini(tti_division *division);

/* Largest number of workers that messages suggest: as many as there may be. */
enum { TTI_TENSOR_MOST_TRIED = 64 };

/* tensor_uneven.c: how many layers of g n workers cannot divide though another number up to 16
 * could, because n divides none of their heads, channels or features; *first: the first of them, or
 * NULL. */
int tti_tensor_uneven(const tutti_graph *g, int n, const tti_node **first);

/* Appends the numbers of workers that divide enough of g, either with all layers even or with some
 * uneven, such as "2, 4"; or that no number does. */
tutti_status tti_tensor_numbers(const tutti_graph *g, bool even, tti_str *out);

/* Appends kind, name and sizes of a layer that tti_tensor_uneven has found. */
void tti_tensor_layer_text(const tti_node *layer, tti_str *out);

/* Whether enough parameters are divided for the communication to pay off. */
bool tti_tensor_suffices(const tti_division *division);

/* Heads of the first attention that n workers cannot divide, because n does not divide them,
 * some share keys, or rotary positions come before; 0: there is none. */
int64_t tti_tensor_whole_heads(const tutti_graph *g, int n);

/* tensor_strategies.c: the strategies of a node whose inputs can be had as the bits of may [n_in]
 * say (bit: a code); at most max.  Returns how many there are. */
int tti_tensor_strategies(const tti_node *node, int n, bool training, const uint32_t *may,
                          tti_strategy *out, int max);

/* Cost of bringing n_bytes of a whole value to every worker from parts, or to parts from terms. */
double tti_tensor_move_cost(double n_bytes, int n);

#endif /* TTI_PASSES_TENSOR_H */
