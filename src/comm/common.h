/* common.h - read-only memory that the ranks of a process have in common, such as tables of all
 * ranks, so that a thousand ranks that are threads do not make it a thousand times. */
#ifndef TTI_COMM_COMMON_H
#define TTI_COMM_COMMON_H

#include <pthread.h>

#include "tutti/comm.h"

/* The requested object: objects of one kind and key are the same. */
typedef struct tti_common_desc {
    const char *kind; /* a literal */
    uint64_t key;
    tutti_status (*make)(const void *user, void **out);
    void (*release)(void *object);
    const void *user; /* for make */
} tti_common_desc;

/* The object of this kind and key; the first rank of a process that asks makes it.  It is borrowed:
 * it goes with the group of comm, or with comm where ranks have no group.  Not collective. */
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
