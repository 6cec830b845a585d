/* divided.h - communication of a worker with the other workers of a divided model.
 *
 * Several workers may have a parameter: as tensor shards, or whole on each tensor index, or on two
 * stages. Norms and checkpoints count only the copy of the lowest rank in the group. Every function
 * accepts NULL for a worker that has the whole model. */
#ifndef TTI_EXEC_DIVIDED_H
#define TTI_EXEC_DIVIDED_H

#include "comm/mesh.h"
#include "exec/update/flat_update.h"
#include "exec/worker/desc.h"

typedef struct tti_divided tti_divided;

/* Collective over mesh->model. Borrows plan and mesh. The caller owns *out, also after a failure;
 * it is NULL if mesh is NULL. */
tutti_status tti_divided_create(const tti_plan *plan, const tti_mesh *mesh, tti_divided **out);
void tti_divided_destroy(tti_divided *d);

/* True if this worker's tensor shard of a slot is the copy that counts. */
bool tti_divided_counts(const tti_divided *d, int slot);

/* Sums partials over own blocks: one value per block; or two per block, added by slot into
 * norms. */
double tti_divided_own_blocks(const tti_divided *d, const tti_plan *plan, const double *partials);
void tti_divided_own_slots(const tti_divided *d, const tti_plan *plan, const double *partials,
                           double *norms);

/* True if this worker adds the slot's squares for its stage, because they are summed only over
 * tensor shards. */
bool tti_divided_counts_here(const tti_divided *d, int slot);

/* ---- collective over the model group ---- */

/* Replaces sums [n_sums] by those of the last stage. Adds votes over all workers. */
tutti_status tti_divided_sums(const tti_divided *d, double *sums, size_t n_sums, double *votes);

/* Replaces *term by the sum over the workers. */
tutti_status tti_divided_add(const tti_divided *d, double *term);

/* Squares of parameters and their steps, [n_slots][2]: those of tensor shards become those of the
 * whole parameter.  Collective over the tensor group. */
tutti_status tti_divided_squares(const tti_divided *d, double *squares);

/* Sums of squares by block in the update's partials, n_sums of them, one or two per block.  Their
 * totals, over all blocks or by slot, become those of the whole model.  Collective over the model
 * group, or the tensor group. */
tutti_status tti_divided_partials(const tti_divided *d, const tti_plan *plan, tti_update *update,
                                  size_t n_sums);

/* Combines the hashes of the parts, [n] in the order of ranks.  The hashes of stages add up to the
 * hash of the undivided model; with tensor shards the hash is a different one. */
uint64_t tti_divided_join_hashes(const tti_mesh_at *size, const uint64_t *hashes, int n);

/* Replaces *hash, of this worker's part, by the combined hash of all parts. */
tutti_status tti_divided_hash(const tti_divided *d, uint64_t *hash);

/* Compares tensor shards that several workers hold: hashes [n_slots], of their bytes.
 * TUTTI_E_MISMATCH if they differ. */
tutti_status tti_divided_check(const tti_divided *d, const int64_t *hashes, uint64_t step);

/* ---- the table of tensor shards of all workers of a replica ---- */

/* Identifies a part of a parameter among all workers. */
typedef struct tti_tensor_shard_id {
    uint64_t name; /* hash; 0: no more slots */
    uint64_t cut;  /* digest of the tensor shard's position; 0: the whole parameter */
} tti_tensor_shard_id;

struct tti_divided {
    const tti_plan *plan;
    const tti_mesh *mesh;
    int rank, n_ranks;           /* in the model group */
    size_t n_most;               /* slots of the worker that has most */
    tti_tensor_shard_id *ids;    /* [n_ranks][n_most] */
    float *whole, *tensor_shard; /* of the requested parameter; grown when needed */
    size_t whole_elems, tensor_shard_elems;
};

tti_tensor_shard_id tti_tensor_shard_id_of(const tti_node *param);

/* The ids of a worker's slots, [n_most], followed by zeros. */
const tti_tensor_shard_id *tti_tensor_shard_ids(const tti_divided *d, int rank);

/* True if rank is the first worker with that tensor shard. */
bool tti_tensor_shard_counts(const tti_divided *d, int rank, const tti_tensor_shard_id *id);

#endif /* TTI_EXEC_DIVIDED_H */
