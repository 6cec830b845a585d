/* transform.h - the processing of a sample between storage and model: a chain of small steps.
 *
 * A step maps one sample to another, possibly of another type.  Random steps (crop, flip) draw from
 * Philox with a key made of the sample's key, so a sample looks the same whichever thread or worker
 * loads it, at any time. */
#ifndef TTI_DATA_TRANSFORM_H
#define TTI_DATA_TRANSFORM_H

#include "tutti/types.h"

/* All that a random step may depend on. */
typedef struct tti_sample_key {
    uint64_t seed;  /* of the job                   */
    uint64_t epoch; /* 0 in evaluation              */
    uint64_t index; /* of the sample in its data set */
} tti_sample_key;

/* A step that maps every byte independently, the same in every epoch.  One channel: elements stay
 * in order.  More: pixels of so many bytes become planes, and each channel has its own values. */
enum { TTI_MAX_TABLES = 4 };
typedef struct tti_pixel_table {
    int n_channels;
    float value[TTI_MAX_TABLES][256];
} tti_pixel_table;

typedef struct tti_transform tti_transform;
struct tti_transform {
    const char *name;
    /* The type of a result, or the reason why not (TUTTI_E_INVALID). */
    tutti_status (*infer)(const tti_transform *self, const tutti_type *in, tutti_type *out);
    /* in and out do not overlap.  Any thread. */
    void (*apply)(const tti_transform *self, const tti_sample_key *key, const void *in, void *out);
    void (*destroy)(tti_transform *self); /* frees self */
    /* The step as a table; NULL or false: it is none. */
    bool (*table)(const tti_transform *self, tti_pixel_table *out);
};

enum { TTI_MAX_TRANSFORMS = 8 };

/* Steps in order.  The owner of the chain defines who owns them. */
typedef struct tti_chain {
    int n;
    tti_transform *step[TTI_MAX_TRANSFORMS];
} tti_chain;

/* Appends the steps of tail; TUTTI_E_INVALID if the chain would be too long. */
tutti_status tti_chain_append(tti_chain *chain, const tti_chain *tail);

/* The type after the last step; *max_bytes becomes the bytes of the largest sample on the way,
 * in and out included, rounded up to 64. */
tutti_status tti_chain_infer(const tti_chain *chain, const tutti_type *in, tutti_type *out,
                             size_t *max_bytes);

/* A sample of type *in at scratch[0] goes through every step; the result is written to out.  Both
 * scratch buffers have max_bytes.  A chain without steps copies in_bytes. */
void tti_chain_apply(const tti_chain *chain, const tti_sample_key *key, void *const scratch[2],
                     size_t in_bytes, void *out);

/* Destroys every step, for an owner. */
void tti_chain_destroy(tti_chain *chain);

/* u8 -> f32, both of shape: (pixel/255 - mean) / std through a table of 256 values; std 0: 1. */
tutti_status tti_normalise_create(double mean, double std, const tutti_shape *shape,
                                  tti_transform **out);

/* Bytes of a value of that type. */
size_t tti_type_bytes(const tutti_type *type);

#endif /* TTI_DATA_TRANSFORM_H */
