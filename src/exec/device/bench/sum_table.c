/* sum_table.c - times all-reduce between devices by size and algorithm, and stores the times in a
 * table.
 *
 * A round is a captured graph of many sums that is replayed, as in training, so that host time is
 * not measured. The result is the slowest device's time in the fastest round. */
#include "exec/device/bench/sum_table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "comm/progress.h"
#include "comm/sum_order.h"

enum {
    UNIT = 8,
    N_ROUNDS = 4,
    N_SUMS = 20,
    N_QUICK_SUMS = 6,
    N_CHECKED = 1 << 16,
    MAX_DEVICES = 16,
    WAIT_MS = 60000
};

typedef struct bench {
    const tti_backend *backend;
    tutti_bench_devices_desc desc;
    tutti_bench_devices_fn report;
    void *user;
    bool for_table;          /* measures every algorithm in f32, with few repetitions */
    double link_bytes_per_s; /* of the slowest link; 0: not measured */
} bench;

/* One device's thread. */
typedef struct bench_rank {
    const bench *b;
    tutti_comm_group *comm_group;
    pthread_t thread;
    int rank;
    tutti_comm *comm;
    void *group;
    float *partial, *host;
    char transport[128];
    tutti_status status;
    char text[512];
} bench_rank;

/* ---- the algorithms ---- */

typedef struct timed_algorithm {
    tti_device_algorithm algorithm;
    bool fast;
    const char *name;
    tutti_dtype wire;
} timed_algorithm;

static const timed_algorithm algorithms[] = {{TTI_DEVICE_PEERS, false, "direct", TUTTI_F32},
                                             {TTI_DEVICE_PEERS, true, "direct", TUTTI_BF16},
                                             {TTI_DEVICE_LIBRARY, false, "tree", TUTTI_F32},
                                             {TTI_DEVICE_LIBRARY, true, "ring", TUTTI_F32},
                                             {TTI_DEVICE_LIBRARY, true, "ring", TUTTI_BF16}};

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    return tutti_comm_all_gather(user, src, dst, n_bytes, TUTTI_U8);
}

static tutti_status check_comm(void *user) { return tti_comm_check(user); }

/* TUTTI_E_UNSUPPORTED: the algorithm is not available. */
static tutti_status connect_ranks(bench_rank *r, const timed_algorithm *w) {
    const tti_device_ops *ops = r->b->backend->device;
    size_t n = r->b->desc.max_bytes / tutti_dtype_bytes(w->wire);
    tti_device_term terms[MAX_DEVICES];
    tti_str name = {0};
    /* One term of each rank, added along the tree. */
    tti_sum_order order;
    TTI_TRY(tti_sum_order_ranks(r->b->desc.n_devices, &order));
    for (int t = 0; t < r->b->desc.n_devices; t++)
        terms[t] =
            (tti_device_term){order.terms[t].rank, order.terms[t].partial, order.terms[t].n_adds};
    tti_sum_order_free(&order);
    TTI_TRY(ops->collectives.connect(&(tti_device_peers){.rank = r->rank,
                                                         .n_ranks = r->b->desc.n_devices,
                                                         .timeout_ms = WAIT_MS,
                                                         .shown = r->rank,
                                                         .terms = terms,
                                                         .n_terms = r->b->desc.n_devices,
                                                         .partials = &r->partial,
                                                         .n_partials = 1,
                                                         .n_flat = n,
                                                         .n_most = n,
                                                         .n_words = MAX_DEVICES,
                                                         .fast = w->fast,
                                                         .wire = w->wire,
                                                         .algorithm = w->algorithm,
                                                         .user = r->comm,
                                                         .all_gather = all_gather,
                                                         .check = check_comm},
                                     &r->group));
    ops->collectives.describe(r->group, &name);
    snprintf(r->transport, sizeof r->transport, "%s", tti_str_text(&name));
    tti_str_free(&name);
    return TUTTI_OK;
}

/* ---- checks the sums ---- */

/* Small integers, so that every sum is exact in bf16. */
static float value_of(int rank, size_t i) { return (float)(rank + (int)(i % 8)); }

static tutti_status fill_partial(bench_rank *r, size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) r->host[i] = value_of(r->rank, first + i);
    TTI_TRY(r->b->backend->device->queues.copy(TTI_QUEUE_COMPUTE, r->partial + first, r->host,
                                               n * sizeof(float)));
    return r->b->backend->device->queues.sync();
}

static tutti_status compare(bench_rank *r, size_t first, size_t n) {
    const tti_device_ops *ops = r->b->backend->device;
    int n_ranks = r->b->desc.n_devices;
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, r->host, r->partial + first, n * sizeof(float)));
    TTI_TRY(ops->queues.sync());
    for (size_t i = 0; i < n; i++) {
        float want = (float)(n_ranks * (n_ranks - 1) / 2) + (float)n_ranks * value_of(0, first + i);
        if (r->host[i] != want)
            return tti_fail(TUTTI_E_NUMERICS,
                            "bench: device %d: element %zu of a sum is %g, not %g", r->rank,
                            first + i, (double)r->host[i], (double)want);
    }
    return TUTTI_OK;
}

/* Both ends of the vector. */
static tutti_status check_sum(bench_rank *r, size_t n) {
    const tti_device_ops *ops = r->b->backend->device;
    size_t each = TTI_MIN(n, (size_t)N_CHECKED);
    TTI_TRY(fill_partial(r, 0, each));
    TTI_TRY(fill_partial(r, n - each, each));
    TTI_TRY(tutti_comm_barrier(r->comm));
    TTI_TRY(ops->collectives.all_reduce(r->group, 0, n, false));
    TTI_TRY(ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(ops->queues.sync());
    TTI_TRY(tutti_comm_barrier(r->comm));
    TTI_TRY(compare(r, 0, each));
    return compare(r, n - each, each);
}

/* ---- times ---- */

static int n_sums(const bench *b) { return b->desc.quick || b->for_table ? N_QUICK_SUMS : N_SUMS; }

static tutti_status record(bench_rank *r, size_t n, void **captured_graph) {
    const tti_device_ops *ops = r->b->backend->device;
    TTI_TRY(ops->queues.capture_begin());
    tutti_status st = ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE);
    for (int i = 0; i < n_sums(r->b) && st == TUTTI_OK; i++)
        st = ops->collectives.all_reduce(r->group, 0, n, false);
    if (st == TUTTI_OK) st = ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM);
    tutti_status ended = ops->queues.capture_end(captured_graph);
    return st == TUTTI_OK ? ended : st;
}

static tutti_status time_rounds(bench_rank *r, void *captured_graph, double *best_us) {
    const tti_device_ops *ops = r->b->backend->device;
    for (int round = 0; round < N_ROUNDS; round++) {
        double us[2];
        TTI_TRY(ops->queues.sync());
        TTI_TRY(tutti_comm_barrier(r->comm));
        TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 0));
        TTI_TRY(ops->queues.replay(captured_graph));
        TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 1));
        TTI_TRY(ops->queues.read_timestamps(2, us));
        double slowest = us[1] / n_sums(r->b);
        TTI_TRY(tutti_comm_all_reduce(r->comm, &slowest, &slowest, 1, TUTTI_F64, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
        if (round == 1 || (round > 1 && slowest < *best_us)) *best_us = slowest;
    }
    return TUTTI_OK;
}

static tutti_status bench_size(bench_rank *r, const timed_algorithm *w, size_t n_bytes) {
    const bench *b = r->b;
    int n_ranks = b->desc.n_devices;
    size_t each = tutti_dtype_bytes(w->wire), n = n_bytes / each / UNIT * UNIT;
    void *captured_graph = NULL;
    double us = 0;
    TTI_TRY(check_sum(r, n));
    tutti_status st = record(r, n, &captured_graph);
    if (st == TUTTI_OK) st = time_rounds(r, captured_graph, &us);
    b->backend->device->queues.release_captured_graph(captured_graph);
    if (st != TUTTI_OK || r->rank != 0) return st;
    double moved = 2.0 * (n_ranks - 1) / n_ranks * (double)(n * each);
    double link_us = b->link_bytes_per_s > 0 ? moved / b->link_bytes_per_s * 1e6 : 0;
    b->report(&(tutti_bench_devices_row){.n_devices = n_ranks,
                                         .algorithm = w->name,
                                         .transport = r->transport,
                                         .wire = w->wire,
                                         .n_bytes = n * each,
                                         .us = us,
                                         .bus_gb_s = us > 0 ? moved / us * 1e-3 : 0,
                                         .link_us = link_us},
              b->user);
    return TUTTI_OK;
}

/* *done: the sizes were timed. */
static tutti_status bench_algorithm(bench_rank *r, const timed_algorithm *w, bool *done) {
    tutti_status st = connect_ranks(r, w);
    *done = false;
    if (st == TUTTI_E_UNSUPPORTED) { /* *done becomes true only if all ranks timed them */
        tti_clear_error();
        return TUTTI_OK;
    }
    bool other = w->algorithm == TTI_DEVICE_PEERS && strncmp(r->transport, "NCCL", 4) == 0;
    const tutti_bench_devices_desc *d = &r->b->desc;
    for (size_t n = d->min_bytes; st == TUTTI_OK && !other && n <= d->max_bytes; n *= 4)
        st = bench_size(r, w, n);
    *done = !other;
    if (st == TUTTI_OK)
        st = tutti_comm_barrier(
            r->comm); /* no rank disconnects while others still read its memory */
    r->b->backend->device->collectives.disconnect(r->group);
    r->group = NULL;
    return st;
}

/* ---- the threads ---- */

static tutti_status run_rank(bench_rank *r) {
    const tti_device_ops *ops = r->b->backend->device;
    TTI_TRY(ops->open(&(tti_device_desc){.index = r->rank}));
    tutti_status st = tutti_comm_create(&(tutti_comm_desc){.group = r->comm_group,
                                                           .rank = r->rank,
                                                           .n_ranks = r->b->desc.n_devices,
                                                           .timeout_ms = WAIT_MS},
                                        &r->comm);
    if (st == TUTTI_OK) {
        /* Partial sums are f32 in every wire format. */
        size_t n_bytes = r->b->desc.max_bytes / tutti_dtype_bytes(TUTTI_BF16) * sizeof(float);
        st = TUTTI_OK;
        r->partial = r->b->backend->alloc(n_bytes);
        r->host = calloc(N_CHECKED, sizeof *r->host);
        if (!r->partial || !r->host)
            st = tti_fail(TUTTI_E_NOMEM, "bench: cannot allocate %zu bytes on device %d", n_bytes,
                          r->rank);
        for (size_t i = 0; i < TTI_COUNT(algorithms) && st == TUTTI_OK; i++) {
            bool quick = r->b->desc.quick, done = false;
            bool left_out = (quick && algorithms[i].fast) ||
                            (r->b->for_table && algorithms[i].wire != TUTTI_F32);
            if (!left_out) st = bench_algorithm(r, &algorithms[i], &done);
            if (quick && done) break;
        }
        r->b->backend->release(r->partial, n_bytes);
        free(r->host);
    }
    ops->close();
    return st;
}

static void *rank_main(void *arg) {
    bench_rank *r = arg;
    r->status = run_rank(r);
    if (r->status != TUTTI_OK) {
        snprintf(r->text, sizeof r->text, "%s", tutti_last_error());
        tutti_comm_group_abort(r->comm_group, r->rank,
                               r->text); /* no other rank waits for this one */
    }
    tutti_comm_destroy(r->comm);
    return NULL;
}

static tutti_status run_threads(bench_rank *ranks, int n) {
    int n_started = 0;
    tutti_status st = TUTTI_OK;
    for (; n_started < n && st == TUTTI_OK; n_started++)
        if (pthread_create(&ranks[n_started].thread, NULL, rank_main, &ranks[n_started]) != 0) {
            tutti_comm_group_abort(ranks[0].comm_group, n_started, "a thread could not be started");
            st = tti_fail(TUTTI_E_NOMEM, "bench: cannot start thread %d", n_started--);
        }
    for (int i = 0; i < n_started; i++) {
        pthread_join(ranks[i].thread, NULL);
        bool is_cause = ranks[i].status != TUTTI_OK &&
                        (st == TUTTI_OK || (st == TUTTI_E_PEER && ranks[i].status != st));
        if (is_cause) st = tti_fail(ranks[i].status, "%s", ranks[i].text);
    }
    return st;
}

static tutti_status check_desc(bench *b) {
    tutti_bench_devices_desc *d = &b->desc;
    int n_there = b->backend->device ? b->backend->device->count() : 0;
    if (d->n_devices == 0) d->n_devices = TTI_MIN(n_there, (int)MAX_DEVICES);
    if (d->min_bytes == 0) d->min_bytes = 4096;
    if (d->max_bytes == 0) d->max_bytes = (size_t)256 << 20;
    if (n_there > 0 && !b->backend->device->collectives.connect)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "bench: devices of backend %s do not add between each other",
                        b->backend->name);
    if (d->n_devices < 2 || d->n_devices > TTI_MIN(n_there, (int)MAX_DEVICES))
        return tti_fail(
            TUTTI_E_INVALID,
            "bench: %d devices were requested; 2 to %d can be measured, and this machine has %d",
            d->n_devices, MAX_DEVICES, n_there);
    if (d->min_bytes < 64 || d->min_bytes > d->max_bytes || d->max_bytes > (size_t)16 << 30)
        return tti_fail(TUTTI_E_INVALID,
                        "bench: sizes must be 64 <= min <= max <= 16G, got %zu and %zu",
                        d->min_bytes, d->max_bytes);
    return TUTTI_OK;
}

static tutti_status run_bench(bench *b) {
    tutti_comm_group *comm_group;
    TTI_TRY(tutti_comm_group_create(b->desc.n_devices, &comm_group));
    bench_rank *ranks = calloc((size_t)b->desc.n_devices, sizeof *ranks);
    for (int i = 0; ranks && i < b->desc.n_devices; i++)
        ranks[i] = (bench_rank){.b = b, .comm_group = comm_group, .rank = i};
    tutti_status st = ranks ? run_threads(ranks, b->desc.n_devices)
                            : tti_fail(TUTTI_E_NOMEM, "bench: out of memory");
    free(ranks);
    tutti_comm_group_destroy(comm_group);
    return st;
}

tutti_status tti_bench_devices(const tti_backend *backend, const tutti_bench_devices_desc *desc,
                               tutti_bench_devices_fn report, void *user) {
    bench b = {.backend = backend, .desc = *desc, .report = report, .user = user};
    TTI_TRY(check_desc(&b));
    /* The slowest of the links into device 0; the others are equal, or `tutti doctor` shows that
     * they are not. */
    const tti_device_ops *ops = b.backend->device;
    if (ops->link) {
        TTI_TRY(ops->open(&(tti_device_desc){.index = 0}));
        tutti_status st = TUTTI_OK;
        for (int other = 1; other < b.desc.n_devices && st == TUTTI_OK; other++) {
            tti_device_link link;
            st = ops->link(other, &link);
            bool slower = st == TUTTI_OK &&
                          (b.link_bytes_per_s <= 0 || link.bytes_per_s < b.link_bytes_per_s);
            if (slower) b.link_bytes_per_s = link.bytes_per_s;
        }
        ops->close();
        TTI_TRY(st);
    }
    return run_bench(&b);
}

tutti_status tutti_bench_devices(const tutti_bench_devices_desc *desc,
                                 tutti_bench_devices_fn report, void *user) {
    const tti_backend *backend;
    if (!desc || !report) return tti_fail(TUTTI_E_INVALID, "bench: desc or report is NULL");
    TTI_TRY(tti_backend_find("cuda", &backend));
    return tti_bench_devices(backend, desc, report, user);
}

/* ---- the table ----
 *
 * The text has a line with the library, a line of names, and a line for each size; "-" stands for
 * an unavailable algorithm.  The input may be anything: any deviation from this format is refused.
 */

static const char heading[] = "bytes direct tree ring", first_word[] = "library ";

/* ---- text ---- */

void tti_sum_table_print(const tti_sum_table *table, tti_str *text) {
    char number[TTI_NUMBER_TEXT];
    tti_str_printf(text, "%s%s\n%s\n", first_word, table->library, heading);
    for (int i = 0; i < table->n_rows; i++) {
        tti_str_printf(text, "%lld", (long long)table->rows[i].n_bytes);
        for (int w = 0; w < TTI_N_SUM_ALGORITHMS; w++) {
            double us = table->rows[i].us[w];
            tti_str_printf(text, " %s", us > 0 ? tti_format_double(number, us) : "-");
        }
        tti_str_add(text, "\n");
    }
}

/* Reads a text line by line. */
typedef struct reader {
    const char *at, *end;
    int n_lines;
} reader;

static tutti_status bad(const reader *r, const char *what) {
    return tti_fail(TUTTI_E_INVALID, "table of sums, line %d: %s", r->n_lines, what);
}

/* Reads the next line without its end. TUTTI_E_INVALID: the line is too long, not terminated, or
 * missing. */
static tutti_status next_line(reader *r, char *line, size_t n) {
    size_t left = (size_t)(r->end - r->at);
    const char *end = left ? memchr(r->at, '\n', left) : NULL;
    r->n_lines++;
    if (!end || (size_t)(end - r->at) >= n) return bad(r, "it does not end");
    size_t length = (size_t)(end - r->at);
    memcpy(line, r->at, length);
    line[length] = '\0';
    if (strlen(line) != length) return bad(r, "a zero byte");
    r->at = end + 1;
    return TUTTI_OK;
}

/* Reads the next word of a line, up to a blank; NULL: there is none. */
static char *next_word(char **at) {
    char *word = *at;
    if (!word || !*word) return NULL;
    char *end = strchr(word, ' ');
    if (end) *end = '\0';
    *at = end ? end + 1 : NULL;
    return word;
}

static tutti_status read_row(const reader *r, char *line, tti_sum_row *row) {
    char *at = line, *word = next_word(&at);
    if (!word || tti_parse_int(word, &row->n_bytes) != TTI_NUMBER_OK || row->n_bytes <= 0)
        return bad(r, "want a number of bytes first");
    for (int w = 0; w < TTI_N_SUM_ALGORITHMS; w++) {
        word = next_word(&at);
        row->us[w] = 0;
        if (!word) return bad(r, "want a time for each algorithm");
        if (strcmp(word, "-") == 0) continue;
        bool good = tti_parse_double(word, &row->us[w]) == TTI_NUMBER_OK && row->us[w] > 0 &&
                    row->us[w] < 1e12;
        if (!good) return bad(r, "want microseconds or -");
    }
    return at ? bad(r, "more than one time for each algorithm") : TUTTI_OK;
}

static tutti_status read_head(reader *r, tti_sum_table *t) {
    char line[128];
    size_t n = strlen(first_word);
    TTI_TRY(next_line(r, line, sizeof line));
    if (strncmp(line, first_word, n) != 0 || strlen(line + n) >= sizeof t->library)
        return bad(r, "want the name of the library");
    memcpy(t->library, line + n, strlen(line + n) + 1);
    TTI_TRY(next_line(r, line, sizeof line));
    return strcmp(line, heading) == 0 ? TUTTI_OK : bad(r, "want the names of the algorithms");
}

tutti_status tti_sum_table_parse(const char *text, size_t n_bytes, tti_sum_table *out) {
    reader r = {.at = text, .end = text + n_bytes};
    tti_sum_table t = {.n_rows = 0};
    char line[256];
    TTI_TRY(read_head(&r, &t));
    while (r.at < r.end) {
        TTI_TRY(next_line(&r, line, sizeof line));
        if (t.n_rows == TTI_SUM_ROWS) return bad(&r, "too many sizes");
        TTI_TRY(read_row(&r, line, &t.rows[t.n_rows]));
        if (t.n_rows > 0 && t.rows[t.n_rows].n_bytes <= t.rows[t.n_rows - 1].n_bytes)
            return bad(&r, "sizes must increase");
        t.n_rows++;
    }
    if (t.n_rows == 0) return bad(&r, "no sizes");
    *out = t;
    return TUTTI_OK;
}

/* ---- selects an algorithm ---- */

/* Microseconds of a sum of n_bytes; 0: not known. */
static double time_of(const tti_sum_table *t, tti_sum_algorithm algorithm, int64_t n_bytes) {
    int i = 0;
    while (i < t->n_rows && t->rows[i].n_bytes < n_bytes) i++;
    if (t->n_rows == 0) return 0;
    const tti_sum_row *above = &t->rows[TTI_MIN(i, t->n_rows - 1)];
    if (i == 0 || n_bytes == above->n_bytes) return above->us[algorithm];
    if (i == t->n_rows) return above->us[algorithm] * ((double)n_bytes / (double)above->n_bytes);
    const tti_sum_row *below = above - 1;
    if (below->us[algorithm] <= 0 || above->us[algorithm] <= 0) return 0;
    double part = (double)(n_bytes - below->n_bytes) / (double)(above->n_bytes - below->n_bytes);
    return below->us[algorithm] + part * (above->us[algorithm] - below->us[algorithm]);
}

bool tti_sum_table_prefers_library(const tti_sum_table *table, int64_t n_bytes, bool fast) {
    double direct = time_of(table, TTI_SUM_DIRECT, n_bytes);
    double library = time_of(table, fast ? TTI_SUM_RING : TTI_SUM_TREE, n_bytes);
    return direct > 0 && library > 0 && library < direct;
}

/* ---- the file ---- */

void tti_sum_table_kind(const tti_backend *backend, int index, tti_sum_kind *kind) {
    tti_str text = {0};
    memset(kind, 0, sizeof *kind);
    if (backend->device->kind) backend->device->kind(index, &text);
    snprintf(kind->text, sizeof kind->text, "%s", tti_str_text(&text));
    tti_str_free(&text);
}

/* Counts neighbours of one kind. */
void tti_sum_table_key(const tti_backend *backend, const tti_sum_kind *kinds, int n,
                       char key[TTI_SUM_KEY]) {
    tti_str text = {0};
    int n_same = 0;
    tti_str_printf(&text, "sums 1; tutti %s; ", TUTTI_VERSION);
    if (backend->describe) backend->describe(&text);
    for (int i = 0; i < n; i++) {
        n_same++;
        if (i + 1 < n && strcmp(kinds[i].text, kinds[i + 1].text) == 0) continue;
        tti_str_printf(&text, "; %d x %s", n_same, kinds[i].text);
        n_same = 0;
    }
    snprintf(key, TTI_SUM_KEY, "%s", tti_str_text(&text));
    tti_str_free(&text);
}

void tti_sum_table_name(int n, char name[64]) { snprintf(name, 64, "sums-of-%d-devices", n); }

tti_cache_found tti_sum_table_load(const char *key, int n, tti_sum_table *out) {
    char name[64], *data;
    size_t n_bytes;
    tti_sum_table_name(n, name);
    tti_cache_found found = tti_cache_find(name, key, &data, &n_bytes);
    if (found == TTI_CACHE_GOOD && tti_sum_table_parse(data, n_bytes, out) != TUTTI_OK) {
        tti_clear_error();
        found = TTI_CACHE_DAMAGED;
    }
    free(data);
    return found;
}

bool tti_sum_table_save(const char *key, int n, const tti_sum_table *table) {
    char name[64];
    tti_str text = {0};
    tti_sum_table_name(n, name);
    tti_sum_table_print(table, &text);
    bool saved = !text.failed && tti_cache_write(name, key, tti_str_text(&text), text.n_bytes);
    tti_str_free(&text);
    return saved;
}

/* ---- measurement ---- */

static void keep_row(const tutti_bench_devices_row *row, void *user) {
    static const char *const names[TTI_N_SUM_ALGORITHMS] = {"direct", "tree", "ring"};
    tti_sum_table *t = user;
    int i = 0, w = 0;
    while (w < TTI_N_SUM_ALGORITHMS && strcmp(row->algorithm, names[w]) != 0) w++;
    while (i < t->n_rows && t->rows[i].n_bytes < (int64_t)row->n_bytes) i++;
    if (w == TTI_N_SUM_ALGORITHMS || i == TTI_SUM_ROWS) return;
    if (i == t->n_rows) t->rows[t->n_rows++] = (tti_sum_row){.n_bytes = (int64_t)row->n_bytes};
    t->rows[i].us[w] = row->us;
    if (w != TTI_SUM_DIRECT) snprintf(t->library, sizeof t->library, "%s", row->transport);
}

tutti_status tti_sum_table_measure(const tti_backend *backend, int n, size_t n_most,
                                   tti_sum_table *out) {
    *out = (tti_sum_table){.n_rows = 0};
    tutti_bench_devices_desc desc = {.n_devices = n, .max_bytes = n_most};
    /* A shorter measurement: only f32, every algorithm, few repetitions per size, no links. */
    bench b = {
        .backend = backend, .desc = desc, .report = keep_row, .user = out, .for_table = true};
    TTI_TRY(check_desc(&b));
    TTI_TRY(run_bench(&b));
    if (out->n_rows > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "no algorithm reduces between these devices");
}
