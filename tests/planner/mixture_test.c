/* mixture_test.c - a device and the host in one run, from calibrations made by hand: who gets how
 * many shards, and what the host does for both.  The device is the tests' own module. */
#include "planner/mixture.h"

#include "train/small_job.h"

static const double DEVICE_S = 0.010, UPDATE_S = 0.002, LATENCY_S = 1e-5, BYTES_S = 1e9;

static tti_calibration calibration(const tti_blueprint *b, bool is_device, double group_s) {
    tti_calibration c = {.n_cores = 2,
                         .n_ranks = 2,
                         .is_device = is_device,
                         .flops = 1e9,
                         .bytes = 1e9,
                         .sum_latency_s = LATENCY_S,
                         .sum_bytes_s = BYTES_S,
                         .base_bytes = 5e6,
                         .n_micro_groups = 1};
    c.micro_groups[0] = (tti_group_cost){.rows = b->rows_per_shard,
                                         .recompute = b->config.train.recompute,
                                         .cost_s = tti_program_cost_s(&c, &b->plan->shard),
                                         .s = group_s,
                                         .update_s = UPDATE_S};
    return c;
}

typedef struct made {
    tutti_job *job;
    const tti_blueprint *b;
    tti_prediction p;
} made;

/* 8 shards; the host takes host_s for as many as it computes side by side. */
static made predict(const char *shares, double host_s) {
    made m = {.job = SMALL_JOB("parallel.workers=2", "parallel.devices=0,cpu", "parallel.mode=fast",
                               "parallel.shards=8", "train.precision=f32", shares)};
    tti_devices devices;
    T_OK(tti_devices_resolve(m.job, &devices));
    T_OK(tti_job_resolve(m.job, 2));
    T_OK(tti_blueprint_create(m.job, &m.b));
    assert_true(m.b->devices.mixed && m.b->on_host);
    tti_scheme scheme = tti_scheme_of(&m.b->config);
    tti_mixture x;
    x.devices = calibration(m.b, true, DEVICE_S);
    x.host = calibration(m.b->on_host, false, host_s);
    T_OK(tti_mixture_predict(m.b, &scheme, &x, &m.p));
    assert_true(m.p.is_measured);
    return m;
}

static void unmake(made *m) {
    tti_blueprint_destroy(m->b);
    tutti_job_destroy(m->job);
}

/* Weights as they are; what is measured goes where it is done first, at least one each. */
T_CASE(shard_maps) {
    T_UNUSED;
    static const struct {
        const char *shares;
        double host_s, compute_s;
    } rows[] = {{"parallel.load_weights=3,1", 1e-5, 6 * 0.010},
                {"parallel.load_weights=1,3", 1e-5, 2 * 0.010},
                {"parallel.load_weights=equal", 1e-5, 4 * 0.010},
                {"parallel.load_weights=auto", 1e-5, 0.010},
                {"parallel.load_weights=measured", 10, 10}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        made m = predict(rows[i].shares, rows[i].host_s);
        T_NEAR(m.p.compute_s / rows[i].compute_s, 1, 1e-9);
        unmake(&m);
    }
}

/* Gradients go out and parameters back; every worker makes the whole update on its own cores, so
 * the one with the fewest is waited for. */
T_CASE(what_the_host_does) {
    T_UNUSED;
    made m = predict("parallel.load_weights=3,1", 1e-5);
    double flat = (double)m.b->plan->n_flat * sizeof(float);
    double sums = (m.b->plan->n_buckets + 1) * LATENCY_S + flat / BYTES_S;
    T_NEAR(m.p.reduce_s / (sums + 2 * flat / 50e9), 1, 1e-9);
    T_NEAR(m.p.sent_bytes / flat, 1, 1e-9);
    assert_true(m.p.update_s > 0.999 * UPDATE_S);
    T_NEAR(m.p.step_s / (m.p.compute_s + m.p.add_s + m.p.reduce_s + m.p.update_s), 1, 1e-9);
    assert_true(m.p.first_bytes == m.p.worker_bytes && m.p.worker_bytes > 2 * flat);
    assert_true(m.p.host_bytes > 5e6 + 4 * flat); /* two workers' parameters and state */
    unmake(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shard_maps),
        cmocka_unit_test(what_the_host_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
