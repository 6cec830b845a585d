/* plugin_test.c - what is no plugin is refused; tests/cli/plugin_test.py trains one that is. */
#include "train/model/plugin.h"
#include "train/small_job.h"
#include "tutti/ops.h"

static void refuse(const char *path, const char *text) {
    tutti_model_params params = {.n_classes = 3};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 4)), *logits = x;
    T_FAILS(tti_plugin_build(path, &params, g, x, &logits), TUTTI_E_CONFIG, text);
    assert_ptr_equal(logits, x);
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

T_CASE(a_missing_file) {
    T_UNUSED;
    refuse("./none.so", "model.plugin: ./none.so: No such file");
    refuse("none.so", "model.plugin: none.so: No such file");
    refuse("", "No such file");
}

/* libc is in the loader's path, but here nothing is searched for. */
T_CASE(nothing_is_searched_for) {
    T_UNUSED;
    refuse("libc.so.6", "model.plugin: libc.so.6: No such file");
}

T_CASE(no_shared_object) {
    T_UNUSED;
    FILE *f = fopen("text.so", "w");
    assert_non_null(f);
    fputs("this is text\n", f);
    fclose(f);
    refuse("text.so", "text.so");
    refuse(".", "model.plugin: ");
}

T_CASE(a_shared_object_without_a_model) {
    T_UNUSED;
    FILE *maps = fopen("/proc/self/maps", "r"); /* libc, wherever it is */
    assert_non_null(maps);
    char line[512], *path = NULL;
    while (!path && fgets(line, sizeof line, maps))
        if (strstr(line, "libc.so") || strstr(line, "libc-")) path = strchr(line, '/');
    fclose(maps);
    if (!path) skip();
    path[strcspn(path, "\n")] = '\0';
    refuse(path, "exports no function tutti_build_model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_missing_file),
        IN_FOLDER(nothing_is_searched_for),
        IN_FOLDER(no_shared_object),
        IN_FOLDER(a_shared_object_without_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
