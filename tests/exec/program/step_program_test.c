/* step_program_test.c - the list of a step, and the communication thread that walks it beside
 * compute threads: each thing comes before the step that needs it, goes after the shards that make
 * it, and before its place is taken again. */
#include "exec/program/step_program.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/host/comm_thread.h"
#include "passes/nets.h"

enum { MAX_COMPUTE_THREADS = 4, MAX_SHARDS = 16, MAX_PLACES = 4096 };

/* Places are real: each element holds the bucket that is there, or -1 - bucket for its gradient. */
typedef struct scene {
    tti_plan *plan;
    tti_program shard_program; /* of the plan, maybe in other segments */
    tti_bucket_memory params, grads;
    tti_accumulation acc;
    tti_step_program *program;
    tti_comm_thread *thread;
    int n_compute_threads, n_shards, n_in_group, n_gathered, n_reduced, n_merged, n_joined;
    int fail_at;                 /* gather or reduction, -1: none */
    int order[2][MAX_PLACES], n; /* buckets as they were moved, by run */
    int run;
    int joined_at;      /* the last joined step */
    int at[MAX_SHARDS]; /* steps that shards have come to, where all are in flight together */
    bool looks;         /* at places */
    bool leaves;        /* compute thread 0 fails at leaves_at */
    int leaves_at;
    _Atomic int n_wrong;
    _Atomic int in_place[MAX_PLACES];       /* parameters, of all shards */
    int grad_place[MAX_SHARDS][MAX_PLACES]; /* of each its own */
    _Atomic int n_made[MAX_PLACES];         /* shards that have made the bucket */
} scene;

static size_t n_elems_of(const scene *s, int bucket) { return s->plan->buckets[bucket].n_elems; }

static void gather(scene *s, const tti_instr *in) {
    for (size_t i = 0; i < n_elems_of(s, in->bucket); i++)
        atomic_store(&s->in_place[in->offset + i], in->bucket);
    s->n_gathered++;
}

/* Only the shards of the last micro-batch group have gradients in places. */
static void reduce(scene *s, const tti_instr *in) {
    s->n_wrong += atomic_load(&s->n_made[in->bucket]) != s->n_shards;
    for (int shard = s->n_shards - s->n_in_group; s->grads.n_live && shard < s->n_shards; shard++)
        for (size_t i = 0; i < n_elems_of(s, in->bucket); i++) {
            int *cell = &s->grad_place[shard][in->offset + i];
            s->n_wrong += *cell != -1 - in->bucket;
            *cell = 0;
        }
    s->n_reduced++;
}

static tutti_status communicate(const tti_instr *in, void *user) {
    scene *s = user;
    bool gathers = in->kind == TTI_ALL_GATHER;
    if (in->kind == TTI_JOIN) {
        /* Between a join and the one before it there may be no step. */
        int at = s->joined_at + 1 == in->first ? s->joined_at : in->first;
        for (int i = 0; i < s->n_shards; i++) s->n_wrong += s->at[i] != at;
        s->joined_at = in->first;
        s->n_joined++;
        return TUTTI_OK;
    }
    if (in->kind == TTI_MERGE) {
        s->n_merged++;
        return TUTTI_OK;
    }
    s->order[s->run][s->n++] = 2 * in->bucket + !gathers;
    if (s->n - 1 == s->fail_at) return tti_fail(TUTTI_E_PEER, "move %d: rank 3 is gone", s->n - 1);
    if (s->looks && gathers) gather(s, in);
    if (s->looks && !gathers) reduce(s, in);
    return TUTTI_OK;
}

/* Reads the parameters of a step, and writes its gradients, in the last micro-batch group to
 * places. */
static void do_step(scene *s, int shard, int step) {
    bool in_places = shard >= s->n_shards - s->n_in_group;
    for (int i = 0; i < s->params.n_live; i++) {
        const tti_live_range *live = &s->params.live[i];
        bool reads = live->first == step || live->last == step;
        for (size_t k = 0; reads && k < n_elems_of(s, live->bucket); k++)
            s->n_wrong += atomic_load(&s->in_place[live->offset + k]) != live->bucket;
    }
    for (int i = 0; i < s->grads.n_live; i++) {
        const tti_live_range *live = &s->grads.live[i];
        for (size_t k = 0; in_places && live->first == step && k < n_elems_of(s, live->bucket);
             k++) {
            int *cell = &s->grad_place[shard][live->offset + k];
            s->n_wrong += *cell != 0; /* not yet reduced */
            *cell = -1 - live->bucket;
        }
        if (live->last == step) s->n_made[live->bucket]++;
    }
    for (int b = 0; s->grads.n_live == 0 && b < s->plan->n_buckets; b++)
        if (s->plan->buckets[b].ready_after == step) s->n_made[b]++;
}

typedef struct compute_thread_arg {
    pthread_t thread;
    scene *s;
    int index;
} compute_thread_arg;

/* A compute thread walks the list as the executor does. */
static void *walk(void *arg) {
    compute_thread_arg *a = arg;
    scene *s = a->s;
    bool failed = false;
    for (int i = 0; i < s->program->n_instrs; i++) {
        const tti_instr *in = &s->program->instrs[i];
        if (in->queue != TTI_ON_COMPUTE_THREADS) continue;
        tti_compute_thread_cursor at = tti_compute_thread_cursor_at(s->thread, s->program, i);
        for (int step = in->first;
             in->kind == TTI_RUN && a->index < in->n_shards && !failed && step < in->last; step++) {
            failed = s->leaves && a->index == 0 && step == s->leaves_at;
            if (failed) break;
            tti_compute_thread_cursor_wait(&at, step);
            if (s->looks) do_step(s, in->shard + a->index, step);
            s->at[in->shard + a->index] = step + 1;
            tti_compute_thread_cursor_signal(&at, step + 1);
            if ((step + a->index) % 3 == 0) sched_yield();
        }
        tti_compute_thread_cursor_leave(&at);
    }
    return NULL;
}

static tutti_status run_all(scene *s) {
    compute_thread_arg args[MAX_COMPUTE_THREADS];
    s->n = 0;
    for (int b = 0; b < MAX_PLACES; b++) s->n_made[b] = 0;
    s->joined_at = -1;
    tti_comm_thread_begin(s->thread, s->program);
    for (int i = 0; i < s->n_compute_threads; i++) {
        args[i] = (compute_thread_arg){.s = s, .index = i};
        T_EQ(pthread_create(&args[i].thread, NULL, walk, &args[i]), 0);
    }
    for (int i = 0; i < s->n_compute_threads; i++) pthread_join(args[i].thread, NULL);
    return tti_comm_thread_finish(s->thread);
}

static void drop_program(scene *s) {
    tti_comm_thread_destroy(s->thread);
    tti_step_program_destroy(s->program);
    tti_accumulation_fini(&s->acc);
}

/* n_shards of a worker on n_compute_threads compute threads, after n_idle micro-batch groups of
 * others alone. */
static void list(scene *s, int n_shards, int n_compute_threads, tti_step_program_desc desc) {
    drop_program(s);
    s->n_shards = n_shards;
    s->n_compute_threads = n_compute_threads;
    T_OK(tti_accumulation_init(&s->acc, 0, n_shards, desc.joined ? n_shards : n_compute_threads));
    s->n_in_group = s->acc.micro_groups[s->acc.n_micro_groups - 1].n_shards;
    desc.plan = s->plan;
    desc.program = &s->shard_program;
    desc.acc = &s->acc;
    desc.n_compute_threads = n_compute_threads;
    T_OK(tti_step_program_create(&desc, &s->program));
    T_OK(tti_comm_thread_create(s->program->n_instrs, -1, communicate, s, &s->thread));
}

static scene *new_scene(net_fn net, size_t bucket_bytes) {
    scene *s = calloc(1, sizeof *s);
    s->fail_at = -1;
    s->looks = true;
    s->plan = net_plan(net, &net_fast, bucket_bytes);
    s->shard_program = s->plan->shard;
    return s;
}

/* ZeRO-3: both kinds of windows. */
static tti_step_program_desc with_windows(scene *s) {
    if (s->params.n_live == 0) {
        T_OK(tti_bucket_memory_init(s->plan, &s->plan->shard, TTI_SPACE_PARAM, &s->params));
        T_OK(tti_bucket_memory_init(s->plan, &s->plan->shard, TTI_SPACE_GRAD, &s->grads));
        assert_true(s->params.n_elems < MAX_PLACES && s->grads.n_elems < MAX_PLACES);
    }
    return (tti_step_program_desc){
        .params = &s->params, .grads = &s->grads, .reduction = TTI_REDUCE_OVERLAPPED};
}

static void end_scene(scene *s) {
    drop_program(s);
    tti_bucket_memory_fini(&s->params);
    tti_bucket_memory_fini(&s->grads);
    tti_plan_destroy(s->plan);
    free(s);
}

/* ---- reductions beside the last micro-batch group ---- */

T_CASE(buckets_are_reduced_in_order_after_all_compute_threads) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    for (int n_compute_threads = 1; n_compute_threads <= MAX_COMPUTE_THREADS; n_compute_threads++)
        for (int n_shards = n_compute_threads; n_shards <= 2 * n_compute_threads + 1; n_shards++) {
            list(s, n_shards, n_compute_threads,
                 (tti_step_program_desc){.reduction = TTI_REDUCE_OVERLAPPED});
            for (int again = 0; again < 3; again++) {
                s->n_merged = s->n_reduced = 0;
                T_OK(run_all(s));
                T_EQ(s->n_wrong, 0);
                T_EQ(s->n, s->plan->n_buckets);
                for (int b = 0; b < s->n; b++) T_EQ(s->order[0][b], 2 * b + 1);
                bool merges = s->acc.micro_groups[s->acc.n_micro_groups - 1].n_merges > 0;
                T_EQ(s->n_merged, merges ? s->plan->n_buckets : 0);
            }
        }
    end_scene(s);
}

/* Whoever comes first: each instruction waits for those before it. */
T_CASE(a_later_bucket_waits_for_the_earlier) {
    T_UNUSED;
    scene *s = new_scene(net_mlp, 1);
    list(s, 2, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_OVERLAPPED});
    s->looks = false;
    tti_comm_thread_begin(s->thread, s->program);
    tti_compute_thread_cursor compute_thread[2];
    for (int i = 0; i < 2; i++)
        compute_thread[i] = tti_compute_thread_cursor_at(s->thread, s->program, 0);
    tti_compute_thread_cursor_leave(&compute_thread[1]);
    assert_true(t_wait_asleep()); /* the communication thread */
    T_EQ(s->n, 0);
    T_OK(tti_comm_thread_check(s->thread));
    tti_compute_thread_cursor_leave(&compute_thread[0]);
    T_OK(tti_comm_thread_finish(s->thread));
    T_EQ(s->n, s->plan->n_buckets);
    for (int b = 0; b < s->n; b++) T_EQ(s->order[0][b], 2 * b + 1);
    end_scene(s);
}

T_CASE(the_first_failure_ends_the_step_and_only_the_step) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    list(s, 2, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_OVERLAPPED});
    s->fail_at = 2;
    T_FAILS(run_all(s), TUTTI_E_PEER, "move 2: rank 3 is gone");
    T_EQ(s->n, 3); /* nothing is sent after it */
    s->fail_at = -1;
    T_OK(run_all(s));
    T_EQ(s->n, s->plan->n_buckets);
    T_OK(tti_comm_thread_finish(s->thread)); /* nothing was begun */
    end_scene(s);
}

T_CASE(it_may_go_before_it_was_used) {
    T_UNUSED;
    scene *s = new_scene(net_mlp, 1);
    list(s, 2, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_OVERLAPPED});
    end_scene(s);
    tti_comm_thread_destroy(NULL);
    tti_step_program_destroy(NULL);
    T_OK(tti_comm_thread_finish(NULL));
}

/* Without a communication thread: merged by the compute threads, reduced on the main queue. */
T_CASE(reductions_after_the_compute_threads) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    list(s, 4, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_BUCKETS});
    T_EQ(s->program->has_comm, false);
    T_EQ(s->program->n_instrs, 4 + s->plan->n_buckets); /* RUN, MERGE, twice */
    for (int i = 0; i < 4; i++) T_EQ(s->program->instrs[i].kind, i % 2 ? TTI_MERGE : TTI_RUN);
    list(s, 4, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_WHOLE});
    T_EQ(s->program->n_instrs, 5);
    T_EQ(s->program->instrs[4].queue, TTI_ON_MAIN);
    T_EQ(s->program->instrs[4].range.last, s->plan->n_flat);
    list(s, 4, 2, (tti_step_program_desc){.reduction = TTI_REDUCE_NOTHING});
    T_EQ(s->program->n_instrs, 4);
    end_scene(s);
}

/* ---- gathers and places ---- */

T_CASE(all_is_there_when_it_is_wanted) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet, net_knots};
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (size_t bytes = 1; bytes <= 1 << 10; bytes *= 32) {
            scene *s = new_scene(nets[i], bytes);
            for (int n_compute_threads = 1; n_compute_threads <= MAX_COMPUTE_THREADS;
                 n_compute_threads++) {
                int n_shards = n_compute_threads + (n_compute_threads % 2);
                list(s, n_shards, n_compute_threads, with_windows(s));
                s->n_gathered = s->n_reduced = 0;
                T_OK(run_all(s));
                T_EQ(s->n_wrong, 0);
                T_EQ(s->n_gathered, s->params.n_live * s->acc.n_micro_groups);
                T_EQ(s->n_reduced, s->plan->n_buckets);
            }
            end_scene(s);
        }
}

/* However many shards and compute threads there are: workers have the same instructions, with idle
 * micro-batch groups as many as the worker that has most. */
T_CASE(the_order_does_not_depend_on_shards) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    tti_step_program_desc desc = with_windows(s);
    s->looks = false;
    list(s, 5, 2, desc);
    T_OK(run_all(s));
    int n = s->n;
    s->run = 1;
    for (desc.n_idle = 1; desc.n_idle <= 2; desc.n_idle++) {
        list(s, 3 - desc.n_idle, 1, desc);
        T_OK(run_all(s));
        T_EQ(s->n, n);
        assert_memory_equal(s->order[0], s->order[1], (size_t)n * sizeof(int));
    }
    end_scene(s);
}

/* A compute thread that fails keeps no instruction from being run. */
T_CASE(a_shard_may_leave) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    list(s, 2, 2, with_windows(s));
    s->looks = false;
    s->leaves = true;
    for (int step = 0; step < s->plan->shard.n_steps; step++) {
        s->leaves_at = step;
        T_OK(run_all(s));
        T_EQ(s->n, s->params.n_live + s->plan->n_buckets);
    }
    end_scene(s);
}

T_CASE(a_failure_ends_all_waits) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    list(s, 2, 2, with_windows(s));
    int n_moves = s->params.n_live + s->grads.n_live;
    s->looks = false;
    for (int i = 0; i < n_moves; i++) {
        s->fail_at = i;
        T_FAILS(run_all(s), TUTTI_E_PEER, "rank 3 is gone");
        T_EQ(s->n, i + 1); /* nothing is moved after it */
    }
    end_scene(s);
}

/* One compute thread runs all shards, which all come to a stop before any waits there. */
T_CASE(shards_that_are_joined_take_turns) {
    T_UNUSED;
    for (int n_compute_threads = 1; n_compute_threads <= 2; n_compute_threads++)
        for (int n_shards = n_compute_threads; n_shards <= 4; n_shards++)
            for (size_t bytes = 1; bytes <= 1 << 10; bytes *= 32) {
                scene *s = new_scene(net_lenet, bytes);
                int n = s->plan->shard.n_steps, joins[] = {1, n / 2, n / 2 + 1, n - 1};
                tti_step_program_desc desc = with_windows(s);
                desc.joined = true;
                list(s, n_shards, n_compute_threads, desc);
                T_OK(run_all(s));
                T_EQ(s->n_wrong, 0);
                T_EQ(s->n, s->params.n_live + s->grads.n_live);
                /* What the step of a join makes, nobody would: parameters alone are looked at. */
                tti_bucket_memory grads = s->grads;
                s->grads = (tti_bucket_memory){.plan = s->plan};
                desc.joins = joins;
                desc.n_joins = 4;
                list(s, n_shards, n_compute_threads, desc);
                for (int again = 0; again < 2; again++) T_OK(run_all(s));
                T_EQ(s->n_wrong, 0);
                T_EQ(s->n_joined, 8);
                s->grads = grads;
                end_scene(s);
            }
}

/* Each belongs to one segment: that in which its bucket is complete. */
T_CASE(parts_run_by_themselves) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    int n_steps = s->plan->shard.n_steps, n_seen = 0;
    int segment_first[] = {0, n_steps / 3, n_steps / 3 * 2, n_steps};
    tti_pipe_action actions[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}};
    tti_range flat[3] = {{0}};
    tti_pipe_side side = {.program = &s->shard_program,
                          .schedule = {.actions = actions, .n_actions = 6, .n_in_flight = 2},
                          .flat = flat};
    s->shard_program.n_segments = 3;
    s->shard_program.segment_first = segment_first;
    tti_step_program_desc desc = with_windows(s);
    desc.side = &side;
    desc.params = NULL;
    s->params.n_live = 0;
    list(s, 2, 1, desc);
    for (int i = 0; i < s->program->n_instrs; i++) {
        const tti_instr *in = &s->program->instrs[i];
        if (in->queue == TTI_ON_COMPUTE_THREADS) {
            T_EQ(in->micro_group, actions[n_seen].micro_group);
            T_EQ(in->first, segment_first[actions[n_seen].segment]);
            T_EQ(in->last, segment_first[actions[n_seen++].segment + 1]);
        } else if (in->kind == TTI_ALL_REDUCE) { /* beside the RUN of its last step */
            T_EQ(actions[n_seen - 1].micro_group, 1);
            assert_true(in->after > segment_first[actions[n_seen - 1].segment]);
            assert_true(in->after <= segment_first[actions[n_seen - 1].segment + 1]);
        }
    }
    T_EQ(n_seen, 6);
    s->n_reduced = 0;
    T_OK(run_all(s));
    T_EQ(s->n_wrong, 0);
    T_EQ(s->n_reduced, s->grads.n_live);
    end_scene(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_reduced_in_order_after_all_compute_threads),
        cmocka_unit_test(a_later_bucket_waits_for_the_earlier),
        cmocka_unit_test(the_first_failure_ends_the_step_and_only_the_step),
        cmocka_unit_test(it_may_go_before_it_was_used),
        cmocka_unit_test(reductions_after_the_compute_threads),
        cmocka_unit_test(all_is_there_when_it_is_wanted),
        cmocka_unit_test(the_order_does_not_depend_on_shards),
        cmocka_unit_test(a_shard_may_leave),
        cmocka_unit_test(a_failure_ends_all_waits),
        cmocka_unit_test(shards_that_are_joined_take_turns),
        cmocka_unit_test(parts_run_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
