/* devices.h - where a job computes: on the host's cores, on devices of a backend, or on both. */
#ifndef TTI_TRAIN_DEVICES_H
#define TTI_TRAIN_DEVICES_H

#include "backend/backend.h"
#include "train/job/job.h"

enum { TTI_MAX_DEVICES = 64 };

/* As an index: the host's cores. */
enum { TTI_ON_HOST = -1 };

typedef struct tti_devices {
    const tti_backend *backend;
    int n; /* places; 0: the host's cores alone */
    int index[TTI_MAX_DEVICES];
    bool mixed; /* some workers of the run are on the host; index has TTI_ON_HOST */
} tti_devices;

/* Where the worker of that number on its machine computes: the number of a device, or TTI_ON_HOST.
 * Workers beyond the list start again at its begin; if it contains the host they are on the host.
 */
int tti_devices_place(const tti_devices *devices, int local_rank);

/* The kind of the device of that worker: name, multiprocessors; "" on the host. */
void tti_devices_kind(const tti_devices *devices, int local_rank, tti_str *out);

/* All kinds among the first n_workers of this machine, each once: "A and B"; "" on the host. */
void tti_devices_kinds(const tti_devices *devices, int n_workers, tti_str *out);

/* The first device of the list, 0: there is none. */
int tti_devices_first(const tti_devices *devices);

/* Finds the devices and replaces auto values in the job: parallel.devices, train.precision. */
tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out);

/* Checks parallel.devices as far as it does not depend on the machine: TUTTI_E_CONFIG if it is no
 * valid list, or parallel.backend computes on the host. */
tutti_status tti_devices_check(const tti_job_config *config);

/* The devices of parallel.devices on this machine: "cpu", "gpu" (all), a list of numbers, a list
 * with cpu in it, or "auto": devices if there are any and the job uses nothing that only the host
 * supports.  TUTTI_E_CONFIG says what is missing and why. */
tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out);

/* Whether n_here workers of this machine are more than the n_devices that they have. */
bool tti_devices_are_shared(const tti_devices *devices, int n_here, int n_devices);

/* TUTTI_E_CONFIG: they are, and the job says no to that (parallel.share_devices). */
tutti_status tti_devices_check_sharing(const tti_job_config *config, const tti_devices *devices,
                                       int n_here, int n_devices);

/* How many devices a list such as "0,1" names, whether they are here or not; 0: it is none, or has
 * the host in it. */
int tti_devices_listed(const char *text);

/* Whether text is a list with cpu in it; then how many workers of a machine it takes until one is
 * on a device and one on the host; else 0. */
int tti_devices_mixed_from(const char *text);

#endif /* TTI_TRAIN_DEVICES_H */
