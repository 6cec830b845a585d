/* match.h - finds computations that are written out in primitive operators.
 *
 * A pattern is a text such as "mul(x, sigmoid(L1(x)))": ops by name, and
 *   x        a lower-case letter: any value, the same one at each of its places
 *   op@1(..) the node is kept as node[1], so that the row can look at its attributes
 *   L1(p)    p after any number of steps alpha p + beta with constants: factor[1], shift[1]
 *   M1(p)    the mean of p over its last axis, which is kept as 1: factor[1] is 1; or the sum,
 *            factor[1] is the number of its elements
 *   K1       a constant of equal elements: factor[1]
 *   sq(p), cube(p), rsqrt(p)   p^2, p^3, p^-1/2, however written
 * Inputs of commutative ops are tried in both orders. */
#ifndef TTI_PASSES_RECOGNIZE_MATCH_H
#define TTI_PASSES_RECOGNIZE_MATCH_H

#include "passes/rewrite.h"

enum { TTI_MATCH_SLOTS = 10, TTI_MATCH_INNER = 64 };

/* Facts about a graph while patterns are searched in it. */
typedef struct tti_scene {
    const tutti_graph *g;
    tti_arena arena;
    int *first_user;       /* [n_values + 1]: users of value v are user[first_user[v] ..] */
    const tti_node **user; /* a node that reads a value twice stands there twice */
    bool *is_output;       /* [n_values] */
    bool *of_input;        /* [n_values]: depends on an input, or is random */
    bool *is_constant;     /* [n_values]: depends on constants alone */
    struct tti_constant_elems *elems; /* [n_values]: filled when asked for */
    tti_placement *placed;            /* [n_values]: how the batch lies; NULL: not known */
    bool *taken;                      /* [n_nodes]: inside of a match */
    int *mark, stamp;                 /* [n_nodes] */
    const tutti_value *cos, *sin;     /* the last tables of rotary positions, and their base */
    double base;
} tti_scene;

tutti_status tti_scene_begin(tti_scene *s, const tutti_graph *g);
void tti_scene_end(tti_scene *s);

/* The elements of a value that depends on constants alone, row-major; NULL: it does not, or it is
 * too large, or memory is short. */
const double *tti_constant_of(tti_scene *s, const tutti_value *value);

/* Whether all elements of such a value are the same number. */
bool tti_is_uniform(tti_scene *s, const tutti_value *value, double *x);

/* x if one node computes value = alpha x + beta; NULL: none does. */
tutti_value *tti_linear_step(tti_scene *s, const tutti_value *value, double *alpha, double *beta);

/* Whether dimension 0 of a value is that of the batch, or the value is the same for all samples. */
bool tti_batch_is_first(const tti_scene *s, const tutti_value *value);

/* Samples of a shard: the fewest rows of an input that is divided by rows; 0: there is none. */
int64_t tti_scene_samples(const tti_scene *s);

typedef struct tti_match {
    tti_scene *scene;
    const tti_node *root;
    tutti_value *var[26];                  /* by letter */
    const tti_node *node[TTI_MATCH_SLOTS]; /* op@N */
    double factor[TTI_MATCH_SLOTS], shift[TTI_MATCH_SLOTS];
    const tti_node *inner[TTI_MATCH_INNER]; /* nodes that the replacement makes superfluous */
    int n_inner;
    const char *name;  /* what it is reported as, where it is not the row's name */
    const void *found; /* of rows without a pattern text: for their build, in the scene's arena */
} tti_match;

#define TTI_VAR(m, letter) ((m)->var[(letter) - 'a'])

/* Adds a node to the inside of a match; false if the match is full. */
bool tti_match_take(tti_match *m, const tti_node *node);

/* A pattern that has been read. */
typedef struct tti_pattern tti_pattern;

/* Owned by the arena; NULL: no memory.  A text that is not a pattern is a bug and asserts. */
const tti_pattern *tti_pattern_read(tti_arena *arena, const char *text);

/* Whether root's first output is the pattern, the match is closed, and fits accepts it; other
 * choices are tried while they do not. */
bool tti_pattern_match(const tti_pattern *p, const tti_node *root, bool (*fits)(tti_match *m),
                       tti_match *m);

/* Whether no value inside the match, but for that of its root, is read outside or is an output. */
bool tti_match_is_closed(const tti_match *m);

/* |x - y| is at most 1e-6 of y. */
bool tti_close_to(double x, double y);

#endif /* TTI_PASSES_RECOGNIZE_MATCH_H */
