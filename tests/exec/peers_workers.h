/* peers_workers.h - what ranks as threads give when their devices connect: how they inform each
 * other, and the order of their terms. */
#ifndef TTI_TESTS_EXEC_PEERS_WORKERS_H
#define TTI_TESTS_EXEC_PEERS_WORKERS_H

#include "comm/ranks.h"
#include "comm/sum_order.h"
#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_reduce.h"

/* user is the communicator. */
static inline tutti_status workers_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    return tutti_comm_all_gather(user, src, dst, n_bytes, TUTTI_U8);
}

static inline tutti_status workers_look(void *user) { return tti_comm_check(user); }

/* One term of each rank: terms [n_ranks]. */
static inline tutti_status workers_terms(int n_ranks, tti_device_term *terms) {
    tti_sum_order order;
    TTI_TRY(tti_sum_order_ranks(n_ranks, &order));
    tti_device_terms(&order, terms);
    tti_sum_order_free(&order);
    return TUTTI_OK;
}

#endif /* TTI_TESTS_EXEC_PEERS_WORKERS_H */
