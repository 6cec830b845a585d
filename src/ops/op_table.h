/* op_table.h - the list of all ops, by family, and how to add a node by op name. */
#ifndef TTI_OPS_OP_TABLE_H
#define TTI_OPS_OP_TABLE_H

#include "ir/graph.h"

/* The op of that name, NULL if there is none. */
const tti_op *tti_op_find(const char *name);

/* Ops in order of their families: i = 0, 1, ... until NULL. */
const tti_op *tti_op_at(int i);

/* Emits a node by op name and returns its first output, NULL on a (sticky) failure.  An unknown
 * op is a bug and asserts.  attrs may be NULL; name may be NULL. */
tutti_value *tti_emit(tutti_graph *g, const char *op, const char *name, tutti_value *const *in,
                      int n_in, const tti_attr_arg *attrs);

/* The same with all outputs: out[0 .. op->n_out-1]; all NULL on failure, unchanged if g is NULL. */
void tti_emit_n(tutti_graph *g, const char *op, const char *name, tutti_value *const *in, int n_in,
                const tti_attr_arg *attrs, tutti_value **out);

/* tutti_input whose elements lie at so many bytes from the start of a shard's samples. */
tutti_value *tti_input_field(tutti_graph *g, const char *name, const tutti_type *type,
                             size_t offset);

/* Attribute "reach" of a parameter: how it depends on the loss, as tti_mark_unreached finds it.
 * Without a gradient it stays as it is; with one of zeros it is updated: weight decay applies. */
enum { TTI_GRAD_REACHES, TTI_GRAD_IS_MISSING, TTI_GRAD_IS_ZERO };

/* The matrix [M,N] of which value[N,M] is the transposition, by its node; NULL: it is none. */
tutti_value *tti_turned_matrix(const tutti_value *value);

/* Asserts that the table is complete: names unique, callbacks present, samples there. */
void tti_op_table_check(void);

#endif /* TTI_OPS_OP_TABLE_H */
