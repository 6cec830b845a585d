/* divided.h - a worker that has a part of the model: its communication within its model group.
 *
 * Several workers may have a parameter: as tensor shards, or whole on each tensor index, or on two
 * stages.  Norms and checkpoints count only the copy of the lowest rank in the group.
 * NULL stands for a worker that has the whole model, in every function. */
#ifndef TTI_EXEC_DIVIDED_H
#define TTI_EXEC_DIVIDED_H

#include "comm/mesh.h"
#include "exec/update/flat_update.h"
#include "exec/worker/desc.h"

typedef struct tti_divided tti_divided;

/* Collective over mesh->model.  plan and mesh are borrowed.  *out is owned by the caller, also
 * after a failure; NULL: mesh is NULL. */
tutti_status tti_divided_create(const tti_plan *plan, const tti_mesh *mesh, tti_divided **out);
void tti_divided_destroy(tti_divided *d);

/* Whether this worker's tensor shard of a slot is the one that counts. */
bool tti_divided_counts(const tti_divided *d, int slot);

/* Sums over own blocks of partials: one value each, or two for each block by slot, in norms. */
double tti_divided_own_blocks(const tti_divided *d, const tti_plan *plan, const double *partials);
void tti_divided_own_slots(const tti_divided *d, const tti_plan *plan, const double *partials,
                           double *norms);

/* Whether this worker adds the slot's squares for its stage: they are summed over tensor shards
 * alone. */
bool tti_divided_counts_here(const tti_divided *d, int slot);

/* ---- collective over the model group ---- */

/* Sums of the shards, [n_sums], are those of the last stage; votes are added over all workers. */
tutti_status tti_divided_sums(const tti_divided *d, double *sums, size_t n_sums, double *votes);

/* The sum over the workers of a term of each. */
tutti_status tti_divided_add(const tti_divided *d, double *term);

/* Squares of parameters and their steps, [n_slots][2]: of tensor shards they become those
 * of the whole.  Collective over the tensor group. */
tutti_status tti_divided_squares(const tti_divided *d, double *squares);

/* Sums of squares by block in the update's partials, n_sums of them, one or two for each block:
 * their totals, over all or for each slot, become those of all parts of the model.  Collective over
 * the model group, or the tensor group. */
tutti_status tti_divided_partials(const tti_divided *d, const tti_plan *plan, tti_update *update,
                                  size_t n_sums);

/* Combines the hashes of the parts, [n] in the order of ranks: stages add up to the hash of the
 * undivided model; tensor shards have a hash of their own. */
uint64_t tti_divided_join_hashes(const tti_mesh_at *size, const uint64_t *hashes, int n);

/* *hash of this worker's part becomes one of all parts. */
tutti_status tti_divided_hash(const tti_divided *d, uint64_t *hash);

/* Tensor shards that several workers hold must be equal: hashes [n_slots], of their bytes. */
tutti_status tti_divided_check(const tti_divided *d, const int64_t *hashes, uint64_t step);

/* ---- which worker of a replica has which tensor shard of which parameter ---- */

/* The identity of a part of a parameter among all workers. */
typedef struct tti_tensor_shard_id {
    uint64_t name; /* hash; 0: no more slots */
    uint64_t cut;  /* which tensor shard of the whole; 0: all of it */
} tti_tensor_shard_id;

struct tti_divided {
    const tti_plan *plan;
    const tti_mesh *mesh;
    int rank, n_ranks;           /* in the model group */
    size_t n_most;               /* slots of the worker that has the most */
    tti_tensor_shard_id *ids;    /* [n_ranks][n_most] */
    float *whole, *tensor_shard; /* of the requested parameter; grown on demand */
    size_t whole_elems, tensor_shard_elems;
};

tti_tensor_shard_id tti_tensor_shard_id_of(const tti_node *param);

/* Those of a worker, [n_most]: of its slots, and then zeros. */
const tti_tensor_shard_id *tti_tensor_shard_ids(const tti_divided *d, int rank);

/* Whether it is the first worker with that tensor shard. */
bool tti_tensor_shard_counts(const tti_divided *d, int rank, const tti_tensor_shard_id *id);

#endif /* TTI_EXEC_DIVIDED_H */
