/* drawing.h - what the workers of a job store and send, for the functions that draw it
 * (tutti_draw_layout). */
#ifndef TTI_PLANNER_DRAWING_H
#define TTI_PLANNER_DRAWING_H

#include "exec/program/exec_program.h"
#include "planner/predict.h"
#include "planner/schedule_drawing.h"

typedef struct tti_drawing {
    const tti_blueprint *b;
    tti_exec_desc exec; /* settings of a worker, without the plan of its part */
    tti_scheme scheme;
    int n_workers;
    tti_str *out;
} tti_drawing;

/* The storage of one worker: its part of the model, its memory and its shards. */
typedef struct tti_worker_storage {
    tti_mesh_at at;
    const tti_plan *plan;
    tti_exec_memory bytes;
    bool is_offloaded; /* the optimizer state is in host memory */
    int first_shard, last_shard;
    const char *first, *last; /* names of parameters, in the order of their gradients */
} tti_worker_storage;

/* The parameters that one process, or one thread, of a parameter server owns. */
typedef struct tti_resident_range {
    tti_range keys;
    size_t params, states; /* bytes */
} tti_resident_range;

static inline double tti_mib(size_t n_bytes) { return (double)n_bytes / 1048576.0; }

/* ---- drawing.c: finds what is drawn ---- */

tutti_status tti_drawing_find_storage(const tti_drawing *d, int rank, tti_worker_storage *h);

/* Prints the device or host of a worker, if the run has workers on both kinds. */
void tti_drawing_print_place(const tti_drawing *d, int rank);

/* True if a parameter server stores parameters and state separately from the workers. A synchronous
 * server whose state is sharded over the first workers does not count. */
bool tti_drawing_has_server(const tti_drawing *d);

/* True if, with such a server, the workers of the first replica store the parts of a divided
 * model. */
bool tti_drawing_has_state_owners(const tti_drawing *d);
bool tti_drawing_has_no_state(const tti_drawing *d, const tti_worker_storage *h);

/* Otherwise the server divides the parameters into ranges, owned by processes (has_processes) or by
 * threads. */
bool tti_drawing_has_processes(const tti_drawing *d);
int tti_drawing_n_ranges(const tti_drawing *d);
tutti_status tti_drawing_range(const tti_drawing *d, int r, tti_resident_range *out);

bool tti_drawing_is_compressed(const tti_drawing *d);
const char *tti_drawing_compression(const tti_drawing *d); /* its kind; static */

/* Bytes that a worker sends for n_elems elements of its gradient, from element first on. */
size_t tti_drawing_message_bytes(const tti_drawing *d, const tti_plan *plan, size_t first,
                                 size_t n_elems);

/* Sets *bytes to the bytes that a worker sends to the other tensor ranks per shard; returns the
 * number of collectives. */
int tti_drawing_collectives(const tti_drawing *d, const tti_plan *plan, double *bytes);

/* Sets *bytes to the values that workers of the same part join inside a step (SyncBatchNorm), over
 * all shards; returns the number of joins. */
int tti_drawing_joins(const tti_drawing *d, const tti_plan *plan, double *bytes);

/* The order of the shards on the first worker, on this machine. */
tti_schedule_drawing tti_drawing_schedule(const tti_drawing *d);

/* ---- drawing_text.c, drawing_svg.c ---- */

tutti_status tti_draw_text(const tti_drawing *d);
tutti_status tti_draw_svg(const tti_drawing *d);

#endif /* TTI_PLANNER_DRAWING_H */
