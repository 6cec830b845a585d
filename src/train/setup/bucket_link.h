/* bucket_link.h - sizes of gradient buckets, from the link that carries their sums.
 *
 * parallel.bucket_mb=auto.  A sum of n bytes takes latency_s + n / bytes_s, and computation loses
 * taken_s for each sum, whatever its length.  A bucket is at least long enough that latency is a
 * twentieth of its time.  Beyond that the step loses latency and taken_s for each bucket, and the
 * time of the last one, which nothing hides: P / n (latency_s + taken_s) + n / bytes_s for P bytes
 * of gradients is least at n = sqrt(P (latency_s + taken_s) bytes_s).  In exact mode the size does
 * not change the bits. */
#ifndef TTI_TRAIN_BUCKET_LINK_H
#define TTI_TRAIN_BUCKET_LINK_H

#include "base/str.h"
#include "passes/plan.h"
#include "train/job/devices.h"
#include "train/job/job.h"

/* Plain data, that may be sent to ranks of other hosts. */
typedef struct tti_bucket_link {
    char name[64]; /* what carries the sums, for people */
    double latency_s, bytes_s, taken_s;
    double most_bytes; /* 0: as many as come of it */
} tti_bucket_link;

/* The link between n_workers on n_hosts of a job: from the table of `tutti doctor`, if it has the
 * devices and the algorithm of the job, else from known figures for its kind. */
void tti_bucket_link_of(const tti_job_config *config, const tti_devices *devices, int n_workers,
                        int n_hosts, tti_bucket_link *out);

/* Fills what desc says of buckets: by parallel.bucket_mb, or where that is auto by link. */
void tti_bucket_link_apply(const tti_bucket_link *link, const tti_job_config *config,
                           tti_plan_desc *desc);

/* Behind how many buckets a plan has: their size, and why. */
void tti_bucket_link_describe(const tti_bucket_link *link, const tti_job_config *config,
                              size_t bucket_bytes, tti_str *out);

#endif /* TTI_TRAIN_BUCKET_LINK_H */
