/* dataset.h - reads the samples of an open data set, whatever its format.
 *
 * Samples are read as they are stored; the decode chain of transforms (transform.h) turns them into
 * model inputs.  Code that reads many samples runs the chain in its own memory: loader.c. */
#ifndef TTI_DATA_DATASET_H
#define TTI_DATA_DATASET_H

#include "data/format.h"

/* The data specification, which lives as long as ds or another owner. */
const tti_data_spec *tti_dataset_spec(const tutti_dataset *ds);

/* The type of one sample as it is stored, and the steps that make a model input of it. */
const tutti_type *tti_dataset_stored(const tutti_dataset *ds);
const tti_chain *tti_dataset_decode(const tutti_dataset *ds);

/* Bytes that are allocated as samples are first read. */
size_t tti_dataset_late_bytes(const tutti_dataset *ds);

/* Every sample is in memory or in one large file.  false: samples are files that are opened one by
 * one, perhaps over a network, and differ in size. */
bool tti_dataset_is_flat(const tutti_dataset *ds);

/* Samples are computed: no file is read, so reading one cannot block. */
bool tti_dataset_is_drawn(const tutti_dataset *ds);

/* A stored sample is the same in every epoch, soon read, and never skipped. */
bool tti_dataset_is_fixed(const tutti_dataset *ds);

/* CRC-32C of the names and sizes that the format lists; 0: it lists none. */
uint32_t tti_dataset_listing(const tutti_dataset *ds);

/* The state with which the format reads samples, of the format's own type. */
void *tti_dataset_state(const tutti_dataset *ds);

/* tti_dataset_read in two halves, without masking: reads sample index and y, then makes it a
 * sample of type stored in x.  For a flat data set, the first half does everything.  *n_bytes, at
 * *bytes: the sample as it lies in its file, or as it is stored. */
tutti_status tti_dataset_fetch(const tutti_dataset *ds, int64_t index, tti_workspace *ws, void *x,
                               int32_t *y, const void **bytes, size_t *n_bytes);
tutti_status tti_dataset_unpack(const tutti_dataset *ds, const tti_sample_key *key,
                                tti_workspace *ws, void *x);

/* Whether the policy is to skip a sample that fails with st. */
bool tti_dataset_skips(const tutti_dataset *ds, tutti_status st);

/* Reads sample key->index as stored (type stored), and y, with whichever method the format has.
 * *skipped: the sample is bad and the policy is to skip it; x and y are undefined. */
tutti_status tti_dataset_read(const tutti_dataset *ds, const tti_sample_key *key, tti_workspace *ws,
                              void *x, int32_t *y, bool *skipped);

/* The loss takes the labels of a field as classes: from now on a sample with another label cannot
 * be read (TUTTI_E_DATA).  Labels that lie in moderately large arrays are checked at once, unless
 * bad samples are skipped.  Not while another thread reads the data set. */
tutti_status tti_dataset_expect_labels(tutti_dataset *ds, const tti_expected_labels *range);

/* Makes tutti_dataset_destroy do nothing from now on: a loader thread that cannot be stopped still
 * reads the data set. */
void tti_dataset_keep(const tutti_dataset *ds);

/* Computes R^2 of each target of a regression: 1 - squared_errors / the sum of squared distances of
 * its values from their mean, all standardised; NAN (undefined) if all its values are equal. */
tutti_status tti_target_r2(const tutti_dataset *ds, const double *squared_errors, double *out);

#endif /* TTI_DATA_DATASET_H */
