/* init.h - initial values of parameters, from seed, name and position only. */
#ifndef TTI_OPS_INIT_H
#define TTI_OPS_INIT_H

#include "ir/graph.h"
#include "ops/draw.h"

/* Writes the initial values of a parameter node to out, one float for each element.  The numbers
 * are a function of seed, the parameter's name, its shape and its initialisation; a shard has those
 * of the whole that are its own (ops/tensor_shard.h). */
void tti_init_param(const tti_node *param, uint64_t seed, float *out);

/* The same for elements first .. last-1, to out[0 .. last-first-1]. */
void tti_init_param_range(const tti_node *param, uint64_t seed, size_t first, size_t last,
                          float *out);

/* The same as separate draws, for code that draws on another device: the elements from *first on
 * that are contiguous in the whole parameter; *first becomes the next one.  Returns false at the
 * end. */
bool tti_init_next(const tti_node *param, uint64_t seed, size_t *first, size_t last,
                   tti_draws *out);

#endif /* TTI_OPS_INIT_H */
