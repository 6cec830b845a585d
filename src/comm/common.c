/* common.c - a list of shared objects.  Its lock is held while an object is created, so that each
 * object is created once. */
#include "comm/common.h"

#include <stdlib.h>
#include <string.h>

#include "comm/call.h"

struct tti_common {
    tti_common_desc desc;
    void *object;
    tti_common *next;
};

void tti_commons_init(tti_commons *commons) {
    *commons = (tti_commons){.first = NULL};
    pthread_mutex_init(&commons->lock, NULL);
}

void tti_commons_fini(tti_commons *commons) {
    for (tti_common *c = commons->first, *next; c; c = next) {
        next = c->next;
        c->desc.release(c->object);
        free(c);
    }
    commons->first = NULL;
    pthread_mutex_destroy(&commons->lock);
}

static tutti_status get(tti_commons *commons, const tti_common_desc *desc, const void **out) {
    tti_common *c = commons->first;
    while (c && (c->desc.key != desc->key || strcmp(c->desc.kind, desc->kind) != 0)) c = c->next;
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory");
        c->desc = *desc;
        tutti_status st = desc->make(desc->user, &c->object);
        if (st != TUTTI_OK) {
            free(c);
            return st;
        }
        c->next = commons->first;
        commons->first = c;
    }
    *out = c->object;
    return TUTTI_OK;
}

tutti_status tti_commons_get(tti_commons *commons, const tti_common_desc *desc, const void **out) {
    pthread_mutex_lock(&commons->lock);
    tutti_status st = get(commons, desc, out);
    pthread_mutex_unlock(&commons->lock);
    return st;
}

tutti_status tti_comm_common(tutti_comm *comm, const tti_common_desc *desc, const void **out) {
    *out = NULL;
    return tti_commons_get(tti_comm_commons(comm), desc, out);
}
