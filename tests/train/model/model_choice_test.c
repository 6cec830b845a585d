/* model_choice_test.c - the parameters of a model; the schema's choices are the existing models.
 */
#include "train/model/model_choice.h"
#include "train/small_job.h"
#include "tutti/ops.h"

static const tutti_dataset_info images = {.n_classes = 10,
                                          .x = {TUTTI_F32, {.n_dims = 3, .dim = {3, 32, 32}}}};
static const tutti_dataset_info texts = {.n_classes = 65,
                                         .x = {TUTTI_I32, {.n_dims = 1, .dim = {48}}}};

T_CASE(defaults) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.hidden=[8, 4]");
    tutti_model_params p = tti_model_params_of(&job->config, &images);
    T_EQ(p.n_classes, 10);
    T_EQ(p.n_hidden, 2);
    T_EQ(p.hidden[1], 4);
    T_EQ(p.context, 0);
    assert_null(p.size);
    assert_false(p.small_images || p.batch_norm || p.zero_init_residual || p.classify || p.padded);
    p = tti_model_params_of(&job->config, &texts);
    T_EQ(p.n_classes, 65);
    T_EQ(p.context, 48);
    tutti_job_destroy(job);
}

T_CASE(every_key_arrives) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB(
        "model.dropout=0.1", "model.drop_path=0.2", "model.stem=cifar", "model.batch_norm=true",
        "model.zero_init_residual=true", "model.size=355M", "model.layers=3", "model.heads=4",
        "model.width=64", "model.context=128", "model.vocabulary=50257", "model.head=classify",
        "model.padding=7", "model.width_multiplier=0.5");
    tutti_model_params p = tti_model_params_of(&job->config, &texts);
    T_NEAR(p.dropout, 0.1, 0);
    T_NEAR(p.drop_path, 0.2, 0);
    T_NEAR(p.width_multiplier, 0.5, 0);
    assert_true(p.small_images && p.batch_norm && p.zero_init_residual && p.classify && p.padded);
    assert_string_equal(p.size, "355M");
    T_EQ(p.n_layers, 3);
    T_EQ(p.n_heads, 4);
    T_EQ(p.width, 64);
    T_EQ(p.context, 128);
    T_EQ(p.vocabulary, 50257);
    T_EQ(p.pad_token, 7);
    tutti_job_destroy(job);
}

static tutti_value *nothing(tutti_graph *g, tutti_value *x, const void *user) {
    (void)g, (void)user;
    return x;
}

/* A checkpoint says whose model it has; another one is not built in its place. */
T_CASE(identity) {
    T_UNUSED;
    char text[64];
    tutti_job *job = SMALL_JOB("model.name=lenet");
    tti_model_identity(job, text, sizeof text);
    assert_string_equal(text, "built-in lenet");
    T_OK(tti_model_check_identity(job, "built-in lenet"));
    T_OK(tti_model_check_identity(job, NULL));
    T_FAILS(tti_model_check_identity(job, "caller"), TUTTI_E_CONFIG, "tutti_job_set_model");
    tutti_job_set_model(job, nothing, NULL);
    tti_model_identity(job, text, sizeof text);
    assert_string_equal(text, "caller");
    T_OK(tti_model_check_identity(job, "caller"));
    tutti_job_destroy(job);
}

static void expect_vocabulary(const char *size, const char *head, int64_t n_tokens, tutti_status st,
                              const char *words) {
    tutti_job *job = SMALL_JOB("model.name=bert", size, head);
    tutti_dataset_info info = texts;
    info.n_tokens = n_tokens;
    tutti_model_params p = tti_model_params_of(&job->config, &info);
    if (st == TUTTI_OK)
        T_OK(tti_model_check_vocabulary(job, &p, false, n_tokens));
    else
        T_FAILS(tti_model_check_vocabulary(job, &p, false, n_tokens), st, words);
    tutti_job_destroy(job);
}

/* A token without a row in the table would be ignored silently. */
T_CASE(every_token_has_a_row) {
    T_UNUSED;
    const char *classify = "model.head=classify", *guess = "model.head=tokens",
               *automatic = "model.vocabulary=0";
    expect_vocabulary(automatic, classify, 300, TUTTI_OK, NULL);
    expect_vocabulary("model.vocabulary=400", classify, 300, TUTTI_OK, NULL);
    expect_vocabulary("model.vocabulary=299", classify, 300, TUTTI_E_CONFIG,
                      "has token 299; give model.vocabulary=300 or more");
    expect_vocabulary(automatic, guess, 0, TUTTI_OK, NULL);
    expect_vocabulary("model.vocabulary=65", guess, 65, TUTTI_OK, NULL);
    expect_vocabulary(
        "model.vocabulary=80", guess, 65, TUTTI_E_CONFIG,
        "needs the vocabulary of the data, 65, but 80 are requested; leave out model.vocabulary");
    expect_vocabulary(automatic, guess, 66, TUTTI_E_DATA,
                      "the samples have token 65, but all targets");
}

T_CASE(choices_are_the_models) {
    T_UNUSED;
    const char *choices = NULL;
    for (size_t i = 0; i < tti_job_table.n_rows; i++)
        if (strcmp(tti_job_table.rows[i].key, "model.name") == 0)
            choices = tti_job_table.rows[i].choices;
    char names[4096] = "";
    for (int i = 0; tutti_model_at(i); i++) {
        if (i > 0) strcat(names, "|");
        strcat(names, tutti_model_at(i)->name);
    }
    assert_string_equal(choices, names);
}

static tutti_value *own_model(tutti_graph *g, tutti_value *x, const void *user) {
    T_EQ(*(const int *)user, 5);
    return tutti_relu(g, x);
}

static void expect_name(const tutti_job *job, const char *name) {
    char text[128];
    tutti_job_model_name(job, text, sizeof text);
    assert_string_equal(text, name);
}

/* The caller's model goes before the plugin, the plugin before the name. */
T_CASE(the_caller_is_first) {
    T_UNUSED;
    int user = 5;
    tutti_job *job = SMALL_JOB("model.plugin=./no_such.so");
    tutti_model_params p = tti_model_params_of(&job->config, &images);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 3, 32, 32));
    tti_model_outputs out;
    T_FAILS(tti_model_build(job, NULL, &p, g, x, &out), TUTTI_E_CONFIG, "no_such.so");
    expect_name(job, "no_such");
    tutti_job_set_model(job, own_model, &user);
    expect_name(job, "model");
    T_OK(tti_model_build(job, NULL, &p, g, x, &out));
    T_EQ(tutti_value_type(out.logits).shape.n_dims, 4);
    tutti_job_set_model(job, NULL, NULL);
    tutti_job_set(job, "model.plugin=null", "test");
    expect_name(job, "mlp");
    tutti_job_set(job, "model.file=my nets/a.v2.PT2", "test");
    expect_name(job, "a.v2");
    tutti_job_set(job, "model.file=nets/folder.v2/", "test");
    expect_name(job, "folder.v2");
    tutti_job_set(job, "model.file=null", "test");
    T_OK(tti_model_build(job, NULL, &p, g, x, &out));
    T_EQ(tutti_value_type(out.logits).shape.dim[1], 10);
    tutti_graph_destroy(g);
    tutti_job_destroy(job);
}

/* Data that a model cannot read is refused by the names of both. */
T_CASE(other_data) {
    T_UNUSED;
    tutti_job *mlp = SMALL_JOB("model.name=mlp"), *lenet = SMALL_JOB("model.name=lenet");
    tutti_model_params p = tti_model_params_of(&mlp->config, &texts);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *tokens = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(2, 48));
    tti_model_outputs out;
    tutti_value *row = tutti_input(g, "row", TUTTI_F32, &TUTTI_SHAPE(2, 48));
    T_FAILS(tti_model_build(mlp, NULL, &p, g, tokens, &out), TUTTI_E_CONFIG,
            "model.name: mlp needs floats, but samples of data.format=digits are i32[2,48]");
    T_FAILS(tti_model_build(lenet, NULL, &p, g, row, &out), TUTTI_E_CONFIG,
            "lenet needs images, f32[N,C,H,W], but samples of data.format=digits are f32[2,48]");
    T_OK(tti_model_build(mlp, NULL, &p, g, row, &out));
    tutti_job_set(mlp, "model.width_multiplier=0.5", "test");
    T_FAILS(tti_model_build(mlp, NULL, &p, g, row, &out), TUTTI_E_CONFIG,
            "model.width_multiplier: mlp has fixed widths");
    tutti_graph_destroy(g);
    tutti_job_destroy(mlp);
    tutti_job_destroy(lenet);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity),
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_key_arrives),
        cmocka_unit_test(every_token_has_a_row),
        cmocka_unit_test(choices_are_the_models),
        cmocka_unit_test(the_caller_is_first),
        cmocka_unit_test(other_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
