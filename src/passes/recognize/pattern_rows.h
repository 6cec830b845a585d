/* pattern_rows.h - the table of patterns: one row each. */
#ifndef TTI_PASSES_RECOGNIZE_PATTERN_ROWS_H
#define TTI_PASSES_RECOGNIZE_PATTERN_ROWS_H

#include "passes/recognize/match.h"

enum { TTI_MAX_SPELLINGS = 12 };

/* A pattern: spellings with fits, or find, which fills m->inner itself and says whether the match
 * that ends at m->root is the pattern. */
typedef struct tti_row {
    const char *name; /* in reports; NULL: a step on the way to another row */
    const char *spellings[TTI_MAX_SPELLINGS]; /* see match.h; NULL ends the list */
    bool (*fits)(tti_match *m);
    bool (*find)(tti_match *m);
    /* Adds the replacement to the new graph; returns the value that replaces output 0 of root. */
    tutti_value *(*build)(tti_rewrite *rw, const tti_match *m);
} tti_row;

/* Families, each ended by a row without build. */
extern const tti_row tti_rows_norm[], tti_rows_activation[], tti_rows_attention[],
    tti_rows_rotary[], tti_rows_loss[], tti_rows_view[], tti_rows_slice[], tti_rows_turn[];

/* x[N,R,..] with rows [R] of each N in place of rows 0 .. R-1. */
tutti_value *tti_new_gather(tti_rewrite *rw, tutti_value *x, const int32_t *rows);

/* The same op, with other inputs. */
tutti_value *tti_new_like(tti_rewrite *rw, const tti_node *node, tutti_value *const *in);

/* Ops of the new graph with one input. */
tutti_value *tti_new_reshape(tti_rewrite *rw, tutti_value *x, const tutti_shape *to);
tutti_value *tti_new_permute(tti_rewrite *rw, tutti_value *x, const int *perm, int n);
tutti_value *tti_new_affine(tti_rewrite *rw, tutti_value *x, double alpha, double beta);

#endif /* TTI_PASSES_RECOGNIZE_PATTERN_ROWS_H */
