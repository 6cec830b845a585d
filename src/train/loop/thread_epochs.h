/* thread_epochs.h - runs worker threads whose number the user can change during the run (tutti
 * scale, SIGUSR1 and SIGUSR2, parallel.hostfile). */
#ifndef TTI_TRAIN_THREAD_EPOCHS_H
#define TTI_TRAIN_THREAD_EPOCHS_H

#include "base/flight.h"
#include "train/loop/carry.h"
#include "train/setup/blueprint.h"
#include "tutti/comm.h"

typedef struct tti_thread_epochs_desc {
    const tti_blueprint *blueprint; /* borrowed; has the initial number of workers */
    tti_flight_memory *flight;      /* borrowed; has the limits of the number of workers */
    /* Runs a worker until the end, or returns TUTTI_E_PEER when its group is broken. */
    tutti_status (*run)(void *user, const tti_blueprint *b, tutti_comm_group *group, int rank,
                        tti_carry *carry);
    void (*warn)(void *user, const char *text); /* one line */
    void *user;
} tti_thread_epochs_desc;

TUTTI_NODISCARD tutti_status tti_thread_epochs_run(const tti_thread_epochs_desc *desc);

#endif /* TTI_TRAIN_THREAD_EPOCHS_H */
