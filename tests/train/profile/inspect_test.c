/* inspect_test.c - what a job would run, as text: every step with its kernel, memory, and graphs
 * that read back. */
#include "ir/graph.h"
#include "train/small_job.h"
#include "tutti/train.h"

static void inspect(tutti_job *job, const char *after, char **text) {
    T_OK(tutti_inspect_job(job, &(tutti_inspect_desc){.after_pass = after}, text));
    assert_non_null(*text);
}

T_CASE(steps_kernels_and_memory) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.hidden=[8]");
    char *text;
    inspect(job, NULL, &text);
    assert_memory_equal(text, "shard program of mlp: 8 rows, 4 shards per step\n", 48);
    assert_non_null(strstr(text, "fc1"));
    assert_non_null(strstr(text, "cross_entropy"));
    assert_non_null(strstr(text, "(6370 in 4 tensors)"));
    assert_non_null(strstr(text, "activations, peak"));
    assert_non_null(strstr(text, "train.recompute is none"));
    free(text);
    tutti_job_destroy(job);
}

/* MiB in the line that begins with name. */
static double peak_in(const char *text, const char *name) {
    const char *at = strstr(text, name);
    if (!at) fail_msg("no line '%s' in: %s", name, text);
    return strtod(at + strlen(name), NULL);
}

T_CASE(recomputation_is_predicted) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.hidden=[64,64,64,64,64,64,64,64,64,64]", "train.batch=2048",
                               "train.recompute=block");
    char *text;
    inspect(job, NULL, &text);
    double none = peak_in(text, "\n  none "), block = peak_in(text, "\n  block ");
    assert_true(block > 0 && block < 0.8 * none);
    double packed = peak_in(text, "\nactivations, peak ");
    assert_true(packed >= block - 0.001 && packed < none);
    free(text);
    tutti_job_destroy(job);
}

/* The reference backend is shown as such. */
T_CASE(kernels_are_those_of_the_backend) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.backend=reference");
    char *text;
    inspect(job, NULL, &text);
    int n_lines = 0, n_reference = 0;
    for (char *at = text; (at = strstr(at, "reference")); at++) n_reference++;
    for (char *at = strstr(text, "step "); at && (at = strchr(at, '\n')) && at[1] != '\n'; at++)
        n_lines++;
    assert_true(n_reference >= 5 && n_reference >= n_lines - 1);
    free(text);
    tutti_job_set(job, "parallel.backend=cpu", "test");
    inspect(job, NULL, &text);
    int n_left = 0;
    for (char *at = text; (at = strstr(at, "reference")); at++) n_left++;
    assert_true(n_left < n_reference);
    free(text);
    tutti_job_destroy(job);
}

T_CASE(graphs_after_passes_read_back) {
    T_UNUSED;
    static const char *const passes[] = {"none", "simplify", "autodiff", "split", "fuse"};
    tutti_job *job = SMALL_JOB("model.dropout=0.5");
    for (size_t i = 0; i < TTI_COUNT(passes); i++) {
        char *text;
        inspect(job, passes[i], &text);
        assert_true((strstr(text, "grad") != NULL) == (i >= 2));
        tutti_graph *g;
        T_OK(tutti_graph_parse(text, "graph", &g));
        tutti_graph_destroy(g);
        free(text);
    }
    tutti_job_destroy(job);
}

T_CASE(what_cannot_be_shown) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("train.seed=1");
    char *text;
    T_FAILS(tutti_inspect_job(job, &(tutti_inspect_desc){.after_pass = "fusion"}, &text),
            TUTTI_E_INVALID, "fusion");
    assert_null(text);
    tutti_job_set(job, "data.format=idx", "test");
    tutti_job_set(job, "data.dir=/nowhere", "test");
    T_FAILS(tutti_inspect_job(job, NULL, &text), TUTTI_E_DATA, "/nowhere");
    assert_null(text);
    tutti_job_set(job, "parallel.shards=3", "test");
    T_FAILS(tutti_inspect_job(job, NULL, &text), TUTTI_E_CONFIG, "power of two");
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_kernels_and_memory), cmocka_unit_test(recomputation_is_predicted),
        cmocka_unit_test(kernels_are_those_of_the_backend),
        cmocka_unit_test(graphs_after_passes_read_back), cmocka_unit_test(what_cannot_be_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
