/* step_passes.c - one pass for each part of a step, in the order of the instructions that the
 * passes emit.
 *
 * The first passes fill in a description, from which program/step_program.c creates the
 * instructions of the shards and the overlapped ones of the communication thread. The later passes
 * append the rest of the step to the worker's own queue. */
#include "exec/host/step_passes.h"

#include "exec/worker/worker.h"

enum { MAX_TAIL = 16 };

typedef struct building {
    const tti_step_basis *b;
    const tti_plan *plan;
    tti_step_form form;
    bool trains;   /* false: evaluation */
    bool is_alone; /* local SGD: the worker updates alone */
    tti_step_program_desc d;
    tti_instr head[1], tail[MAX_TAIL];
} building;

/* ---- facts ---- */

static bool is_local(const tti_exec_desc *desc, int n_ranks) { return desc->local && n_ranks > 1; }

static bool has_sharded_params(const tti_step_basis *b) { return b->sharded && b->sharded->params; }

/* True if update and state are partitioned over workers that do not share memory. */
static bool has_partitions(const tti_step_basis *b) { return b->divides && !b->desc->shares; }

static tti_range all_of(const building *g) { return (tti_range){0, g->plan->n_flat}; }

static void append(building *g, tti_instr in) {
    TTI_ASSERT(g->d.n_tail < MAX_TAIL);
    in.queue = TTI_ON_MAIN;
    in.bucket = -1;
    g->tail[g->d.n_tail++] = in;
}

/* ---- shards, and the communication that overlaps them ---- */

static void shards_pass(building *g) {
    const tti_step_basis *b = g->b;
    g->d.plan = g->plan;
    g->d.program = g->trains ? &g->plan->shard : &g->plan->eval;
    g->d.acc = b->acc;
    g->d.n_compute_threads = b->n_compute_threads;
    g->d.n_idle = b->n_idle;
    g->d.joined = b->n_joins + b->n_eval_joins > 0;
    g->d.joins = g->trains ? b->joins : b->eval_joins;
    g->d.n_joins = g->trains ? b->n_joins : b->n_eval_joins;
}

static void pipeline_pass(building *g) {
    g->d.side = g->trains ? g->b->train : g->b->eval;
    if (g->d.side) g->d.joined = g->trains && g->plan->stages->is_joined;
}

/* ZeRO-2 and ZeRO-3. */
static void sharded_pass(building *g) {
    const tti_sharded *sharded = g->b->sharded;
    if (!sharded) return;
    if (sharded->params) g->d.params = g->trains ? &sharded->train : &sharded->eval;
    g->d.averages = !g->trains && g->b->desc->ema > 0;
    if (g->trains) g->d.grads = &sharded->grads;
}

static tti_reduce_method method_of(const building *g) {
    const tti_exec_desc *desc = g->b->desc;
    if (!desc->fast)
        return tti_exec_rounds_partials(desc) ? TTI_REDUCE_TREE_ROUNDED : TTI_REDUCE_TREE;
    if (g->form == TTI_FORM_STEP && tti_compress_wanted(desc, g->b->n_ranks))
        return TTI_REDUCE_COMPRESS;
    if (g->b->n_ranks > 1 && desc->wire != TUTTI_F32) return TTI_REDUCE_ROUNDED;
    /* Partitions are summed along the tree in fast mode too: a ring does not support them. */
    return has_partitions(g->b) ? TTI_REDUCE_TREE : TTI_REDUCE_ANY;
}

static tti_instr_kind reduction_kind(const void *user, size_t first, size_t n_elems) {
    const building *g = user;
    if (g->is_alone || g->b->has_server || g->b->n_ranks == 1) return TTI_ADD_PARTIALS;
    bool scatters = g->b->divides && !tti_pipe_has_tied(g->plan, first, n_elems);
    return scatters ? TTI_REDUCE_SCATTER : TTI_ALL_REDUCE;
}

static void reduction_pass(building *g) {
    const tti_step_basis *b = g->b;
    /* Joins inside the step use the communicator, which only one thread may use at a time. */
    bool joins = b->n_joins > 0 || (g->plan->stages && g->plan->stages->is_joined);
    bool adds_up = g->form == TTI_FORM_GRADIENT ? b->is_divided : b->desc->fast || b->n_ranks > 1;
    g->d.method = method_of(g);
    g->d.reduction_kind = reduction_kind;
    g->d.user = g;
    if (!g->trains || !adds_up || (b->has_server && g->form != TTI_FORM_GRADIENT)) return;
    if (b->sharded || (b->n_ranks > 1 && g->plan->n_buckets > 1 && !joins))
        g->d.reduction = TTI_REDUCE_OVERLAPPED;
    else
        g->d.reduction = b->divides || b->desc->mixed ? TTI_REDUCE_BUCKETS : TTI_REDUCE_WHOLE;
}

/* ---- the rest of the step ---- */

/* Gathers partitioned averages for evaluation. */
static void averages_pass(building *g) {
    bool is_partitioned = has_partitions(g->b) && !has_sharded_params(g->b);
    if (g->trains || g->b->desc->ema <= 0 || !is_partitioned) return;
    g->head[g->d.n_head++] = (tti_instr){.kind = TTI_ALL_GATHER,
                                         .queue = TTI_ON_MAIN,
                                         .axis = TTI_AXIS_DATA,
                                         .bucket = -1,
                                         .averages = true,
                                         .range = all_of(g)};
}

static void stages_pass(building *g) {
    if (!g->trains || !g->d.side) return;
    append(g, (tti_instr){.kind = TTI_TIME_STAGES, .axis = TTI_AXIS_PIPELINE});
    if (g->plan->stages->n_tied > 0)
        append(g, (tti_instr){.kind = TTI_REDUCE_TIED_GRADS, .axis = TTI_AXIS_PIPELINE});
}

static void report_pass(building *g) {
    unsigned report = TTI_REPORT_VOTES;
    if (g->trains) report = TTI_REPORT_LOSSES;
    if (g->trains && !g->is_alone && g->form != TTI_FORM_GRADIENT)
        report |= TTI_REPORT_VOTES | TTI_REPORT_HASHES;
    append(g, (tti_instr){.kind = TTI_REPORT,
                          .axis = g->is_alone ? TTI_AXIS_MODEL : TTI_AXIS_ALL,
                          .report = report});
}

static void server_pass(building *g) {
    if (!g->b->has_server || !g->trains || g->form == TTI_FORM_GRADIENT) return;
    append(g, (tti_instr){.kind = TTI_PUSH_GRADS, .range = all_of(g)});
    append(g, (tti_instr){.kind = TTI_PULL_PARAMS, .range = all_of(g)});
}

static void update_pass(building *g) {
    if (g->b->has_server || !g->trains) return;
    append(g, (tti_instr){.kind = TTI_UPDATE_BLOCKS, .range = all_of(g), .own_rows = g->is_alone});
}

/* Gathers parameters after an update whose blocks are divided between the workers.  With shared
 * parameters the sum of the hashes is also a barrier: afterwards no worker writes, and all may
 * read. */
static void partition_pass(building *g) {
    if (g->b->has_server || !g->trains || !g->b->divides) return;
    if (has_sharded_params(g->b) || g->b->desc->shares) {
        append(g, (tti_instr){.kind = TTI_SUM_HASHES, .axis = TTI_AXIS_DATA});
        return;
    }
    append(g, (tti_instr){.kind = TTI_ALL_GATHER, .axis = TTI_AXIS_DATA, .range = all_of(g)});
    append(g, (tti_instr){.kind = TTI_HASH});
}

static void average(building *g, int array) {
    append(g, (tti_instr){.kind = TTI_AVERAGE, .axis = TTI_AXIS_DATA, .array = array});
}

/* Local SGD: the parameters of all workers become their mean, and are compared. */
static void mean_pass(building *g) {
    if (g->form != TTI_FORM_MEAN && g->form != TTI_FORM_MEAN_ALL) return;
    average(g, TTI_STATE_PARAMS);
    for (int k = 0; g->form == TTI_FORM_MEAN_ALL && k < g->plan->n_states; k++) average(g, k);
    if (g->form == TTI_FORM_MEAN_ALL && g->b->desc->ema > 0) average(g, TTI_STATE_EMA);
    append(g, (tti_instr){.kind = TTI_HASH, .whole = true});
    append(g, (tti_instr){.kind = TTI_REPORT,
                          .axis = TTI_AXIS_ALL,
                          .report = TTI_REPORT_VOTES | TTI_REPORT_HASHES});
}

static void model_hash_pass(building *g) {
    if (!g->b->is_divided || !g->trains || g->form == TTI_FORM_GRADIENT) return;
    append(g, (tti_instr){.kind = TTI_SUM_HASHES, .axis = TTI_AXIS_MODEL});
}

/* One row for each pass. */
/* clang-format off */
static void (*const passes[])(building *) = {
    shards_pass,
    pipeline_pass,
    sharded_pass,
    reduction_pass,
    averages_pass,
    stages_pass,
    report_pass,
    server_pass,
    update_pass,
    partition_pass,
    mean_pass,
    model_hash_pass,
};
/* clang-format on */

/* ---- lists ---- */

bool tti_step_has_form(const tti_step_basis *b, tti_step_form form) {
    const tti_exec_desc *desc = b->desc;
    bool local = is_local(desc, b->n_ranks);
    bool compresses = tti_compress_wanted(desc, b->n_ranks);
    switch (form) {
        case TTI_FORM_STEP:
            return !local;
        case TTI_FORM_WARMUP:
            return (local && desc->local_after > 0) || (compresses && desc->compress_after > 0);
        case TTI_FORM_GRADIENT:
            return b->has_server;
        case TTI_FORM_EVAL:
            return desc->plan->eval.graph != NULL;
        default:
            return local;
    }
}

tti_step_form tti_step_form_of(const tti_exec_desc *desc, int n_ranks, const tti_step_desc *step) {
    if (is_local(desc, n_ranks)) {
        if (step->step < (uint64_t)desc->local_after) return TTI_FORM_WARMUP;
        if (!step->average) return TTI_FORM_LOCAL;
        return step->average_state ? TTI_FORM_MEAN_ALL : TTI_FORM_MEAN;
    }
    bool compresses = tti_compress_wanted(desc, n_ranks);
    bool is_warmup = compresses && step->step < (uint64_t)desc->compress_after;
    return is_warmup ? TTI_FORM_WARMUP : TTI_FORM_STEP;
}

tutti_status tti_step_build(const tti_step_basis *b, tti_step_form form, tti_step_program **out) {
    building g = {.b = b,
                  .plan = b->desc->plan,
                  .form = form,
                  .trains = form != TTI_FORM_EVAL,
                  .is_alone = form >= TTI_FORM_LOCAL && form <= TTI_FORM_MEAN_ALL};
    g.d.head = g.head;
    g.d.tail = g.tail;
    for (size_t i = 0; i < TTI_COUNT(passes); i++) passes[i](&g);
    return tti_step_program_create(&g.d, out);
}
