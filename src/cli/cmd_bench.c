/* cmd_bench.c - `tutti bench comm`: times all_reduce by size and compares it with memcpy.
 *
 * Ranks are threads or processes.  Processes are forked before any thread exists. */
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/words.h"
#include "tutti/bench.h"
#include "tutti/launch.h"

enum { MAX_RANKS = 4096 };

static const char usage[] =
    "usage: tutti bench comm [options]\n"
    "\n"
    "Times all_reduce (f32, sum, in place) for growing sizes.  Prints latency, algorithm\n"
    "bandwidth and bus bandwidth as nccl-tests define them, and the time of a memcpy of the same\n"
    "bytes on all ranks.\n"
    "\n"
    "  -n N               ranks, up to 4096; default: one per core; under a launcher\n"
    "                     (mpirun, torchrun, srun, tutti launch): all ranks it has started, on\n"
    "                     any hosts\n"
    "  --place PLACE      threads (default) or processes\n"
    "  --algorithm ALG    auto (default), ring, tree, direct or all\n"
    "  --min BYTES        smallest vector, with K, M or G; default 4\n"
    "  --max BYTES        largest vector; default 64M\n"
    "  --ms T             time per size and measurement, in ms; default 100\n"
    "  --hosts N          divide the ranks over N simulated hosts on this machine: processes,\n"
    "                     with sockets between the hosts\n"
    "  --plain            use buffers from malloc, which other processes cannot read directly\n"
    "  --devices          between the GPUs of this machine (-n: the first N), with every "
    "algorithm,\n"
    "                     compared with the time the slowest link needs for the bytes\n"
    "  --json             one JSON object per line\n"
    "  -h, --help         this text\n";

static const char *const algorithms[TUTTI_N_ALGS] = {"auto", "ring", "tree", "direct"};

typedef struct options {
    tutti_bench_comm_desc desc;
    bool processes, json, all, help, devices;
    int n_hosts;    /* 0: one, without sockets */
    char token[33]; /* secret of this start, for the sockets */
} options;

static int fail_usage(const char *what, const char *value) {
    fprintf(stderr, "tutti bench comm: %s: %s\n", what, value);
    return 2;
}

/* option: the long name; NULL: -n. */
static int fail_value(const char *option, const char *value) {
    fprintf(stderr, "tutti bench comm: %s%s cannot be '%s' (tutti bench comm --help)\n",
            option ? "--" : "-n", option ? option : "", value);
    return 2;
}

/* Parses a size such as "64M"; false if text is not a size. */
static bool parse_bytes(const char *text, size_t *out) {
    char *end;
    unsigned long long n = strtoull(text, &end, 10), unit = 1;
    if (end == text || text[0] == '-') return false;
    if (*end == 'K' || *end == 'k')
        unit = 1ull << 10, end++;
    else if (*end == 'M')
        unit = 1ull << 20, end++;
    else if (*end == 'G')
        unit = 1ull << 30, end++;
    if (*end || n == 0 || n > (1ull << 40) / unit) return false;
    *out = (size_t)(n * unit);
    return true;
}

static bool parse_algorithm(const char *text, options *o) {
    o->all = strcmp(text, "all") == 0;
    for (int a = 0; a < TUTTI_N_ALGS; a++)
        if (strcmp(text, algorithms[a]) == 0) {
            o->desc.alg = (tutti_comm_alg)a;
            return true;
        }
    return o->all;
}

static bool parse_place(const char *text, options *o) {
    o->processes = strcmp(text, "processes") == 0;
    return o->processes || strcmp(text, "threads") == 0;
}

/* Returns 0, or the exit code. */
static int parse(int argc, char **argv, options *o) {
    static const struct option longs[] = {
        {"place", required_argument, NULL, 'p'},
        {"algorithm", required_argument, NULL, 'a'},
        {"min", required_argument, NULL, 'm'},
        {"max", required_argument, NULL, 'M'},
        {"ms", required_argument, NULL, 't'},
        {"plain", no_argument, NULL, 'P'},
        {"devices", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {"hosts", required_argument, NULL, 'H'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    optind = 1;
    for (int c, at = -1; (c = getopt_long(argc, argv, "n:h", longs, &at)) != -1; at = -1) {
        bool good = true;
        switch (c) {
            case 'n':
                good = read_count(optarg, 1, MAX_RANKS, &o->desc.n_ranks);
                break;
            case 'p':
                good = parse_place(optarg, o);
                break;
            case 'a':
                good = parse_algorithm(optarg, o);
                break;
            case 'm':
                good = parse_bytes(optarg, &o->desc.min_bytes);
                break;
            case 'M':
                good = parse_bytes(optarg, &o->desc.max_bytes);
                break;
            case 't':
                good = read_count(optarg, 1, 60000, &o->desc.min_ms);
                break;
            case 'H':
                good = read_count(optarg, 1, MAX_RANKS, &o->n_hosts);
                break;
            case 'P':
                o->desc.plain = true;
                break;
            case 'd':
                o->devices = true;
                break;
            case 'j':
                o->json = true;
                break;
            case 'h':
                o->help = true;
                return 0;
            default:
                return 2; /* getopt has printed the reason */
        }
        if (!good) return fail_value(at < 0 ? NULL : longs[at].name, optarg);
    }
    return optind < argc ? fail_usage("unexpected argument", argv[optind]) : 0;
}

static void print_row(const tutti_bench_comm_row *row, void *user) {
    const options *o = user;
    if (o->json)
        printf(
            "{\"n_ranks\":%d,\"place\":\"%s\",\"algorithm\":\"%s\",\"n_bytes\":%zu,"
            "\"latency_us\":%.3f,\"alg_gb_s\":%.3f,\"bus_gb_s\":%.3f,\"memcpy_us\":%.3f,"
            "\"memcpy_ratio\":%.3f,\"inside_bytes\":%.0f,\"between_bytes\":%.0f}\n",
            row->n_ranks, o->processes ? "processes" : "threads", algorithms[row->alg],
            row->n_bytes, row->latency_us, row->alg_gb_s, row->bus_gb_s, row->memcpy_us,
            row->memcpy_ratio, row->inside_bytes, row->between_bytes);
    else
        printf("%12zu  %-6s  %12.2f  %9.2f  %9.2f  %12.2f  %6.2f  %12.0f  %12.0f\n", row->n_bytes,
               algorithms[row->alg], row->latency_us, row->alg_gb_s, row->bus_gb_s, row->memcpy_us,
               row->memcpy_ratio, row->inside_bytes, row->between_bytes);
    fflush(stdout);
}

static void print_head(const options *o, const char *who) {
    if (o->json) return;
    printf("# all_reduce f32 sum in place, %s, %s memory; moved: bytes of all ranks together\n",
           who, o->desc.plain ? "plain" : "registered");
    printf("# %10s  %-6s  %12s  %9s  %9s  %12s  %6s  %12s  %12s\n", "bytes", "alg", "time us",
           "alg GB/s", "bus GB/s", "memcpy us", "ratio", "moved inside", "between");
    fflush(stdout);
}

/* Makes a secret that ranks inherit from this process.  Socket names are derived from it, so other
 * users cannot take them first. */
static bool make_token(options *o) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(o->token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Connects ranks of simulated hosts at a socket without a file. */
static void divide_over_hosts(const options *o, tutti_comm_desc *desc, char address[64]) {
    static char names[MAX_RANKS * 5 + 1]; /* this process has one rank */
    for (int r = 0, at = 0; r < o->desc.n_ranks; r++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%d", r ? "," : "",
                       r * o->n_hosts / o->desc.n_ranks);
    setenv("TUTTI_TEST_HOSTS", names, 1);
    snprintf(address, 64, "unix:tutti-bench-%d", (int)getppid());
    desc->group = NULL;
    desc->transport = "tcp";
    desc->address = address;
    desc->token = o->token;
}

/* Runs one rank as a process and returns its exit code. */
static int rank_process(tutti_comm_group *group, int rank, options *o) {
    tutti_comm_desc desc = {.group = group, .rank = rank, .n_ranks = o->desc.n_ranks};
    char address[64];
    if (o->n_hosts) divide_over_hosts(o, &desc, address);
    tutti_comm *comm = NULL;
    tutti_status st = tutti_comm_create(&desc, &comm);
    if (st == TUTTI_OK) st = tutti_bench_comm_run(comm, &o->desc, print_row, o);
    if (st != TUTTI_OK && st != TUTTI_E_PEER)
        fprintf(stderr, "tutti bench comm: rank %d: %s\n", rank, tutti_last_error());
    tutti_comm_destroy(comm);
    return tutti_status_exit_code(st);
}

/* Waits for every child.  If one is lost, aborts the group, which ends the waits of the others.
 * Returns the first exit code that is not 0. */
static int wait_for_ranks(tutti_comm_group *group, const pid_t *pids, int n) {
    int code = 0;
    for (int left = n; left > 0; left--) {
        int status = 0, rank = 0;
        pid_t pid = wait(&status);
        if (pid < 0) break;
        while (rank < n - 1 && pids[rank] != pid) rank++;
        if (status == 0) continue;
        if (code == 0) code = WIFEXITED(status) ? WEXITSTATUS(status) : 5;
        tutti_comm_group_abort(group, rank, "a rank has ended early");
        if (WIFSIGNALED(status))
            fprintf(stderr, "tutti bench comm: rank %d was killed by signal %d\n", rank,
                    WTERMSIG(status));
    }
    return code;
}

/* Fills pids [n_ranks]. */
static int run_forked(options *o, pid_t *pids) {
    tutti_comm_group *group;
    int n = 0;
    if (!make_token(o)) {
        fprintf(stderr, "tutti bench comm: cannot get random numbers: %s\n", strerror(errno));
        return 1;
    }
    if (tutti_comm_group_create(o->desc.n_ranks, &group) != TUTTI_OK) {
        fprintf(stderr, "tutti bench comm: %s\n", tutti_last_error());
        return 1;
    }
    for (; n < o->desc.n_ranks; n++) {
        pids[n] = fork();
        if (pids[n] == 0) {
            int code = rank_process(group, n, o);
            free(pids);
            exit(code);
        }
        if (pids[n] < 0) {
            tutti_comm_group_abort(group, n, "a process could not be started");
            break;
        }
    }
    int code = wait_for_ranks(group, pids, n);
    tutti_comm_group_destroy(group);
    return n < o->desc.n_ranks ? 1 : code;
}

static int run_processes(options *o) {
    pid_t *pids = calloc((size_t)o->desc.n_ranks, sizeof *pids);
    if (!pids) {
        fprintf(stderr, "tutti bench comm: out of memory for %d ranks\n", o->desc.n_ranks);
        return 8;
    }
    int code = run_forked(o, pids);
    free(pids);
    return code;
}

static int run_one(options *o) {
    char who[64];
    snprintf(who, sizeof who, "%d %s on %d host%s", o->desc.n_ranks,
             o->processes ? "processes" : "threads", o->n_hosts ? o->n_hosts : 1,
             o->n_hosts > 1 ? "s" : "");
    print_head(o, who);
    if (o->processes) return run_processes(o);
    tutti_status st = tutti_bench_comm(&o->desc, print_row, o);
    if (st != TUTTI_OK) fprintf(stderr, "tutti bench comm: %s\n", tutti_last_error());
    return tutti_status_exit_code(st);
}

/* ---- between the ranks of a launcher ---- */

static tutti_status run_algorithms(options *o, tutti_comm *comm, const tutti_worker_place *place) {
    tutti_status st = TUTTI_OK;
    int from = o->all ? TUTTI_ALG_RING : (int)o->desc.alg;
    int to = o->all ? TUTTI_N_ALGS : from + 1;
    for (int a = from; a < to && st == TUTTI_OK; a++) {
        o->desc.alg = (tutti_comm_alg)a;
        if (place->rank == 0) print_head(o, place->text);
        st = tutti_bench_comm_run(comm, &o->desc, print_row, o);
    }
    return st;
}

static int run_joined(options *o, const tutti_worker_place *place) {
    tutti_comm *comm;
    if (o->n_hosts || (o->desc.n_ranks && o->desc.n_ranks != place->n_ranks))
        return fail_usage("the launcher decides the number and place of ranks", place->text);
    o->processes = true;
    tutti_status st = tutti_worker_join(0, &comm);
    if (st == TUTTI_OK) st = run_algorithms(o, comm, place);
    if (st != TUTTI_OK) fprintf(stderr, "tutti bench comm: %s\n", tutti_last_error());
    tutti_comm_destroy(comm);
    return tutti_status_exit_code(st);
}

/* ---- between devices ---- */

static void print_device_row(const tutti_bench_devices_row *row, void *user) {
    const options *o = user;
    if (o->json)
        printf(
            "{\"n_devices\":%d,\"algorithm\":\"%s\",\"transport\":\"%s\",\"wire\":\"%s\",\"n_"
            "bytes\":%zu,"
            "\"latency_us\":%.3f,\"bus_gb_s\":%.3f,\"link_us\":%.3f}\n",
            row->n_devices, row->algorithm, row->transport, tutti_dtype_text(row->wire),
            row->n_bytes, row->us, row->bus_gb_s, row->link_us);
    else
        printf("%12zu  %-6s  %-5s  %10.2f  %9.2f  %10.2f  %s\n", row->n_bytes, row->algorithm,
               tutti_dtype_text(row->wire), row->us, row->bus_gb_s, row->link_us, row->transport);
    fflush(stdout);
}

/* Options for ranks do not apply: devices are timed with every algorithm, by one thread per device
 * and for a fixed time. */
static bool fits_devices(const options *o) {
    return !o->processes && !o->all && o->desc.alg == TUTTI_ALG_AUTO && !o->n_hosts &&
           !o->desc.plain && o->desc.min_ms == 0;
}

static int bench_devices(const options *o) {
    if (!fits_devices(o))
        return fail_usage("--devices", "can be combined only with -n, --min, --max and --json");
    tutti_bench_devices_desc desc = {.n_devices = o->desc.n_ranks,
                                     .min_bytes = o->desc.min_bytes,
                                     .max_bytes = o->desc.max_bytes};
    if (!o->json)
        printf(
            "# all_reduce f32 sum in place between GPUs, in a captured graph; ring adds in any "
            "order;\n# bf16: f32 rounded before sending, which is part of the time\n# %10s  %-6s  "
            "%-5s  %10s  %9s  %10s  %s\n",
            "bytes", "alg", "dtype", "time us", "bus GB/s", "link us", "transport");
    tutti_status st = tutti_bench_devices(&desc, print_device_row, (void *)(uintptr_t)o);
    if (st != TUTTI_OK) fprintf(stderr, "tutti bench comm: %s\n", tutti_last_error());
    return tutti_status_exit_code(st);
}

static int bench_comm(int argc, char **argv) {
    options o = {0};
    int code = parse(argc, argv, &o);
    if (code) return code;
    if (o.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (o.devices) return bench_devices(&o);
    tutti_worker_place place;
    if (tutti_worker_detect(&place) != TUTTI_OK)
        return fail_usage("the environment of a launcher", tutti_last_error());
    if (place.n_ranks > 1) return run_joined(&o, &place);
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o.desc.n_ranks == 0) o.desc.n_ranks = n_cores < 1 ? 1 : n_cores > 64 ? 64 : (int)n_cores;
    o.processes = o.processes || o.n_hosts;
    if (o.n_hosts > o.desc.n_ranks) return fail_usage("--hosts", "more hosts than ranks");
    if (!o.all) return run_one(&o);
    for (int a = TUTTI_ALG_RING; a < TUTTI_N_ALGS && code == 0; a++) {
        o.desc.alg = (tutti_comm_alg)a;
        code = run_one(&o);
    }
    return code;
}

int tutti_cmd_bench(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "comm") == 0) return bench_comm(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "data") == 0) return tutti_cmd_bench_data(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "train") == 0)
        return tutti_cmd_bench_train(argc - 1, argv + 1);
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    FILE *out = help ? stdout : stderr;
    fputs(
        "usage: tutti bench comm [options]\n       tutti bench data JOB [options]\n"
        "       tutti bench train [MODEL] [options]\n",
        out);
    return help ? 0 : 2;
}
