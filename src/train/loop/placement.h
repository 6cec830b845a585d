/* placement.h - reports where the workers run, their memory, and how gradients are reduced; warns
 * of shared cores and devices, and of shards that are too small for batch norm. */
#ifndef TTI_TRAIN_PLACEMENT_H
#define TTI_TRAIN_PLACEMENT_H

#include "train/loop/worker_loop.h"
#include "train/report/reporter.h"

enum { TTI_DAMAGED_TEXT = 512 };

/* Writes the names of damaged files in the cache of measurements to names; "": none.  Call it
 * before a device is opened, because that measures again and replaces the files. */
void tti_find_damaged_cache(const tti_worker_loop_desc *desc, char names[TTI_DAMAGED_TEXT]);

/* Prints the warnings about placement. damaged: the result of tti_find_damaged_cache. */
TUTTI_NODISCARD tutti_status tti_warn_of_placement(tti_reporter *reporter,
                                                   const tti_worker_loop_desc *desc,
                                                   const char *damaged);

/* On rank 0 at the end of a run on devices, suggests parallel.load_weights if another shard map
 * would have been faster. now: the shard map of the run; NULL: even. */
TUTTI_NODISCARD tutti_status tti_advise_load_weights(tti_reporter *reporter,
                                                     const tti_worker_loop_desc *desc,
                                                     const tti_slowest *slowest,
                                                     const tti_shard_map *now);

/* Writes the peak device memory of rank 0, and the largest and smallest peak of all ranks, to
 * *result on rank 0.  Collective. */
TUTTI_NODISCARD tutti_status tti_report_memory(const tti_worker_loop_desc *desc, tti_exec *exec,
                                               tutti_train_result *result);

/* Describes how gradients are reduced between workers, for the start line.  The text is valid as
 * long as exec. */
const char *tti_reductions_text(const tti_worker_loop_desc *desc, const tti_exec *exec);

/* Passes the place of each worker, including workers of other machines, to the reporter.
 * Collective in mixed runs. */
TUTTI_NODISCARD tutti_status tti_report_places(tti_reporter *reporter,
                                               const tti_worker_loop_desc *desc);

/* The number of threads for a loader of ds: data.threads, but 0 if samples are generated and each
 * core has so many workers that no core is idle. */
int tti_count_loader_threads(const tti_worker_loop_desc *desc, const tutti_dataset *ds);

/* Returns NULL if the samples can be resident on the device, or the reason why not. */
const char *tti_why_not_resident(const tti_blueprint *b, bool is_async);

#endif /* TTI_TRAIN_PLACEMENT_H */
