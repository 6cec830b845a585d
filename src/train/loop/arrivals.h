/* arrivals.h - arrivals.txt of an asynchronous run: the order in which gradients were applied.
 *
 *     tutti arrivals 1 workers 4 batch 128 seed 1 shards 4
 *     1 0 0 0            update, batch, worker, updates that were in its parameters
 *     2 1 3 0
 *
 * With a dynamic loss scale the first line ends with "scaled", and each other line with the scale.
 * A resumed run appends to the file.  If an update occurs twice, its last line is valid. */
#ifndef TTI_TRAIN_ARRIVALS_H
#define TTI_TRAIN_ARRIVALS_H

#include <stdio.h>

#include "ps/server.h"
#include "train/setup/blueprint.h"

/* Opens run_dir/arrivals.txt for appending, and removes an incomplete last line.  Close *out with
 * tti_arrivals_close. */
tutti_status tti_arrivals_open(const tti_blueprint *b, const char *run_dir, FILE **out);
tutti_status tti_arrivals_write(const tti_blueprint *b, FILE *file, const tti_arrival *arrival);

/* Flushes the file.  NULL is a no-op in all three functions. */
tutti_status tti_arrivals_flush(FILE *file);
void tti_arrivals_close(FILE *file);

/* Reads all recorded updates of run_dir, in order. *out is owned by the caller (free).
 * TUTTI_E_CONFIG with the reason if this job cannot repeat them: different workers, batch, seed or
 * shards, too few updates, or different stops for checkpoints and evaluations. next_stop returns
 * the first stop after `step` updates. */
tutti_status tti_arrivals_read(const tti_blueprint *b, const char *run_dir,
                               int64_t (*next_stop)(const tti_blueprint *b, int64_t step),
                               tti_arrival **out, int64_t *n_arrivals);

#endif /* TTI_TRAIN_ARRIVALS_H */
