/* agreement.h - checks that ranks of another launcher agree before they train.  Workers of our own
 * supervisor are copies of one command.  Those of mpirun, srun or torchrun may start in other
 * folders, with other job files.
 */
#ifndef TTI_TRAIN_AGREEMENT_H
#define TTI_TRAIN_AGREEMENT_H

#include "data/dataset.h"
#include "train/setup/bucket_link.h"
#include "tutti/comm.h"

/* Collective: TUTTI_E_CONFIG on every rank, with rank and line, when a rank's job is not that of
 * rank 0.  yaml: the resolved job. */
TUTTI_NODISCARD tutti_status tti_agree_on_job(tutti_comm *comm, const char *yaml);

/* Collective: TUTTI_E_CONFIG on every rank, with both ranks, hosts and values, when the data of a
 * rank differs from that of rank 0: numbers of samples and classes, type, names, contents. */
TUTTI_NODISCARD tutti_status tti_agree_on_data(tutti_comm *comm, const tutti_dataset *train,
                                               const tutti_dataset *test);

/* Collective: copies the folder name of rank 0, which has made the folder, to every rank. mine: the
 * status of making it on rank 0, TUTTI_OK elsewhere. dir: n_bytes, the same on every rank.
 */
TUTTI_NODISCARD tutti_status tti_agree_on_dir(tutti_comm *comm, tutti_status mine, char *dir,
                                              size_t n_bytes);

/* Collective: finds this rank's part of the cores that it may use: it is rank *local_rank of
 * *local_n_ranks ranks that may use the same cores.  A launcher that binds its ranks has already
 * divided them. */
TUTTI_NODISCARD tutti_status tti_agree_on_cores(tutti_comm *comm, int *local_rank,
                                                int *local_n_ranks);

/* Collective: counts the devices of the ranks of this host. identity: that of this rank's device,
 * 0: none.  A launcher may show each rank a different device under the same number. */
TUTTI_NODISCARD tutti_status tti_agree_on_devices(tutti_comm *comm, uint64_t identity,
                                                  int *n_devices);

/* Collective: describes the link that carries gradient sums, as rank 0 measures it. */
TUTTI_NODISCARD tutti_status tti_agree_on_link(tutti_comm *comm, const tti_job_config *config,
                                               tti_bucket_link *out);

#endif /* TTI_TRAIN_AGREEMENT_H */
