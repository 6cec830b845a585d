/* predict_masks_test.c - predictions of the class of each pixel: logits and masks against a
 * computation in f64 from the pixels and the parameters of the run, against `tutti predict`, and in
 * the file of tutti_prediction_save_mask. */
#include "data/image/image_set.h"
#include "train/infer/png_file.h"
#include "train/infer/predicted.h"

enum { S = 8, N_INNER = 8, STEPS = 30, N_FILES = 10 };

/* A new image: of the model's size, or of one color and another size. */
typedef struct new_image {
    const char *file;
    int h, w;
    bool is_uniform;
} new_image;

static const new_image new_images[] = {
    {"new/a.png", S, S, false}, {"new/b.png", S, S, false}, {"new/wide.png", 5, 13, true}};
enum { N_NEW = sizeof new_images / sizeof new_images[0] };

static uint8_t pixel(int seed, bool is_uniform, int y, int x, int c) {
    if (is_uniform) return (uint8_t[]){200, 30, 90}[c];
    return (uint8_t)((x * 17 * (c + 1) + y * 29 + seed * 57 + x * y * (c + 3)) % 256);
}

static void write_image(const char *path, int seed, int h, int w, bool is_uniform) {
    uint8_t rgb[16 * 16 * 3];
    for (int i = 0; i < h * w * 3; i++)
        rgb[i] = pixel(seed, is_uniform, i / 3 / w, i / 3 % w, i % 3);
    t_write_png(path, rgb, h, w, 3);
}

/* The class of a pixel follows its color. */
static void write_mask(const char *path, int seed) {
    uint8_t mask[S * S];
    for (int i = 0; i < S * S; i++) {
        int red = pixel(seed, false, i / S, i % S, 0), blue = pixel(seed, false, i / S, i % S, 2);
        mask[i] = red > 150 ? 2 : blue > 120 ? 1 : 0;
    }
    t_write_png(path, mask, S, S, 1);
}

static void write_all(void) {
    char path[64];
    T_EQ(system("mkdir -p scenes/images scenes/masks new"), 0);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof path, "scenes/images/%d.png", i);
        write_image(path, i, S, S, false);
        snprintf(path, sizeof path, "scenes/masks/%d.png", i);
        write_mask(path, i);
    }
    for (int i = 0; i < N_NEW; i++)
        write_image(new_images[i].file, 20 + i, new_images[i].h, new_images[i].w,
                    new_images[i].is_uniform);
}

static tutti_job *job_of(const char *model, const char *more) {
    return SMALL_JOB("data.format=masks", "data.dir=scenes", "data.image_size=8", "data.n_train=0",
                     "data.n_test=0", "model.name=null", "model.hidden=null", model,
                     "train.batch=4", "parallel.shards=2", "train.steps=30", "optimizer.name=adamw",
                     "optimizer.lr=0.05", "run.progress=false", "run.dir=run", more);
}

/* ---- in f64 ---- */

/* A convolution of 3 x 3 with padding, relu, and a linear layer of each pixel: [n_classes,S,S]. */
static void compute(int n_classes, const double x[3][S][S], double *logits) {
    static double inner[S][S][N_INNER];
    float *w = t_parameter(STEPS, "a.weight", N_INNER * 3 * 9);
    float *b = t_parameter(STEPS, "a.bias", N_INNER);
    float *v = t_parameter(STEPS, "b.weight", (size_t)n_classes * N_INNER);
    float *d = t_parameter(STEPS, "b.bias", (size_t)n_classes);
    for (int at = 0; at < S * S * N_INNER; at++) {
        int o = at % N_INNER, y = at / N_INNER / S, xx = at / N_INNER % S;
        double sum = (double)b[o];
        for (int tap = 0; tap < 27; tap++) {
            int c = tap / 9, ty = y + tap / 3 % 3 - 1, tx = xx + tap % 3 - 1;
            if (ty >= 0 && ty < S && tx >= 0 && tx < S)
                sum += (double)w[o * 27 + tap] * x[c][ty][tx];
        }
        inner[y][xx][o] = fmax(sum, 0);
    }
    for (int k = 0; k < n_classes; k++)
        for (int at = 0; at < S * S; at++) {
            double *to = &logits[k * S * S + at];
            *to = (double)d[k];
            for (int o = 0; o < N_INNER; o++)
                *to += (double)v[k * N_INNER + o] * inner[at / S][at % S][o];
        }
    free(w), free(b), free(v), free(d);
}

/* The class of a pixel of the model's size. */
static int class_at(const double *logits, int n_classes, int at) {
    int best = 0;
    if (n_classes == 1) return logits[at] > 0;
    for (int k = 1; k < n_classes; k++)
        if (logits[k * S * S + at] > logits[best * S * S + at]) best = k;
    return best;
}

static void check_saved(const tutti_prediction *p) {
    tti_workspace ws = {0};
    tti_image_head head;
    tti_image image;
    T_OK(tutti_prediction_save_mask(p, "saved.png"));
    T_FAILS(tutti_prediction_save_mask(p, "saved.png"), TUTTI_E_IO, "exists already");
    T_OK(tti_fetch_bytes("saved.png", 0, 0, &ws));
    tti_blob blob = {ws.file.bytes, ws.file.n_bytes, "saved.png", 1 << 20};
    T_OK(tti_image_read_head(&blob, &head));
    T_OK(tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &ws, &image));
    T_EQ(image.h, p->mask_height);
    T_EQ(image.w, p->mask_width);
    for (int64_t i = 0; i < image.h * image.w; i++) T_EQ(image.rgb[3 * i], p->mask[i]);
    tti_workspace_free(&ws);
    T_EQ(remove("saved.png"), 0);
}

static int n_changes; /* neighbours with different classes */

static void check_mask(const tutti_prediction *p, int n_classes) {
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    static double x[3][S][S], logits[3 * S * S];
    int i = 0;
    while (i < N_NEW && strcmp(p->file, new_images[i].file) != 0) i++;
    assert_true(i < N_NEW);
    for (int at = 0; at < 3 * S * S; at++) {
        int c = at / S / S, y = at / S % S, xx = at % S;
        double value = pixel(20 + i, new_images[i].is_uniform, y, xx, c);
        x[c][y][xx] = (value / 255 - mean[c]) / std[c];
    }
    compute(n_classes, (const double(*)[S][S])x, logits);
    if (p->error) fail_msg("%s", p->error);
    T_EQ(p->n_outputs, n_classes * S * S);
    for (int k = 0; k < n_classes * S * S; k++)
        T_NEAR(p->outputs[k], logits[k], 4 * T_LOGIT_TOLERANCE);
    assert_false(p->is_value || p->is_labels);
    T_EQ(p->n_top, 0);
    T_EQ(p->n_values, 0);
    T_EQ(p->mask_height, new_images[i].h);
    T_EQ(p->mask_width, new_images[i].w);
    for (int at = 0; at < new_images[i].h * new_images[i].w; at++) {
        /* the pixel whose middle is nearest */
        int y = (int)((at / new_images[i].w + 0.5) * S / new_images[i].h);
        int xx = (int)((at % new_images[i].w + 0.5) * S / new_images[i].w);
        T_EQ(p->mask[at], class_at(logits, n_classes, y * S + xx));
        n_changes += at > 0 && p->mask[at] != p->mask[at - 1];
    }
    check_saved(p);
}

static void check_classes(const tutti_prediction *p) { check_mask(p, 3); }

static void check_question(const tutti_prediction *p) { check_mask(p, 1); }

/* ---- cases ---- */

static void predict(void (*check)(const tutti_prediction *p)) {
    n_changes = 0;
    t_predicted all = t_predict("new", check);
    T_EQ(all.n, N_NEW);
    assert_true(n_changes > 10);
}

T_CASE(classes_of_pixels) {
    T_UNUSED;
    if (!TUTTI_HAVE_PNG) skip();
    write_all();
    t_train(job_of("model.file=" TUTTI_TEST_DATA "/../golden/pt2/fields_segments.pt2",
                   "train.loss=cross-entropy"));
    T_EQ(system("rm -r scenes"), 0);
    predict(check_classes);
}

T_CASE(a_question_of_pixels) {
    T_UNUSED;
    if (!TUTTI_HAVE_PNG) skip();
    write_all();
    for (int i = 0; i < N_FILES; i++) { /* only 0 and 1 */
        char path[64];
        uint8_t mask[S * S];
        for (int at = 0; at < S * S; at++) mask[at] = pixel(i, false, at / S, at % S, 0) > 120;
        snprintf(path, sizeof path, "scenes/masks/%d.png", i);
        t_write_png(path, mask, S, S, 1);
    }
    t_train(job_of("model.file=" TUTTI_TEST_DATA "/../golden/pt2/fields_question.pt2",
                   "train.loss=bce"));
    T_EQ(system("rm -r scenes"), 0);
    predict(check_question);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(classes_of_pixels),
                                       IN_FOLDER(a_question_of_pixels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
