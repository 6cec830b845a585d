/* reference_run.h - evaluates a graph with the plain-C meaning of its ops, in double.
 *
 * Shared by the tests of ops, passes and exec.  It knows graphs only through node->op->reference,
 * so it links with base alone. */
#ifndef TTI_TESTS_REFERENCE_RUN_H
#define TTI_TESTS_REFERENCE_RUN_H

#include "ir/graph.h"

typedef struct t_reference {
    const tutti_graph *g;
    double **value; /* [g->n_values] by value id, row-major; owned */
    bool rounds;    /* set before the run: every value is kept as its dtype would, sources too */
} t_reference;

/* Memory for every value of g, which must not grow after; zeroed, constants filled. */
t_reference *t_reference_create(const tutti_graph *g);
void t_reference_destroy(t_reference *r);

/* The elements of a value, to be written for inputs and parameters, read for the others. */
double *t_reference_of(const t_reference *r, const tutti_value *value);

/* Computes every value that is not a source. */
void t_reference_run(t_reference *r, const tti_run *run);

#endif /* TTI_TESTS_REFERENCE_RUN_H */
