/* devices.h - where a job computes: on the host's cores, or on devices of a backend. */
#ifndef TTI_TRAIN_DEVICES_H
#define TTI_TRAIN_DEVICES_H

#include "backend/backend.h"
#include "train/job.h"

enum { TTI_MAX_DEVICES = 64 };

typedef struct tti_devices {
    const tti_backend *backend;
    int n; /* 0: the host's cores */
    int index[TTI_MAX_DEVICES];
} tti_devices;

/* Finds the devices and writes what was auto into the job: parallel.devices, train.precision. */
tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out);

/* What parallel.devices of a job stands for on this machine: "cpu", "gpu" (all there are), a list
 * of numbers, or "auto": devices where there are some and the job asks for nothing that only the
 * host has.  TUTTI_E_CONFIG says what is not there and why. */
tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out);

#endif /* TTI_TRAIN_DEVICES_H */
