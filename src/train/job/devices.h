/* devices.h - decides where a job computes: on the host's cores, on devices of a backend, or both.
 */
#ifndef TTI_TRAIN_DEVICES_H
#define TTI_TRAIN_DEVICES_H

#include "backend/backend.h"
#include "train/job/job.h"

/* Maximum number of devices of one machine: 8 GPUs with 7 instances (MIG) each are 56. */
enum { TTI_MAX_DEVICES = 64 };

/* Index that stands for the host's cores. */
enum { TTI_ON_HOST = -1 };

typedef struct tti_devices {
    const tti_backend *backend;
    int n; /* number of places; 0: only the host's cores */
    int index[TTI_MAX_DEVICES];
    bool mixed; /* some workers of the run are on the host; index has TTI_ON_HOST */
} tti_devices;

/* Returns the place of worker local_rank of a machine: the number of a device, or TTI_ON_HOST.
 * Workers beyond the list continue on the host if the list contains it, else from its beginning.
 */
int tti_devices_place(const tti_devices *devices, int local_rank);

/* Describes the device of that worker: name, multiprocessors; "" on the host. */
void tti_devices_kind(const tti_devices *devices, int local_rank, tti_str *out);

/* Lists the kinds of devices of the first n_workers of this machine, each once: "A and B"; "" on
 * the host. */
void tti_devices_kinds(const tti_devices *devices, int n_workers, tti_str *out);

/* The first device of the list; 0 if it has none. */
int tti_devices_first(const tti_devices *devices);

/* Finds the devices and replaces auto values in the job: parallel.devices, train.precision. */
tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out);

/* Checks parallel.devices without looking at the machine: TUTTI_E_CONFIG if it is not a valid list,
 * or if parallel.backend computes on the host. */
tutti_status tti_devices_check(const tti_job_config *config);

/* The devices of parallel.devices on this machine: "cpu", "gpu" (all), a list of numbers, a list
 * with cpu in it, or "auto": devices if there are any and the job uses nothing that only the host
 * supports.  The message of TUTTI_E_CONFIG names what is missing and why. */
tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out);

/* True if a machine has more workers (n_here) than devices (n_devices). */
bool tti_devices_are_shared(const tti_devices *devices, int n_here, int n_devices);

/* Returns TUTTI_E_CONFIG if a machine has more workers than devices and parallel.share_devices is
 * false. */
tutti_status tti_devices_check_sharing(const tti_job_config *config, const tti_devices *devices,
                                       int n_here, int n_devices);

/* Counts the devices that a list such as "0,1" names, present or not; 0: not a list, or it contains
 * the host. */
int tti_devices_listed(const char *text);

/* For a list with cpu in it, returns the smallest number of workers of a machine that puts one on a
 * device and one on the host; else 0. */
int tti_devices_mixed_from(const char *text);

#endif /* TTI_TRAIN_DEVICES_H */
