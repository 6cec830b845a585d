/* mesh.c - index arithmetic of the mesh, and a communicator for each of its axes. */
#include "comm/mesh.h"

#include "base/error.h"
#include "comm/subgroup.h"

bool tti_mesh_shape(int n_ranks, int n_stages, int n_tensor, tti_mesh_at *size) {
    if (n_stages < 1 || n_tensor < 1 || n_ranks < 1) return false;
    if (n_stages > n_ranks || n_ranks % n_stages != 0) return false;
    if (n_ranks / n_stages % n_tensor != 0) return false;
    *size = (tti_mesh_at){n_ranks / n_stages / n_tensor, n_stages, n_tensor};
    return true;
}

int tti_mesh_rank(const tti_mesh_at *size, const tti_mesh_at *at) {
    return at->data * tti_mesh_n_model(size) + tti_mesh_model_rank(size, at);
}

tti_mesh_at tti_mesh_at_rank(const tti_mesh_at *size, int rank) {
    int n_model = tti_mesh_n_model(size);
    return (tti_mesh_at){rank / n_model, rank % n_model / size->tensor, rank % size->tensor};
}

int tti_mesh_n_model(const tti_mesh_at *size) { return size->stage * size->tensor; }

int tti_mesh_model_rank(const tti_mesh_at *size, const tti_mesh_at *at) {
    return at->stage * size->tensor + at->tensor;
}

static tutti_status divide(tti_mesh *m) {
    const tti_mesh_at *size = &m->size, *at = &m->at;
    TTI_TRY(tti_comm_split(m->world, tti_mesh_model_rank(size, at), &m->data));
    TTI_TRY(tti_comm_split(m->world, at->data, &m->model));
    TTI_TRY(tti_comm_split(m->world, at->data * size->stage + at->stage, &m->tensor));
    return tti_comm_split(m->world, at->data * size->tensor + at->tensor, &m->pipeline);
}

tutti_status tti_mesh_init(tutti_comm *world, const tti_mesh_at *size, tti_mesh *out) {
    int n_ranks = world ? tutti_comm_n_ranks(world) : 1, rank = world ? tutti_comm_rank(world) : 0;
    if (size->data * tti_mesh_n_model(size) != n_ranks)
        return tti_fail(TUTTI_E_INVALID, "mesh: %d x %d x %d places for %d ranks", size->data,
                        size->stage, size->tensor, n_ranks);
    *out = (tti_mesh){.size = *size, .at = tti_mesh_at_rank(size, rank), .world = world};
    tutti_status st = world ? divide(out) : TUTTI_OK;
    if (st != TUTTI_OK) tti_mesh_fini(out);
    return st;
}

void tti_mesh_fini(tti_mesh *m) {
    tutti_comm_destroy(m->pipeline);
    tutti_comm_destroy(m->tensor);
    tutti_comm_destroy(m->model);
    tutti_comm_destroy(m->data);
    m->pipeline = m->tensor = m->model = m->data = NULL;
}
