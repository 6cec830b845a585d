/* own_data.c - samples of your own for tutti_train: a function makes them when they are needed, and
 * the trained run predicts arrays in memory.
 *
 *     cc own_data.c $(pkg-config --cflags --libs tutti) -lm -o own_data && ./own_data
 */
#include <math.h>
#include <stdio.h>
#include <tutti/tutti.h>

enum { T = 32 };

/* A wave of 1 to 4 periods, its label 0 to 3; the same sample for the same index.  Loader threads
 * call it, several at a time. */
static int make_wave(void *user, int64_t index, void *const *fields) {
    float *x = fields[0];
    int32_t *y = fields[1];
    (void)user;
    *y = (int32_t)(index % 4);
    for (int t = 0; t < T; t++)
        x[t] = sinf(6.2831853f * (float)(*y + 1) * (float)t / T + (float)index * 0.7f);
    return 0;
}

static void stop_when_good(void *user, const tutti_train_progress *p,
                           tutti_train_control *control) {
    (void)user;
    printf("epoch %d: loss %.3f, test accuracy %.2f\n", (int)p->epoch, p->loss, p->eval_accuracy);
    control->stop = p->has_eval && p->eval_accuracy > 0.99;
}

static int count(void *user, const tutti_prediction *p) {
    if (!p->error && p->top[0].label == p->index % 4) ++*(int *)user;
    return 0; /* another value ends the call */
}

static int fail(void) {
    fprintf(stderr, "%s\n", tutti_last_error());
    return 1;
}

int main(void) {
    const tutti_field fields[] = {{"x", {TUTTI_F32, TUTTI_SHAPE(T)}}, {"y", {TUTTI_I32, {0}}}};
    const tutti_samples waves = {
        .n_samples = 2000, .fields = fields, .n_fields = 2, .get = make_wave};
    tutti_job *job;
    if (tutti_job_create(&job) != TUTTI_OK) return fail();
    if (tutti_job_set_samples(job, TUTTI_TRAIN, &waves) != TUTTI_OK) return fail();
    const char *const keys[] = {"model.name=mlp", "model.hidden=[64]", "data.classes=4",
                                "train.batch=50", "train.epochs=20",   "optimizer.name=adamw",
                                "run.dir=waves"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tutti_job_set(job, keys[i], "own_data.c");
    tutti_train_result result;
    const tutti_train_desc desc = {.on_epoch = stop_when_good};
    if (tutti_train(job, &desc, &result) != TUTTI_OK) return fail();

    /* Rows in memory through the trained model. */
    static float rows[8][T];
    int n_right = 0;
    const void *const data[] = {rows};
    const tutti_samples new_waves = {.n_samples = 8, .fields = fields, .n_fields = 1, .data = data};
    for (int i = 0; i < 8; i++) {
        int32_t y;
        make_wave(NULL, i, (void *const[]){rows[i], &y});
    }
    if (tutti_predict_samples(job, result.run_dir, &new_waves, count, &n_right) != TUTTI_OK)
        return fail();
    printf("%d of 8 waves are right after %d steps\n", n_right, (int)result.n_steps);
    tutti_job_destroy(job);
    return n_right < 7;
}
