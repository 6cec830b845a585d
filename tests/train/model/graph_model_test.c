/* graph_model_test.c - models that are finished graphs have the bits of the function that built
 * them; what does not fit is refused by name. */
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { CLASSES = 10 };

static tutti_value *net(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_conv2d_desc conv = {.n_out = 3, .kernel = 5, .stride = 3};
    const bool *has_norm = user;
    tutti_value *h = tutti_conv2d(g, x, &conv, "conv");
    if (*has_norm) h = tutti_dropout(g, tutti_batch_norm2d(g, h, NULL, "norm"), 0.2, "drop");
    tutti_output(g, "hidden", h);
    return tutti_linear(g, tutti_flatten(g, tutti_relu(g, h)), CLASSES, "head");
}

/* Printed and read again. */
static tutti_graph *finished(bool training, const bool *has_norm, const tutti_shape *x) {
    tutti_graph *g = tutti_graph_create(training), *again;
    tutti_output(g, "logits", net(g, tutti_input(g, "x", TUTTI_F32, x), has_norm));
    T_OK(tutti_graph_check(g));
    char *text = tutti_graph_print(g);
    T_OK(tutti_graph_parse(text, "net", &again));
    free(text);
    tutti_graph_destroy(g);
    return again;
}

static uint64_t hash_of(tutti_model_fn fn, const void *user, const char *workers) {
    tutti_train_result r;
    tutti_job *job =
        SMALL_JOB("optimizer.name=adamw", "run.progress=false", "run.checkpoint_every=-1", workers);
    tutti_job_set_model(job, fn, user);
    T_OK(tutti_train(job, NULL, &r));
    tutti_job_destroy(job);
    return r.params_hash;
}

T_CASE(graphs_train_as_their_functions) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        const bool has_norm = i;
        const tutti_shape x = TUTTI_SHAPE(8, 1, 28, 28);
        tutti_graph *train = finished(true, &has_norm, &x), *eval = finished(false, &has_norm, &x);
        const tutti_model_graphs graphs = {train, has_norm ? eval : NULL};
        uint64_t hash = hash_of(net, &has_norm, "parallel.workers=1");
        T_EQ(hash_of(tutti_model_from_graph, &graphs, "parallel.workers=1"), hash);
        T_EQ(hash_of(tutti_model_from_graph, &graphs, "parallel.workers=2"), hash);
        tutti_graph_destroy(train);
        tutti_graph_destroy(eval);
    }
}

static void refused(const tutti_model_graphs *graphs, const char *text) {
    tutti_train_result r;
    tutti_job *job = SMALL_JOB("run.progress=false");
    tutti_job_set_model(job, tutti_model_from_graph, graphs);
    tutti_status st = tutti_train(job, NULL, &r);
    if (st == TUTTI_OK || !strstr(tutti_last_error(), text))
        fail_msg("%d: '%s' lacks '%s'", (int)st, tutti_last_error(), text);
    tutti_job_destroy(job);
}

T_CASE(graphs_that_do_not_fit_are_refused) {
    const bool yes = true, no = false;
    T_UNUSED;
    refused(NULL, "tutti_model_graphs");
    refused(&(tutti_model_graphs){0}, "tutti_model_graphs");
    tutti_graph *g = finished(true, &yes, &TUTTI_SHAPE(8, 1, 28, 28));
    refused(&(tutti_model_graphs){.train = g}, "give tutti_model_graphs.eval");
    tutti_graph_destroy(g);
    g = finished(true, &no, &TUTTI_SHAPE(3, 1, 28, 28));
    refused(&(tutti_model_graphs){.train = g},
            "reads 'x' as f32[3,1,28,28], and a shard has f32[8");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(8, 1, 28, 28));
    refused(&(tutti_model_graphs){.train = g}, "no output 'logits'");
    tutti_output(g, "logits", tutti_linear(g, tutti_flatten(g, x), CLASSES, "head"));
    tutti_input(g, "mask", TUTTI_F32, &TUTTI_SHAPE(8, 3));
    refused(&(tutti_model_graphs){.train = g}, "mask");
    (void)tutti_linear(g, x, -1, "bad");
    refused(&(tutti_model_graphs){.train = g}, "bad");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(graphs_train_as_their_functions),
                                       IN_FOLDER(graphs_that_do_not_fit_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
