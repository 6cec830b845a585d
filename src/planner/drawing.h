/* drawing.h - what the workers of a job store and send, for the code that draws it
 * (tutti_draw_layout). */
#ifndef TTI_PLANNER_DRAWING_H
#define TTI_PLANNER_DRAWING_H

#include "exec/program/exec_program.h"
#include "planner/predict.h"
#include "planner/schedule_drawing.h"

typedef struct tti_drawing {
    const tti_blueprint *b;
    tti_exec_desc exec; /* of a worker of any part */
    tti_scheme scheme;
    int n_workers;
    tti_str *out;
} tti_drawing;

/* The memory and parts of one worker. */
typedef struct tti_holding {
    tti_mesh_at at;
    const tti_plan *plan;
    tti_exec_memory bytes;
    bool is_offloaded; /* the host of its device has the state */
    int first_shard, last_shard;
    const char *first, *last; /* of its parameters, in the order of their gradients */
} tti_holding;

/* The parameters that one process, or one thread, of a parameter server owns. */
typedef struct tti_resident_range {
    tti_range keys;
    size_t params, states; /* bytes */
} tti_resident_range;

static inline double tti_mib(size_t n_bytes) { return (double)n_bytes / 1048576.0; }

/* ---- drawing.c: what there is ---- */

tutti_status tti_drawing_hold(const tti_drawing *d, int rank, tti_holding *h);

/* In runs with workers on devices and on the host: prints which kind this worker is. */
void tti_drawing_place(const tti_drawing *d, int rank);

/* Whether a server stores parameters and state separately from the workers. (Among workers that
 * wait for each other the first may shard the state.) */
bool tti_drawing_has_server(const tti_drawing *d);

/* If so: each part of a divided model is stored by the worker of the first replica that has it. */
bool tti_drawing_has_state_owners(const tti_drawing *d);
bool tti_drawing_has_no_state(const tti_drawing *d, const tti_holding *h);

/* Otherwise the server has ranges of the parameters, in processes or in threads. */
bool tti_drawing_has_processes(const tti_drawing *d);
int tti_drawing_n_ranges(const tti_drawing *d);
tutti_status tti_drawing_range(const tti_drawing *d, int r, tti_resident_range *out);

bool tti_drawing_is_compressed(const tti_drawing *d);
const char *tti_drawing_compression(const tti_drawing *d); /* by what, then */

/* Bytes of a worker's gradient of this many elements as it is sent. */
size_t tti_drawing_message_bytes(const tti_drawing *d, const tti_plan *plan, size_t first,
                                 size_t n_elems);

/* Bytes that a worker sends to the other tensor shards per shard; returns the number of
 * collectives. */
int tti_drawing_collectives(const tti_drawing *d, const tti_plan *plan, double *bytes);

/* Values that the workers of one position join inside a step (batch norm), over all shards; returns
 * their number. */
int tti_drawing_joins(const tti_drawing *d, const tti_plan *plan, double *bytes);

/* The order of the shards on the first worker, on this machine. */
tti_schedule_drawing tti_drawing_schedule(const tti_drawing *d);

/* ---- drawing_text.c, drawing_svg.c ---- */

tutti_status tti_draw_text(const tti_drawing *d);
tutti_status tti_draw_svg(const tti_drawing *d);

#endif /* TTI_PLANNER_DRAWING_H */
