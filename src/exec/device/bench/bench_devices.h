/* bench_devices.h - tutti_bench_devices on the devices of a given backend. */
#ifndef TTI_EXEC_BENCH_DEVICES_H
#define TTI_EXEC_BENCH_DEVICES_H

#include "backend/backend.h"
#include "tutti/bench.h"

/* As tutti_bench_devices (tutti/bench.h) says. */
tutti_status tti_bench_devices(const tti_backend *backend, const tutti_bench_devices_desc *desc,
                               tutti_bench_devices_fn report, void *user);

/* The same in less time: sums of f32 alone, by every algorithm, few of each size; links are left
 * out. */
tutti_status tti_bench_device_algorithms(const tti_backend *backend,
                                         const tutti_bench_devices_desc *desc,
                                         tutti_bench_devices_fn report, void *user);

#endif /* TTI_EXEC_BENCH_DEVICES_H */
