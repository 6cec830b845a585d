/* divided_pieces.h - which worker of a replica has which piece of which parameter. */
#ifndef TTI_EXEC_DIVIDED_PIECES_H
#define TTI_EXEC_DIVIDED_PIECES_H

#include "exec/worker/divided.h"

/* The identity of a part of a parameter among all workers. */
typedef struct tti_piece_id {
    uint64_t name; /* hash; 0: no more slots */
    uint64_t cut;  /* which piece of the whole; 0: all of it */
} tti_piece_id;

struct tti_divided {
    const tti_plan *plan;
    const tti_mesh *mesh;
    int rank, n_ranks;    /* in the model group */
    size_t n_most;        /* slots of the worker that has the most */
    tti_piece_id *ids;    /* [n_ranks][n_most] */
    float *whole, *piece; /* of the requested parameter; grown on demand */
    size_t whole_elems, piece_elems;
};

tti_piece_id tti_piece_id_of(const tti_node *param);

/* Those of a worker, [n_most]: of its slots, and then zeros. */
const tti_piece_id *tti_piece_ids(const tti_divided *d, int rank);

/* Whether it is the first worker with that piece. */
bool tti_piece_counts(const tti_divided *d, int rank, const tti_piece_id *id);

#endif /* TTI_EXEC_DIVIDED_PIECES_H */
