/* device_memory.h - checks whether a step fits into the memory of a device, and what would make it
 * fit. */
#ifndef TTI_EXEC_DEVICE_MEMORY_H
#define TTI_EXEC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "exec/device/memory/bytes.h"
#include "exec/device/memory/resident_samples.h"

/* Input sets of a device whose batches are copied from the host. */
enum { TTI_N_INPUTS = 2 };

/* Bytes of a worker; flat: of one array of all parameters; low: of them in 16 bits; state: of one
 * of the optimizer. */
typedef struct tti_device_need {
    size_t flat, low, state;
    size_t arena;         /* of one shard, and its memory besides: constants, values for others */
    size_t inputs;        /* of all shards in both sets */
    size_t residuals;     /* of gradients, with their messages */
    size_t scratch;       /* of kernels */
    size_t params, grads; /* bytes of the worker's shards of them; 0: they are whole */
    /* The sizes with parallel.zero=2 and 3; grads 0: already so, or impossible. */
    struct {
        size_t params, grads;
    } in_parts[2];
    int n_states, n_emas, n_grads, n_arenas;
    int n_shards, most_shards, n_ranks;
    bool offloads; /* the host may have the state instead */
    int64_t rows;  /* of a shard */
} tti_device_need;

size_t tti_device_need_bytes(const tti_device_need *need);

/* TUTTI_E_NOMEM with the numbers where n_free bytes do not do: what in parts, or on the host,
 * would, how many shards, or that no number of them does. */
tutti_status tti_device_need_check(const tti_device_need *need, size_t n_free);

#endif /* TTI_EXEC_DEVICE_MEMORY_H */
