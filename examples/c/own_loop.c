/* own_loop.c - a training loop of your own: batches from memory, steps, outputs, parameters.
 *
 *     cc own_loop.c $(pkg-config --cflags --libs tutti) -o own_loop && ./own_loop
 */
#include <stdio.h>
#include <tutti/tutti.h>

enum { ROWS = 64 };

/* x: [N,2] -> logits [N,2]: whether a point lies in the unit circle */
static tutti_value *model(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    x = tutti_tanh(g, tutti_linear(g, x, 32, "fc1"));
    return tutti_linear(g, x, 2, "fc2");
}

static void make_batch(unsigned *state, float x[ROWS][2], int32_t y[ROWS]) {
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 2; k++) {
            *state = *state * 1664525u + 1013904223u;
            x[i][k] = (float)(*state >> 8) / (1 << 23) * 1.5f - 1.5f;
        }
        y[i] = x[i][0] * x[i][0] + x[i][1] * x[i][1] < 1;
    }
}

static int fail(void) {
    fprintf(stderr, "%s\n", tutti_last_error());
    return 1;
}

int main(void) {
    tutti_job *job;
    tutti_session *session;
    if (tutti_job_create(&job) != TUTTI_OK) return fail();
    tutti_job_set_model(job, model, NULL);
    tutti_job_set(job, "train.batch=64", "own_loop.c");
    tutti_job_set(job, "optimizer.name=adamw", "own_loop.c");
    tutti_job_set(job, "parallel.workers=2", "own_loop.c");

    /* The type of one row of each input; the batch is dimension 0. */
    const tutti_field inputs[] = {{"x", {TUTTI_F32, TUTTI_SHAPE(2)}}, {"y", {TUTTI_I32, {0}}}};
    const tutti_session_desc desc = {.inputs = inputs, .n_inputs = 2, .n_classes = 2};
    if (tutti_session_create(job, &desc, &session) != TUTTI_OK) return fail();

    float x[ROWS][2];
    int32_t y[ROWS];
    unsigned state = 1;
    const tutti_tensor batch[] = {{"x", {TUTTI_F32, TUTTI_SHAPE(ROWS, 2)}, x, 0},
                                  {"y", {TUTTI_I32, TUTTI_SHAPE(ROWS)}, y, 0}};
    for (int step = 0; step < 500; step++) {
        tutti_session_result r;
        make_batch(&state, x, y);
        if (tutti_session_step(session, batch, 2, 0.01, &r) != TUTTI_OK) return fail();
        if (r.step % 100 == 0)
            printf("step %d: loss %.3f, %.0f %% right\n", (int)r.step, r.loss_sum / r.count,
                   100 * r.correct / r.count);
    }

    /* New points, without labels. */
    float logits[ROWS][2];
    int n_right = 0;
    const tutti_tensor out = {"logits", {TUTTI_F32, TUTTI_SHAPE(ROWS, 2)}, logits, 0};
    make_batch(&state, x, y);
    if (tutti_session_forward(session, batch, 1, &out, 1) != TUTTI_OK) return fail();
    for (int i = 0; i < ROWS; i++) n_right += (logits[i][1] > logits[i][0]) == y[i];
    printf("%d of %d new points are right\n", n_right, ROWS);

    float weight[2][32];
    const tutti_tensor to = {NULL, {TUTTI_F32, TUTTI_SHAPE(2, 32)}, weight, 0};
    if (tutti_session_read(session, TUTTI_PARAMETER, "fc2.weight", &to) != TUTTI_OK) return fail();
    printf("fc2.weight begins with %.3f\n", weight[0][0]);
    if (tutti_session_save_weights(session, "circle.safetensors") != TUTTI_OK) return fail();
    tutti_session_destroy(session);
    tutti_job_destroy(job);
    return n_right < ROWS * 9 / 10;
}
