/* evaluator_test.c - counts of classes against each other and against the words of a table. */
#include <jansson.h>

#include "train/small_job.h"
#include "tutti/eval.h"
#include "tutti/train.h"

static void evaluate(const char *assignment, tutti_eval_result *r) {
    tutti_job *job = SMALL_JOB("run.dir=run", assignment);
    tutti_train_result trained;
    T_OK(tutti_train(job, NULL, &trained));
    T_OK(tutti_eval(job, "run", NULL, NULL, r));
    tutti_job_destroy(job);
}

T_CASE(counts_fit_together) {
    T_UNUSED;
    tutti_eval_result r;
    evaluate("train.steps=30", &r);
    int64_t n = 0, n_correct = 0, n_predicted = 0;
    double f1 = 0;
    T_EQ(r.n_classes, 10);
    for (int64_t i = 0; i < 10; i++) {
        const tutti_class_result *c = &r.classes[i];
        n += c->n_samples, n_correct += c->n_correct, n_predicted += c->n_predicted;
        T_EQ(c->n_correct, r.confusion[i * 10 + i]);
        if (c->n_samples) T_NEAR(c->recall, (double)c->n_correct / (double)c->n_samples, 1e-12);
        if (c->n_correct)
            T_NEAR(c->f1, 2.0 * (double)c->n_correct / (double)(c->n_samples + c->n_predicted),
                   1e-12);
        f1 += c->f1 / 10;
    }
    T_EQ(n, 50);
    T_EQ(n_predicted, 50);
    T_EQ(r.n_targets, 50);
    T_NEAR(r.accuracy, (double)n_correct / 50, 1e-12);
    T_NEAR(r.macro_f1, f1, 1e-12); /* five drawn digits of each class */
    assert_true(!r.is_sequence && r.perplexity == 0 && r.wall_s > 0);
    tutti_eval_result_free(&r);
    assert_null(r.classes);
}

T_CASE(as_text_and_as_json) {
    T_UNUSED;
    int64_t confusion[] = {3, 1, 0, 2};
    tutti_class_result classes[] = {{"cat \"a\"", 4, 3, 3, 1, 0.75, 6.0 / 7},
                                    {NULL, 2, 3, 2, 2.0 / 3, 1, 0.8}};
    tutti_eval_result r = {.checkpoint = "c",
                           .step = 5,
                           .n_samples = 6,
                           .n_targets = 6,
                           .loss = 0.5,
                           .accuracy = 5.0 / 6,
                           .n_classes = 2,
                           .classes = classes,
                           .confusion = confusion};
    char *text = tutti_eval_print(&r, false);
    assert_non_null(strstr(text, "accuracy    0.8333\n"));
    assert_non_null(strstr(text, "cat \"a\"                      4         3    1.0000    0.7500"));
    assert_non_null(strstr(text, "1                 .      2\n"));
    assert_null(strstr(text, "perplexity"));
    free(text);
    text = tutti_eval_print(&r, true);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    json_t *rows = json_object_get(root, "confusion");
    T_EQ(json_integer_value(json_array_get(json_array_get(rows, 0), 1)), 1);
    json_t *first = json_array_get(json_object_get(root, "classes"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "cat \"a\"");
    json_decref(root);
    free(text);
}

/* With many classes, the most frequently confused pairs, each once, by frequency. */
T_CASE(pairs_of_many_classes) {
    T_UNUSED;
    enum { N = 60 };
    static tutti_class_result classes[N];
    static int64_t confusion[N * N];
    confusion[3 * N + 7] = 5, confusion[7 * N + 3] = 9, confusion[1 * N + 2] = 5;
    confusion[4 * N + 4] = 100;
    tutti_eval_result r = {.n_classes = N, .classes = classes, .confusion = confusion};
    char *text = tutti_eval_print(&r, false);
    assert_non_null(strstr(text,
                           "        9  7 predicted as 3\n"
                           "        5  1 predicted as 2\n"
                           "        5  3 predicted as 7\n"));
    assert_null(strstr(text, "4 predicted as 4"));
    assert_non_null(strstr(text, "and 10 more"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(counts_fit_together),
                                       cmocka_unit_test(as_text_and_as_json),
                                       cmocka_unit_test(pairs_of_many_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
