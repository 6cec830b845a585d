/* device_module.c - a module named cuda whose devices are the host: queues, captured graphs,
 * timestamps and an update program as a GPU has them, over the host's kernels.  For tests of what
 * uses devices, on machines that have none.  It knows sgd, clipping by the norm and averages.
 *
 * $TUTTI_TEST_DEVICE, parts joined by ',':
 *   lost=N   the device fails when it comes to step N (from 1) and gives nothing but errors then
 *   on=D     only device D does (default: all)
 *   spins=N  a kernel computes for a minute in step N, on device D if there is an on=D
 *   once=1   only the first process that comes there, which leaves the file "lost" here
 *   alone=1  a device cannot be opened by two processes at once; files "device-D" are its locks
 *   alone=2  the same as long as a process lives that has opened it, as in exclusive mode
 *   old=D    device D is of a kind that is not supported
 *   plain=1  timestamps cannot be recorded
 *   free=N   bytes of free memory (default: 1 GiB)
 *   late=1   queued work runs when a call waits for it, and no sooner
 *   late=2   the same of all queues but that of the kernels
 *   late=3   the same of that one alone, while the others run ahead as far as they can
 *   peers=1  devices of one process read each other's memory
 *   joint=1  and add in the update of small models; 2: only the last buckets
 *   hosts=.. and those of several hosts do not: the host of each rank, such as 0011
 *   p2p=0   but send nothing there
 *   devices=N there are so many (default: 2)
 *   first=D  this process sees those of the machine from its device D on
 *   spoils=N a bit of what device 1 fetches from others for the Nth time is not theirs
 *   full=D   device D has no room for what measures links
 *   wrong=D  a bit of what device D reads over a link then is not what was sent
 *   kind=D   device D is of another kind than the others
 *   plays=N  it fails likewise when captured graphs are replayed more than N times
 *   stack=N  the version of the driver and its libraries (default: 1)
 *   counts=1 the file "waits" gets a line when a device is closed: how often its thread waited for
 *            all queues, for an event, and of these for the last kernel that was put into the queue
 *   fuses=1  plans are made as for kernels that do much at once
 *   weighs=1 stages of a model are cut as for a GPU
 *   slow=D   device D takes delay=N ms longer for each shard, after the first after=N ones
 *   pause=N  the first timestamp 0 of a device takes N ms more, half of them after it
 *   clock=1  timestamps are by a clock that sums alone move on: peers take 1 us and 1 us for each
 * KB, a library in fast mode 11 us and half of that, else 100 us more library=N version of that
 * library Matrix products of a size that only a GPU would be given are left out. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "ops/op_table.h"

enum { MAX_TIMESTAMPS = 65536, N_MARKS = 16 };

typedef struct command command;

/* Something that was put into a queue. */
struct command {
    void (*run)(command *c);
    void *dst;
    const void *src;
    size_t n, first, last;
    const tti_kernel *kernel;
    void *state;
    tti_kargs args;
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    const void *extra[3];
    tti_gather gather;
    tti_unpack unpack;
    tti_device_step_sums step_sums;
    tti_collected collected;
    tti_tp_collective tp;
    tti_device_norm norm;
    tti_device_lists lists;
    tti_device_message message;
    tti_queue queue;
    tti_queue before; /* run is NULL: the queue waits until the first n commands of that are done */
    enum {
        ORDER,
        NOTE,
        FOLLOW,
        MARK
    } kind; /* n as it is then, noted as place or mark n, or from it */
};

/* Commands of one queue, or of all queues in the order in which they were queued. */
typedef struct captured_graph {
    command *commands;
    size_t n, capacity, n_done;
} captured_graph;

typedef struct device {
    int index, lock;
    bool lost;
    char heard[512];         /* of a peer that is lost */
    uint32_t failure;        /* not 0: sums are not valid, because a peer is lost */
    captured_graph *records; /* NULL: what is put is done at once, or later */
    int64_t late;
    captured_graph queues[TTI_N_QUEUES]; /* late */
    struct {
        tti_queue queue;
        size_t n;
    } marks[N_MARKS];
    struct {
        tti_queue queue;
        size_t n;
    } notes[TTI_N_GRAPH_EVENTS];
    int64_t *timestamps; /* [MAX_TIMESTAMPS] */
    int64_t clock_ns;
    size_t n_bytes, n_peak;
    int64_t n_fetched, n_played, n_collected;
    int64_t n_syncs, n_awaits, n_idle; /* counts=1 */
    int n_zeros;                       /* timestamps 0 */
    int hosts[16];
} device;

static _Thread_local device *current;

/* ---- what the environment says ---- */

static int64_t option(const char *name, int64_t fallback) {
    const char *text = getenv("TUTTI_TEST_DEVICE"), *at = text ? strstr(text, name) : NULL;
    return at ? strtoll(at + strlen(name), NULL, 10) : fallback;
}

static tutti_status check(void) {
    if (!current->lost) return TUTTI_OK;
    return tti_fail(TUTTI_E_DEVICE,
                    "cuda: an illegal memory access was encountered (cudaErrorIllegalAddress)");
}

/* Nobody was there before. */
static bool is_first(void) {
    int file = open("lost", O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0) close(file);
    return file >= 0;
}

static void __attribute__((noinline)) spin_in_kernel(void) {
    int64_t end_ns = tti_now_ns() + 60000 * TTI_NS_PER_MS;
    while (tti_now_ns() < end_ns) continue;
}

static void look_for_loss(const tti_step_args *args) {
    int64_t on = option("on=", -1), step = (int64_t)args->step + 1;
    bool on_this = on < 0 || on == current->index, here = on_this && step == option("lost=", 0);
    if (on_this && step == option("spins=", 0)) spin_in_kernel();
    if (here && (option("once=", 0) == 0 || is_first())) current->lost = true;
}

/* ---- queues: one after the other, or later ---- */

static void execute(command *c) {
    c->args.in = c->in;
    c->args.out = c->out;
    if (!current->lost) c->run(c);
}

/* As late as can be: what a queue waits for is done when it comes there. */
static void advance(tti_queue queue, size_t n) {
    captured_graph *r = &current->queues[queue];
    for (; r->n_done < n; r->n_done++) {
        command *c = &r->commands[r->n_done];
        if (c->run)
            execute(c);
        else
            advance(c->before, c->n);
    }
}

static void advance_all(void) {
    for (int q = 0; q < TTI_N_QUEUES; q++) advance((tti_queue)q, current->queues[q].n);
    for (int q = 0; q < TTI_N_QUEUES; q++) current->queues[q].n = current->queues[q].n_done = 0;
    memset(current->marks, 0, sizeof current->marks);
    for (int i = 0; i < TTI_N_GRAPH_EVENTS; i++) current->notes[i].n = 0;
}

static void append(captured_graph *r, const command *c) {
    if (r->n == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 256;
        r->commands = realloc(r->commands, r->capacity * sizeof *r->commands);
        TTI_ASSERT(r->commands != NULL);
    }
    r->commands[r->n++] = *c;
}

static void put_later(const command *c) {
    captured_graph *queue = &current->queues[c->queue];
    append(queue, c);
    if (current->late == (c->queue == TTI_QUEUE_COMPUTE ? 2 : 3)) advance(c->queue, queue->n);
}

static tutti_status put(const command *c) {
    command once = *c;
    TTI_TRY(check());
    if (current->records)
        append(current->records, c);
    else if (current->late)
        put_later(c);
    else
        execute(&once);
    return TUTTI_OK;
}

static tutti_status record_begin(void) {
    TTI_TRY(check());
    current->records = calloc(1, sizeof *current->records);
    return current->records ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "test device: out of memory");
}

static tutti_status record_end(void **out) {
    *out = current->records;
    current->records = NULL;
    return check();
}

/* A command that concerns all queues. */
static void synchronize_queues(const command *c) {
    command wait = *c;
    if (c->kind == MARK) {
        current->marks[c->n].queue = c->queue;
        current->marks[c->n].n = current->queues[c->queue].n;
        return;
    }
    if (!current->late) return;
    if (c->kind == NOTE) {
        current->notes[c->n].queue = c->queue;
        current->notes[c->n].n = current->queues[c->queue].n;
        return;
    }
    if (c->kind == FOLLOW) wait.before = current->notes[c->n].queue;
    wait.n = c->kind == FOLLOW ? current->notes[c->n].n : current->queues[c->before].n;
    if (wait.before != wait.queue) put_later(&wait);
}

static tutti_status put_between(const command *c) {
    TTI_TRY(check());
    if (current->records)
        append(current->records, c);
    else
        synchronize_queues(c);
    return TUTTI_OK;
}

static tutti_status replay(void *state) {
    const captured_graph *r = state;
    if (++current->n_played > option("plays=", INT64_MAX)) current->lost = true;
    TTI_TRY(check());
    for (size_t i = 0; i < r->n; i++) {
        command c = r->commands[i];
        if (!c.run)
            synchronize_queues(&c);
        else if (current->late)
            put_later(&c);
        else
            execute(&c);
    }
    return TUTTI_OK;
}

static void release_captured_graph(void *state) {
    captured_graph *r = state;
    if (r) free(r->commands);
    free(r);
}

/* ---- the device ---- */

static int count(void) { return (int)option("devices=", 2); }

static bool is_exclusive(int index) {
    (void)index;
    return option("alone=", 0) == 2;
}

static uint64_t identity(int index) { return (uint64_t)(1 + option("first=", 0) + index); }

static void describe(int index, tti_str *str) { tti_str_printf(str, "test device %d", index); }

static void kind(int index, tti_str *str) {
    tti_str_add(str, option("kind=", -1) == index ? "old test device" : "test device");
}

/* The lock ends with the process. */
static tutti_status lock_device(int index, int *lock) {
    static bool is_ours[64]; /* alone=2 */
    char name[32];
    int64_t alone = option("alone=", 0);
    *lock = -1;
    if (alone == 0 || is_ours[index]) return TUTTI_OK;
    snprintf(name, sizeof name, "device-%d", (int)option("first=", 0) + index);
    *lock = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    /* A worker that waits for a place opens devices for a moment. */
    for (int i = 0; *lock >= 0 && i < 200; i++) {
        if (flock(*lock, LOCK_EX | LOCK_NB) == 0) {
            is_ours[index] = alone == 2;
            if (alone == 2) *lock = -1; /* stays open */
            return TUTTI_OK;
        }
        if (alone == 2) break;
        tti_sleep_ms(5);
    }
    if (*lock >= 0) close(*lock);
    return tti_fail(TUTTI_E_INTERNAL, "test device %d is used by another process", index);
}

static tutti_status open_device(const tti_device_desc *desc) {
    int lock;
    TTI_ASSERT(!current);
    TTI_TRY(lock_device(desc->index, &lock));
    if (option("old=", -1) == desc->index)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "cuda: test device %d is too old: leave it out of "
                        "parallel.devices",
                        desc->index);
    current = calloc(1, sizeof *current);
    if (current) current->timestamps = calloc(MAX_TIMESTAMPS, sizeof *current->timestamps);
    if (!current || !current->timestamps) return tti_fail(TUTTI_E_NOMEM, "test device: no memory");
    current->index = desc->index;
    current->lock = lock;
    current->late = option("late=", 0);
    return TUTTI_OK;
}

static void write_counts(void) {
    FILE *f = option("counts=", 0) ? fopen("waits", "a") : NULL;
    if (!f) return;
    fprintf(f, "%lld %lld %lld\n", (long long)current->n_syncs, (long long)current->n_awaits,
            (long long)current->n_idle);
    fclose(f);
}

static void close_device(void) {
    TTI_ASSERT(current->n_bytes == 0); /* everything was given back, also after a failure */
    write_counts();
    for (int q = 0; q < TTI_N_QUEUES; q++) free(current->queues[q].commands);
    free(current->timestamps);
    if (current->lock >= 0) close(current->lock);
    free(current);
    current = NULL;
}

/* The size stands before the memory: some callers do not know it any more. */
enum { HEAD = 64 };

static void *take(size_t n_bytes) {
    char *head = tti_backend_cpu.alloc(n_bytes + HEAD);
    if (!head) return NULL;
    memcpy(head, &n_bytes, sizeof n_bytes);
    current->n_bytes += n_bytes;
    current->n_peak = TTI_MAX(current->n_peak, current->n_bytes);
    return head + HEAD;
}

static void give_back(void *memory, size_t unused) {
    size_t n_bytes;
    (void)unused;
    if (!memory) return;
    if (!current->records) advance_all();
    char *head = (char *)memory - HEAD;
    memcpy(&n_bytes, head, sizeof n_bytes);
    current->n_bytes -= n_bytes;
    tti_backend_cpu.release(head, n_bytes + HEAD);
}

static void memory(size_t *n_now, size_t *n_peak, size_t *n_free) {
    *n_now = current->n_bytes;
    *n_peak = current->n_peak;
    *n_free = (size_t)option("free=", (int64_t)1 << 30);
}

static void *alloc_host(size_t n_bytes) { return calloc(1, n_bytes + 64); }
static void release_host(void *p) { free(p); }
static void *alloc_lasting(size_t n_bytes) { return malloc(n_bytes + 64); }

static tutti_status pin(void *p, size_t n_bytes) {
    (void)p, (void)n_bytes;
    return check();
}

static void unpin(void *p) { (void)p; }

static void run_copy(command *c) { memmove(c->dst, c->src, c->n); }

static tutti_status copy(tti_queue queue, void *dst, const void *src, size_t n_bytes) {
    return put(&(command){.run = run_copy, .queue = queue, .dst = dst, .src = src, .n = n_bytes});
}

static tutti_status order(tti_queue after, tti_queue before) {
    TTI_ASSERT(after != before);
    return put_between(&(command){.queue = after, .before = before});
}

static tutti_status note_place(tti_queue queue, int place) {
    TTI_ASSERT(place >= 0 && place < TTI_N_GRAPH_EVENTS);
    return put_between(&(command){.queue = queue, .kind = NOTE, .n = (size_t)place});
}

static tutti_status follow(tti_queue after, int place) {
    TTI_ASSERT(place >= 0 && place < TTI_N_GRAPH_EVENTS);
    return put_between(&(command){.queue = after, .kind = FOLLOW, .n = (size_t)place});
}

static tutti_status mark(tti_queue queue, int number) {
    const command c = {.queue = queue, .kind = MARK, .n = (size_t)number};
    if (current->records) return put_between(&c);
    synchronize_queues(&c);
    return TUTTI_OK; /* as on a device, which has not come so far yet */
}

/* Transfers between devices run here at the latest, without a wait. */
static void tp_goes_on(void);

/* A device that is waited for like this has nothing to compute when the wait ends. */
static bool is_at_end(int number) {
    return current->marks[number].queue == TTI_QUEUE_COMPUTE &&
           current->marks[number].n == current->queues[TTI_QUEUE_COMPUTE].n;
}

static tutti_status await(int number) {
    current->n_awaits++;
    current->n_idle += is_at_end(number);
    advance(current->marks[number].queue, current->marks[number].n);
    tp_goes_on();
    return check();
}

static void run_stamp(command *c) {
    bool pauses = c->n == 0 && current->n_zeros++ == 0;
    int half_ms = pauses ? (int)option("pause=", 0) / 2 : 0;
    if (half_ms > 0) tti_sleep_ms(half_ms);
    current->timestamps[c->n] = option("clock=", 0) ? 1 + current->clock_ns : tti_now_ns();
    if (half_ms > 0) tti_sleep_ms(half_ms);
}

static tutti_status stamp(tti_queue queue, int timestamp) {
    TTI_ASSERT(timestamp < MAX_TIMESTAMPS);
    if (current->records && option("plain=", 0))
        return tti_fail(TUTTI_E_DEVICE, "test device: no timestamps in recordings");
    return put(&(command){.run = run_stamp, .queue = queue, .n = (size_t)timestamp});
}

static tutti_status read_stamps(int n, double *us) {
    advance_all();
    for (int i = 0; i < n; i++) {
        TTI_ASSERT(current->timestamps[i] > 0);
        us[i] = (double)(current->timestamps[i] - current->timestamps[0]) * 1e-3;
    }
    return check();
}

/* ---- between the programs of a step ---- */

#include "device_peers.h"

static void run_begin(command *c) {
    const tti_step_args *args = c->src;
    const tti_run *fixed = c->extra[0];
    tti_run *runs = c->dst;
    for (size_t i = 0; i < c->n; i++) {
        runs[i] = fixed[i];
        runs[i].step = args->step;
    }
    look_for_loss(args);
}

static tutti_status begin_step(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                               int n_runs) {
    return put(&(command){
        .run = run_begin, .src = args, .dst = runs, .n = (size_t)n_runs, .extra = {fixed}});
}

/* One sample, channels last, as planes of floats; none: zeros. */
static void make_row(const uint8_t *from, const float *value, int n, int n_channels, float *x) {
    int plane = n / n_channels;
    for (int i = 0; i < n; i++) {
        int channel = i / plane, pixel = i % plane;
        x[i] = from ? value[channel * 256 + from[pixel * n_channels + channel]] : 0.0f;
    }
}

static void gather_row(const tti_gather *g, int s, int row) {
    const tti_samples *samples = &g->samples;
    int32_t at = g->index[(size_t)s * (size_t)(1 + g->b) + 1 + (size_t)row], n = samples->n_elems;
    g->y[s * g->y_stride + row] = at < 0 ? -1 : samples->y[at];
    make_row(at < 0 ? NULL : samples->x + (size_t)at * (size_t)n, samples->value, n,
             samples->n_channels, g->x + s * g->x_stride + (int64_t)row * n);
}

static void run_unpack(command *c) {
    const tti_unpack *u = &c->unpack;
    for (int row = 0; row < u->n_rows; row++) {
        size_t at = (size_t)row * (size_t)u->n_elems;
        make_row(u->y[row] < 0 ? NULL : u->x + at, u->value, u->n_elems, u->n_channels,
                 u->out + at);
    }
}

static tutti_status unpack(tti_queue queue, const tti_unpack *from) {
    return put(&(command){.run = run_unpack, .queue = queue, .unpack = *from});
}

/* Runs at once: parameters are used only after they are drawn. */
static tutti_status draw(const tti_draws *draws, int n, float *params) {
    TTI_TRY(check());
    for (int i = 0; i < n; i++) tti_draw(&draws[i], params);
    return TUTTI_OK;
}

static void run_gather(command *c) {
    const tti_gather *g = &c->gather;
    *g->args = *g->args_from;
    c->src = g->args;
    run_begin(c);
    for (int s = 0; s < g->n_shards; s++) {
        g->rows[s * g->rows_stride] = g->index[(size_t)s * (size_t)(1 + g->b)];
        for (int row = 0; row < g->b; row++) gather_row(g, s, row);
    }
}

static tutti_status gather(const tti_gather *from, const tti_run *fixed, tti_run *runs) {
    return put(&(command){.run = run_gather,
                          .gather = *from,
                          .dst = runs,
                          .n = (size_t)from->n_shards,
                          .extra = {fixed}});
}

static void run_tell(command *c) {
    memcpy(c->dst, c->src, sizeof(tti_step_report));
    memcpy((char *)c->dst + sizeof(tti_step_report), c->extra[0], c->n * sizeof(double));
}

static tutti_status report_step(const tti_step_report *report, const double *sums, int n_sums,
                                void *step_sums) {
    return put(&(command){
        .run = run_tell, .src = report, .dst = step_sums, .n = (size_t)n_sums, .extra = {sums}});
}

static void dawdle(void) {
    int64_t ms = option("delay=", 0);
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    bool is_slow = option("slow=", -1) == current->index;
    if (is_slow && current->n_collected++ >= option("after=", 0)) nanosleep(&wait, NULL);
}

static void run_collect(command *c) {
    double *sums = c->dst;
    dawdle();
    for (int i = 0; i < c->collected.n; i++) sums[i] = *c->collected.from[i];
}

static tutti_status collect(const tti_collected *collected, double *sums) {
    return put(&(command){.run = run_collect, .dst = sums, .collected = *collected});
}

static void run_join(command *c) {
    const tti_op *op = tti_op_find(c->extra[0]);
    op->join(c->src, (size_t)c->gather.n_shards, c->n, c->dst);
}

static tutti_status join(const char *op, const float *parts, size_t n_parts, size_t n_elems,
                         float *out) {
    return put(&(command){.run = run_join,
                          .src = parts,
                          .dst = out,
                          .n = n_elems,
                          .gather.n_shards = (int32_t)n_parts,
                          .extra = {op}});
}

static void run_accumulate(command *c) { tti_backend_cpu.accumulate(c->dst, c->src, c->n); }

static void accumulate(float *dst, const float *src, size_t n_elems) {
    if (put(&(command){.run = run_accumulate, .dst = dst, .src = src, .n = n_elems}) != TUTTI_OK)
        tti_clear_error();
}

static void run_accumulate_rounded(command *c) {
    tti_backend_cpu.accumulate_rounded(c->dst, c->src, c->n);
}

static void accumulate_rounded(float *dst, const float *src, size_t n_elems) {
    if (put(&(command){.run = run_accumulate_rounded, .dst = dst, .src = src, .n = n_elems}) !=
        TUTTI_OK)
        tti_clear_error();
}

#include "device_topk.h"
#include "device_update.h"

/* ---- kernels: the host's, put into a queue ---- */

typedef struct prepared {
    const tti_kernel *kernel;
    void *state;
} prepared;

static tutti_status prepare(const tti_node *node, void **state) {
    prepared *p = calloc(1, sizeof *p);
    TTI_ASSERT(p != NULL);
    p->kernel = tti_backend_cpu.select(node, false);
    *state = p;
    return p->kernel->prepare ? p->kernel->prepare(node, &p->state) : TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    const prepared *p = state;
    return p->kernel->scratch_bytes ? p->kernel->scratch_bytes(node, p->state) : 0;
}

/* Products that only measure a device; their results are not read. */
static bool is_for_its_time(const tti_node *node) {
    return strcmp(node->op->name, "matmul") == 0 && tti_value_n_elems(node->out[0]) >= 1 << 20;
}

static void run_kernel(command *c) {
    if (is_for_its_time(c->args.node)) return;
    if (c->kernel->run(c->state, &c->args) != TUTTI_OK) current->lost = true;
}

static tutti_status run(void *state, const tti_kargs *args) {
    const prepared *p = state;
    command c = {.run = run_kernel, .kernel = p->kernel, .state = p->state, .args = *args};
    memcpy(c.in, args->in, (size_t)args->node->n_in * sizeof *c.in);
    memcpy(c.out, args->out, (size_t)args->node->op->n_out * sizeof *c.out);
    return put(&c);
}

static void release(void *state) {
    prepared *p = state;
    if (p && p->kernel->release) p->kernel->release(p->state);
    free(p);
}

static const tti_kernel any_kernel = {.op = "*",
                                      .name = "test",
                                      .prepare = prepare,
                                      .scratch_bytes = scratch_bytes,
                                      .run = run,
                                      .release = release};

static const tti_kernel *select_kernel(const tti_node *node, bool reference_only) {
    return (node->op->traits & TTI_SOURCE) || reference_only ? NULL : &any_kernel;
}

static bool prefers_channels_last(const tti_node *node) {
    return tti_backend_cpu.prefers_channels_last(node);
}

static void thread_init(void) { tti_backend_cpu.thread_init(); }

static void describe_all(tti_str *str) {
    tti_str_printf(str, "cuda: devices for tests, stack %d", (int)option("stack=", 1));
}

static tutti_status sync_all(void) {
    current->n_syncs++;
    advance_all();
    return check();
}

static const tti_device_ops ops = {
    .count = count,
    .describe = describe,
    .identity = identity,
    .is_exclusive = is_exclusive,
    .kind = kind,
    .open = open_device,
    .close = close_device,
    .memory.alloc_host = alloc_host,
    .memory.release_host = release_host,
    .memory.alloc_lasting = alloc_lasting,
    .memory.release_lasting = release_host,
    .memory.pin = pin,
    .memory.unpin = unpin,
    .queues.copy = copy,
    .queues.order = order,
    .queues.record_event = note_place,
    .queues.wait_event = follow,
    .queues.record_host_event = mark,
    .queues.await_host_event = await,
    .queues.sync = sync_all,
    .queues.record_timestamp = stamp,
    .queues.read_timestamps = read_stamps,
    .queues.capture_begin = record_begin,
    .queues.capture_end = record_end,
    .queues.replay = replay,
    .queues.release_captured_graph = release_captured_graph,
    .step.begin = begin_step,
    .step.gather = gather,
    .step.unpack = unpack,
    .step.draw = draw,
    .step.report = report_step,
    .step.collect = collect,
    .step.join = join,
    .update.create = update_create,
    .update.run = update_run,
    .update.complete = update_complete,
    .update.complete_low = update_complete_low,
    .update.hash = update_hash,
    .update.low_copies = update_low_copies,
    .update.destroy = update_destroy,
    .collectives.connect = peers_connect,
    .collectives.mixes_algorithms = true,
    .collectives.disconnect = peers_disconnect,
    .collectives.describe = peers_describe,
    .collectives.describe_library = describe_library,
    .collectives.all_reduce = peers_sum,
    .collectives.reduce_scatter = peers_sum_parts,
    .collectives.are_linked = peers_are_linked,
    .collectives.all_gather = peers_fetch,
    .collectives.gathers_pieces = peers_gathers_pieces,
    .collectives.all_gather_pieces = peers_fetch_pieces,
    .collectives.all_gather_words = peers_all_gather,
    .collectives.join = peers_join,
    .collectives.report_sums = report_sums,
    .fusions.can_update = peers_can_update,
    .fusions.update = peers_update,
    .collectives.tp_collective = peers_tp,
    .p2p.send = peers_put,
    .p2p.recv = peers_take,
    .p2p.release = peers_leave,
    .fusions.most_norm_ranks = 4,
    .fusions.norm = peers_norm,
    .fusions.norm_grad = peers_norm,
    .fusions.can_push = can_push,
    .fusions.push = peers_push,
    .fusions.open_rows = peers_open_rows,
    .fusions.gather_rows = peers_gather_rows,
    .fusions.can_pull = can_pull,
    .fusions.pull = peers_pull,
    .fusions.least_norm_grad = 8,
    .powersgd.create = powersgd_create,
    .powersgd.left = powersgd_left,
    .powersgd.right = powersgd_right,
    .powersgd.end = powersgd_end,
    .powersgd.destroy = powersgd_destroy,
    .topk.create = pick_create,
    .topk.choose = pick_choose,
    .topk.add = pick_add,
    .topk.destroy = pick_destroy,
    .step.fold = fold,
    .step.unfold = unfold,
    .update.is_overlapped = true,
    .collectives.get_waited_ns = peers_waited,
    .collectives.await = peers_await,
    .collectives.failure = peers_failure,
    .link = read_link,
    .memory.get_usage = memory,
};

static bool joins_head(const tti_node *logits) { return logits->n_in == 2; }

static tti_backend backend = {
    .name = "cuda",
    .device = &ops,
    .select = select_kernel,
    .prefers_channels_last = prefers_channels_last,
    .alloc = take,
    .release = give_back,
    .thread_init = thread_init,
    .accumulate = accumulate,
    .accumulate_rounded = accumulate_rounded,
    .describe = describe_all,
};

TUTTI_API const tti_backend *tutti_backend_module(const tti_module_host *host);

const tti_backend *tutti_backend_module(const tti_module_host *host) {
    tti_error_forward(host->fail);
    backend.fuses_training = option("fuses=", 0) != 0;
    backend.joins_head = backend.fuses_training ? joins_head : NULL;
    backend.weights = option("weighs=", 0) ? &tti_weights_gpu : NULL;
    return &backend;
}
