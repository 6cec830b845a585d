/* layer_hashes.h - hashes of what each layer of a shard gives: those of a step, and of a shard that
 * is computed again (tti_exec_watch_shard and what follows it in exec.h). */
#ifndef TTI_EXEC_LAYER_HASHES_H
#define TTI_EXEC_LAYER_HASHES_H

#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_layer_hashes {
    int shard;        /* that is watched; -1: none */
    uint64_t *hashes; /* [n_layers]; NULL: nothing was watched yet */
    float *grads;     /* [n_flat], of shards that are computed again; NULL: none was */
} tti_layer_hashes;

/* Hashes what a step of the shard program has just written. */
void tti_layer_hash(const tti_exec *exec, tti_instance *instance, int step, uint64_t *hashes);

tutti_status tti_layer_hashes_watch(const tti_exec *exec, int shard, tti_layer_hashes *watched);
tutti_status tti_layer_hashes_again(tti_exec *exec, const tti_step_desc *desc, int shard,
                                    const tti_shard_data *data, uint64_t *hashes);
void tti_layer_hashes_fini(const tti_exec *exec, tti_layer_hashes *watched);

#endif /* TTI_EXEC_LAYER_HASHES_H */
