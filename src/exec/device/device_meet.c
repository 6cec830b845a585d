/* device_meet.c - chooses how devices reduce: directly or through the host. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/progress.h"
#include "comm/sum_order.h"
#include "exec/device/device_step.h"

/* Connects the groups one after the other, as for lines of an axis. */
static tutti_status meet_in_turn(tti_exec *x, tti_str *sums) {
    const tti_mesh *mesh = tti_setup_of(x)->desc.mesh;
    for (int i = 0; i < tti_mesh_n_model(&mesh->size); i++) {
        if (i == tti_mesh_model_rank(&mesh->size, &mesh->at))
            TTI_TRY(tti_device_reduce_create(x, &tti_device_of(x)->reduce, sums));
        TTI_TRY(tutti_comm_barrier(mesh->world));
    }
    return TUTTI_OK;
}

/* All that the workers of one model exchange goes between devices.  Sums over pieces, then stages
 * are those over all of them in one tree only where there are 1, 2, 4 ... pieces. */
static bool is_direct(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_device_tp *tp = tti_tp_of(x);
    int n_pieces = setup->desc.mesh->size.tensor;
    if (tti_device_host_staged_alone(setup)) return false;
    if (!tti_pipe_of(x)) return tti_device_tp_group(tp) != NULL;
    bool pieces = n_pieces == 1 || tti_device_tp_group(tp);
    return pieces && tti_device_pipe_p2p(tti_device_of(x)->pipe) &&
           (n_pieces & (n_pieces - 1)) == 0;
}

static void describe_between(tti_exec *x, const char *sums, bool all) {
    tti_exec_device *device = tti_device_of(x);
    tti_device_tp *tp = tti_tp_of(x);
    tti_str *transport = &device->transport;
    tti_str stages = {0};
    if (all && *sums) tti_str_printf(transport, "%s%s", sums, tp ? ", inside layers " : "");
    tti_device_tp_describe(tp, transport);
    if (tti_pipe_of(x)) tti_device_pipe_describe(device->pipe, &stages);
    if (!all && transport->n_bytes == 0) tti_str_add(transport, "through the host");
    if (stages.n_bytes > 0)
        tti_str_printf(transport, "%sbetween stages %s", transport->n_bytes > 0 ? ", " : "",
                       tti_str_text(&stages));
    tti_str_free(&stages);
}

/* Stages may go on between devices where layers are whole: else their groups belong together. */
static tutti_status give_up(tti_exec_device *device, tti_device_tp *tp, bool direct) {
    tti_device_p2p *p2p = tti_device_pipe_p2p(device->pipe);
    tti_device_reduce_destroy(device->reduce);
    device->reduce = NULL;
    if (!tti_device_tp_group(tp)) return TUTTI_OK;
    if (p2p) tti_device_p2p_disconnect(p2p);
    return tti_device_tp_give_up(tp,
                                 direct ? "workers with other samples" : "workers of other stages");
}

/* Steps of a model in parts need the host for nothing where all that they add is added between
 * devices. */
static tutti_status meet_divided(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    tti_str sums = {0};
    bool direct = is_direct(x);
    if (direct) TTI_TRY(meet_in_turn(x, &sums));
    bool all = direct && (setup->n_ranks == 1 || d->reduce);
    if (direct) TTI_TRY(tti_device_agree(setup, &all));
    if (!all) TTI_TRY(give_up(device, tti_tp_of(x), direct));
    describe_between(x, tti_str_text(&sums), all);
    tti_str_free(&sums);
    if (!all) return tti_device_host_staged_create(x, &d->host_staged);
    return tti_device_axis_create(x, tti_device_pipe_p2p(d->pipe), &d->axis);
}

tutti_status tti_device_meet(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    if (setup->desc.server) TTI_TRY(tti_device_server_create(x, &d->server));
    if (setup->divided) return meet_divided(x);
    if (setup->desc.mixed) return tti_device_host_staged_create(x, &d->host_staged);
    bool host_staged = tti_device_ends_on_host(setup);
    if (!d->server && !host_staged) TTI_TRY(tti_device_reduce_create(x, &d->reduce, &d->transport));
    return setup->n_ranks == 1 || d->reduce ? TUTTI_OK
                                            : tti_device_host_staged_create(x, &d->host_staged);
}
