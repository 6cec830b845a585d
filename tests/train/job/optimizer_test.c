/* optimizer_test.c - each row fits its op: attributes, states, and every name that a job can say.
 */
#include "train/job/optimizer.h"

#include "ops/op_table.h"
#include "train/small_job.h"

/* The attributes that a row sets are attributes of its op. */
static void check_attrs(const tti_optimizer *o, const tti_job_config *config) {
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    o->attrs(config, attrs);
    const tti_op *op = tti_op_find(o->name);
    assert_non_null(op);
    assert_non_null(attrs[0].name);
    for (int i = 0; attrs[i].name; i++) {
        const tti_attr_spec *spec = op->attrs;
        while (spec->name && strcmp(spec->name, attrs[i].name) != 0) spec++;
        if (!spec->name) fail_msg("%s has no attribute %s", o->name, attrs[i].name);
    }
}

T_CASE(rows_fit_their_ops) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.nesterov=false");
    for (int i = 0; tti_optimizer_at(i); i++) {
        const tti_optimizer *o = tti_optimizer_at(i);
        check_attrs(o, &job->config);
        assert_ptr_equal(tti_optimizer_find(o->name), o);
        assert_non_null(o->doc);
        int n_states = 0;
        while (n_states < TTI_MAX_STATES && o->states[n_states]) n_states++;
        T_EQ(n_states, tti_op_find(o->name)->n_out - 1);
        assert_true(o->momentum >= 0 && o->beta2 > 0 && o->eps > 0);
    }
    tutti_job_destroy(job);
}

/* The words of the schema and the rows of the table are the same. */
T_CASE(a_job_can_name_each) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.lr=1");
    char text[64];
    int n = 0;
    for (; tti_optimizer_at(n); n++) {
        snprintf(text, sizeof text, "optimizer.name=%s", tti_optimizer_at(n)->name);
        tutti_job_set(job, text, "test");
    }
    T_OK(tutti_job_check(job));
    T_EQ(n, 8);
    assert_null(tti_optimizer_find("lionn"));
    assert_null(tti_optimizer_at(-1));
    tutti_job_destroy(job);
}

T_CASE(values_come_from_the_job) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.beta1=0.8", "optimizer.beta2=0.95", "optimizer.eps=1e-5",
                               "optimizer.momentum=0.7");
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    tti_optimizer_find("adamw")->attrs(&job->config, attrs);
    assert_string_equal(attrs[0].name, "beta1");
    assert_true(attrs[0].value.f == 0.8);
    assert_true(attrs[1].value.f == 0.95);
    assert_true(attrs[2].value.f == 1e-5);
    tti_optimizer_find("sgd")->attrs(&job->config, attrs);
    assert_string_equal(attrs[0].name, "momentum");
    assert_true(attrs[0].value.f == 0.7);
    tutti_job_destroy(job);
}

/* Names under which PyTorch's state_dict has them, so that other programs find them. */
T_CASE(states_have_pytorchs_names) {
    T_UNUSED;
    assert_string_equal(tti_optimizer_find("adam")->states[0], "exp_avg");
    assert_string_equal(tti_optimizer_find("adamw")->states[1], "exp_avg_sq");
    assert_string_equal(tti_optimizer_find("sgd")->states[0], "momentum_buffer");
    assert_string_equal(tti_optimizer_find("rmsprop")->states[0], "square_avg");
    assert_string_equal(tti_optimizer_find("rmsprop")->states[1], "momentum_buffer");
    assert_string_equal(tti_optimizer_find("adagrad")->states[0], "sum");
    assert_null(tti_optimizer_find("sgd")->states[1]);
}

static const struct {
    const char *scale, *base;
    double peak;
    const char *text;
} peaks[] = {
    {"none", "256", 0.1, ""},
    {"linear", "256", 0.2, "learning rate 0.1 x 512 / 256 = 0.2 (optimizer.scale_lr linear)"},
    {"linear", "1024", 0.05, "learning rate 0.1 x 512 / 1024 = 0.05 (optimizer.scale_lr linear)"},
    {"sqrt", "128", 0.2, "learning rate 0.1 x sqrt(512 / 128) = 0.2 (optimizer.scale_lr sqrt)"},
};

T_CASE(the_peak_follows_the_batch) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(peaks); i++) {
        char scale[64], base[64];
        tti_str text = {0};
        snprintf(scale, sizeof scale, "optimizer.scale_lr=%s", peaks[i].scale);
        snprintf(base, sizeof base, "optimizer.base_batch=%s", peaks[i].base);
        tutti_job *job = SMALL_JOB("optimizer.lr=0.1", "train.batch=512", scale, base);
        T_NEAR(tti_peak_lr(&job->config), peaks[i].peak, 1e-15);
        tti_peak_lr_explain(&job->config, &text);
        assert_string_equal(tti_str_text(&text), peaks[i].text);
        tti_str_free(&text);
        tutti_job_destroy(job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_fit_their_ops), cmocka_unit_test(a_job_can_name_each),
        cmocka_unit_test(the_peak_follows_the_batch), cmocka_unit_test(values_come_from_the_job),
        cmocka_unit_test(states_have_pytorchs_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
