/* device_costs_test.c - queues beside the kernels: what is waited for, what is taken, what lies
 * there. */
#include "planner/device_costs.h"

#include <math.h>

#include "exec/program/collective.h"
#include "planner/predict.h"
#include "planner/scratch.h"
#include "planner/stage_sim.h"
#include "train/small_job.h"

typedef struct made {
    tutti_job *job;
    const tti_blueprint *b;
} made;

/* For devices that are not here. */
static made make_of(tutti_job *job, int n_workers) {
    made m = {.job = job};
    T_OK(tti_job_resolve(m.job, n_workers));
    T_OK(tti_blueprint_create_like(m.job, NULL, tti_planning_device(), NULL, &m.b));
    return m;
}

static made make(const char *first, const char *second) {
    return make_of(SMALL_JOB("model.hidden=[64,64]", "parallel.workers=2", first, second), 2);
}

static made make_gpt(void) {
    return make_of(SMALL_JOB("model.name=gpt2", "model.layers=1", "model.heads=2", "model.width=16",
                             "data.format=random_tokens", "data.vocabulary=16", "data.context=16"),
                   1);
}

static void unmake(made *m) {
    tti_blueprint_destroy(m->b);
    tutti_job_destroy(m->job);
}

/* A second for each operation or byte of a collective, or what is said. */
static tti_calibration calibration(double flops, double tp_bytes_s) {
    return (tti_calibration){.n_cores = 2,
                             .n_ranks = 2,
                             .is_device = true,
                             .flops = flops,
                             .bytes = 1e30,
                             .sum_latency_s = 1e-6,
                             .sum_bytes_s = 1e6,
                             .tp = {.latency_s = 1e-3, .bytes_s = tp_bytes_s}};
}

static double all_exchanges_s(const tti_calibration *c, const tti_program *program) {
    double s = 0;
    for (int i = 0; i < program->n_steps; i++) {
        double sent = tti_collective_bytes(program->steps[i], 2);
        if (sent >= 0) s += c->tp.latency_s + sent / c->tp.bytes_s;
    }
    return s;
}

/* Kernels that take no time hide nothing; slow ones hide collectives whose result is read later. */
T_CASE(collectives) {
    T_UNUSED;
    made m = make("parallel.tensor=2", "parallel.shards=1");
    const tti_program *program = &tti_blueprint_plan(m.b, 0)->shard;
    tti_calibration c = calibration(1e3, 1e5);
    double all = all_exchanges_s(&c, program), before = -1;
    tti_overlap b;
    assert_true(all > 0);
    T_OK(tti_overlapped_collectives(&c, NULL, program, 2, 0, &b));
    T_NEAR(b.exposed_s / all, 1, 1e-9);
    assert_true(b.slowdown_s < 1e-12);
    for (double second = 1; second > 1e-9; second /= 10) { /* ever faster kernels hide ever less */
        T_OK(tti_overlapped_collectives(&c, NULL, program, 2, second, &b));
        assert_true(b.exposed_s > before - 1e-9 && b.exposed_s < all + 1e-9);
        before = b.exposed_s;
    }
    T_OK(tti_overlapped_collectives(&c, NULL, program, 2, 1, &b));
    assert_true(b.exposed_s > 0 && b.exposed_s < all);
    double hidden = all - b.exposed_s; /* takes multiprocessors, however fast their memory is */
    assert_true(b.slowdown_s > 0.2 * hidden && b.slowdown_s < 0.6 * hidden);
    unmake(&m);
}

/* Terms and rows of norms that travel beside products: less is waited for, and less is taken. */
T_CASE(exchanges_beside_products) {
    T_UNUSED;
    made m =
        make_of(SMALL_JOB("model.name=gpt2", "model.layers=2", "model.heads=4", "model.width=1024",
                          "model.dropout=0", "data.context=1024", "data.format=random_tokens",
                          "data.vocabulary=64", "train.batch=4", "train.precision=bf16",
                          "parallel.shards=1", "train.low_precision_residual=true",
                          "parallel.workers=2", "parallel.tensor=2"),
                2);
    const tti_program *program = &tti_blueprint_plan(m.b, 0)->shard;
    const tti_device_ops *ops = tti_planning_device()->device;
    tti_calibration c = calibration(5e14, 4e11);
    tti_overlap beside, alone;
    c.bytes = 3e12, c.message = (tti_link_speed){1e-5, 4e11}, c.tp.latency_s = 0;
    T_OK(tti_overlapped_collectives(&c, NULL, program, 2, 1, &alone));
    T_OK(tti_overlapped_collectives(&c, ops, program, 2, 1, &beside));
    assert_true(beside.exposed_s > 0 && beside.exposed_s < 0.7 * alone.exposed_s);
    T_OK(tti_overlapped_collectives(&c, ops, program, 2, 0, &beside)); /* nothing to hide in */
    T_OK(tti_overlapped_collectives(&c, NULL, program, 2, 0, &alone));
    T_NEAR(beside.exposed_s / alone.exposed_s, 1, 1e-9);
    unmake(&m);
}

/* The last bucket is complete when all is computed; those before it are hidden, but not free. */
T_CASE(sums) {
    T_UNUSED;
    made one = make("parallel.shards=2", "parallel.bucket_mb=64"),
         many = make("parallel.shards=2", "parallel.bucket_mb=0.001");
    tti_calibration c = calibration(1e3, 1e5);
    double sent = (double)one.b->plan->n_flat * sizeof(float), all = 1e-6 + sent / 1e6;
    assert_true(one.b->plan->n_buckets == 1 && many.b->plan->n_buckets > 1);
    tti_overlap b = tti_overlapped_sums(&c, one.b->plan, 100, sent);
    T_NEAR(b.exposed_s / all, 1, 1e-9);
    assert_true(b.slowdown_s < 1e-9);
    b = tti_overlapped_sums(&c, many.b->plan, 100, sent);
    assert_true(b.exposed_s > 0 && b.exposed_s < 0.99 * all && b.slowdown_s > 0);
    b = tti_overlapped_sums(&c, many.b->plan, 0, sent); /* nothing to hide behind */
    T_NEAR(b.exposed_s / (many.b->plan->n_buckets * 1e-6 + sent / 1e6), 1, 1e-9);
    unmake(&one), unmake(&many);
}

T_CASE(fetches) {
    T_UNUSED;
    tti_calibration c = calibration(1e3, 1e5);
    tti_overlap hidden = tti_overlapped_gathers(&c, 4, 4e6, 100),
                late = tti_overlapped_gathers(&c, 4, 4e6, 1);
    T_NEAR(hidden.exposed_s, 1 + 1e-6, 1e-9); /* the first of four */
    T_NEAR(late.exposed_s, 3 + 4e-6, 1e-9);
    assert_true(hidden.slowdown_s > late.slowdown_s && late.slowdown_s > 0);
    hidden = tti_overlapped_gathers(&c, 0, 0, 1);
    assert_true(hidden.exposed_s == 0 && hidden.slowdown_s == 0);
}

/* Constants and results of a shard that is under way, in training and in evaluation. */
static double own_bytes(const tti_plan *plan) {
    return (double)(plan->shard.const_bytes + plan->shard.result_bytes + plan->eval.const_bytes +
                    plan->eval.result_bytes);
}

/* Two sets of inputs for each shard; two halves of the longest value in a collective of tensor
 * ranks. */
T_CASE(memory) {
    T_UNUSED;
    made whole = make("parallel.shards=4", "data.resident=no"),
         sharded = make("parallel.tensor=2", "parallel.shards=4");
    const double rows = 8, shard = rows * (784 + 1) * 4; /* images and labels */
    T_NEAR(tti_device_extra_bytes(whole.b->plan, 2), 2 * 2 * shard + own_bytes(whole.b->plan), 0);
    assert_true(tti_device_resident_bytes(whole.b) == 0);
    const tti_plan *plan = tti_blueprint_plan(sharded.b, 0);
    double beside = tti_device_extra_bytes(plan, 4);
    assert_true(beside > 2 * 4 * shard && beside < 3 * 4 * shard);
    unmake(&whole), unmake(&sharded);
}

/* A sent value stays in place for each shard under way: two in the first stage of two, one in the
 * last, which has buffers for values of two shards, and two in evaluation. */
T_CASE(memory_of_stages) {
    T_UNUSED;
    made m = make("parallel.pipeline=2", "parallel.shards=8");
    const tti_plan *first = tti_blueprint_plan(m.b, 0), *last = tti_blueprint_plan(m.b, 1);
    const tti_stage_boundaries *train = &first->stages->train, *eval = &first->stages->eval;
    double there = 0, back = 0, looked_at = 0;
    for (int i = 0; i < train->n; i++)
        *(train->of[i].to > train->of[i].from + 1 || train->of[i].from >= 2 ? &back : &there) +=
            (double)train->of[i].n_bytes;
    for (int i = 0; i < eval->n; i++) looked_at += (double)eval->of[i].n_bytes;
    assert_true(there > 0 && back > 0 && looked_at > 0);
    assert_int_equal(tti_device_in_flight(first, 8), 2);
    assert_int_equal(tti_device_in_flight(last, 8), 1);
    assert_true((double)first->shard.result_bytes >= there);
    assert_true(tti_device_extra_bytes(first, 8) >= 2 * own_bytes(first) + back);
    assert_true(tti_device_extra_bytes(last, 8) >= own_bytes(last) + 2 * there + 2 * looked_at);
    unmake(&m);
}

/* A step on devices: what sums wait for is in it, and each further shard is added once. */
T_CASE(steps_on_devices) {
    T_UNUSED;
    tti_calibration c;
    tti_prediction plain, wide, sharded;
    made m = make("parallel.shards=4", "data.resident=no");
    T_OK(tti_calibration_of("h200", 2, &c));
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    T_OK(tti_predict(m.b, &scheme, &c, &plain));
    double flat = (double)m.b->plan->n_flat;
    T_NEAR(plain.add_s / (flat * 12 / c.bytes), 1, 1e-9);
    assert_true(plain.reduce_s > 2 * c.sum_latency_s && plain.model_parallel_s == 0);
    c.sum_bytes_s /= 100;
    T_OK(tti_predict(m.b, &scheme, &c, &wide));
    assert_true(wide.reduce_s > plain.reduce_s);
    scheme.zero = 3;
    T_OK(tti_predict(m.b, &scheme, &c, &sharded));
    assert_true(sharded.reduce_s > wide.reduce_s && sharded.update_s < wide.update_s);
    unmake(&m);
}

static double predicted_s(const char *layers, const char *batch, int n, const char *const *keys) {
    char workers[32];
    tti_calibration c;
    tti_prediction p;
    snprintf(workers, sizeof workers, "parallel.workers=%d", n);
    made m = make_of(
        SMALL_JOB("model.name=gpt2", "model.width=1600", "model.heads=20", "model.context=1024",
                  "data.format=random_tokens", "data.context=1024", "data.vocabulary=50304",
                  "train.precision=bf16", "train.low_precision_residual=true", "train.clip_norm=1",
                  "optimizer.name=adamw", layers, batch, workers, keys[0], keys[1], keys[2]),
        n);
    T_OK(tti_calibration_of("h200", n, &c));
    tti_calibration_for(&m.b->config, &c);
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    T_OK(tti_predict(m.b, &scheme, &c, &p));
    unmake(&m);
    return p.step_s;
}

/* Layers of GPT-2 1.5B, as measured: docs/lab/2026-11-28-tensor-four.md. */
T_CASE(steps_of_tensor_ranks) {
    T_UNUSED;
    const char *const two[] = {"parallel.tensor=2", "parallel.shards=1", "train.recompute=none"},
                      *const four[] = {"parallel.tensor=4", "parallel.shards=1",
                                       "train.recompute=none"},
                      *const data[] = {"parallel.zero=1", "parallel.shards=4",
                                       "train.recompute=none"};
    T_NEAR(predicted_s("model.layers=6", "train.batch=32", 2, two) / 55.0e-3, 1, 0.05);
    T_NEAR(predicted_s("model.layers=10", "train.batch=8", 2, two) / 22.2e-3, 1, 0.05);
    double ratio = predicted_s("model.layers=48", "train.batch=64", 4, four) /
                   predicted_s("model.layers=48", "train.batch=64", 4, data);
    T_NEAR(ratio / (436.0 / 320.0), 1, 0.05);
}

/* Copies of stages that reach each other add beside the kernels; others through the host. */
T_CASE(stages_that_meet_or_not) {
    T_UNUSED;
    tti_calibration c;
    tti_prediction direct, host_staged;
    made m = make("parallel.workers=4", "parallel.pipeline=2");
    T_OK(tti_calibration_of("h200", 4, &c));
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    c.has_p2p = true;
    T_OK(tti_predict(m.b, &scheme, &c, &direct));
    c.has_p2p = false;
    T_OK(tti_predict(m.b, &scheme, &c, &host_staged));
    size_t flat = 0;
    for (int i = 0; i < 2; i++) flat = TTI_MAX(flat, tti_blueprint_plan(m.b, i)->n_flat);
    T_NEAR(host_staged.reduce_s / ((double)flat * sizeof(float) * c.host_staged_s_per_byte), 1,
           1e-9);
    assert_true(direct.reduce_s > 0 && direct.bubble > 0 && direct.model_parallel_s > 0);
    unmake(&m);
}

/* The first of two stages has two shards under way, each with the scratch of its kernels. */
T_CASE(scratch_of_stages) {
    T_UNUSED;
    tti_calibration c;
    tti_prediction none, some;
    made m = make("parallel.pipeline=2", "parallel.shards=8");
    T_OK(tti_calibration_of("h200", 2, &c));
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    double whole = tti_program_cost_s(&c, &m.b->plan->shard), most = 0;
    for (int i = 0; i < 2; i++)
        most = fmax(most, tti_program_cost_s(&c, &tti_blueprint_plan(m.b, i)->shard));
    c.stored_scratch = 0; /* a micro-batch group ran, and no kernel was asked */
    c.micro_groups[c.n_micro_groups++] = (tti_group_cost){
        .rows = m.b->rows_per_shard, .recompute = "none", .cost_s = whole, .s = whole};
    T_OK(tti_predict(m.b, &scheme, &c, &none));
    c.micro_groups[0].hidden_bytes = 1e6;
    T_OK(tti_predict(m.b, &scheme, &c, &some));
    T_NEAR((some.first_bytes - none.first_bytes) / (2e6 * most / whole), 1, 1e-9);
    unmake(&m);
}

/* Two workers of one device take turns on it, and add through the host; in parts parameters come
 * there once a step, too. */
T_CASE(workers_that_share_a_device) {
    T_UNUSED;
    tti_calibration c;
    tti_prediction own, shared, sharded;
    made m = make("parallel.shards=2", "data.resident=no");
    T_OK(tti_calibration_of("h200", 2, &c));
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    T_OK(tti_predict(m.b, &scheme, &c, &own));
    c.n_cores = 1;
    T_OK(tti_predict(m.b, &scheme, &c, &shared));
    T_NEAR(shared.compute_s / own.compute_s, 2, 1e-9);
    T_NEAR(shared.reduce_s / ((double)m.b->plan->n_flat * sizeof(float) * c.host_staged_s_per_byte),
           1, 1e-9);
    scheme.zero = 3;
    T_OK(tti_predict(m.b, &scheme, &c, &sharded));
    T_NEAR(sharded.reduce_s / shared.reduce_s, 2, 1e-9);
    unmake(&m);
}

/* The same program with half of the rate for attention costs more by half of its attention again.
 */
T_CASE(attention_is_slower) {
    T_UNUSED;
    made m = make_gpt();
    tti_calibration c = calibration(1e9, 1);
    double whole = tti_program_cost_s(&c, &m.b->plan->shard), rates[] = {0.5, 0.25}, cost[2];
    for (int i = 0; i < 2; i++) {
        c.attention_share = rates[i];
        cost[i] = tti_program_cost_s(&c, &m.b->plan->shard) - whole;
    }
    assert_true(cost[0] > 0 && cost[0] < whole);
    T_NEAR(cost[1] / cost[0], 3, 1e-9);
    unmake(&m);
}

static int count_padded(const tti_calibration *c, const tti_program *program) {
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) n += tti_is_padded(c, program->steps[s]);
    return n;
}

/* 64 results of three channels have a kernel of their own; 32, as of half the layer, are made as 64
 * of 64 channels, which are scratch too. */
T_CASE(images_of_few_channels) {
    T_UNUSED;
    made m = make_of(SMALL_JOB("model.name=resnet18", "data.format=random_images",
                               "data.image_size=32", "train.batch=4", "train.precision=bf16",
                               "parallel.workers=2", "parallel.tensor=2", "parallel.shards=1"),
                     2);
    tti_calibration c;
    T_OK(tti_calibration_of("h200", 2, &c));
    const tti_plan *sharded = tti_blueprint_plan(m.b, 0);
    assert_int_equal(count_padded(&c, &m.b->plan->shard), 0);
    assert_int_equal(count_padded(&c, &sharded->shard), 2); /* forward, and gradient of weights */
    c.bytes = 1e30, c.kernel_overhead_s = 0;
    double padded = tti_program_cost_s(&c, &sharded->shard), outputs = 4 * 16 * 16 * 64;
    double scratch = tti_scratch_bytes(&c, sharded, &(tti_group_cost){.cost_s = 1}, 1);
    c.tile = 0;
    double plain = tti_program_cost_s(&c, &sharded->shard);
    double more = 2 * 2 * outputs * 49 * (64 - 3 / 2.0); /* both, of an addition and a product */
    T_NEAR((padded - plain) * c.flops / more, 1, 1e-6);
    T_NEAR(scratch - c.stored_scratch, 4 * 8 * 32 * 32 * 2,
           0); /* evaluation's: training has more */
    unmake(&m);
}

/* Kernels of stages are no recording. */
T_CASE(stages_are_queued) {
    T_UNUSED;
    made m = make("parallel.pipeline=2", "parallel.shards=8");
    tti_calibration c;
    double *recorded, *queued, more = 0;
    int n_steps = 0;
    T_OK(tti_calibration_of("h200", 2, &c));
    c.launch_overhead_s = 0;
    T_OK(tti_stage_costs(m.b, &c, &recorded));
    c.launch_overhead_s = 1;
    T_OK(tti_stage_costs(m.b, &c, &queued));
    for (int i = 0; i < 4; i++) more += queued[i] - recorded[i];
    for (int i = 0; i < 2; i++) n_steps += tti_blueprint_plan(m.b, i)->shard.n_steps;
    T_NEAR(more, n_steps, 1e-6);
    free(recorded);
    free(queued);
    unmake(&m);
}

/* Too few heads for the multiprocessors: a square for each, twice. */
T_CASE(squares_of_attention) {
    T_UNUSED;
    made m = make_gpt();
    tti_calibration c = {.is_device = true, .stored_scratch = 1};
    double n = (double)m.b->rows_per_shard * 2;
    T_NEAR(tti_scratch_bytes(&c, m.b->plan, &(tti_group_cost){.cost_s = 1}, 1), 2 * n * 16 * 16, 0);
    unmake(&m);
}

/* Two numbers of each row and 192 of 33,000 words, and four of the row. */
T_CASE(rows_of_a_head_without_logits) {
    T_UNUSED;
    made m = make_of(SMALL_JOB("model.name=gpt2", "model.layers=1", "model.heads=2",
                               "model.width=512", "data.format=random_tokens",
                               "data.vocabulary=33000", "data.context=16", "train.precision=bf16"),
                     1);
    tti_calibration c = {.is_device = true, .stored_scratch = 1};
    double n = (double)m.b->rows_per_shard * 16;
    T_NEAR(tti_scratch_bytes(&c, m.b->plan, &(tti_group_cost){.cost_s = 1}, 1),
           (4 + 2 * 172) * n * 4, 0);
    unmake(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives),
        cmocka_unit_test(exchanges_beside_products),
        cmocka_unit_test(sums),
        cmocka_unit_test(fetches),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_stages),
        cmocka_unit_test(steps_on_devices),
        cmocka_unit_test(steps_of_tensor_ranks),
        cmocka_unit_test(stages_that_meet_or_not),
        cmocka_unit_test(attention_is_slower),
        cmocka_unit_test(scratch_of_stages),
        cmocka_unit_test(workers_that_share_a_device),
        cmocka_unit_test(images_of_few_channels),
        cmocka_unit_test(stages_are_queued),
        cmocka_unit_test(squares_of_attention),
        cmocka_unit_test(rows_of_a_head_without_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
