/* device_meet.c - chooses how devices reduce: directly or through the host. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/progress.h"
#include "comm/sum_order.h"
#include "exec/device/device_compress.h"
#include "exec/device/device_reduce.h"
#include "exec/device/device_step.h"

/* Connects the groups one after the other, as for lines of an axis. */
static tutti_status meet_in_turn(tti_exec *x, tti_str *sums) {
    const tti_mesh *mesh = x->desc.mesh;
    for (int i = 0; i < tti_mesh_n_model(&mesh->size); i++) {
        if (i == tti_mesh_model_rank(&mesh->size, &mesh->at))
            TTI_TRY(tti_device_reduce_create(x, &x->device->reduce, sums));
        TTI_TRY(tutti_comm_barrier(mesh->world));
    }
    return TUTTI_OK;
}

bool tti_device_ends_on_host(const tti_exec *x) {
    bool compresses = tti_compress_wanted(&x->desc, x->n_ranks);
    return x->desc.local || (compresses && !tti_device_compress_can(&x->desc, x->n_ranks));
}

/* Values of shards are joined by the host, too: in stages always. */
static bool joins_on_host(const tti_exec *x) {
    const tti_stages *stages = x->desc.plan->stages;
    return stages ? stages->is_joined : x->n_syncs > 0 && x->n_ranks > 1;
}

bool tti_device_by_host_alone(const tti_exec *x) {
    bool in_parts = x->desc.zero > 1 && x->n_ranks > 1;
    return tti_device_ends_on_host(x) || (x->divided && (in_parts || joins_on_host(x)));
}

/* All that the workers of one model exchange goes between devices.  Sums over pieces, then stages
 * are those over all of them in one tree only where there are 1, 2, 4 ... pieces. */
static bool is_direct(const tti_exec *x) {
    int n_pieces = x->desc.mesh->size.tensor;
    if (tti_device_by_host_alone(x)) return false;
    if (!x->pipe) return tti_device_exchange_group(x->exchange) != NULL;
    bool pieces = n_pieces == 1 || tti_device_exchange_group(x->exchange);
    return pieces && tti_device_pipe_mail(x->device->pipe) && (n_pieces & (n_pieces - 1)) == 0;
}

static void describe_between(tti_exec *x, const char *sums, bool all) {
    tti_str *way = &x->device->way;
    tti_str stages = {0};
    if (all && *sums) tti_str_printf(way, "%s%s", sums, x->exchange ? ", inside layers " : "");
    tti_device_exchange_describe(x->exchange, way);
    if (x->pipe) tti_device_pipe_describe(x->device->pipe, &stages);
    if (!all && way->n_bytes == 0) tti_str_add(way, "by way of the host");
    if (stages.n_bytes > 0)
        tti_str_printf(way, "%sbetween stages %s", way->n_bytes > 0 ? ", " : "",
                       tti_str_text(&stages));
    tti_str_free(&stages);
}

/* Stages may go on between devices where layers are whole: else their groups belong together. */
static tutti_status give_up(tti_exec *x, bool direct) {
    tti_device_mail *mail = tti_device_pipe_mail(x->device->pipe);
    tti_device_reduce_destroy(x->device->reduce);
    x->device->reduce = NULL;
    if (!tti_device_exchange_group(x->exchange)) return TUTTI_OK;
    if (mail) tti_device_mail_part(mail);
    return tti_device_exchange_give_up(
        x->exchange, direct ? "workers with other samples" : "workers of other stages");
}

/* Steps of a model in parts need the host for nothing where all that they add is added between
 * devices. */
static tutti_status meet_divided(tti_exec *x) {
    tti_exec_device *d = x->device;
    tti_str sums = {0};
    bool direct = is_direct(x);
    if (direct) TTI_TRY(meet_in_turn(x, &sums));
    bool all = direct && (x->n_ranks == 1 || d->reduce);
    if (direct) TTI_TRY(tti_device_agree(x, &all));
    if (!all) TTI_TRY(give_up(x, direct));
    describe_between(x, tti_str_text(&sums), all);
    tti_str_free(&sums);
    if (!all) return tti_device_by_host_create(x, &d->by_host);
    return tti_device_axis_create(x, tti_device_pipe_mail(d->pipe), &d->axis);
}

tutti_status tti_device_meet(tti_exec *x) {
    tti_exec_device *d = x->device;
    if (x->desc.server) TTI_TRY(tti_device_server_create(x, &d->server));
    if (x->divided) return meet_divided(x);
    if (x->desc.mixed) return tti_device_by_host_create(x, &d->by_host);
    bool by_host = tti_device_ends_on_host(x);
    if (!d->server && !by_host) TTI_TRY(tti_device_reduce_create(x, &d->reduce, &d->way));
    return x->n_ranks == 1 || d->reduce ? TUTTI_OK : tti_device_by_host_create(x, &d->by_host);
}

tutti_status tti_device_have_own(const tti_exec *x, bool *own) {
    tti_comm_place place;
    tutti_comm *world = x->desc.mesh->world;
    int n = tutti_comm_n_ranks(world);
    tti_comm_get_place(world, &place);
    int32_t mine[2] = {place.host, x->desc.device.index}, all[TTI_MAX_RANKS][2];
    TTI_TRY(tutti_comm_all_gather(world, mine, all, 2, TUTTI_I32));
    *own = true;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            *own = *own && (all[a][0] != all[b][0] || all[a][1] != all[b][1]);
    return TUTTI_OK;
}

/* ---- which worker blocks a device ---- */

tutti_status tti_device_late(const tti_exec *x, tutti_status st) {
    char kept[2048];
    tti_str who = {0};
    if (st != TUTTI_E_TIMEOUT) return st;
    tti_comm_tell_quiet(x->desc.mesh ? x->desc.mesh->world : x->desc.comm, &who);
    if (who.n_bytes > 0) {
        snprintf(kept, sizeof kept, "%s", tutti_last_error());
        st = tti_fail(st, "%s: %s", kept, tti_str_text(&who));
    }
    tti_str_free(&who);
    return st;
}

/* ---- along an axis of the mesh ---- */

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    const tti_device_line *line = user;
    return tutti_comm_all_gather(line->comm, src, dst, n_bytes, TUTTI_U8);
}

/* A worker that is lost in another line of the model blocks this one too; one in another replica
 * ends the job. */
static tutti_status check(void *user) {
    const tti_device_line *line = user;
    TTI_TRY(tti_comm_check(line->x->desc.mesh->model));
    return tti_comm_check(line->comm);
}

static tutti_status meet_line(tti_device_line *line, const tti_device_peers *wanted, void **group) {
    tti_sum_order order;
    int n_ranks = tutti_comm_n_ranks(line->comm);
    TTI_TRY(tti_sum_order_ranks(n_ranks, &order));
    tti_device_term *terms = calloc((size_t)order.n_terms, sizeof *terms);
    tti_device_peers peers = *wanted;
    peers.rank = tutti_comm_rank(line->comm);
    peers.n_ranks = n_ranks;
    peers.timeout_ms = tti_comm_timeout_ms(line->comm);
    peers.shown = tutti_comm_rank(line->x->desc.mesh->world);
    peers.terms = terms;
    peers.n_terms = order.n_terms;
    peers.n_words = (size_t)n_ranks;
    peers.way = TTI_WAY_PEERS;
    peers.user = line;
    peers.all_gather = all_gather;
    peers.check = check;
    if (terms) tti_device_terms(&order, terms);
    tutti_status st = terms ? line->x->desc.backend->device->collectives.connect(&peers, group)
                            : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    free(terms);
    tti_sum_order_free(&order);
    return st;
}

/* Connecting a device, for example allocating memory, may wait for other devices, and a tested
 * device waits for its peers: so one line after the other. */
tutti_status tti_device_meet_line(tti_device_line *line, const tti_device_peers *wanted,
                                  void **group) {
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < line->n_lines; i++) {
        if (i == line->turn) st = meet_line(line, wanted, group);
        if (st != TUTTI_OK && st != TUTTI_E_UNSUPPORTED) return st;
        TTI_TRY(tutti_comm_barrier(line->x->desc.mesh->world));
    }
    bool all = st == TUTTI_OK;
    TTI_TRY(tti_device_agree(line->x, &all));
    if (st != TUTTI_OK || all) return st;
    return tti_fail(TUTTI_E_UNSUPPORTED, "devices of other %s do not reach each other",
                    line->others);
}
