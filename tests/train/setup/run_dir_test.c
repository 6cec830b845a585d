/* run_dir_test.c - folders of runs: names, refusals, two at once, and what a failure leaves. */
#include "train/setup/run_dir.h"

#include <sys/stat.h>

#include "train/small_job.h"

static bool is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static void write_file(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("x\n", file);
    fclose(file);
}

T_CASE(auto_takes_the_next_number) {
    T_UNUSED;
    char out[512];
    T_OK(tti_run_dir_create("auto", "mnist", out, sizeof out));
    assert_string_equal(out, "runs/mnist-1");
    assert_true(is_dir("runs/mnist-1/checkpoints") && is_dir("runs/mnist-1/log"));
    T_OK(tti_run_dir_create("auto", "mnist", out, sizeof out));
    assert_string_equal(out, "runs/mnist-2");
    T_OK(tti_run_dir_create("auto", "other", out, sizeof out));
    assert_string_equal(out, "runs/other-1");
    T_EQ(rmdir("runs/mnist-1/log") | rmdir("runs/mnist-1/checkpoints") | rmdir("runs/mnist-1"), 0);
    T_OK(tti_run_dir_create("auto", "mnist", out, sizeof out));
    assert_string_equal(out, "runs/mnist-1");
}

T_CASE(named_folders_and_their_parents) {
    T_UNUSED;
    char out[512];
    T_OK(tti_run_dir_create("a/b//c", "x", out, sizeof out));
    assert_string_equal(out, "a/b//c");
    assert_true(is_dir("a/b/c/log"));
    T_OK(tti_run_dir_create("a/b//c", "x", out, sizeof out)); /* no run in it yet */
    assert_false(tti_run_dir_exists("a/b/c"));
    write_file("a/b/c/metrics.jsonl");
    assert_true(tti_run_dir_exists("a/b/c"));
    T_FAILS(tti_run_dir_create("a/b/c", "x", out, sizeof out), TUTTI_E_CONFIG,
            "continue it with --resume a/b/c");
}

T_CASE(one_process_at_a_time) {
    T_UNUSED;
    int lock = -1, second = -1;
    T_OK(tti_run_dir_lock(".", &lock));
    T_FAILS(tti_run_dir_lock(".", &second), TUTTI_E_CONFIG, "another process trains in it");
    T_EQ(second, -1);
    int elsewhere = dup(lock); /* as a child that was forked has it */
    tti_run_dir_unlock(lock);
    T_OK(tti_run_dir_lock(".", &second));
    tti_run_dir_unlock(second);
    close(elsewhere);
    tti_run_dir_unlock(-1);
    T_FAILS(tti_run_dir_lock("nowhere", &lock), TUTTI_E_IO, "nowhere");
}

T_CASE(what_cannot_be_made_is_named) {
    T_UNUSED;
    char out[512], longest[700];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    write_file("file");
    T_FAILS(tti_run_dir_create("file", "x", out, sizeof out), TUTTI_E_IO, "'file': not a folder");
    T_FAILS(tti_run_dir_create("file/y", "x", out, sizeof out), TUTTI_E_IO, "Not a directory");
    T_FAILS(tti_run_dir_create("", "x", out, sizeof out), TUTTI_E_IO, "bad path");
    T_FAILS(tti_run_dir_create(longest, "x", out, sizeof out), TUTTI_E_IO, "bad path");
    T_FAILS(tti_run_dir_create("/proc/nowhere", "x", out, sizeof out), TUTTI_E_IO, "/proc/nowhere");
    T_EQ(mkdir("locked", 0555), 0);
    if (geteuid() != 0)
        T_FAILS(tti_run_dir_create("locked", "x", out, sizeof out), TUTTI_E_IO, "not writable");
}

enum { N_RANKS = 8, N_EACH = 20 };

typedef struct made {
    char path[N_RANKS][N_EACH][512];
} made;

static const char *make_many(int rank, int n_ranks, void *arg) {
    made *m = arg;
    (void)n_ranks;
    for (int i = 0; i < N_EACH; i++)
        if (tti_run_dir_create("auto", "job", m->path[rank][i], sizeof m->path[0][0]) != TUTTI_OK)
            return "a folder could not be made";
    return NULL;
}

T_CASE(runs_at_once_get_folders_of_their_own) {
    T_UNUSED;
    static made m;
    t_ranks(N_RANKS, make_many, &m);
    for (int i = 0; i < N_RANKS * N_EACH; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(m.path[i / N_EACH][i % N_EACH], m.path[k / N_EACH][k % N_EACH]);
    char last[64];
    snprintf(last, sizeof last, "runs/job-%d", N_RANKS * N_EACH);
    assert_true(is_dir(last)); /* and no number was left out */
}

T_CASE(discard_takes_only_what_was_made) {
    T_UNUSED;
    char out[512];
    T_OK(tti_run_dir_create("run", "x", out, sizeof out));
    write_file("run/job.yaml");
    write_file("run/error.json");
    write_file("run/log/rank-0.txt");
    tti_run_dir_discard("run");
    assert_false(is_dir("run"));
    T_OK(tti_run_dir_create("run", "x", out, sizeof out));
    write_file("run/mine");
    tti_run_dir_discard("run");
    T_EQ(access("run/mine", F_OK), 0);
    T_EQ(access("run/log", F_OK), -1);
    T_OK(tti_run_dir_create("run", "x", out, sizeof out));
    write_file("run/job.yaml");
    write_file("run/metrics.jsonl");
    tti_run_dir_discard("run"); /* it has started: it stays */
    T_EQ(access("run/job.yaml", F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(auto_takes_the_next_number),
                                       IN_FOLDER(named_folders_and_their_parents),
                                       IN_FOLDER(one_process_at_a_time),
                                       IN_FOLDER(what_cannot_be_made_is_named),
                                       IN_FOLDER(runs_at_once_get_folders_of_their_own),
                                       IN_FOLDER(discard_takes_only_what_was_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
