/* mesh.h - the mesh of workers: data x pipeline stages x tensor shards.
 *
 *   rank = (data * n_stages + stage) * n_tensor + tensor
 *
 * Neighbours on the tensor axis, which communicate most, are neighbours in rank.  Ranks with the
 * same data index together hold one copy of the model: the model group.  Ranks with the same stage
 * and tensor index hold the same part of the model and divide the batch: the data group. */
#ifndef TTI_COMM_MESH_H
#define TTI_COMM_MESH_H

#include "tutti/comm.h"

/* A position in the grid, or the extents of the grid. */
typedef struct tti_mesh_at {
    int data, stage, tensor;
} tti_mesh_at;

/* The view of one rank.  Each communicator contains the ranks that differ from this one only in the
 * named axes, numbered along them; NULL: no other rank does. */
typedef struct tti_mesh {
    tti_mesh_at size, at;
    tutti_comm *world;    /* borrowed: all ranks */
    tutti_comm *data;     /* same stage, same tensor index; rank: at.data */
    tutti_comm *tensor;   /* same data index, same stage; rank: at.tensor */
    tutti_comm *pipeline; /* same data index, same tensor index; rank: at.stage */
    tutti_comm *model;    /* same data index; rank: stage * size.tensor + tensor */
} tti_mesh;

/* Computes the grid of n_ranks with n_stages and n_tensor.  False: n_ranks is not a multiple of
 * n_stages * n_tensor. */
bool tti_mesh_shape(int n_ranks, int n_stages, int n_tensor, tti_mesh_at *size);

int tti_mesh_rank(const tti_mesh_at *size, const tti_mesh_at *at);
tti_mesh_at tti_mesh_at_rank(const tti_mesh_at *size, int rank);

/* The number of ranks of a model group, and a rank's number in it. */
int tti_mesh_n_model(const tti_mesh_at *size);
int tti_mesh_model_rank(const tti_mesh_at *size, const tti_mesh_at *at);

/* Creates the communicators of the mesh that the ranks of world form. world NULL: a mesh of one
 * rank. world must outlive the mesh.  On success fini frees *out; on failure there is nothing to
 * free.  Collective over world. */
TUTTI_NODISCARD tutti_status tti_mesh_init(tutti_comm *world, const tti_mesh_at *size,
                                           tti_mesh *out);
void tti_mesh_fini(tti_mesh *mesh);

#endif /* TTI_COMM_MESH_H */
