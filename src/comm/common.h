/* common.h - read-only memory that the ranks of a process share, for example tables of all ranks,
 * so that a process with a thousand ranks does not create a thousand copies. */
#ifndef TTI_COMM_COMMON_H
#define TTI_COMM_COMMON_H

#include <pthread.h>

#include "tutti/comm.h"

/* Identifies an object: objects of one kind and key are the same. */
typedef struct tti_common_desc {
    const char *kind; /* a literal */
    uint64_t key;
    tutti_status (*make)(const void *user, void **out);
    void (*release)(void *object);
    const void *user; /* argument of make */
} tti_common_desc;

/* Returns the object of this kind and key; the first call in a process creates it.  The object is
 * borrowed: it is destroyed with the group of comm, or with comm if the ranks have no group.  Not
 * collective; any thread.  Fails as desc->make fails, or with TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_comm_common(tutti_comm *comm, const tti_common_desc *desc,
                                             const void **out);

/* ---- for the files that own the objects ---- */

typedef struct tti_common tti_common;

typedef struct tti_commons {
    pthread_mutex_t lock;
    tti_common *first;
} tti_commons;

void tti_commons_init(tti_commons *commons);
void tti_commons_fini(tti_commons *commons);
TUTTI_NODISCARD tutti_status tti_commons_get(tti_commons *commons, const tti_common_desc *desc,
                                             const void **out);

#endif /* TTI_COMM_COMMON_H */
