/* dataset.h - what a format must provide, and the table of formats.
 *
 * A format gives samples as they are stored (u8 pixels, later i32 tokens); the data set's decode
 * chain of transforms (transform.h) turns them into what a model is fed.  Whoever reads many
 * samples runs the chain in its own memory: loader.c. */
#ifndef TTI_DATA_DATASET_H
#define TTI_DATA_DATASET_H

#include "data/transform.h"
#include "tutti/data.h"

struct tutti_dataset {
    tutti_dataset_info info; /* x: after decode, set by tutti_dataset_open */
    tutti_type stored;       /* of one sample, as read gives it            */
    tti_chain decode;        /* stored -> info.x; owned                    */

    /* Sample index (checked by the caller) into x, of type stored, and y.  Any thread, any order.
     * A failure names the file. */
    tutti_status (*read)(const tutti_dataset *ds, int64_t index, void *x, int32_t *y);
    void (*close)(tutti_dataset *ds); /* frees state; cannot fail */
    void *state;                      /* of the format            */
};

/* One row of the table of formats. */
typedef struct tti_format {
    const char *name; /* what data.format says */
    const char *doc;  /* one line              */
    /* Fills stored, info (but info.x), decode, read, close and state of a zeroed ds.  On failure
     * everything it took is given back. */
    tutti_status (*open)(const tutti_dataset_desc *desc, tutti_dataset *ds);
} tti_format;

extern const tti_format tti_format_idx;
extern const tti_format tti_format_digits;

/* Formats in order of the table: i = 0, 1, ... until NULL. */
const tti_format *tti_format_at(int i);

#endif /* TTI_DATA_DATASET_H */
