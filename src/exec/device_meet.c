/* device_meet.c - how the workers of a job add on devices: between each other, or by the host. */
#include "exec/device_step.h"

/* Workers of one piece after those of another, as in device_exchange.c. */
static tutti_status meet_in_turn(tti_exec *x, tti_str *sums) {
    const tti_mesh *mesh = x->desc.mesh;
    for (int i = 0; i < mesh->size.tensor; i++) {
        if (i == mesh->at.tensor) TTI_TRY(tti_device_reduce_create(x, &x->device->reduce, sums));
        TTI_TRY(tutti_comm_barrier(mesh->world));
    }
    return TUTTI_OK;
}

/* Steps of a model in pieces are recorded where all that they add is added between devices. */
static tutti_status meet_divided(tti_exec *x) {
    tti_exec_device *d = x->device;
    tti_str sums = {0};
    bool direct = tti_device_exchange_group(x->exchange) != NULL;
    if (direct) TTI_TRY(meet_in_turn(x, &sums));
    bool all = direct && (x->n_ranks == 1 || d->reduce);
    if (direct) TTI_TRY(tti_device_agree(x, &all));
    if (direct && !all) {
        tti_device_reduce_destroy(d->reduce);
        d->reduce = NULL;
        TTI_TRY(tti_device_exchange_give_up(x->exchange, "workers with other samples"));
    }
    if (all && d->reduce) tti_str_printf(&d->way, "%s, inside layers ", tti_str_text(&sums));
    tti_str_free(&sums);
    tti_device_exchange_describe(x->exchange, &d->way);
    if (all) return tti_device_axis_create(x, &d->axis);
    return tti_device_by_host_create(x, &d->by_host);
}

tutti_status tti_device_meet(tti_exec *x) {
    tti_exec_device *d = x->device;
    if (x->divided) return meet_divided(x);
    if (x->desc.mixed) return tti_device_by_host_create(x, &d->by_host);
    bool by_host = x->compress || x->desc.local; /* which add nothing between devices */
    if (x->desc.server) TTI_TRY(tti_device_server_create(x, &d->server));
    if (!d->server && !by_host) TTI_TRY(tti_device_reduce_create(x, &d->reduce, &d->way));
    return x->n_ranks == 1 || d->reduce ? TUTTI_OK : tti_device_by_host_create(x, &d->by_host);
}
