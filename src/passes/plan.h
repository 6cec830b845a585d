/* plan.h - the flat result of the passes: what runs, in which order, in which memory.
 *
 * A step of training is three programs.  The shard program is forward and backward of one virtual
 * shard, run V times per step over all workers.  The reduce program adds the gradients of all
 * shards, bucket by bucket, each as soon as its last gradient is complete.  The update program is
 * the optimizer, block by block over the flat parameters.  An evaluation program runs forward only.
 *
 * Parameters, gradients and optimizer state are flat f32 arrays of n_flat elements with the same
 * offsets.  Slots are in the order in which their gradients become ready, so a bucket is one
 * contiguous range.  The order follows from the graph alone, never from bucket size or workers. */
#ifndef TTI_PASSES_PLAN_H
#define TTI_PASSES_PLAN_H

#include "passes/memory/neighbours.h"
#include "passes/stages/stages.h"

/* The memory in which a value is stored while a program runs. */
typedef enum tti_space {
    TTI_SPACE_ARENA,  /* of a compute thread; reused while the program runs    */
    TTI_SPACE_CONST,  /* of a compute thread; filled once                      */
    TTI_SPACE_RESULT, /* of a compute thread; outputs such as loss_sum         */
    TTI_SPACE_INPUT,  /* fed: offset is the index of the input       */
    TTI_SPACE_PARAM,  /* flat parameters, bytes                      */
    TTI_SPACE_GRAD,   /* flat gradients of one shard, bytes          */
    TTI_SPACE_LOW,    /* parameters in 16 bits, bytes                */
    TTI_N_SPACES
} tti_space;

typedef struct tti_buf {
    tti_space space;
    size_t offset; /* bytes, a multiple of 64 (TTI_SPACE_INPUT: an index) */
} tti_buf;

/* A graph with an order and places. */
typedef struct tti_program {
    tutti_graph *graph; /* owned */
    tti_node **steps;   /* [n_steps], owned array: nodes that run; views and sources do not */
    int n_steps;
    tti_buf *bufs;             /* [graph->n_values], owned */
    tti_neighbours neighbours; /* owned */
    bool joins_norms;  /* norms between collectives are computed with them (collective_norm.h) */
    int joins_grads;   /* and gradients of norms of so many elements; 0: none */
    bool *is_low_copy; /* [n_nodes], owned: casts of parameters that the update makes; NULL: none */
    size_t arena_bytes, const_bytes, result_bytes;
    size_t unshared_bytes; /* arena if no byte were used twice, for inspect */
    int n_inputs;
    /* For a pipeline stage: segment i is steps segment_first[i] .. segment_first[i + 1] - 1, which
     * run in one slot of the schedule (passes/stages/stages.h): chunks forward, then backward. Else
     * one segment of all steps. */
    int *segment_first; /* [n_segments + 1], owned */
    int n_segments;
} tti_program;

/* How one parameter is treated. */
typedef struct tti_slot_rule {
    double lr_factor; /* times the learning rate of the step */
    double decay;     /* weight decay */
    bool frozen;      /* stays as it is */
} tti_slot_rule;

/* A parameter or buffer in the flat arrays. */
typedef struct tti_slot {
    const tti_node *param; /* in plan->shard.graph: name, shape, initialisation */
    size_t first;          /* element offset, a multiple of 16 */
    size_t n_elems;
    bool buffer; /* not trained: a running statistic */
    bool decay;
    bool has_low_copy; /* the update leaves it in 16 bits too: */
    size_t low_copy;   /* element offset there, a multiple of 16 */
    bool is_copy;      /* an earlier stage of the pipeline has the parameter too, and counts it */
    int made_after;    /* step of the shard program that makes its gradient */
    int ready_after;   /* the step after which it is complete and has no more readers */
    int group, place;  /* id of the first parameter of its neighbours, and how many are before */
    tti_slot_rule rule;
} tti_slot;

typedef struct tti_bucket {
    size_t first, n_elems; /* flat range, padding included */
    int ready_after;       /* step of the shard program after which it is complete */
} tti_bucket;

/* One run of an optimizer node over the flat range first .. first+n_elems-1 of a slot. */
typedef struct tti_update_step {
    const tti_node *node;      /* inputs: w, states, g, hyper, norms?; NULL: frozen */
    const tti_node *direction; /* of an optimizer that needs the norm of its step; NULL: none */
    int slot;
    size_t first, n_elems;
    /* The hash of the parameters is the sum over blocks of hash_weight times the hash of the block
     * as elements hash_at, hash_at + 1, ... of the flat array: those of the whole model. */
    uint64_t hash_at, hash_weight;
} tti_update_step;

typedef struct tti_plan {
    tti_program shard, eval;
    tti_slot *slots;
    int n_slots;
    size_t n_flat; /* elements of the flat arrays, padding included */
    size_t n_params;
    size_t n_low_copies;   /* elements of the array of slots in 16 bits, padding included */
    tutti_dtype low_dtype; /* of them; f32: there are none */
    tti_bucket *buckets;
    int n_buckets;
    size_t bucket_bytes;       /* that each has at least, but the last one */
    tutti_graph *update_graph; /* a template node for each block length */
    tti_update_step *updates;
    int n_updates;
    bool takes_norms;   /* the optimizer reads norms of whole parameters */
    int n_states;       /* flat state arrays per parameter: 1 sgd, 2 adam */
    int n_metrics;      /* of the model's own, in training; the same for all stages */
    tti_stages *stages; /* owned; NULL: the plan is of no pipeline */
} tti_plan;

/* Elements of a block of the update: fixed, so that partial sums never depend on workers. */
enum { TTI_UPDATE_BLOCK = 16 * 1024 };

typedef struct tti_plan_desc {
    tutti_graph *train; /* handed over, also on failure; built for training */
    tutti_graph *eval;  /* likewise; the same parameters, not for training */
    const tti_target *target;
    const char *optimizer;               /* name of an op with TTI_UPDATE */
    const tti_attr_arg *optimizer_attrs; /* without "decay" */
    double weight_decay;                 /* attribute "decay" of slots with decay */
    size_t bucket_bytes;                 /* > 0: minimum size of a bucket */
    double bucket_growth; /* 0, or at least the root of this x the bytes of all slots */
    size_t
        bucket_most; /* 0, or the size above which a bucket is not extended to reach the minimum */
    /* Orders slots in reverse order of the parameters' creation, so that plans of one model for
     * different backends, whose gradients become ready in other orders, have the same layout. */
    bool by_creation;
    /* Changes the rule of a parameter, which holds the default; NULL: nothing to change. */
    void (*rule)(const char *name, const void *user, tti_slot_rule *rule);
    const void *rule_user;
    /* Cached intermediate graphs (passes/pass_cache.h); NULL: none.  Otherwise number identifies
     * the model; pass both graphs, or both NULL if tti_pass_cache_has is true. */
    struct tti_pass_cache *pass_cache;
    int64_t number;
} tti_plan_desc;

/* Runs all passes and lays out the memory.  On success *out is owned by the caller. */
tutti_status tti_plan_create(const tti_plan_desc *desc, tti_plan **out);
void tti_plan_destroy(const tti_plan *plan); /* NULL is a no-op */

/* The first element of the slot after one of n_elems at first. */
static inline size_t tti_slot_end(size_t first, size_t n_elems) {
    return (first + n_elems + 15) & ~(size_t)15;
}

/* Hashes the parameters of a stage where whole, the plan of the undivided model, has them: the sum
 * over all stages is the hash of the undivided model.  A parameter that several stages have counts
 * once in it. */
void tti_plan_hash_as(tti_plan *stage, const tti_plan *whole);

/* A digest of the properties that workers with separate plans must share to form one run: slots,
 * buckets, blocks of the update, and the values that are joined inside a step, in their order. */
uint64_t tti_plan_digest(const tti_plan *plan);

/* Each shard of a step reports loss_sum, count and correct, then sum and count of each of the
 * model's own metrics. */
enum { TTI_LOSS_SUMS = 3 };
static inline int tti_plan_n_sums(const tti_plan *plan) {
    return TTI_LOSS_SUMS + 2 * plan->n_metrics;
}

/* The name of metric i of the model's own, in the plan of the undivided model. */
const char *tti_plan_metric_name(const tti_plan *plan, int i);

/* The slot of a parameter name, -1 if there is none. */
int tti_plan_find_slot(const tti_plan *plan, const char *name);

/* The bucket that element first of the flat arrays lies in. */
int tti_plan_find_bucket(const tti_plan *plan, size_t first);

/* Bytes of the array of TTI_SPACE_LOW; 0: there is none. */
size_t tti_plan_low_copies_bytes(const tti_plan *plan);

/* Bytes that each shard in flight needs in addition to its arena: constants, and values that
 * outlive its run, such as those sent to other stages; of training and evaluation together. */
size_t tti_plan_own_bytes(const tti_plan *plan);

/* Operations of one run of a program, by the costs of its nodes. */
double tti_program_flops(const tti_program *program);

/* The index of a named input in TTI_SPACE_INPUT, -1 if there is none. */
int tti_program_input(const tti_program *program, const char *name);

/* ---- the parts, one file each ---- */

/* stage_segments.c: the steps in the order of the segments, and where these begin.  stages may be
 * NULL.
 */
tutti_status tti_plan_segments(const tti_stages *stages, tti_program *program);

/* stage_segments.c: checks that no gradient is read in a later segment than it is made in, where
 * another shard may have overwritten it. */
tutti_status tti_plan_check_segments(const tti_plan *plan);

/* low_copies.c: the casts of a program whose results lie in TTI_SPACE_LOW, so that they do not run;
 * and where in it.  neighbours, and then slots, are set. */
tutti_status tti_low_copies_find(const tti_target *target, tti_program *program);
void tti_low_copies_place(tti_plan *plan, const tti_target *target);

/* The first element of the result of such a cast. */
size_t tti_low_copy_at(const tti_plan *plan, const tti_node *cast);

/* bucket.c: slots in order of readiness, for tensor-sharded layers in the order in which gradients
 * are made, or as desc->by_creation says, and buckets over them. program->steps is set. */
tutti_status tti_plan_buckets(tti_plan *plan, const tti_plan_desc *desc);

/* memplan.c: bufs of every value, by liveness.  slots are set. */
tutti_status tti_plan_memory(const tti_plan *plan, tti_program *program);

/* True for an optimizer with the input norms f32[2]: of the whole parameter, and of its direction
 * or gradient. */
bool tti_takes_norms(const tti_op *op);

/* update.c: the template nodes and the steps over the flat range. */
tutti_status tti_plan_update(tti_plan *plan, const tti_plan_desc *desc);

#endif /* TTI_PASSES_PLAN_H */
