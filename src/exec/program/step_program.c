/* step_program.c - builds the list of instructions: micro-batch groups or the pipeline's schedule,
 * joins of all shards, and the overlapped work of the communication thread. */
#include "exec/program/step_program.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* A communication instruction that is not in the list yet. */
typedef struct comm_entry {
    tti_instr_kind kind;
    const tti_live_range *live;
    int after, before;
    int segment; /* segment of the shard program in which it becomes due */
} comm_entry;

typedef struct builder {
    tti_step_program *p;
    const tti_step_program_desc *d;
    comm_entry *comm_entries; /* [n_moves], in the order in which they become due */
    int n_comm_entries;
    tti_live_range *live; /* live ranges of joins, then of buckets without planned memory */
    int n_micro_groups, cap, cap_waits;
    bool has_run, no_memory;
} builder;

/* ---- communication during one run of the program ---- */

bool tti_is_reduction(tti_instr_kind kind) {
    return kind == TTI_REDUCE_SCATTER || kind == TTI_ALL_REDUCE || kind == TTI_ADD_PARTIALS;
}

static bool reduces_on_comm(const tti_step_program_desc *d) {
    return d->reduction == TTI_REDUCE_OVERLAPPED;
}

static tti_instr_kind reduction_of(const tti_step_program_desc *d, size_t first, size_t n_elems) {
    return d->reduction_kind ? d->reduction_kind(d->user, first, n_elems) : TTI_ALL_REDUCE;
}

static int segment_of(const tti_program *program, int step) {
    int segment = 0;
    while (segment + 1 < program->n_segments && program->segment_first[segment + 1] <= step)
        segment++;
    return segment;
}

/* The first step that overwrites the memory of a reduced bucket. */
static int next_writer(const tti_bucket_memory *w, const tti_live_range *reduced) {
    int step = TTI_NEVER;
    for (int k = 0; k < w->n_live; k++)
        if (w->live[k].taken > reduced->last && tti_bucket_memory_shares(w, reduced, &w->live[k]))
            step = TTI_MIN(step, w->live[k].first);
    return step;
}

static void add_move(builder *b, tti_instr_kind kind, const tti_live_range *live) {
    comm_entry m = {.kind = kind, .live = live, .segment = segment_of(b->d->program, live->last)};
    if (kind == TTI_ALL_GATHER) {
        m.after = live->taken;
        m.before = live->first;
    } else if (kind == TTI_JOIN) {
        m.after = live->first;
        m.before = live->first + 1;
    } else {
        m.after = live->last + 1;
        m.before = b->d->grads ? next_writer(b->d->grads, live) : TTI_NEVER;
    }
    b->comm_entries[b->n_comm_entries++] = m;
}

static void add_reduction(builder *b, const tti_live_range *live) {
    const tti_bucket *bucket = &b->d->plan->buckets[live->bucket];
    add_move(b, reduction_of(b->d, bucket->first, bucket->n_elems), live);
}

/* Orders communication: instructions for which shards wait come first. */
static int by_need(const void *a, const void *b) {
    const comm_entry *x = a, *y = b;
    int r = tti_is_reduction(x->kind), q = tti_is_reduction(y->kind);
    if (x->segment != y->segment) return x->segment < y->segment ? -1 : 1;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    if (r != q) return r < q ? -1 : 1;
    if (!r && x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->live->first != y->live->first) return x->live->first < y->live->first ? -1 : 1;
    return (x->live->bucket > y->live->bucket) - (x->live->bucket < y->live->bucket);
}

/* Joins need the communicator, which only one thread may use at a time.  They are on COMM if other
 * instructions are; otherwise compute threads run them and wait for no other thread. */
static bool joins_on_comm(const tti_step_program_desc *d) { return d->params || d->grads; }

static void find_moves(builder *b) {
    const tti_step_program_desc *d = b->d;
    const tti_plan *plan = d->plan;
    tti_live_range *live = b->live;
    for (int i = 0; d->params && i < d->params->n_live; i++)
        add_move(b, TTI_ALL_GATHER, &d->params->live[i]);
    for (int i = 0; joins_on_comm(d) && i < d->n_joins; i++, live++) {
        *live = (tti_live_range){.bucket = -1, .first = d->joins[i], .last = d->joins[i]};
        add_move(b, TTI_JOIN, live);
    }
    for (int i = 0; d->grads && i < d->grads->n_live; i++) add_reduction(b, &d->grads->live[i]);
    for (int i = 0; reduces_on_comm(d) && !d->grads && i < plan->n_buckets; i++, live++) {
        int last = plan->buckets[i].ready_after;
        *live = (tti_live_range){.bucket = i, .first = last, .last = last};
        add_reduction(b, live);
    }
    if (b->n_comm_entries > 0)
        qsort(b->comm_entries, (size_t)b->n_comm_entries, sizeof *b->comm_entries, by_need);
}

/* ---- the list ---- */

static void emit(builder *b, tti_instr instr) {
    tti_step_program *p = b->p;
    if (p->n_instrs == b->cap) {
        int cap = 2 * b->cap + 64;
        tti_instr *instrs = realloc(p->instrs, (size_t)cap * sizeof *instrs);
        b->no_memory = b->no_memory || !instrs;
        if (!instrs) return;
        p->instrs = instrs;
        b->cap = cap;
    }
    p->has_comm = p->has_comm || instr.queue == TTI_ON_COMM;
    p->instrs[p->n_instrs++] = instr;
}

static const tti_micro_group *last_micro_group(const builder *b) {
    return &b->d->acc->micro_groups[b->d->acc->n_micro_groups - 1];
}

static void emit_merge(builder *b, tti_instr_queue queue, const tti_micro_group *micro_group,
                       tti_range range, const tti_instr *like) {
    tti_instr merge = like ? *like : (tti_instr){0};
    if (micro_group->n_merges == 0 || range.first == range.last) return;
    merge.kind = TTI_MERGE;
    merge.queue = queue;
    merge.merges = micro_group;
    merge.range = range;
    merge.before = TTI_NEVER;
    emit(b, merge);
}

/* Returns micro-batch group number `own` of the worker, with at most one shard per compute thread.
 * If all shards have their own buffers, acc contains them as one group. */
static const tti_micro_group *micro_group_of(const builder *b, int own) {
    return &b->d->acc->micro_groups[b->d->acc->n_micro_groups == 1 ? 0 : own];
}

static tti_instr of_micro_group(const builder *b, tti_instr_kind kind, int micro_group,
                                int segment) {
    const tti_step_program *p = b->p;
    int own = micro_group - p->n_idle;
    tti_instr instr = {.kind = kind,
                       .queue = TTI_ON_COMPUTE_THREADS,
                       .micro_group = micro_group,
                       .segment = segment};
    if (own < 0) return instr;
    const tti_micro_group *w = micro_group_of(b, own);
    int skip = b->d->acc->n_micro_groups == 1 ? own * p->n_compute_threads : 0;
    instr.shard = w->first + skip;
    instr.n_shards = TTI_MIN(w->n_shards - skip, p->n_compute_threads);
    instr.buffer = w->buffer + skip;
    return instr;
}

static bool receives(const tti_pipe_side *side, int segment) {
    for (int i = 0; side && i < side->n_in; i++)
        if (side->in[i].segment == segment) return true;
    return false;
}

static bool sends(const tti_pipe_side *side, int segment) {
    for (int i = 0; side && i < side->n_in; i++)
        if (side->in[i].last_segment == segment) return true;
    for (int i = 0; side && i < side->n_out; i++)
        if (side->out[i].segment == segment) return true;
    return false;
}

/* Emits a segment of the program, steps first .. last-1, for micro-batch groups first_micro_group
 * .. last_micro_group-1. */
typedef struct segment_range {
    int first_micro_group, last_micro_group, segment, first, last;
    int next_move;
} segment_range;

static void emit_moves(builder *b, segment_range *s, int due, bool at_start) {
    bool reduces = s->last_micro_group == b->n_micro_groups;
    for (; s->next_move < b->n_comm_entries; s->next_move++) {
        const comm_entry *m = &b->comm_entries[s->next_move];
        if (m->segment != s->segment || m->after > due || (at_start && m->kind == TTI_JOIN)) return;
        if (tti_is_reduction(m->kind) && !reduces) continue;
        int after = m->after > s->last || at_start ? TTI_AT_END : m->after;
        const tti_bucket *bucket =
            m->live->bucket < 0 ? NULL : &b->d->plan->buckets[m->live->bucket];
        tti_instr instr = {.kind = m->kind,
                           .queue = TTI_ON_COMM,
                           .micro_group = s->first_micro_group,
                           .bucket = m->live->bucket,
                           .offset = m->live->offset,
                           .averages = b->d->averages,
                           .eval = !tti_graph_is_training(b->d->program->graph),
                           .axis = TTI_AXIS_DATA,
                           .method = b->d->method,
                           .first = m->live->first,
                           .after = after,
                           .before = m->before,
                           .n_arrivals = b->has_run ? b->p->n_compute_threads : 0};
        if (bucket) instr.range = (tti_range){bucket->first, bucket->first + bucket->n_elems};
        if (tti_is_reduction(m->kind))
            emit_merge(b, TTI_ON_COMM, last_micro_group(b), instr.range, &instr);
        emit(b, instr);
    }
}

static bool is_join(const tti_step_program_desc *d, int step) {
    for (int i = 0; i < d->n_joins; i++)
        if (d->joins[i] == step) return true;
    return false;
}

/* The next interruption of the steps from first on, at most end: before a join; and, if several
 * micro-batch groups share threads, before a step at which one of them would wait, so that all
 * groups reach that step first. */
static int next_stop(const builder *b, const segment_range *s, int end) {
    int stop = end;
    for (int i = 0; i < b->d->n_joins; i++)
        if (b->d->joins[i] >= s->first) stop = TTI_MIN(stop, b->d->joins[i]);
    for (int i = 0; s->last_micro_group - s->first_micro_group > 1 && i < b->n_comm_entries; i++)
        if (b->comm_entries[i].before > s->first) stop = TTI_MIN(stop, b->comm_entries[i].before);
    return stop;
}

static void add_wait(builder *b, tti_instr *run, int step, int instr) {
    tti_step_program *p = b->p;
    if (p->n_waits == b->cap_waits) {
        int cap = 2 * b->cap_waits + 64;
        tti_wait *waits = realloc(p->waits, (size_t)cap * sizeof *waits);
        b->no_memory = b->no_memory || !waits;
        if (!waits) return;
        p->waits = waits;
        b->cap_waits = cap;
    }
    int k = p->n_waits++; /* insertion sort: a RUN has few waits */
    for (; k > run->first_wait && p->waits[k - 1].step > step; k--) p->waits[k] = p->waits[k - 1];
    p->waits[k] = (tti_wait){step, instr};
    run->n_waits++;
}

/* Emits one segment of the program for micro-batch groups first_micro_group ..
 * last_micro_group-1. */
static void emit_segment(builder *b, int first_micro_group, int last_micro_group, int segment) {
    const int *segment_first = b->d->program->segment_first;
    int begin = b->p->n_instrs, end = segment_first[segment + 1];
    segment_range s = {.first_micro_group = first_micro_group,
                       .last_micro_group = last_micro_group,
                       .segment = segment,
                       .first = segment_first[segment]};
    while (s.next_move < b->n_comm_entries && b->comm_entries[s.next_move].segment < segment)
        s.next_move++;
    emit_moves(b, &s, s.first, true);
    for (;;) {
        s.last = next_stop(b, &s, end);
        bool joins = s.last < end && is_join(b->d, s.last);
        /* Runs the groups through steps first .. last-1. Overlapped communication follows the last
         * RUN. */
        int due = s.last + joins;
        const tti_program *program = b->d->program;
        bool begins =
            s.first == program->segment_first[s.segment] && receives(b->d->side, s.segment);
        bool ends = s.last == program->segment_first[s.segment + 1] && sends(b->d->side, s.segment);
        for (int w = s.first_micro_group; w < s.last_micro_group; w++) {
            tti_instr run = of_micro_group(b, TTI_RUN, w, s.segment);
            bool is_last = w == s.last_micro_group - 1;
            if (run.n_shards == 0 && !is_last) continue;
            run.first = s.first;
            run.last = s.last;
            if (begins && run.n_shards > 0) emit(b, of_micro_group(b, TTI_RECV, w, s.segment));
            emit(b, run);
            b->has_run = true;
            if (is_last) emit_moves(b, &s, due, false);
            if (ends && run.n_shards > 0) emit(b, of_micro_group(b, TTI_SEND, w, s.segment));
        }
        if (s.last == end) break;
        if (joins && !joins_on_comm(b->d))
            emit(b, (tti_instr){.kind = TTI_JOIN,
                                .queue = TTI_ON_COMPUTE_THREADS,
                                .axis = TTI_AXIS_DATA,
                                .eval = !tti_graph_is_training(b->d->program->graph),
                                .first = s.last});
        s.first = s.last + joins;
    }
    /* Finds what RUN instructions from begin on wait for: parameters of their segment, and memory
     * for gradients that an earlier segment of the last micro-batch group may still occupy. */
    tti_step_program *p = b->p;
    int from = s.last_micro_group == b->n_micro_groups ? 0 : begin;
    for (int i = begin; i < p->n_instrs; i++) {
        tti_instr *run = &p->instrs[i];
        if (run->kind != TTI_RUN) continue;
        run->first_wait = p->n_waits;
        for (int k = from; k < p->n_instrs; k++) {
            const tti_instr *in = &p->instrs[k];
            bool is_due = in->before >= run->first && in->before < run->last;
            if (in->queue == TTI_ON_COMM && in->micro_group == s.first_micro_group && is_due)
                add_wait(b, run, in->before, k);
        }
    }
}

/* Emits the merges of the gradients that a segment completes.  Those of the last micro-batch group
 * are merged where they are reduced. */
static void emit_merge_of(builder *b, int micro_group, int segment) {
    const tti_step_program_desc *d = b->d;
    tti_range all = {0, d->plan->n_flat};
    bool is_last = micro_group == b->n_micro_groups - 1,
         training = tti_graph_is_training(d->program->graph);
    if (!training || micro_group < b->p->n_idle || (is_last && reduces_on_comm(d))) return;
    emit_merge(b, TTI_ON_COMPUTE_THREADS, micro_group_of(b, micro_group - b->p->n_idle),
               d->side && !d->joined ? d->side->flat[segment] : all, NULL);
}

static void emit_action(builder *b, int micro_group, int segment) {
    emit_segment(b, micro_group, micro_group + 1, segment);
    emit_merge_of(b, micro_group, segment);
}

static void emit_reduction(builder *b, int bucket, size_t first, size_t n_elems) {
    emit(b, (tti_instr){.kind = reduction_of(b->d, first, n_elems),
                        .queue = TTI_ON_MAIN,
                        .axis = TTI_AXIS_DATA,
                        .bucket = bucket,
                        .method = b->d->method,
                        .range = {first, first + n_elems}});
}

static tutti_status build_program(builder *b) {
    const tti_step_program_desc *d = b->d;
    int n_local = 0;
    size_t n_live = (size_t)d->n_joins + (size_t)d->plan->n_buckets;
    size_t n_comm_entries = n_live + (d->params ? (size_t)d->params->n_live : 0) +
                            (d->grads ? (size_t)d->grads->n_live : 0);
    for (int w = 0; w < d->acc->n_micro_groups; w++) n_local += d->acc->micro_groups[w].n_shards;
    b->n_micro_groups = d->n_idle + (n_local + d->n_compute_threads - 1) / d->n_compute_threads;
    b->comm_entries = calloc(n_comm_entries + 1, sizeof *b->comm_entries);
    b->live = calloc(n_live + 1, sizeof *b->live);
    if (!b->comm_entries || !b->live) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    b->p->n_in_flight = d->side ? d->side->schedule.n_in_flight : d->joined ? b->n_micro_groups : 1;
    find_moves(b);
    for (int i = 0; i < d->n_head; i++) emit(b, d->head[i]);
    if (d->joined) {
        for (int segment = 0; segment < d->program->n_segments; segment++)
            emit_segment(b, 0, b->n_micro_groups, segment);
        emit_merge_of(b, b->n_micro_groups - 1, 0);
    } else if (d->side) {
        const tti_pipe_schedule *order = &d->side->schedule;
        for (int i = 0; i < order->n_actions; i++)
            emit_action(b, order->actions[i].micro_group, order->actions[i].segment);
    } else {
        for (int micro_group = 0; micro_group < b->n_micro_groups; micro_group++)
            emit_action(b, micro_group, 0);
    }
    const tti_plan *plan = b->d->plan;
    if (b->d->reduction == TTI_REDUCE_WHOLE) emit_reduction(b, -1, 0, plan->n_flat);
    for (int i = 0; b->d->reduction == TTI_REDUCE_BUCKETS && i < plan->n_buckets; i++)
        emit_reduction(b, i, plan->buckets[i].first, plan->buckets[i].n_elems);
    for (int i = 0; i < d->n_tail; i++) emit(b, d->tail[i]);
    return b->no_memory ? tti_fail(TUTTI_E_NOMEM, "exec: out of memory") : TUTTI_OK;
}

tutti_status tti_step_program_create(const tti_step_program_desc *d, tti_step_program **out) {
    *out = NULL;
    tti_step_program *p = calloc(1, sizeof *p);
    if (!p) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *p = (tti_step_program){.program = d->program,
                            .side = d->side,
                            .n_compute_threads = d->n_compute_threads,
                            .n_idle = d->n_idle,
                            .n_partials = d->acc->n_partials,
                            .n_head = d->n_head};
    builder b = {.p = p, .d = d};
    tutti_status st = build_program(&b);
    free(b.comm_entries);
    free(b.live);
    if (st != TUTTI_OK) {
        tti_step_program_destroy(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

void tti_step_program_destroy(tti_step_program *p) {
    if (!p) return;
    free(p->instrs);
    free(p->waits);
    free(p);
}

int tti_step_program_compute_thread(const tti_step_program *p, int micro_group,
                                    int compute_thread) {
    int own = TTI_MAX(micro_group - p->n_idle, 0);
    return own % p->n_in_flight * p->n_compute_threads + compute_thread;
}

/* ---- the list as a table: what an instruction does ---- */

static const char *const queue_names[] = {"main", "compute", "comm"};

/* The name of a kind of instruction in a list and in a profile. */
typedef struct instr_name {
    const char *name, *in_profile;
    tti_span_kind kind;
} instr_name;

static const instr_name names[TTI_N_INSTR_KINDS] = {
    [TTI_RUN] = {"run", "run", TTI_SPAN_WORK},
    [TTI_RECV] = {"recv", "recv from another stage", TTI_SPAN_STAGES},
    [TTI_SEND] = {"send", "send to another stage", TTI_SPAN_STAGES},
    [TTI_ALL_GATHER] = {"all_gather", "all_gather of parameters", TTI_SPAN_PARAMS},
    [TTI_JOIN] = {"join", "join of all shards", TTI_SPAN_SUMS},
    [TTI_MERGE] = {"merge", "merge", TTI_SPAN_WORK},
    [TTI_ADD_PARTIALS] = {"merge", "merge", TTI_SPAN_WORK},
    [TTI_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter of gradients", TTI_SPAN_GRADS},
    [TTI_ALL_REDUCE] = {"all_reduce", "all_reduce of gradients", TTI_SPAN_GRADS},
    [TTI_TIME_STAGES] = {"all_reduce", "all_reduce of stage times", TTI_SPAN_SUMS},
    [TTI_REDUCE_TIED_GRADS] = {"all_reduce", "all_reduce of shared gradients", TTI_SPAN_GRADS},
    [TTI_REPORT] = {"report", "report", TTI_SPAN_SUMS},
    [TTI_UPDATE_BLOCKS] = {"update", "update", TTI_SPAN_WORK},
    [TTI_PUSH_GRADS] = {"push", "push of gradients", TTI_SPAN_GRADS},
    [TTI_PULL_PARAMS] = {"pull", "pull of parameters", TTI_SPAN_PARAMS},
    [TTI_AVERAGE] = {"all_reduce", "all_reduce of parameters", TTI_SPAN_PARAMS},
    [TTI_HASH] = {"hash", "hash of parameters", TTI_SPAN_WORK},
    [TTI_SUM_HASHES] = {"all_reduce", "all_reduce of hashes", TTI_SPAN_SUMS},
};

tti_span_id tti_instr_span(tti_instr_kind kind) {
    return (tti_span_id){.name = names[kind].in_profile, .kind = names[kind].kind};
}

const char *tti_instr_name(tti_instr_kind kind) { return names[kind].name; }

static const char *const axis_texts[] = {"", ", data axis", ", pipeline axis", ", model axes",
                                         ", all axes"};
static const char *const method_texts[] = {", tree", ", tree, 16 bits", "", ", 16 bits",
                                           ", compressed"};

static void print_shards(const tti_instr *in, tti_str *out) {
    if (in->n_shards == 0) tti_str_add(out, "no shard");
    if (in->n_shards == 1) tti_str_printf(out, "shard %d", in->shard);
    if (in->n_shards > 1)
        tti_str_printf(out, "shards %d..%d", in->shard, in->shard + in->n_shards - 1);
}

static void print_range(const tti_instr *in, tti_str *out) {
    if (in->bucket >= 0 && in->queue != TTI_ON_COMPUTE_THREADS)
        tti_str_printf(out, "bucket %d, ", in->bucket);
    tti_str_printf(out, "[%zu, %zu)", in->range.first, in->range.last);
}

static void print_operands(const tti_instr *in, tti_str *out) {
    switch (in->kind) {
        case TTI_RUN:
            print_shards(in, out);
            tti_str_printf(out, ", steps %d..%d", in->first, in->last - 1);
            return;
        case TTI_RECV:
        case TTI_SEND:
            print_shards(in, out);
            tti_str_printf(out, ", segment %d", in->segment);
            return;
        case TTI_ALL_GATHER:
            tti_str_add(out, in->averages ? "averages, " : "parameters, ");
            print_range(in, out);
            break;
        case TTI_JOIN:
            tti_str_printf(out, "step %d of all shards", in->first);
            break;
        case TTI_MERGE:
            print_range(in, out);
            tti_str_printf(out, ", up to shard %d", in->merges->first + in->merges->n_shards - 1);
            return;
        case TTI_UPDATE_BLOCKS:
            tti_str_add(out, "own blocks of ");
            print_range(in, out);
            return;
        case TTI_ADD_PARTIALS:
        case TTI_REDUCE_SCATTER:
        case TTI_ALL_REDUCE:
            print_range(in, out);
            break;
        case TTI_TIME_STAGES:
            tti_str_add(out, "times of the stages");
            break;
        case TTI_REDUCE_TIED_GRADS:
            tti_str_add(out, "gradients of shared parameters");
            break;
        case TTI_REPORT: {
            tti_str_add(out, "sums");
            if (in->report & TTI_REPORT_VOTES) tti_str_add(out, ", votes");
            if (in->report & TTI_REPORT_HASHES) tti_str_add(out, ", hashes");
        } break;
        case TTI_AVERAGE: {
            tti_str_add(out, "mean of ");
            if (in->array == TTI_STATE_PARAMS) tti_str_add(out, "the parameters");
            if (in->array == TTI_STATE_EMA) tti_str_add(out, "the averaged parameters");
            if (in->array >= 0) tti_str_printf(out, "state %d", in->array);
        } break;
        case TTI_HASH:
            tti_str_add(out, in->whole ? "all parameters" : "parameters of other workers");
            break;
        case TTI_SUM_HASHES:
            tti_str_add(out, "hashes of the parameters");
            break;
        default: /* PUSH, PULL */
            print_range(in, out);
    }
    if (in->kind != TTI_ADD_PARTIALS) tti_str_add(out, axis_texts[in->axis]);
    if (in->kind == TTI_REDUCE_SCATTER || in->kind == TTI_ALL_REDUCE)
        tti_str_add(out, method_texts[in->method]);
}

/* ---- the list as a table: what an instruction waits for ---- */

/* The last instruction of a queue before number i; -1: none. */
static int last_before(const tti_step_program *p, int i, tti_instr_queue queue) {
    while (--i >= 0 && p->instrs[i].queue != queue) continue;
    return i;
}

/* The first instruction after the compute threads that is not a reduction waits for the
 * communication thread. */
static bool ends_comm(const tti_step_program *p, int i) {
    if (i < p->n_head || tti_is_reduction(p->instrs[i].kind)) return false;
    int before = last_before(p, i, TTI_ON_MAIN);
    return before < p->n_head || tti_is_reduction(p->instrs[before].kind);
}

static void print_wait(tti_str *out, const char **separator, int instr) {
    if (instr < 0) return;
    tti_str_printf(out, "%s%d", *separator, instr);
    *separator = ", ";
}

static void print_waits(const tti_step_program *p, int i, tti_str *out) {
    const tti_instr *in = &p->instrs[i];
    const char *separator = "";
    int compute_threads = last_before(p, i, TTI_ON_COMPUTE_THREADS);
    if (in->queue == TTI_ON_COMM && in->n_arrivals > 0) {
        print_wait(out, &separator, compute_threads);
        if (in->after != TTI_AT_END) tti_str_printf(out, " after step %d", in->after - 1);
    }
    int same = last_before(p, i, in->queue);
    bool begins = in->queue == TTI_ON_MAIN && i >= p->n_head && same < p->n_head;
    print_wait(out, &separator, begins ? compute_threads : same);
    for (int k = 0; k < in->n_waits; k++) {
        const tti_wait *wait = &p->waits[in->first_wait + k];
        print_wait(out, &separator, wait->instr);
        if (wait->step > in->first) tti_str_printf(out, " before step %d", wait->step);
    }
    if (in->queue == TTI_ON_MAIN && ends_comm(p, i))
        print_wait(out, &separator, last_before(p, i, TTI_ON_COMM));
}

void tti_step_program_print(const tti_step_program *p, tti_str *out) {
    tti_str_printf(out, "%4s  %-7s  %-14s  %-48s  %s\n", "#", "queue", "instruction", "",
                   "waits for");
    for (int i = 0; i < p->n_instrs; i++) {
        const tti_instr *in = &p->instrs[i];
        tti_str operands = {0}, waits = {0};
        print_operands(in, &operands);
        print_waits(p, i, &waits);
        tti_str_printf(out, "%4d  %-7s  %-14s  %-48s", i, queue_names[in->queue],
                       names[in->kind].name, tti_str_text(&operands));
        if (waits.n_bytes > 0) tti_str_printf(out, "  %s", tti_str_text(&waits));
        while (out->n_bytes > 0 && out->text[out->n_bytes - 1] == ' ')
            out->text[--out->n_bytes] = 0;
        tti_str_add(out, "\n");
        out->failed = out->failed || operands.failed || waits.failed;
        tti_str_free(&operands);
        tti_str_free(&waits);
    }
}
