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
    int n_ranks;        /* of tutti_bench_comm; 0: one per core            */
    tutti_comm_alg alg; /* of all_reduce, f32, sum, in place               */
    size_t min_bytes;   /* 0: 4                                            */
    size_t max_bytes;   /* 0: 64 MiB; sizes go up by factors of 4          */
    bool plain;         /* buffers from malloc, not from tutti_comm_alloc  */
    int min_ms;         /* time spent per size; 0: 100                     */
} tutti_bench_comm_desc;

/* One line of the result. */
typedef struct tutti_bench_comm_row {
    int n_ranks;
    tutti_comm_alg alg;
    size_t n_bytes;    /* of the vector on one rank                        */
    int n_repeats;     /* per round; the best of several rounds counts     */
    double latency_us; /* of one all_reduce                                */
    double alg_gb_s;   /* 1e9 bytes per second                             */
    double bus_gb_s;
    double memcpy_us;    /* all ranks copying the bytes each must move at once */
    double memcpy_ratio; /* latency_us / memcpy_us; 0 with one rank        */
    /* Bytes that all ranks together move in one all_reduce: between ranks of one host, and between
     * hosts, including control messages. */
    double inside_bytes, between_bytes;
} tutti_bench_comm_row;

/* Receives one row; called by rank 0 between measurements. */
typedef void (*tutti_bench_comm_fn)(const tutti_bench_comm_row *row, void *user);

/* The measurement between devices.  Zero is the default of every field. */
typedef struct tutti_bench_devices_desc {
    int n_devices;    /* the first ones of this machine; 0: all             */
    size_t min_bytes; /* 0: 4 KiB                                           */
    size_t max_bytes; /* 0: 256 MiB; sizes go up by factors of 4            */
    bool quick;       /* only the default algorithm of exact mode, with few repeats */
} tutti_bench_devices_desc;

/* One line of the result: an all_reduce of f32 in place, as in a captured training step. */
typedef struct tutti_bench_devices_row {
    int n_devices;
    const char *algorithm; /* direct, tree, ring: as parallel.algorithm; ring: any order        */
    const char *way;       /* what moves the bytes: "over peers' memory", "NCCL 2.28.9"         */
    tutti_dtype wire;      /* f32, or bf16: f32 are rounded before they travel                  */
    size_t n_bytes;        /* that travel: of the vector on one device        */
    double us;             /* of one all_reduce, on the slowest device, best of three rounds    */
    double bus_gb_s;       /* 1e9 bytes per second                                              */
    double link_us; /* the time in which the slowest link carries the bytes that must move; 0:
                       unknown */
} tutti_bench_devices_row;

/* Receives one row; called from another thread between measurements. */
typedef void (*tutti_bench_devices_fn)(const tutti_bench_devices_row *row, void *user);

/* The measurement of a job's training samples.  Zero is the default of every field. */
typedef struct tutti_bench_data_desc {
    int n_threads; /* of the loader; 0: one per core             */
    int min_ms;    /* for the stages, for the loader, and for training; 0: 2000 */
    bool no_training;
} tutti_bench_data_desc;

/* Samples per second; 0 for stages that the format does not have. */
typedef struct tutti_bench_data_result {
    int64_t n_samples;   /* in the set                                                    */
    int64_t n_skipped;   /* met and left out, where data.on_error is skip                 */
    double sample_bytes; /* as stored, on average                                         */
    double read_per_s;   /* one thread: bytes from files                                  */
    double decode_per_s; /* one thread: to pixels of one size, with crop and flip         */
    double steps_per_s;  /* one thread: the remaining steps, up to the input of the model */
    double thread_per_s; /* one thread: all of these                                      */
    double loader_per_s; /* batches, by all threads                                       */
    int n_threads;       /* that the loader had                                           */
    double train_per_s;  /* the job's own training; 0: it was not measured                */
    double wait_share;   /* of the time of training: waiting for data, 0 .. 1             */
    int n_workers;       /* of training, as threads                                       */
    char why_not[512];   /* why training was not measured; "": measured, or not requested */
} tutti_bench_data_result;

TUTTI_EXTERN_C_BEGIN

/* Measures on a communicator: collective, every rank calls with the same desc; rank 0 reports.
 * report may be NULL on the others.  Returns TUTTI_E_INVALID, TUTTI_E_NOMEM, or what a collective
 * returned; TUTTI_E_NUMERICS if a sum was wrong. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_bench_comm_run(tutti_comm *comm,
                                                            const tutti_bench_comm_desc *desc,
                                                            tutti_bench_comm_fn report, void *user);

/* The same with ranks as temporary threads of this process. */
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
