/* agreement.h - checks that ranks of another launcher agree before they train.  Workers of Tutti's
 * supervisor are copies of one command, but mpirun, srun or torchrun may start ranks in different
 * folders with different job files. */
#ifndef TTI_TRAIN_AGREEMENT_H
#define TTI_TRAIN_AGREEMENT_H

#include "data/dataset.h"
#include "train/setup/bucket_link.h"
#include "tutti/comm.h"

/* Collective.  TUTTI_E_CONFIG on every rank, with rank and line, if a rank's job differs from that
 * of rank 0. yaml: the resolved job. */
TUTTI_NODISCARD tutti_status tti_agree_on_job(tutti_comm *comm, const char *yaml);

/* Collective.  TUTTI_E_CONFIG on every rank, with both ranks, hosts and values, if the data of a
 * rank differs from that of rank 0: numbers of samples and classes, type, names, contents. */
TUTTI_NODISCARD tutti_status tti_agree_on_data(tutti_comm *comm, const tutti_dataset *train,
                                               const tutti_dataset *test);

/* Collective: copies the name of the folder that rank 0 has created to every rank. mine: the status
 * of the creation on rank 0, TUTTI_OK on other ranks. dir [n_bytes]; n_bytes is equal on every
 * rank. */
TUTTI_NODISCARD tutti_status tti_agree_on_dir(tutti_comm *comm, tutti_status mine, char *dir,
                                              size_t n_bytes);

/* Collective: determines how ranks share cores: this rank is number *local_rank of *local_n_ranks
 * ranks that may use the same cores.  If the launcher binds each rank to its own cores,
 * *local_n_ranks is 1. */
TUTTI_NODISCARD tutti_status tti_agree_on_cores(tutti_comm *comm, int *local_rank,
                                                int *local_n_ranks);

/* Collective: counts the different devices of the ranks of this host. identity: identifies this
 * rank's device, 0: none.  Device numbers do not, because a launcher may give each rank a different
 * device with the same number. */
TUTTI_NODISCARD tutti_status tti_agree_on_devices(tutti_comm *comm, uint64_t identity,
                                                  int *n_devices);

/* Collective: describes the link that carries gradient sums, as rank 0 measures it. */
TUTTI_NODISCARD tutti_status tti_agree_on_link(tutti_comm *comm, const tti_job_config *config,
                                               tti_bucket_link *out);

#endif /* TTI_TRAIN_AGREEMENT_H */
