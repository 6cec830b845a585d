/* own_optimizer.c - an optimizer and a loss of your own: Lion on the flat parameters, and a loss
 * that C code computes from the outputs.
 *
 *     cc own_optimizer.c $(pkg-config --cflags --libs tutti) -lm -o lion && ./lion
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { ROWS = 32 };

/* x: [N,1] -> y [N,1] */
static tutti_value *model(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    return tutti_linear(g, tutti_tanh(g, tutti_linear(g, x, 16, "hidden")), 1, "out");
}

/* log cosh of the difference: the sum over the rows, their count, and the derivatives. */
static int log_cosh(void *user, tutti_host_loss *loss) {
    const float *predicted = loss->outputs[0].data, *wanted = loss->inputs[1].data;
    float *grad = loss->grads[0].data;
    (void)user;
    for (int64_t i = 0; i < loss->n_rows; i++) {
        float d = predicted[i] - wanted[i];
        loss->loss_sum += log(cosh((double)d));
        grad[i] = tanhf(d);
    }
    loss->count = (double)loss->n_rows;
    return 0;
}

/* Lion (Chen et al. 2023): the sign of a running mean of the gradients. */
static void lion(const tutti_flat_view *view, double grad_scale, float lr, float *mean) {
    for (int64_t i = 0; i < view->n_elems; i++) {
        float g = view->grads[i] * (float)grad_scale, m = 0.9f * mean[i] + 0.1f * g;
        view->params[i] -= lr * (float)((m > 0) - (m < 0));
        mean[i] = 0.99f * mean[i] + 0.01f * g;
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
    tutti_job_set(job, "train.batch=32", "own_optimizer.c");
    tutti_job_set(job, "parallel.workers=2", "own_optimizer.c");
    const tutti_field inputs[] = {{"x", {TUTTI_F32, TUTTI_SHAPE(1)}},
                                  {"y", {TUTTI_F32, TUTTI_SHAPE(1)}}};
    const tutti_session_desc desc = {.inputs = inputs, .n_inputs = 2, .loss = log_cosh};
    if (tutti_session_create(job, &desc, &session) != TUTTI_OK) return fail();

    float x[ROWS], y[ROWS], *mean = NULL;
    const tutti_tensor batch[] = {{"x", {TUTTI_F32, TUTTI_SHAPE(ROWS, 1)}, x, 0},
                                  {"y", {TUTTI_F32, TUTTI_SHAPE(ROWS, 1)}, y, 0}};
    for (int i = 0; i < ROWS; i++) {
        x[i] = (float)i / ROWS * 4 - 2;
        y[i] = sinf(2 * x[i]);
    }
    tutti_session_result r;
    for (int step = 0; step < 500; step++) {
        tutti_flat_view view;
        if (tutti_session_gradients(session, batch, 2, &r) != TUTTI_OK) return fail();
        if (tutti_session_flat(session, &view) != TUTTI_OK) return fail();
        if (!mean) mean = calloc((size_t)view.n_elems, sizeof *mean);
        if (!mean) return 1;
        lion(&view, r.grad_scale, step < 300 ? 1e-2f : 1e-3f, mean);
        if (tutti_session_apply_flat(session, NULL) != TUTTI_OK) return fail();
        if (step % 100 == 0) printf("step %d: loss %.4f\n", step, r.loss_sum / r.count);
    }
    printf("loss %.4f\n", r.loss_sum / r.count);
    free(mean);
    tutti_session_destroy(session);
    tutti_job_destroy(job);
    return r.loss_sum / r.count > 0.02;
}
