/* checkpoint_divided.c - reads and writes a parameter of the whole model, of which each worker of a
 * replica has a piece or nothing. */
#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"
#include "exec/exec.h"
#include "exec/worker/worker.h"

/* The first worker's request to the others. */
typedef struct request {
    int64_t k; /* END: nothing more */
    uint64_t name;
} request;

enum { END = -3 };

static tutti_status grow(float **memory, size_t *n_elems, size_t wanted) {
    if (*n_elems >= wanted && *memory) return TUTTI_OK;
    free(*memory);
    *memory = malloc(wanted * sizeof **memory + 64);
    *n_elems = *memory ? wanted : 0;
    return *memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu floats of a parameter", wanted);
}

static tutti_status ask(const tti_divided *d, request *want) {
    return tutti_comm_broadcast(d->mesh->model, want, sizeof *want, TUTTI_U8, 0);
}

/* This worker's array k of a slot; its data group gathers sharded values. */
static tutti_status own_array(tti_exec *x, int k, int slot, const float **data) {
    const tti_slot *s = &tti_setup_of(x)->desc.plan->slots[slot];
    return tti_exec_fetch(x, k, s->first, s->n_elems, data);
}

/* Answers for every piece of the parameter that counts. */
static tutti_status answer(tti_exec *x, const request *want) {
    const tti_divided *d = tti_setup_of(x)->divided;
    for (int i = 0; i < d->plan->n_slots; i++) {
        const tti_piece_id *id = &tti_piece_ids(d, d->rank)[i];
        const float *data;
        if (id->name != want->name || !tti_piece_counts(d, d->rank, id)) continue;
        TTI_TRY(own_array(x, (int)want->k, i, &data));
        TTI_TRY(tutti_comm_send(d->mesh->model, data, d->plan->slots[i].n_elems, TUTTI_F32, 0));
    }
    return TUTTI_OK;
}

/* A piece put at its places in the whole parameter, or taken from there. */
static void place(const tutti_shape *shape, uint64_t cut, float *whole, float *piece, bool take) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), inner = 1, outer = 1;
    if (cut == 0) {
        memcpy(take ? piece : whole, take ? whole : piece, n_elems * sizeof *whole);
        return;
    }
    int dim = (int)(cut >> 48) - 1;
    size_t groups = cut >> 32 & 0xffff, n = cut >> 16 & 0xffff, index = cut & 0xffff;
    for (int i = dim + 1; i < shape->n_dims; i++) inner *= (size_t)shape->dim[i];
    for (int i = 0; i < dim; i++) outer *= (size_t)shape->dim[i];
    size_t run = (size_t)shape->dim[dim] / groups / n * inner;
    for (size_t i = 0; i < outer * groups; i++) {
        float *in_whole = whole + (i * n + index) * run, *in_shard = piece + i * run;
        memcpy(take ? in_shard : in_whole, take ? in_whole : in_shard, run * sizeof *whole);
    }
}

/* Elements of such a piece; 0: it is none of this parameter, and the worker that sent its table has
 * another model. */
static size_t piece_elems(const tutti_shape *shape, uint64_t cut) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), n = cut >> 16 & 0xffff;
    int dim = (int)(cut >> 48) - 1;
    if (cut == 0) return n_elems;
    if (dim >= shape->n_dims || n == 0 || (cut >> 32 & 0xffff) == 0) return 0;
    return shape->dim[dim] % (int64_t)(n * (cut >> 32 & 0xffff)) ? 0 : n_elems / n;
}

/* The piece of another worker, or of this one, into d->whole. */
static tutti_status take_piece(tti_exec *x, const request *want, const tti_node *param, int rank,
                               int slot) {
    tti_divided *d = tti_setup_of(x)->divided;
    const tutti_shape *shape = &param->out[0]->type.shape;
    uint64_t cut = tti_piece_ids(d, rank)[slot].cut;
    size_t n_elems = piece_elems(shape, cut);
    const float *data;
    if (n_elems == 0)
        return tti_fail(TUTTI_E_INTERNAL, "exec: rank %d has another '%s'", rank, param->name);
    TTI_TRY(grow(&d->piece, &d->piece_elems, n_elems));
    if (rank == d->rank) {
        TTI_TRY(own_array(x, (int)want->k, slot, &data));
        memcpy(d->piece, data, n_elems * sizeof *d->piece);
    } else {
        TTI_TRY(tutti_comm_recv(d->mesh->model, d->piece, n_elems, TUTTI_F32, rank));
    }
    place(shape, cut, d->whole, d->piece, false);
    return TUTTI_OK;
}

static tutti_status take_all(tti_exec *x, int k, const tti_node *param) {
    tti_divided *d = tti_setup_of(x)->divided;
    request want = {.k = k, .name = tti_piece_id_of(param).name};
    size_t n_found = 0, n_elems = (size_t)tti_value_n_elems(param->out[0]);
    TTI_TRY(grow(&d->whole, &d->whole_elems, n_elems));
    TTI_TRY(ask(d, &want));
    for (int r = 0; r < d->n_ranks; r++) {
        const tti_piece_id *ids = tti_piece_ids(d, r);
        for (size_t i = 0; i < d->n_most && ids[i].name; i++) {
            if (ids[i].name != want.name || !tti_piece_counts(d, r, &ids[i])) continue;
            TTI_TRY(take_piece(x, &want, param, r, (int)i));
            n_found += piece_elems(&param->out[0]->type.shape, ids[i].cut);
        }
    }
    if (n_found == n_elems) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "exec: the workers have %zu of the %zu elements of '%s'",
                    n_found, n_elems, param->name);
}

tutti_status tti_exec_fetch_whole(tti_exec *x, int k, const tti_node *param, const float **data) {
    const tti_setup *setup = tti_setup_of(x);
    if (!setup->divided)
        return own_array(x, k, tti_plan_find_slot(setup->desc.plan, param->name), data);
    TTI_TRY(take_all(x, k, param));
    *data = setup->divided->whole;
    return TUTTI_OK;
}

tutti_status tti_exec_store_whole(tti_exec *x, int k, const tti_node *param, const float *data) {
    const tti_setup *setup = tti_setup_of(x);
    int i = tti_plan_find_slot(setup->desc.plan, param->name);
    tti_divided *d = setup->divided;
    if (i < 0) return TUTTI_OK; /* another stage's */
    const tti_slot *slot = &setup->desc.plan->slots[i];
    uint64_t cut = tti_piece_id_of(slot->param).cut;
    if (cut == 0) {
        tti_exec_store(x, k, slot->first, slot->n_elems, data);
        return TUTTI_OK;
    }
    if (piece_elems(&param->out[0]->type.shape, cut) != slot->n_elems)
        return tti_fail(TUTTI_E_INTERNAL, "exec: the piece of '%s' is no part of it", param->name);
    TTI_TRY(grow(&d->piece, &d->piece_elems, slot->n_elems));
    place(&param->out[0]->type.shape, cut, (float *)(uintptr_t)data, d->piece, true);
    tti_exec_store(x, k, slot->first, slot->n_elems, d->piece);
    return TUTTI_OK;
}

tutti_status tti_exec_serve(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_divided *d = setup->divided;
    if (!d || d->mesh->at.data > 0) return tti_exec_serve_data(x);
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        request want = {0};
        TTI_TRY(ask(d, &want));
        if (want.k == END) return tti_exec_serve_data_end(setup);
        TTI_TRY(answer(x, &want));
    }
}

tutti_status tti_exec_serve_end(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    TTI_TRY(tti_exec_serve_data_end(setup));
    return setup->divided ? ask(setup->divided, &(request){.k = END}) : TUTTI_OK;
}
