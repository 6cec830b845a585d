/* bench.h - benchmarks of all-reduce, by size and algorithm, and of data loading.
 *
 * Definitions follow nccl-tests: algorithm bandwidth = bytes / time, where bytes is the size of the
 * vector on one rank; bus bandwidth = algorithm bandwidth * 2(n-1)/n, which is comparable between
 * numbers of ranks.  For comparison the time of a memcpy is measured: all ranks at once copy the
 * bytes that each of them must move, 2(n-1)/n times the vector's. */
#ifndef TUTTI_BENCH_H
#define TUTTI_BENCH_H

#include "tutti/comm.h"
#include "tutti/job.h"

/* The measurement.  Zero is the default of every field. */
typedef struct tutti_bench_comm_desc {
    int n_ranks;        /* number of ranks, read by tutti_bench_comm; 0: one per core */
    tutti_comm_alg alg; /* algorithm of the all_reduce (f32, sum, in place) */
    size_t min_bytes;   /* smallest vector; 0: 4 */
    size_t max_bytes;   /* largest vector; 0: 64 MiB; sizes grow by factors of 4 */
    bool plain;         /* use buffers from malloc, not from tutti_comm_alloc */
    int min_ms;         /* time spent per size; 0: 100                     */
    bool no_memcpy;     /* times all_reduce only: memcpy_us is 0           */
} tutti_bench_comm_desc;

/* One line of the result. */
typedef struct tutti_bench_comm_row {
    int n_ranks;
    tutti_comm_alg alg;
    size_t n_bytes;    /* size of the vector on one rank */
    int n_repeats;     /* calls per round; the best of several rounds counts */
    double latency_us; /* time of one all_reduce */
    double alg_gb_s;   /* 1e9 bytes per second                             */
    double bus_gb_s;
    double memcpy_us;    /* time in which all ranks at once copy the bytes that each must move */
    double memcpy_ratio; /* latency_us / memcpy_us; 0 without memcpy_us    */
    /* Bytes that all ranks together move in one all_reduce: between ranks of one host, and between
     * hosts, including control messages. */
    double inside_bytes, between_bytes;
} tutti_bench_comm_row;

/* Receives one row; called by rank 0 between measurements. */
typedef void (*tutti_bench_comm_fn)(const tutti_bench_comm_row *row, void *user);

/* The measurement of all_reduce between devices.  Zero is the default of every field. */
typedef struct tutti_bench_devices_desc {
    int n_devices;    /* the first devices of this machine; 0: all */
    size_t min_bytes; /* smallest vector; 0: 4 KiB */
    size_t max_bytes; /* largest vector; 0: 256 MiB; sizes grow by factors of 4 */
    bool quick;       /* only the default algorithm of exact mode, with few repeats */
} tutti_bench_devices_desc;

/* One line of the result: an all_reduce of f32 in place, as in a captured training step. */
typedef struct tutti_bench_devices_row {
    int n_devices;
    const char *algorithm; /* direct, tree or ring; see parallel.algorithm */
    const char *transport; /* what moves the bytes: "over peers' memory" or "NCCL 2.28.9" */
    tutti_dtype wire;      /* dtype that is sent: f32, or bf16 (f32 rounded before sending) */
    size_t n_bytes;        /* bytes sent: size of the vector on one device */
    double us;             /* one all_reduce on the slowest device, best of three rounds */
    double bus_gb_s;       /* 1e9 bytes per second                                              */
    double link_us;        /* time that the slowest link needs for the bytes; 0: unknown */
} tutti_bench_devices_row;

/* Receives one row; called from another thread between measurements. */
typedef void (*tutti_bench_devices_fn)(const tutti_bench_devices_row *row, void *user);

/* The measurement of a job's training samples.  Zero is the default of every field. */
typedef struct tutti_bench_data_desc {
    int n_threads; /* loader threads; 0: one per core */
    int min_ms;    /* time for the stages, the loader and training each; 0: 2000 */
    bool no_training;
} tutti_bench_data_desc;

/* Samples per second; 0 for stages that the format does not have. */
typedef struct tutti_bench_data_result {
    int64_t n_samples;   /* samples in the training split */
    int64_t n_skipped;   /* damaged samples left out with data.on_error=skip */
    double sample_bytes; /* as stored, on average                                         */
    double read_per_s;   /* one thread: bytes from files                                  */
    double decode_per_s; /* one thread: to pixels of one size, with crop and flip         */
    double steps_per_s;  /* one thread: the remaining steps, up to the input of the model */
    double thread_per_s; /* one thread: all of these                                      */
    double loader_per_s; /* batches, by all threads                                       */
    int n_threads;       /* number of loader threads */
    double train_per_s;  /* training of the job; 0: not measured */
    double wait_share;   /* fraction of training time spent waiting for data, 0 .. 1 */
    int n_workers;       /* workers (threads) of the training */
    char why_not[512];   /* why training was not measured; "": measured, or not requested */
} tutti_bench_data_result;

TUTTI_EXTERN_C_BEGIN

/* Times all_reduce on a communicator.  Collective: every rank calls with the same desc; rank 0
 * reports. report may be NULL on the others.  Returns TUTTI_E_INVALID, TUTTI_E_NOMEM, or what a
 * collective returned; TUTTI_E_NUMERICS if a sum was wrong. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_bench_comm_run(tutti_comm *comm,
                                                            const tutti_bench_comm_desc *desc,
                                                            tutti_bench_comm_fn report, void *user);

/* Times all_reduce between ranks that are temporary threads of this process. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_bench_comm(const tutti_bench_comm_desc *desc,
                                                        tutti_bench_comm_fn report, void *user);

/* Times all_reduce between the devices of this machine with every algorithm, by size; checks each
 * result.  Returns TUTTI_E_UNSUPPORTED without usable devices, TUTTI_E_INVALID with fewer than two
 * or bad sizes, TUTTI_E_NOMEM, TUTTI_E_NUMERICS if a sum was wrong, or what a device returned. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_bench_devices(const tutti_bench_devices_desc *desc,
                                                           tutti_bench_devices_fn report,
                                                           void *user);

/* Loads training samples of the job in the order of its first epochs and discards them, then trains
 * the job briefly in a temporary folder.  Returns errors of opening or reading samples; a job that
 * cannot be trained is not a failure (why_not). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_bench_data(tutti_job *job,
                                                        const tutti_bench_data_desc *desc,
                                                        tutti_bench_data_result *out);

TUTTI_EXTERN_C_END

#endif /* TUTTI_BENCH_H */
