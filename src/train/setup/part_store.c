/* part_store.c - collects parts of an array until they can be stored.
 *
 * A device accepts any part.  On a host the executor accepts only whole update blocks, because
 * workers may own different blocks.  With a divided model or a server it accepts only whole
 * arrays. */
#include "train/setup/part_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

_Static_assert(TTI_PART_ELEMS % TTI_UPDATE_BLOCK == 0, "parts are whole blocks");

tutti_status tti_part_store_begin(tti_exec *exec, bool sets_averages, tti_part_store *out) {
    *out = (tti_part_store){.exec = exec, .sets_averages = sets_averages && tti_exec_has_ema(exec)};
    return tti_exec_writes_to_device(exec) ? TUTTI_OK : tti_exec_pull(exec);
}

tutti_status tti_part_store_end(tti_part_store *s) {
    return tti_exec_writes_to_device(s->exec) ? TUTTI_OK : tti_exec_push(s->exec);
}

void tti_part_store_fini(tti_part_store *s) { free(s->pending); }

static bool ends_block(const tti_slot *slot, size_t end) {
    return end % TTI_UPDATE_BLOCK == 0 || end == slot->n_elems;
}

/* True if the executor accepts elements begin .. end - 1. */
static bool can_store(const tti_part_store *s, const tti_slot *slot, size_t begin, size_t end) {
    if (tti_exec_writes_to_device(s->exec)) return true;
    if (!tti_exec_takes_parts(s->exec)) return begin == 0 && end == slot->n_elems;
    return begin % TTI_UPDATE_BLOCK == 0 && ends_block(slot, end);
}

static tutti_status store_in(const tti_part_store *s, int k, const tti_slot *slot, size_t first,
                             size_t n_elems, const float *data) {
    if (tti_exec_takes_parts(s->exec))
        return tti_exec_store_part(s->exec, k, slot->param, first, n_elems, data);
    return tti_exec_store_whole(s->exec, k, slot->param, data);
}

static tutti_status store(const tti_part_store *s, int k, const tti_slot *slot, size_t first,
                          size_t n_elems, const float *data) {
    TTI_TRY(store_in(s, k, slot, first, n_elems, data));
    if (k != TTI_STATE_PARAMS || !s->sets_averages) return TUTTI_OK;
    return store_in(s, TTI_STATE_EMA, slot, first, n_elems, data);
}

static tutti_status keep(tti_part_store *s, const tti_slot *slot, size_t first, size_t n_elems,
                         const float *data) {
    if (s->n_room < slot->n_elems) {
        float *room = realloc(s->pending, slot->n_elems * sizeof *room);
        if (!room) return tti_fail(TUTTI_E_NOMEM, "out of memory for '%s'", slot->param->name);
        s->pending = room;
        s->n_room = slot->n_elems;
    }
    if (s->begin == s->end) s->begin = s->end = first;
    TTI_ASSERT(s->end == first && first + n_elems <= slot->n_elems);
    memcpy(s->pending + (first - s->begin), data, n_elems * sizeof *data);
    s->end += n_elems;
    return TUTTI_OK;
}

tutti_status tti_part_store_add(tti_part_store *s, int k, const tti_slot *slot, size_t first,
                                size_t n_elems, const float *data) {
    bool is_empty = s->begin == s->end;
    if (is_empty && can_store(s, slot, first, first + n_elems))
        return store(s, k, slot, first, n_elems, data);
    TTI_TRY(keep(s, slot, first, n_elems, data));
    if (!can_store(s, slot, s->begin, s->end)) return TUTTI_OK;
    tutti_status st = store(s, k, slot, s->begin, s->end - s->begin, s->pending);
    s->begin = s->end = 0;
    return st;
}
