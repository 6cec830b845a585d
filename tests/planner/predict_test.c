/* predict_test.c - the parts of a step, each against its formula, from a calibration made by hand.
 */
#include "planner/predict.h"

#include "data/dataset.h"
#include "train/setup/worker_exec.h"
#include "train/small_job.h"
#include "tutti/planner.h"
#include "tutti/train.h"

enum { CORES = 4 };

/* A micro-batch group of 10 ms, an update of 2 by all cores, a nanosecond to add an element. */
static tti_calibration calibration(const tti_blueprint *b, int n_ranks) {
    tti_calibration c = {.n_cores = CORES,
                         .flops = 1e9,
                         .bytes = 1e9,
                         .add_s = 1e-9,
                         .sum_latency_s = 1e-5,
                         .sum_bytes_s = 1e9,
                         .base_bytes = 5e6,
                         .n_ranks = n_ranks,
                         .n_micro_groups = 1};
    c.micro_groups[0] = (tti_group_cost){.rows = b->rows_per_shard,
                                         .recompute = "none",
                                         .cost_s = tti_program_cost_s(&c, &b->plan->shard),
                                         .s = 0.010,
                                         .update_s = 0.002,
                                         .load_s = 1e-5,
                                         .hidden_bytes = 1000};
    return c;
}

typedef struct made {
    tutti_job *job;
    const tti_blueprint *b;
    tti_prediction p;
} made;

/* copies: of parameters and state, "one" for all threads or "each" its own. */
static made predict_with(const char *copies, const char *workers, const char *more) {
    made m = {.job = SMALL_JOB("parallel.workers=2", workers, more, copies)};
    T_OK(tti_job_resolve(m.job, CORES));
    T_OK(tti_blueprint_create(m.job, &m.b));
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    tti_calibration c = calibration(m.b, scheme.data);
    T_OK(tti_predict(m.b, &scheme, &c, &m.p));
    return m;
}

static made predict(const char *workers, const char *more) {
    return predict_with("parallel.copies=each", workers, more);
}

static void unmake(made *m) {
    tti_blueprint_destroy(m->b);
    tutti_job_destroy(m->job);
}

/* Workers, shards, and how many micro-batch groups follow each other. */
T_CASE(micro_groups_and_cores) {
    T_UNUSED;
    static const struct {
        const char *workers, *shards;
        double micro_groups, crowd;
    } rows[] = {{"parallel.workers=1", "parallel.shards=4", 1, 1},
                {"parallel.workers=1", "parallel.shards=8", 2, 1},
                {"parallel.workers=2", "parallel.shards=8", 2, 1},
                {"parallel.workers=4", "parallel.shards=8", 2, 1},
                {"parallel.workers=8", "parallel.shards=8", 1, 2}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        made m = predict(rows[i].workers, rows[i].shards);
        assert_true(m.p.is_measured);
        T_NEAR(m.p.compute_s / (0.010 * rows[i].micro_groups * rows[i].crowd), 1, 1e-9);
        T_NEAR(m.p.step_s / (m.p.compute_s + m.p.add_s + m.p.reduce_s + m.p.update_s + m.p.load_s),
               1, 1e-9);
        unmake(&m);
    }
}

T_CASE(sums_and_update) {
    T_UNUSED;
    made one = predict("parallel.workers=1", "parallel.shards=4"),
         two = predict("parallel.workers=2", "parallel.shards=4"),
         parts = predict("parallel.workers=2", "parallel.zero=1"),
         common = predict_with("parallel.copies=one", "parallel.workers=2", "parallel.shards=4");
    double bytes = (double)two.b->plan->n_flat * sizeof(float);
    int n_calls = two.b->plan->n_buckets + 1;
    assert_true(one.p.reduce_s == 0 && one.p.sent_bytes == 0);
    T_NEAR(two.p.reduce_s / (n_calls * 1e-5 + bytes / 1e9), 1, 1e-9);
    T_NEAR(two.p.sent_bytes / bytes, 1, 1e-9);
    T_NEAR(one.p.add_s / (3 * (double)one.b->plan->n_flat * 1e-9 / 4), 1, 1e-9);
    T_NEAR(one.p.update_s, 0.002, 1e-12);
    T_NEAR(two.p.update_s / 0.004, 1, 1e-9); /* each makes all of it, with half of the cores */
    T_NEAR(parts.p.update_s / 0.002, 1, 1e-9);
    T_NEAR(common.p.update_s / 0.002, 1,
           1e-9); /* each worker updates a partition, and none is fetched */
    T_NEAR(common.p.sent_bytes / bytes, 0.5, 1e-9);
    assert_true(common.p.host_bytes < two.p.host_bytes - bytes);
    T_NEAR(two.p.load_s / (32 * 1e-5 / CORES), 1, 1e-9);
    unmake(&one), unmake(&two), unmake(&parts), unmake(&common);
}

/* Less where gradients are rounded, chosen or averaged now and then.  ZeRO-3 sends no more where
 * parameters stay gathered from the forward to the backward pass. */
T_CASE(what_travels) {
    T_UNUSED;
    static const struct {
        const char *more[3];
        double least, most; /* of an all-reduce's bytes */
    } rows[] = {
        {{"parallel.copies=each"}, 1, 1},
        {{"parallel.copies=one"}, 0.5, 0.5},
        {{"parallel.zero=1"}, 1, 1},
        {{"parallel.zero=3", "parallel.shards=2"}, 1, 1},
        {{"parallel.mode=fast", "parallel.compress=bf16"}, 0.5, 0.5},
        {{"parallel.mode=fast", "parallel.compress=bf16", "parallel.zero=1"}, 0.75, 0.75},
        {{"parallel.mode=fast", "parallel.compress=topk"}, 0.001, 0.1},
        {{"parallel.mode=fast", "parallel.compress=topk", "parallel.zero=1"}, 0.501, 0.6},
        {{"parallel.mode=fast", "parallel.compress=powersgd", "parallel.rank=1"}, 0.01, 0.3},
        {{"parallel.mode=fast", "parallel.sync=local", "parallel.average_every=4"}, 0.25, 0.25}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const char *const *more = rows[i].more;
        const char *second = more[1] ? more[1] : "parallel.workers=2";
        made m = predict_with(more[2] ? more[2] : "parallel.workers=2", more[0], second);
        double sent = m.p.sent_bytes / ((double)m.b->plan->n_flat * sizeof(float));
        assert_true(sent > rows[i].least - 1e-9 && sent < rows[i].most + 1e-9);
        unmake(&m);
    }
}

/* The bytes and calls of the list that a worker executes: with ZeRO-3 some buckets are gathered for
 * the forward and again for the backward pass, others once. */
T_CASE(gathers_of_the_list) {
    T_UNUSED;
    made m = {.job = SMALL_JOB("parallel.workers=2", "parallel.zero=3", "parallel.shards=2",
                               "model.hidden=[512,512,512,512]", "parallel.bucket_mb=0.02")};
    T_OK(tti_job_resolve(m.job, CORES));
    T_OK(tti_blueprint_create(m.job, &m.b));
    tti_exec_desc desc = tti_worker_exec_desc(m.b);
    tti_step_lists *lists;
    desc.n_compute_threads = 2;
    T_OK(tti_step_lists_create(&(tti_list_desc){.exec = &desc, .n_ranks = 2}, &lists));
    const tti_step_program *list = tti_step_lists_program(lists, TTI_FORM_STEP);
    double gathered = 0, n_calls = 0, flat = (double)m.b->plan->n_flat;
    for (int i = 0; i < list->n_instrs; i++) {
        const tti_instr *in = &list->instrs[i];
        if (in->kind == TTI_ALL_GATHER) gathered += (double)(in->range.last - in->range.first);
        n_calls += in->axis == TTI_AXIS_DATA || in->axis == TTI_AXIS_ALL;
    }
    tti_step_lists_destroy(lists);
    assert_true(gathered > 1.1 * flat && gathered < 1.9 * flat);
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    tti_calibration c = calibration(m.b, 2);
    T_OK(tti_predict(m.b, &scheme, &c, &m.p));
    double bytes = 0.5 * (flat + gathered) * 2 * sizeof(float) / 2;
    T_NEAR(m.p.sent_bytes / bytes, 1, 1e-9);
    T_NEAR(m.p.reduce_s / (n_calls * 1e-5 + bytes / 1e9), 1, 1e-9);
    unmake(&m);
}

/* Half the samples in a shard are half the work, where only the whole was measured. */
T_CASE(costs_stand_for_what_was_not_measured) {
    T_UNUSED;
    made m = predict("parallel.workers=1", "parallel.shards=4");
    tti_calibration c = calibration(m.b, 1);
    bool is_measured;
    tti_group_cost half =
        tti_calibrated_micro_group(&c, 4, "none", c.micro_groups[0].cost_s / 2, &is_measured);
    assert_true(!is_measured);
    T_NEAR(half.s / 0.005, 1, 1e-9);
    half = tti_calibrated_micro_group(&c, c.micro_groups[0].rows, "none", c.micro_groups[0].cost_s,
                                      &is_measured);
    assert_true(is_measured);
    unmake(&m);
}

T_CASE(memory) {
    T_UNUSED;
    made one = predict("parallel.workers=1", "parallel.shards=4"),
         four = predict("parallel.workers=4", "parallel.shards=4");
    double params = (double)one.b->plan->n_flat * sizeof(float);
    assert_true(four.p.worker_bytes > 2 * params);
    double batches = 784 * sizeof(float) * 32 * (double)(four.b->config.data.prefetch + 1);
    double drawn =
        (double)(tti_dataset_late_bytes(four.b->train) + tti_dataset_late_bytes(four.b->test));
    assert_true(drawn >= 190 * 784);
    double once = 5e6 + drawn + batches + 8 * 784 * sizeof(float); /* a checkpoint's tensor */
    T_NEAR(four.p.host_bytes / (once + 4 * (four.p.worker_bytes + 1000)), 1, 1e-9);
    assert_true(one.p.host_bytes > 5e6 + one.p.worker_bytes);
    unmake(&one), unmake(&four);
}

/* Each worker makes the batches of its shards, to train and to evaluate; worker 0 has a tensor
 * shard, too, of what it puts together for a checkpoint; and stages have places for what they send.
 */
T_CASE(memory_of_divided_models) {
    T_UNUSED;
    made sharded = predict("parallel.workers=4", "parallel.tensor=2"),
         stages = predict("parallel.workers=2", "parallel.pipeline=2");
    double batches = 784 * sizeof(float) * 32 * (double)(sharded.b->config.data.prefetch + 1);
    double drawn = (double)(tti_dataset_late_bytes(sharded.b->train) +
                            tti_dataset_late_bytes(sharded.b->test));
    double tensor = 8 * 784 * sizeof(float), once = 5e6 + drawn + batches + tensor;
    double divided = once + 2 * batches + tensor / 2;
    T_NEAR(sharded.p.host_bytes / (divided + 4 * (sharded.p.worker_bytes + 1000)), 1, 1e-9);
    double mailbox = 0, arrays = 0;
    for (int i = 0; i < 2; i++) {
        tti_exec_memory m;
        tti_exec_desc desc = tti_worker_exec_desc(stages.b);
        desc.plan = tti_blueprint_plan(stages.b, i);
        desc.n_compute_threads = CORES / 2;
        T_OK(tti_exec_memory_plan(&desc, 0, 1, &m));
        mailbox += (double)m.mailbox;
        arrays +=
            tti_bytes_of_arrays(&m) + 1000 * tti_exec_n_compute_threads(&desc, stages.b->n_shards);
    }
    assert_true(mailbox > 0);
    T_NEAR(stages.p.host_bytes / (once + 2 * batches + tensor + arrays + mailbox), 1, 1e-9);
    unmake(&sharded), unmake(&stages);
}

/* The host of devices has what is saved, of one copy of the model or of all parts of it, messages
 * of stages, and gradients where it adds them. */
T_CASE(memory_beside_devices) {
    T_UNUSED;
    static const struct {
        const char *more[3];
        double arrays; /* as long as a worker's parameters, of which adam has two states */
    } rows[] = {{{"parallel.workers=1"}, 3},
                {{"parallel.workers=2"}, 3},
                {{"parallel.workers=2", "parallel.zero=1"}, 4},
                {{"parallel.workers=2", "parallel.tensor=2"}, 6},
                {{"parallel.workers=4", "parallel.tensor=2"}, 6},
                {{"parallel.workers=8", "parallel.tensor=2"}, 14}}; /* on 4 devices */
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const char *second = rows[i].more[1] ? rows[i].more[1] : "parallel.shards=4";
        made m = predict(rows[i].more[0], second);
        tti_scheme scheme = tti_scheme_of(&m.b->config);
        tti_calibration c = calibration(m.b, scheme.data);
        tti_prediction p;
        c.is_device = true;
        T_OK(tti_predict(m.b, &scheme, &c, &p));
        int n_workers = scheme.data * scheme.tensor;
        double batches = 784 * sizeof(float) * 32 * (double)(m.b->config.data.prefetch + 1);
        double drawn =
            (double)(tti_dataset_late_bytes(m.b->train) + tti_dataset_late_bytes(m.b->test));
        double tensor = 8 * 784 * sizeof(float), once = 5e6 + drawn + batches + tensor;
        if (scheme.tensor > 1) once += 2 * batches + tensor / 2;
        double flat = (double)tti_blueprint_plan(m.b, 0)->n_flat * sizeof(float);
        T_NEAR((p.host_bytes - once - n_workers * 1000) / (rows[i].arrays * flat), 1, 0.01);
        unmake(&m);
    }
}

/* Large arrays are whole huge pages, and of one copy there is one for all threads. */
T_CASE(pages_and_copies) {
    T_UNUSED;
    const double mib = 1 << 20;
    T_NEAR(tti_page_bytes(3 * mib, 1), 4 * mib, 0);
    T_NEAR(tti_page_bytes(8 * mib, 2), 8 * mib, 0);
    T_NEAR(tti_page_bytes(3 * mib, 3), 3 * mib, 0);
    T_NEAR(tti_page_bytes(0, 0), 0, 0);
    made two = predict_with("parallel.copies=one", "parallel.workers=2", "model.hidden=[800]"),
         four = predict_with("parallel.copies=one", "parallel.workers=4", "model.hidden=[800]"),
         each = predict_with("parallel.copies=each", "parallel.workers=4", "model.hidden=[800]");
    double flat = (double)four.b->plan->n_flat * sizeof(float);
    assert_true(flat > 2 * mib && flat < 4 * mib); /* parameters and momentum: two pages each */
    T_NEAR(each.p.host_bytes - four.p.host_bytes, 3 * 2 * tti_page_bytes(flat, 1), 1);
    assert_true(four.p.host_bytes - two.p.host_bytes < 2 * flat + 2 * mib);
    unmake(&two), unmake(&four), unmake(&each);
}

/* Asynchronous processes reach the holders of ranges through memory that both have: parameters, a
 * gradient, and averages where they are kept; all ranges together are one of each. */
T_CASE(channels_of_servers) {
    T_UNUSED;
    static const char *const places[] = {"parallel.place=threads", "parallel.place=processes"};
    static const struct {
        const char *ema;
        double arrays;
    } rows[] = {{"train.ema=0", 2}, {"train.ema=0.9", 3}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        made m[2];
        for (int k = 0; k < 2; k++) {
            m[k].job = SMALL_JOB("parallel.workers=3", "parallel.sync=parameter-server",
                                 "parallel.mode=fast", "parallel.staleness=4", "parallel.servers=2",
                                 "model.hidden=[800]", rows[i].ema, places[k]);
            T_OK(tti_job_resolve(m[k].job, CORES));
            T_OK(tti_blueprint_create(m[k].job, &m[k].b));
            tti_scheme scheme = tti_scheme_of(&m[k].b->config);
            tti_calibration c = calibration(m[k].b, 3);
            T_OK(tti_predict(m[k].b, &scheme, &c, &m[k].p));
        }
        double array = (double)m[0].b->plan->n_flat * sizeof(float);
        T_NEAR((m[1].p.host_bytes - m[0].p.host_bytes) / (2 * rows[i].arrays * array), 1, 1e-3);
        double more = m[1].p.worker_bytes - m[0].p.worker_bytes;
        assert_true(more > rows[i].arrays * array && more < 2 * rows[i].arrays * array);
        unmake(&m[0]), unmake(&m[1]);
    }
}

/* Kernels of a tensor shard that want other scratch than those of the whole model, which a
 * micro-batch group was of. */
T_CASE(scratch_of_tensor_shards) {
    T_UNUSED;
    made m = predict("parallel.workers=2", "parallel.tensor=2");
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    tti_calibration c = calibration(m.b, 2);
    tti_prediction asked;
    c.scratch[0] = (tti_scratch){m.b->plan, 1e6};
    c.scratch[1] = (tti_scratch){tti_blueprint_plan(m.b, 0), 4e6};
    c.n_scratch = 2;
    T_OK(tti_predict(m.b, &scheme, &c, &asked));
    double compute_threads = CORES / 2;
    T_NEAR(asked.host_bytes - m.p.host_bytes, 2 * compute_threads * (4e6 - 1e6), 1);
    T_EQ(asked.worker_bytes, m.p.worker_bytes);
    unmake(&m);
}

T_CASE(devices_that_are_not_here) {
    T_UNUSED;
    tti_calibration c;
    T_OK(tti_calibration_of("cpu", 8, &c));
    assert_true(!c.is_device && c.n_cores == 8 && c.flops < 1e12 && c.add_s > 0);
    T_OK(tti_calibration_of("h200", 8, &c));
    assert_true(c.is_device && c.n_cores == 8 && c.flops > 1e14 && c.bytes > 1e12);
    T_FAILS(tti_calibration_of("abacus", 8, &c), TUTTI_E_INVALID, "h200");
}

/* Values derived for a simulated machine or a drawing do not remain in the job. */
T_CASE(a_job_stays_as_it_was) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.shards=auto", "parallel.workers=2",
                               "parallel.sync=parameter-server", "train.precision=auto");
    char *before = tutti_job_print(job, true), *text;
    const tutti_plan_desc host = {.device = "cpu"}, device = {.device = "h200"};
    const tutti_simulate_desc cluster = {.n_workers = 4, .device = "h200"};
    T_OK(tutti_plan_job(job, &host, &text, NULL));
    free(text);
    T_OK(tutti_plan_job(job, &device, &text, NULL));
    free(text);
    T_OK(tutti_simulate_job(job, &cluster, &text));
    free(text);
    T_OK(tutti_draw_layout(job, false, &text));
    free(text);
    T_OK(tutti_inspect_job(job, NULL, &text));
    free(text);
    char *after = tutti_job_print(job, true);
    assert_string_equal(before, after);
    free(before);
    free(after);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_groups_and_cores),
        cmocka_unit_test(sums_and_update),
        cmocka_unit_test(what_travels),
        cmocka_unit_test(gathers_of_the_list),
        cmocka_unit_test(costs_stand_for_what_was_not_measured),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_divided_models),
        cmocka_unit_test(memory_beside_devices),
        cmocka_unit_test(pages_and_copies),
        cmocka_unit_test(channels_of_servers),
        cmocka_unit_test(scratch_of_tensor_shards),
        cmocka_unit_test(devices_that_are_not_here),
        cmocka_unit_test(a_job_stays_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
