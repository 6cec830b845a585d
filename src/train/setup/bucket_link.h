/* bucket_link.h - how long buckets of gradients are, from what carries their sums.
 *
 * parallel.bucket_mb=auto.  A sum of n bytes takes latency_s + n / bytes_s, and what computes loses
 * taken_s by each one, whatever its length.  A bucket is at least so long that latency is one part
 * in twenty of its time.  Beyond that the step loses latency and taken_s by each bucket, and the
 * time of the last one, which nothing hides: P / n (latency_s + taken_s) + n / bytes_s for P bytes
 * of gradients is least at n = sqrt(P (latency_s + taken_s) bytes_s).  Exact mode has the same bits
 * whatever comes of it. */
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

/* What carries the sums of a job between n_workers on n_hosts: as the table of `tutti doctor` says,
 * where it has one of the devices and the way that the job takes, else as is known of its kind. */
void tti_bucket_link_of(const tti_job_config *config, const tti_devices *devices, int n_workers,
                        int n_hosts, tti_bucket_link *out);

/* Fills what desc says of buckets: by parallel.bucket_mb, or where that is auto by link. */
void tti_bucket_link_apply(const tti_bucket_link *link, const tti_job_config *config,
                           tti_plan_desc *desc);

/* Behind how many buckets a plan has: their size, and why. */
void tti_bucket_link_describe(const tti_bucket_link *link, const tti_job_config *config,
                              size_t bucket_bytes, tti_str *out);

#endif /* TTI_TRAIN_BUCKET_LINK_H */
