/* cuda_steady_test.c - a step on a GPU takes no memory of it: neither from us, nor, as far as the
 * driver counts what is free, from the libraries.  Exit code 77 without one.
 *
 * Others may use the GPU meanwhile: what is free must stay in one of a few runs. */
#include "backend/gpus.h"
#include "train/small_job.h"
#include "tutti/train.h"

enum { FIRST = 3, LAST = 20, TRIES = 3 };

typedef struct run {
    size_t n_now[2], n_peak[2], n_free[2]; /* after step FIRST, and after LAST */
    int n_reported;
} run;

/* By rank 0's thread, whose device is open. */
static void on_event(void *user, const tutti_event *e) {
    run *r = user;
    bool is_first = e->step == FIRST;
    if (e->kind != TUTTI_EVENT_STEP || (!is_first && e->step != LAST)) return;
    cuda->device->memory.get_usage(&r->n_now[!is_first], &r->n_peak[!is_first],
                                   &r->n_free[!is_first]);
    r->n_reported++;
}

static bool stays(const char *model, const char *way, const char *more) {
    run r = {0};
    tutti_train_result result;
    tutti_job *job = SMALL_JOB("data.n_train=1600", "train.steps=21", "parallel.devices=gpu",
                               "train.batch=64", "run.checkpoint_every=-1", model, way, more);
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = on_event, .user = &r}, &result));
    tutti_job_destroy(job);
    T_EQ(r.n_reported, 2);
    assert_true(r.n_now[0] > 0);
    T_EQ(r.n_now[1], r.n_now[0]);
    T_EQ(r.n_peak[1], r.n_peak[0]);
    if (r.n_free[1] != r.n_free[0])
        printf("%s %s %s: free %zu, then %zu\n", model, way, more, r.n_free[0], r.n_free[1]);
    return r.n_free[1] == r.n_free[0];
}

T_CASE(a_step_takes_no_memory_of_the_device) {
    T_UNUSED;
    static const char *const models[] = {"model.name=mlp", "model.name=lenet"};
    static const char *const ways[] = {"data.resident=yes", "data.resident=no"};
    static const char *const more[] = {"optimizer.name=adamw", "parallel.mode=fast"};
    for (int i = 0; i < 8; i++) {
        int n_tried = 0;
        while (!stays(models[i & 1], ways[i >> 1 & 1], more[i >> 2]))
            assert_true(++n_tried < TRIES);
    }
}

int main(void) {
    char folder[] = "/tmp/tutti-steady-XXXXXX", command[128];
    int code = find_gpus(1);
    if (code) return code;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_takes_no_memory_of_the_device)};
    if (!mkdtemp(folder) || chdir(folder) != 0) return 1;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? n_failed : 1;
}
