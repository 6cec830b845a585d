/* conclude.c - implements conclude.h with one agreement, whose payloads are the ranks' bytes. */
#include "comm/conclude.h"

#include <stdlib.h>
#include <string.h>

#include "comm/call.h"

_Static_assert((int)TTI_CONCLUDE_BYTES == (int)TTI_INLINE_BYTES, "payloads of an agreement");

bool tti_comm_concludes_alone(const tutti_comm *comm) { return tti_comm_is_large(comm); }

typedef struct concluding {
    tutti_comm *comm;
    const tti_conclusion *c;
} concluding;

static void conclude(void *user, void *result) {
    const concluding *at = user;
    for (int r = 0; r < tutti_comm_n_ranks(at->comm); r++)
        at->c->add(at->c->user, r, tti_comm_payload(at->comm, r));
    at->c->finish(at->c->user, result);
}

static tutti_status run(tutti_comm *comm, const tti_conclusion *c) {
    concluding at = {comm, c};
    bool alone = tti_comm_concludes_alone(comm);
    const tti_offer offer = {.call = {.kind = TTI_CALL_CONCLUDE, .n_elems = c->n_bytes},
                             .inline_data = c->mine,
                             .inline_bytes = c->n_bytes,
                             .conclude = alone ? conclude : NULL,
                             .user = &at};
    TTI_TRY(tti_call_begin(comm, &offer, NULL));
    if (alone)
        memcpy(c->result, tti_comm_agreed_sum(comm), c->n_result);
    else
        conclude(&at, c->result);
    return TUTTI_OK;
}

/* Fallback if the bytes of a rank do not fit into the payload of an agreement: gathers them. */
static tutti_status conclude_gathered(tutti_comm *comm, const tti_conclusion *c) {
    int n_ranks = tutti_comm_n_ranks(comm);
    char *all = calloc((size_t)n_ranks, c->n_bytes);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "conclude: out of memory for %d ranks", n_ranks);
    tutti_status st = tutti_comm_all_gather(comm, c->mine, all, c->n_bytes, TUTTI_U8);
    for (int r = 0; st == TUTTI_OK && r < n_ranks; r++)
        c->add(c->user, r, all + (size_t)r * c->n_bytes);
    if (st == TUTTI_OK) c->finish(c->user, c->result);
    free(all);
    return st;
}

tutti_status tti_comm_conclude(tutti_comm *comm, const tti_conclusion *c) {
    TTI_TRY(tti_check_comm("conclude", comm));
    if (c->n_bytes > TTI_CONCLUDE_BYTES || c->n_result > TTI_CONCLUDE_BYTES)
        return tti_fail(TUTTI_E_INVALID, "conclude: %zu bytes give %zu, at most %d are possible",
                        c->n_bytes, c->n_result, (int)TTI_CONCLUDE_BYTES);
    if (c->n_bytes > tti_comm_inline_bytes(comm)) return conclude_gathered(comm, c);
    return tti_call_end(comm, run(comm, c));
}
