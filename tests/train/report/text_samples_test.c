/* text_samples_test.c - texts on the page: as many as asked, the same again, within their time,
 * escaped, and a word where there can be none. */
#include "train/report/text_samples.h"

#include "train/page.h"
#include "train/report/report.h"
#include "train/small_job.h"
#include "tutti/eval.h"
#include "tutti/train.h"

static void write_text(void) {
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 150; i++) fputs("a <b>bold</b> & \"quoted\" line. ", file);
    fclose(file);
}

/* A run of ten steps over characters with a model that decodes or one that does not. */
static tutti_job *language_run(const char *model, const char *samples) {
    tutti_train_result r;
    write_text();
    tutti_job *job =
        SMALL_JOB(model, "model.layers=1", "model.heads=2", "model.width=16", "data.n_train=0",
                  "data.n_test=0", "data.format=text", "data.dir=text", "data.tokenizer=chars",
                  "data.context=16", "train.batch=8", "optimizer.lr=1e-2", "run.dir=run", samples);
    T_OK(tutti_train(job, NULL, &r));
    return job;
}

static char *page(void) { return page_of("run/report.html"); }

static void check_model(const char *model) {
    tutti_job *job = language_run(model, "run.text_samples=4");
    tti_predictor *p;
    tti_text_samples a, b;
    T_EQ(n_of(page(), "<pre class=\"text\">"), 4);
    assert_null(strstr(page(), "<b>bold"));
    assert_null(strstr(page(), "No texts"));
    T_OK(tti_predictor_open_with_test(job, "run", NULL, NULL, &p));
    tti_text_samples_make(job, p, 2, 60000, &a);
    tti_text_samples_make(job, p, 2, 60000, &b);
    T_EQ(a.n, 2);
    T_EQ(a.step, 10);
    assert_string_equal(a.note, "");
    for (int i = 0; i < 2; i++) {
        assert_string_equal(tti_str_text(&a.v[i].text), tti_str_text(&b.v[i].text));
        T_EQ(a.v[i].prompt.n_bytes, 8); /* half the context */
        T_EQ(a.v[i].text.n_bytes, 160);
    }
    assert_string_not_equal(tti_str_text(&a.v[0].prompt), tti_str_text(&a.v[1].prompt));
    tti_text_samples_free(&a);
    tti_text_samples_free(&b);
    tti_text_samples_make(job, p, 2, 0, &a);
    assert_non_null(strstr(a.note, "Ended after the time limit"));
    tti_text_samples_free(&a);
    tti_predictor_close(p);
    tutti_job_destroy(job);
}

T_CASE(of_a_model_that_decodes) {
    T_UNUSED;
    check_model("model.name=gpt2");
}

T_CASE(of_one_that_does_not) {
    T_UNUSED;
    check_model("model.name=lstm");
}

T_CASE(none_when_not_asked_for) {
    T_UNUSED;
    tutti_job *job = language_run("model.name=gpt2", "run.text_samples=0");
    assert_null(strstr(page(), "Texts"));
    tutti_job_destroy(job);
}

/* Models that fill gaps write nothing on, so nothing is missed. */
T_CASE(none_of_models_that_write_none) {
    T_UNUSED;
    tutti_job *job = language_run("model.name=bert", "run.text_samples=3");
    assert_null(strstr(page(), "Texts"));
    tutti_job_destroy(job);
}

/* Token files without a tokenizer can be trained on, but have no readable text. */
T_CASE(a_word_without_a_tokenizer) {
    T_UNUSED;
    tutti_job *job = language_run("model.name=gpt2", "run.text_samples=2");
    tutti_train_result r;
    char *report = NULL;
    tutti_dataset_desc source = {.format = "text", .dir = "text", .context = 16};
    T_OK(tutti_dataset_pack(&source, &(tutti_pack_desc){.dir = "packed"}, &report));
    free(report);
    T_EQ(unlink("packed/tokenizer.json"), 0);
    tutti_job_set(job, "data.format=tokens", "test");
    tutti_job_set(job, "data.dir=packed", "test");
    tutti_job_set(job, "data.tokenizer=auto", "test");
    tutti_job_set(job, "run.dir=auto", "test");
    T_OK(tutti_train(job, NULL, &r));
    T_EQ(rename(r.run_dir, "run2") | rename("run", "run1") | rename("run2", "run"), 0);
    assert_non_null(strstr(page(), "No texts: generate: the data has no matching tokenizer"));
    tutti_job_destroy(job);
}

T_CASE(hostile_bytes_on_the_page) {
    T_UNUSED;
    tti_str out = {0};
    tti_text_samples t = {.n = 1, .note = "<i>"};
    tti_str_add(&t.v[0].prompt, "</pre><script>");
    tti_str_add(&t.v[0].text, "\xff\xfe\x01<img src=x>");
    tti_text_samples_draw(&out, &t);
    assert_null(strstr(out.text, "<script"));
    assert_null(strstr(out.text, "<img"));
    assert_null(strstr(out.text, "<i>"));
    assert_non_null(strstr(out.text, "???&#60;img"));
    tti_str_free(&out);
    tti_text_samples_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(of_a_model_that_decodes),    IN_FOLDER(of_one_that_does_not),
        IN_FOLDER(none_when_not_asked_for),    IN_FOLDER(none_of_models_that_write_none),
        IN_FOLDER(a_word_without_a_tokenizer), IN_FOLDER(hostile_bytes_on_the_page)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
