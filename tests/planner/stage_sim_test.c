/* stage_sim_test.c - schedules of pipelines on paper: without messages the known bubble, with them
 * what they add. */
#include "planner/stage_sim.h"

#include "planner/predict.h"
#include "planner/step_cost.h"
#include "train/small_job.h"

enum { STAGES = 4, BYTES = 1000 };

/* Each stage sends to the next, and back; message i goes from schedule slot i to slot i + 1. */
static tti_stages chain(tti_stage_boundary of[2 * STAGES]) {
    tti_stages s = {.n_stages = STAGES, .n_chunks = 1, .train = {.of = of}};
    for (int i = 0; i + 1 < 2 * STAGES; i++)
        if (i != STAGES - 1) of[s.train.n++] = (tti_stage_boundary){i, i + 1, BYTES};
    return s;
}

/* A third of each stage's time is forward.  tti_stage_sim_fini frees the result. */
static tti_stage_sim sim(const double cost[STAGES], int n_micro_groups, double latency_s,
                         double s_of_byte) {
    tti_stage_boundary of[2 * STAGES];
    tti_stages s = chain(of);
    double slot_s[2 * STAGES];
    tti_stage_sim seen;
    for (int i = 0; i < STAGES; i++) {
        slot_s[i] = cost[i] / 3;
        slot_s[2 * STAGES - 1 - i] = cost[i] * 2 / 3;
    }
    T_OK(tti_stage_sim_run(&(tti_stage_sim_desc){.stages = &s,
                                                 .n_micro_groups = n_micro_groups,
                                                 .n_compute_threads = 2,
                                                 .slot_s = slot_s,
                                                 .latency_s = latency_s,
                                                 .s_per_byte = s_of_byte},
                           &seen));
    return seen;
}

T_CASE(equal_stages) {
    T_UNUSED;
    static const double one[STAGES] = {1, 1, 1, 1};
    for (int m = 1; m <= 16; m *= 2) {
        tti_stage_sim seen = sim(one, m, 0, 0);
        T_NEAR(seen.step_s, m + STAGES - 1, 1e-9);
        T_NEAR(seen.bubble, (double)(STAGES - 1) / (m + STAGES - 1), 1e-9);
        T_NEAR(seen.busy_s[2], m, 1e-9);
        tti_stage_sim_fini(&seen);
    }
}

/* The executor's own figure for stages of unequal cost. */
T_CASE(as_the_executor_says) {
    T_UNUSED;
    static const double cost[STAGES] = {1, 3, 0.5, 2};
    double bubble;
    tti_stage_sim seen = sim(cost, 8, 0, 0);
    T_OK(tti_pipe_bubble(
        &(tti_pipe_shape){.n_stages = STAGES, .n_chunks = 1, .n_micro_groups = 8, .training = true},
        cost, &bubble));
    T_NEAR(seen.bubble, bubble, 1e-9);
    tti_stage_sim_fini(&seen);
}

/* A micro-batch group alone waits for every message: there and back, of both of its shards. */
T_CASE(messages) {
    T_UNUSED;
    static const double one[STAGES] = {1, 1, 1, 1};
    tti_stage_boundary of[2 * STAGES];
    tti_stages s = chain(of);
    tti_stage_sim seen = sim(one, 1, 0.25, 1e-4);
    T_NEAR(seen.step_s, STAGES + 2 * (STAGES - 1) * (0.25 + 0.2), 1e-9);
    tti_stage_sim_fini(&seen);
    T_NEAR(tti_stage_bytes(&s, 1, 2), BYTES, 0);
    T_NEAR(tti_stage_bytes(&s, 2, 1), BYTES, 0);
    T_NEAR(tti_stage_bytes(&s, 0, 2), 0, 0);
}

/* For a job, the costs of all stages add up to about the whole and to its prediction. */
T_CASE(of_a_job) {
    T_UNUSED;
    tutti_job *job =
        SMALL_JOB("parallel.workers=2", "parallel.pipeline=2", "model.hidden=[784,784]");
    const tti_blueprint *b;
    T_OK(tti_job_resolve(job, 4));
    T_OK(tti_blueprint_create(job, &b));
    tti_calibration c = {.n_cores = 4,
                         .flops = 1e9,
                         .bytes = 1e9,
                         .add_s = 1e-9,
                         .sum_latency_s = 1e-5,
                         .sum_bytes_s = 1e9,
                         .n_ranks = 2};
    double *slot_s, all = 0;
    T_OK(tti_stage_costs(b, &c, &slot_s));
    for (int i = 0; i < 4; i++) {
        assert_true(slot_s[i] > 0);
        all += slot_s[i];
    }
    free(slot_s);
    T_NEAR(all / tti_program_cost_s(&c, &b->plan->shard), 1, 0.1);
    tti_scheme scheme = tti_scheme_of(&b->config);
    tti_prediction p;
    T_OK(tti_predict(b, &scheme, &c, &p));
    assert_true(p.bubble > 0 && p.bubble < 1 && p.bubble_s > 0);
    assert_true(p.model_parallel_s > 1e-5); /* a message at least is waited for */
    double bytes = tti_stage_bytes(tti_blueprint_plan(b, 0)->stages, 0, 1);
    T_NEAR(bytes, 8 * 784 * sizeof(float), 0); /* one layer's values for the rows of a shard */
    T_NEAR(p.sent_bytes, 4 * bytes, 0);
    assert_true(p.reduce_s == 0 && p.step_s > p.compute_s + p.bubble_s);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

/* The reported segments. */
typedef struct heard {
    int n[STAGES];
    double end_s[STAGES], busy_s[STAGES];
} heard;

static void hear(void *user, const tti_stage_segment *segment) {
    heard *h = user;
    int i = segment->stage;
    assert_true(segment->begin_s >= h->end_s[i]);
    h->end_s[i] = segment->begin_s + segment->s;
    h->busy_s[i] += segment->s;
    h->n[i]++;
}

/* Every segment of every stage is reported, in order, and the segments add up to the whole. */
T_CASE(segments) {
    T_UNUSED;
    static const double slot_s[2 * STAGES] = {1, 2, 1, 1, 2, 2, 3, 2};
    tti_stage_boundary of[2 * STAGES];
    tti_stages s = chain(of);
    tti_stage_sim seen;
    heard h = {0};
    T_OK(tti_stage_sim_run(&(tti_stage_sim_desc){.stages = &s,
                                                 .n_micro_groups = 6,
                                                 .n_compute_threads = 1,
                                                 .slot_s = slot_s,
                                                 .on_segment = hear,
                                                 .user = &h},
                           &seen));
    for (int i = 0; i < STAGES; i++) {
        T_EQ(h.n[i], 12);
        T_NEAR(h.end_s[i], seen.end_s[i], 0);
        T_NEAR(h.busy_s[i], seen.busy_s[i], 0);
    }
    tti_stage_sim_fini(&seen);
}

/* What remains of the list of each stage: its RUN instructions. */
typedef struct runs {
    const tti_step_program *list[STAGES];
    int next[STAGES];
} runs;

static void is_next_run(void *user, const tti_stage_segment *segment) {
    runs *r = user;
    const tti_step_program *list = r->list[segment->stage];
    int *next = &r->next[segment->stage];
    while (list->instrs[*next].kind != TTI_RUN) ++*next;
    T_EQ(list->instrs[*next].micro_group, segment->action.micro_group);
    T_EQ(list->instrs[*next].segment, segment->action.segment);
    ++*next;
}

/* The simulated schedule is that of the lists which the stages execute. */
T_CASE(segments_are_those_of_the_lists) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2", "parallel.pipeline=2", "parallel.shards=8",
                               "model.hidden=[784,784]");
    const tti_blueprint *b;
    tti_step_lists *lists[2];
    runs r = {0};
    T_OK(tti_job_resolve(job, 4));
    T_OK(tti_blueprint_create(job, &b));
    for (int i = 0; i < 2; i++) {
        const tti_step_worker worker = {
            .b = b, .position = i, .n_ranks = 1, .n_shards = 8, .n_compute_threads = 1};
        T_OK(tti_step_worker_lists(&worker, &lists[i]));
        r.list[i] = tti_step_lists_program(lists[i], TTI_FORM_STEP);
    }
    static const double slot_s[4] = {1, 1, 2, 2};
    tti_stage_sim simulated;
    T_OK(tti_stage_sim_run(&(tti_stage_sim_desc){.stages = tti_blueprint_plan(b, 0)->stages,
                                                 .n_micro_groups = 8,
                                                 .n_compute_threads = 1,
                                                 .slot_s = slot_s,
                                                 .on_segment = is_next_run,
                                                 .user = &r},
                           &simulated));
    tti_stage_sim_fini(&simulated);
    for (int i = 0; i < 2; i++) {
        for (; r.next[i] < r.list[i]->n_instrs; r.next[i]++)
            assert_true(r.list[i]->instrs[r.next[i]].kind != TTI_RUN); /* none is left */
        tti_step_lists_destroy(lists[i]);
    }
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stages),
        cmocka_unit_test(as_the_executor_says),
        cmocka_unit_test(messages),
        cmocka_unit_test(segments),
        cmocka_unit_test(segments_are_those_of_the_lists),
        cmocka_unit_test(of_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
