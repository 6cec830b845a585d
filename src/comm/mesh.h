/* mesh.h - the mesh of workers: data x pipeline stages x tensor shards.
 *
 *   rank = (data * n_stages + stage) * n_tensor + tensor
 *
 * Neighbours on the tensor axis, which communicate most, are neighbours in rank.  Ranks with one
 * data index hold one copy of the model together: the model group.  Ranks with one stage and tensor
 * index hold the same part of it and divide the batch: the data group. */
#ifndef TTI_COMM_MESH_H
#define TTI_COMM_MESH_H

#include "tutti/comm.h"

/* A place in the grid, or its extents. */
typedef struct tti_mesh_at {
    int data, stage, tensor;
} tti_mesh_at;

/* The view of one rank.  Each communicator joins the ranks that differ from this one only in the
 * named axes, numbered along them; NULL: this rank is alone there. */
typedef struct tti_mesh {
    tti_mesh_at size, at;
    tutti_comm *world;    /* borrowed: all ranks */
    tutti_comm *data;     /* same stage, same tensor index; rank: at.data */
    tutti_comm *tensor;   /* same data index, same stage; rank: at.tensor */
    tutti_comm *pipeline; /* same data index, same tensor index; rank: at.stage */
    tutti_comm *model;    /* same data index; rank: stage * size.tensor + tensor */
} tti_mesh;

/* The grid of n_ranks with so many stages and tensor shards; false: n_ranks is not a multiple of
 * them.
 */
bool tti_mesh_shape(int n_ranks, int n_stages, int n_tensor, tti_mesh_at *size);

int tti_mesh_rank(const tti_mesh_at *size, const tti_mesh_at *at);
tti_mesh_at tti_mesh_at_rank(const tti_mesh_at *size, int rank);

/* Ranks of a model group, and the number of a place in it. */
int tti_mesh_n_model(const tti_mesh_at *size);
int tti_mesh_model_rank(const tti_mesh_at *size, const tti_mesh_at *at);

/* Collective over world, whose ranks form the mesh; NULL: a mesh of one.  World must outlive the
 * mesh.  On success fini frees *out; on failure there is nothing to free. */
TUTTI_NODISCARD tutti_status tti_mesh_init(tutti_comm *world, const tti_mesh_at *size,
                                           tti_mesh *out);
void tti_mesh_fini(tti_mesh *mesh);

#endif /* TTI_COMM_MESH_H */
