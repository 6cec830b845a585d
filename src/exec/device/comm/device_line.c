/* device_line.c - connects the devices along one axis of the mesh. */
#include "exec/device/comm/device_line.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/progress.h"
#include "exec/device/comm/device_compress.h"
#include "exec/worker/worker.h"

/* ---- whether ---- */

bool tti_device_ends_on_host(const tti_setup *setup) {
    bool compresses = tti_compress_wanted(&setup->desc, setup->n_ranks);
    return setup->desc.local ||
           (compresses && !tti_device_compress_can(&setup->desc, setup->n_ranks));
}

/* Values of shards are joined by the host, too: in stages always. */
static bool joins_on_host(const tti_setup *setup) {
    const tti_stages *stages = setup->desc.plan->stages;
    return stages ? stages->is_joined : setup->syncs.n > 0 && setup->n_ranks > 1;
}

bool tti_device_host_staged_alone(const tti_setup *setup) {
    bool in_parts = setup->desc.zero > 1 && setup->n_ranks > 1;
    return tti_device_ends_on_host(setup) || (setup->divided && (in_parts || joins_on_host(setup)));
}

tutti_status tti_device_agree(const tti_setup *setup, bool *yes) {
    int32_t all = *yes;
    tutti_comm *comm = setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm;
    if (setup->n_ranks > 1 || setup->divided)
        TTI_TRY(tutti_comm_all_reduce(comm, &all, &all, 1, TUTTI_I32, TUTTI_MIN, TUTTI_ALG_AUTO));
    *yes = all != 0;
    return TUTTI_OK;
}

void tti_device_terms(const tti_sum_order *order, tti_device_term *terms) {
    for (int t = 0; t < order->n_terms; t++)
        terms[t] = (tti_device_term){order->terms[t].rank, order->terms[t].partial,
                                     order->terms[t].n_adds};
}

tutti_status tti_device_have_own(const tti_setup *setup, bool *own) {
    tti_comm_place place;
    tutti_comm *world = setup->desc.mesh->world;
    int n = tutti_comm_n_ranks(world);
    tti_comm_get_place(world, &place);
    int32_t mine[2] = {place.host, setup->desc.device.index}, all[TTI_MAX_RANKS][2];
    TTI_TRY(tutti_comm_all_gather(world, mine, all, 2, TUTTI_I32));
    *own = true;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            *own = *own && (all[a][0] != all[b][0] || all[a][1] != all[b][1]);
    return TUTTI_OK;
}

tutti_status tti_device_late(const tti_setup *setup, tutti_status st) {
    char kept[2048];
    tti_str who = {0};
    if (st != TUTTI_E_TIMEOUT) return st;
    tti_comm_describe_late(setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm, &who);
    if (who.n_bytes > 0) {
        snprintf(kept, sizeof kept, "%s", tutti_last_error());
        st = tti_fail(st, "%s: %s", kept, tti_str_text(&who));
    }
    tti_str_free(&who);
    return st;
}

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    const tti_device_line *line = user;
    return tutti_comm_all_gather(line->comm, src, dst, n_bytes, TUTTI_U8);
}

/* A worker that is lost in another line of the model blocks this one too; one in another replica
 * ends the job. */
static tutti_status check(void *user) {
    const tti_device_line *line = user;
    TTI_TRY(tti_comm_check(tti_setup_of(line->x)->desc.mesh->model));
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
    peers.shown = tutti_comm_rank(tti_setup_of(line->x)->desc.mesh->world);
    peers.terms = terms;
    peers.n_terms = order.n_terms;
    peers.n_words = (size_t)n_ranks;
    peers.algorithm = TTI_DEVICE_PEERS;
    peers.user = line;
    peers.all_gather = all_gather;
    peers.check = check;
    if (terms) tti_device_terms(&order, terms);
    tutti_status st =
        terms ? tti_setup_of(line->x)->desc.backend->device->collectives.connect(&peers, group)
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
        TTI_TRY(tutti_comm_barrier(tti_setup_of(line->x)->desc.mesh->world));
    }
    bool all = st == TUTTI_OK;
    TTI_TRY(tti_device_agree(tti_setup_of(line->x), &all));
    if (st != TUTTI_OK || all) return st;
    return tti_fail(TUTTI_E_UNSUPPORTED, "devices of other %s do not reach each other",
                    line->others);
}
