/* placement.h - says where the workers are: warns of shared cores and devices and of shards
 * that are too small for batch norm, reports memory, and how gradients are reduced. */
#ifndef TTI_TRAIN_PLACEMENT_H
#define TTI_TRAIN_PLACEMENT_H

#include "train/loop/worker_loop.h"
#include "train/report/reporter.h"

enum { TTI_DAMAGED_TEXT = 512 };

/* Names files of the cache of measurements that are damaged, "": none, before a device is opened,
 * which measures again and replaces them. */
void tti_find_damaged_cache(const tti_worker_loop_desc *desc, char names[TTI_DAMAGED_TEXT]);

/* damaged: of tti_find_damaged_cache. */
TUTTI_NODISCARD tutti_status tti_warn_of_placement(tti_reporter *reporter,
                                                   const tti_worker_loop_desc *desc,
                                                   const char *damaged);

/* Warns, on rank 0 at the end of a run on devices, if the batch divided in another way would have
 * been faster.  now: the shard map of the run; NULL: even. */
TUTTI_NODISCARD tutti_status tti_advise_load_weights(tti_reporter *reporter,
                                                     const tti_worker_loop_desc *desc,
                                                     const tti_slowest *slowest,
                                                     const tti_shard_map *now);

/* The largest device memory of a step, which replicas need alike, on rank 0.  Collective. */
TUTTI_NODISCARD tutti_status tti_report_memory(const tti_worker_loop_desc *desc, tti_exec *exec,
                                               tutti_train_result *result);

/* How gradients are reduced between workers, for the start line.  Valid as long as exec. */
const char *tti_reductions_text(const tti_worker_loop_desc *desc, const tti_exec *exec);

/* Gives the reporter the place of each worker, including workers of other machines.  Collective in
 * mixed runs. */
TUTTI_NODISCARD tutti_status tti_report_places(tti_reporter *reporter,
                                               const tti_worker_loop_desc *desc);

/* Threads for a loader of ds: data.threads, but none where samples are drawn and so many workers
 * share each core that no core would be idle for a thread. */
int tti_count_loader_threads(const tti_worker_loop_desc *desc, const tutti_dataset *ds);

/* Returns NULL, or why the host must make the batches. */
const char *tti_why_not_resident(const tti_blueprint *b, bool is_async);

#endif /* TTI_TRAIN_PLACEMENT_H */
