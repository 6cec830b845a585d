/* bucket_link.h - chooses the size of gradient buckets from the link that carries their sums.
 *
 * Used for parallel.bucket_mb=auto.  A sum of n bytes takes latency_s + n / bytes_s, and each sum
 * costs the computation taken_s, independent of its size.  A bucket is large enough that latency is
 * at most a twentieth of its time.  Beyond that, a step with P bytes of gradients loses latency_s +
 * taken_s for each bucket, and the whole time of the last bucket, which cannot overlap: P / n
 * (latency_s + taken_s) + n / bytes_s.  This is smallest for n = sqrt(P (latency_s + taken_s)
 * bytes_s).  In exact mode the size does not change the bits. */
#ifndef TTI_TRAIN_BUCKET_LINK_H
#define TTI_TRAIN_BUCKET_LINK_H

#include "base/str.h"
#include "passes/plan.h"
#include "train/job/devices.h"
#include "train/job/job.h"

/* Plain data, which may be sent to ranks of other hosts. */
typedef struct tti_bucket_link {
    char name[64]; /* describes the link, for messages */
    double latency_s, bytes_s, taken_s;
    double most_bytes; /* largest bucket; 0: no limit */
} tti_bucket_link;

/* Estimates the link between n_workers on n_hosts: from the table of `tutti doctor`, if it has the
 * devices and the algorithm of the job, else from known figures for the kind of link. */
void tti_bucket_link_of(const tti_job_config *config, const tti_devices *devices, int n_workers,
                        int n_hosts, tti_bucket_link *out);

/* Sets the bucket size in desc from parallel.bucket_mb, or from link if it is auto. */
void tti_bucket_link_apply(const tti_bucket_link *link, const tti_job_config *config,
                           tti_plan_desc *desc);

/* Appends the size of buckets and its reason, after the number of buckets of a plan. */
void tti_bucket_link_describe(const tti_bucket_link *link, const tti_job_config *config,
                              size_t bucket_bytes, tti_str *out);

#endif /* TTI_TRAIN_BUCKET_LINK_H */
