/* traffic_test.c - moves beside shards: each thing comes before the step that wants it, goes after
 * the shards that make it, and before its place is taken again. */
#include "exec/traffic.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "passes/nets.h"

enum { MAX_SHARDS = 4, MAX_PLACES = 4096 };

/* Places are real: each element holds the bucket that is there, or -1 - bucket for its gradient. */
typedef struct scene {
    tti_plan *plan;
    tti_window params, grads;
    tti_traffic *traffic;
    int n_shards, n_fetched, n_reduced;
    int fail_at;                 /* move, -1: none */
    int order[2][MAX_PLACES], n; /* buckets as they were moved, by run */
    int run;
    int at[MAX_SHARDS], n_joined; /* steps that shards have come to, where one thread runs them */
    _Atomic int n_wrong;
    _Atomic int in_place[MAX_PLACES];       /* parameters, of all shards */
    int grad_place[MAX_SHARDS][MAX_PLACES]; /* of each its own */
    _Atomic int n_made[MAX_PLACES];         /* shards that have made the bucket */
} scene;

static const tti_bucket *bucket_of(const scene *s, const tti_use *use) {
    return &s->plan->buckets[use->bucket];
}

static tutti_status fetch(scene *s, const tti_use *use) {
    for (size_t i = 0; i < bucket_of(s, use)->n_elems; i++)
        atomic_store(&s->in_place[use->offset + i], use->bucket);
    s->n_fetched++;
    return TUTTI_OK;
}

static tutti_status reduce(scene *s, const tti_use *use) {
    s->n_wrong += atomic_load(&s->n_made[use->bucket]) != s->n_shards;
    for (int shard = 0; shard < s->n_shards; shard++)
        for (size_t i = 0; i < bucket_of(s, use)->n_elems; i++) {
            int *cell = &s->grad_place[shard][use->offset + i];
            s->n_wrong += *cell != -1 - use->bucket;
            *cell = 0;
        }
    s->n_reduced++;
    return TUTTI_OK;
}

static tutti_status make_move(tti_move_kind kind, const tti_use *use, void *user) {
    scene *s = user;
    if (kind == TTI_MOVE_JOIN) {
        for (int i = 0; i < s->n_shards; i++) s->n_wrong += s->at[i] != use->first;
        s->n_joined++;
        return TUTTI_OK;
    }
    s->order[s->run][s->n++] = 2 * use->bucket + (kind == TTI_MOVE_REDUCE);
    if (s->n - 1 == s->fail_at) return tti_fail(TUTTI_E_PEER, "move %d: rank 3 is gone", s->n - 1);
    return kind == TTI_MOVE_FETCH ? fetch(s, use) : reduce(s, use);
}

typedef struct shard_arg {
    pthread_t thread;
    scene *s;
    int index, leaves_at; /* -1: stays */
} shard_arg;

/* Reads the parameters of a step, and writes its gradients. */
static void do_step(scene *s, int shard, int step) {
    for (int i = 0; i < s->params.n_uses; i++) {
        const tti_use *use = &s->params.uses[i];
        bool reads = use->first == step || use->last == step;
        for (size_t k = 0; reads && k < bucket_of(s, use)->n_elems; k++)
            s->n_wrong += atomic_load(&s->in_place[use->offset + k]) != use->bucket;
    }
    for (int i = 0; i < s->grads.n_uses; i++) {
        const tti_use *use = &s->grads.uses[i];
        size_t n = bucket_of(s, use)->n_elems;
        for (size_t k = 0; use->first == step && k < n; k++) {
            int *cell = &s->grad_place[shard][use->offset + k];
            s->n_wrong += *cell != 0; /* not yet reduced */
            *cell = -1 - use->bucket;
        }
        if (use->last == step) s->n_made[use->bucket]++;
    }
}

static void *run_shard(void *arg) {
    shard_arg *a = arg;
    int n_steps = a->s->plan->shard.n_steps;
    for (int step = 0; step <= n_steps; step++) {
        if (step == a->leaves_at) {
            tti_traffic_leave(a->s->traffic, step);
            return NULL;
        }
        tti_traffic_reach(a->s->traffic, step);
        if (a->leaves_at < 0 && a->s->fail_at < 0 && step < n_steps) do_step(a->s, a->index, step);
        if ((step + a->index) % 3 == 0) usleep((unsigned)(50 * (1 + a->index)));
    }
    return NULL;
}

static tutti_status run_all(scene *s, int n_shards, int leaves_at) {
    shard_arg args[MAX_SHARDS];
    s->n_shards = n_shards;
    s->n = 0;
    for (int b = 0; b < s->plan->n_buckets; b++) s->n_made[b] = 0;
    tti_traffic_begin(s->traffic, n_shards);
    for (int i = 0; i < n_shards; i++) {
        args[i] = (shard_arg){.s = s, .index = i, .leaves_at = i == 0 ? leaves_at : -1};
        T_EQ(pthread_create(&args[i].thread, NULL, run_shard, &args[i]), 0);
    }
    for (int i = 0; i < n_shards; i++) pthread_join(args[i].thread, NULL);
    return tti_traffic_finish(s->traffic);
}

static scene *new_scene(net_fn net, size_t bucket_bytes) {
    scene *s = calloc(1, sizeof *s);
    s->fail_at = -1;
    s->plan = net_plan(net, &net_fast, bucket_bytes);
    T_OK(tti_window_init(s->plan, &s->plan->shard, TTI_SPACE_PARAM, &s->params));
    T_OK(tti_window_init(s->plan, &s->plan->shard, TTI_SPACE_GRAD, &s->grads));
    assert_true(s->params.n_elems < MAX_PLACES && s->grads.n_elems < MAX_PLACES);
    T_OK(tti_traffic_create(&(tti_traffic_desc){.params = &s->params,
                                                .grads = &s->grads,
                                                .n_steps = s->plan->shard.n_steps,
                                                .core = -1,
                                                .fn = make_move,
                                                .user = s},
                            &s->traffic));
    return s;
}

static void end_scene(scene *s) {
    tti_traffic_destroy(s->traffic);
    tti_window_fini(&s->params);
    tti_window_fini(&s->grads);
    tti_plan_destroy(s->plan);
    free(s);
}

T_CASE(all_is_there_when_it_is_wanted) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet, net_knots};
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (size_t bytes = 1; bytes <= 1 << 10; bytes *= 32) {
            scene *s = new_scene(nets[i], bytes);
            for (int n_shards = 1; n_shards <= MAX_SHARDS; n_shards++) {
                s->n_fetched = s->n_reduced = 0;
                T_OK(run_all(s, n_shards, -1));
                T_EQ(s->n_wrong, 0);
                T_EQ(s->n_fetched, s->params.n_uses);
                T_EQ(s->n_reduced, s->plan->n_buckets);
            }
            end_scene(s);
        }
}

/* However many shards there are, none too: workers make the same moves. */
T_CASE(the_order_does_not_depend_on_shards) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    T_OK(run_all(s, 3, -1));
    int n = s->n;
    s->run = 1;
    s->fail_at = n; /* nobody looks at places */
    T_OK(run_all(s, 1, -1));
    T_EQ(s->n, n);
    assert_memory_equal(s->order[0], s->order[1], (size_t)n * sizeof(int));
    s->n = 0;
    tti_traffic_begin(s->traffic, 0);
    s->n_shards = 0;
    T_OK(tti_traffic_finish(s->traffic));
    T_EQ(s->n, n);
    assert_memory_equal(s->order[0], s->order[1], (size_t)n * sizeof(int));
    end_scene(s);
}

T_CASE(a_shard_may_leave) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    for (int step = 0; step <= s->plan->shard.n_steps; step++) {
        s->fail_at = MAX_PLACES;
        T_OK(run_all(s, 2, step));
    }
    end_scene(s);
}

T_CASE(a_failure_ends_all_waits) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    int n_moves = s->params.n_uses + s->grads.n_uses;
    for (int i = 0; i < n_moves; i++) {
        s->fail_at = i;
        T_FAILS(run_all(s, 2, -1), TUTTI_E_PEER, "rank 3 is gone");
        T_EQ(s->n, i + 1); /* nothing is moved after it */
    }
    end_scene(s);
    tti_traffic_destroy(NULL);
}

/* One thread runs all shards, which all come to a stop before any waits there. */
static void run_in_turns(scene *s, int n_shards, const int *joins, int n_joins) {
    int n_steps = s->plan->shard.n_steps;
    s->n_shards = n_shards;
    s->n = 0;
    for (int b = 0; b < s->plan->n_buckets; b++) s->n_made[b] = 0;
    for (int i = 0; i < n_shards; i++) s->at[i] = 0;
    tti_traffic_begin(s->traffic, n_shards);
    for (int i = 0; i < n_shards; i++) tti_traffic_arrive(s->traffic, 0);
    for (int first = 0, last; first < n_steps; first = last) {
        last = tti_traffic_next_stop(s->traffic, first);
        bool is_join = false;
        for (int k = 0; k < n_joins; k++) {
            is_join |= joins[k] == first;
            assert_true(joins[k] <= first || joins[k] >= last);
        }
        tti_traffic_await(s->traffic, is_join ? last : first);
        for (int i = 0; i < n_shards; i++)
            for (int step = first; step < last; step++) {
                if (!is_join) do_step(s, i, step);
                s->at[i] = step + 1;
                tti_traffic_arrive(s->traffic, step + 1);
            }
    }
    T_OK(tti_traffic_finish(s->traffic));
}

static void remake(scene *s, tti_traffic_desc desc) {
    tti_traffic_destroy(s->traffic);
    desc.grads = &s->grads;
    desc.n_steps = s->plan->shard.n_steps;
    desc.core = -1;
    desc.fn = make_move;
    desc.user = s;
    T_OK(tti_traffic_create(&desc, &s->traffic));
}

T_CASE(shards_that_are_joined_take_turns) {
    T_UNUSED;
    for (int n_shards = 1; n_shards <= MAX_SHARDS; n_shards++)
        for (size_t bytes = 1; bytes <= 1 << 10; bytes *= 32) {
            scene *s = new_scene(net_lenet, bytes);
            int n = s->plan->shard.n_steps, joins[] = {1, n / 2, n / 2 + 1, n - 1};
            /* What a step of these makes, nobody would: parameters are all that is looked at. */
            tti_window grads = s->grads;
            s->grads = (tti_window){.plan = s->plan};
            remake(s, (tti_traffic_desc){.params = &s->params, .joins = joins, .n_joins = 4});
            for (int again = 0; again < 2; again++) run_in_turns(s, n_shards, joins, 4);
            T_EQ(s->n_wrong, 0);
            T_EQ(s->n_joined, 8);
            s->grads = grads;
            remake(s, (tti_traffic_desc){.params = &s->params});
            run_in_turns(s, n_shards, NULL, 0);
            T_EQ(s->n_wrong, 0);
            T_EQ(s->n, s->params.n_uses + s->grads.n_uses);
            end_scene(s);
        }
}

/* Each move belongs to one part: that in which its bucket is complete. */
T_CASE(parts_run_by_themselves) {
    T_UNUSED;
    scene *s = new_scene(net_lenet, 1);
    int n_steps = s->plan->shard.n_steps, n_moves = 0;
    int part_first[] = {0, n_steps / 3, n_steps / 3 * 2, n_steps};
    remake(s, (tti_traffic_desc){.part_first = part_first, .n_parts = 3});
    s->fail_at = MAX_PLACES; /* nobody looks at places */
    for (int p = 0; p < 3; p++) {
        int n_here = 0;
        for (int i = 0; i < s->grads.n_uses; i++)
            n_here +=
                s->grads.uses[i].last >= part_first[p] && s->grads.uses[i].last < part_first[p + 1];
        for (int n_shards = 0; n_shards <= 2; n_shards++) {
            s->n = s->n_shards = 0;
            s->n_wrong = 0;
            for (int b = 0; b < s->plan->n_buckets; b++) s->n_made[b] = 0;
            tti_traffic_begin_part(s->traffic, p, n_shards);
            for (int step = part_first[p]; step <= part_first[p + 1]; step++)
                for (int i = 0; i < n_shards; i++) tti_traffic_arrive(s->traffic, step);
            tti_traffic_await(s->traffic, part_first[p + 1]); /* of this part's moves alone */
            T_OK(tti_traffic_finish(s->traffic));
            T_EQ(s->n, n_here);
        }
        n_moves += n_here;
    }
    T_EQ(n_moves, s->grads.n_uses);
    end_scene(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_there_when_it_is_wanted),
        cmocka_unit_test(the_order_does_not_depend_on_shards),
        cmocka_unit_test(a_shard_may_leave),
        cmocka_unit_test(a_failure_ends_all_waits),
        cmocka_unit_test(shards_that_are_joined_take_turns),
        cmocka_unit_test(parts_run_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
