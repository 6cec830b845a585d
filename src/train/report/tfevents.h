/* tfevents.h - writes TensorBoard's event file: the curves of a run for other tools.
 *
 *     record   u64 n_bytes | u32 masked CRC-32C of these 8 | bytes | u32 masked CRC-32C of them
 *     bytes    a protobuf Event: time, step, values by tag; in the first record the version
 *
 * All little-endian. metrics.jsonl stays authoritative. */
#ifndef TTI_TRAIN_TFEVENTS_H
#define TTI_TRAIN_TFEVENTS_H

#include <stdint.h>

#include "base/str.h"
#include "tutti/status.h"

/* Buffers of nested messages, because their lengths are written first. */
typedef struct tti_tfevents_parts {
    tti_str event, summary, value;
} tti_tfevents_parts;

typedef struct tti_tfevents {
    int fd;       /* -1: closed */
    tti_str line; /* the record being written */
    tti_tfevents_parts parts;
} tti_tfevents;

typedef struct tti_scalar {
    const char *tag; /* "train/loss": the part before the slash is the group */
    double value;
} tti_scalar;

/* Creates a new events.out.tfevents file in run_dir; each part of a resumed run has its own. */
tutti_status tti_tfevents_open(tti_tfevents *t, const char *run_dir);
void tti_tfevents_close(tti_tfevents *t);

/* Tells TensorBoard that the run continues: it discards the values of first_step and later steps in
 * earlier files.  Call it before the first write.  Does nothing when closed. */
tutti_status tti_tfevents_restart(tti_tfevents *t, int64_t first_step);

/* Writes one record with the values of a step, in one write(2).  Does nothing when closed. */
tutti_status tti_tfevents_write(tti_tfevents *t, int64_t step, const tti_scalar *scalars,
                                int n_scalars);

/* Append one record to out without writing a file. */
void tti_tfevents_add_head(tti_str *out, double time_s);
void tti_tfevents_add_restart(tti_str *out, double time_s, int64_t first_step);
void tti_tfevents_add(tti_str *out, double time_s, int64_t step, const tti_scalar *scalars,
                      int n_scalars);

#endif /* TTI_TRAIN_TFEVENTS_H */
