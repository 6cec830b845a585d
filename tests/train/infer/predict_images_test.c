/* predict_images_test.c - predictions of images in a folder: logits, probabilities and names of
 * classes against a computation in f64 from the pixels and the parameters of the run, and against
 * `tutti predict`. */
#include "train/infer/png_file.h"
#include "train/infer/predicted.h"

enum { SIDE = 16, SIZE = 14, HIDDEN = 4, STEPS = 9, N_CLASSES = 6, N_NEW = 3 };

static const char *const classes[N_CLASSES] = {"bird", "cat", "dog", "emu", "fox", "gnu"};
static const char *const files[N_NEW] = {"new/a.png", "new/deep/b.png", "new/grey.png"};

static void draw(int seed, uint8_t pixels[SIDE][SIDE][3]) {
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < 3; c++)
                pixels[y][x][c] = (uint8_t)((x * 7 + y * 3 * (c + 1) + seed * 41 * (c + 2)) % 256);
}

static void write_images(void) {
    char path[64];
    uint8_t pixels[SIDE][SIDE][3], grey[SIDE][SIDE];
    T_EQ(system("mkdir -p new/deep photos"), 0);
    for (int k = 0; k < N_CLASSES; k++)
        for (int i = 0; i < 6; i++) {
            snprintf(path, sizeof path, "mkdir -p photos/%s/%s", i < 4 ? "train" : "val",
                     classes[k]);
            T_EQ(system(path), 0);
            snprintf(path, sizeof path, "photos/%s/%s/%d.png", i < 4 ? "train" : "val", classes[k],
                     i);
            draw(i + 10 * k, pixels);
            t_write_png(path, pixels[0][0], SIDE, SIDE, 3);
        }
    for (int i = 0; i < N_NEW; i++) {
        draw(100 + i, pixels);
        for (int p = 0; p < SIDE * SIDE; p++)
            grey[p / SIDE][p % SIDE] = pixels[p / SIDE][p % SIDE][0];
        t_write_png(files[i], i == 2 ? grey[0] : pixels[0][0], SIDE, SIDE, i == 2 ? 1 : 3);
    }
}

/* An image of 16 x 16 pixels is not resized for a model of 14 x 14: its middle is cut out. */
static void check_image(const tutti_prediction *p) {
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    static double x[3][SIZE][SIZE];
    uint8_t pixels[SIDE][SIDE][3];
    double logits[N_CLASSES];
    int i = 0;
    while (i < N_NEW && strcmp(p->file, files[i]) != 0) i++;
    assert_true(i < N_NEW);
    T_EQ(p->index, 0);
    T_EQ(p->n_in_file, 1);
    draw(100 + i, pixels);
    for (int c = 0; c < 3; c++)
        for (int at = 0; at < SIZE * SIZE; at++)
            x[c][at / SIZE][at % SIZE] =
                (pixels[at / SIZE + 1][at % SIZE + 1][i == 2 ? 0 : c] / 255.0 - mean[c]) / std[c];
    t_mlp(STEPS, x[0][0], 3 * SIZE * SIZE, HIDDEN, logits, N_CLASSES);
    t_check_classes(p, logits, N_CLASSES, classes);
    assert_null(p->mask);
}

T_CASE(images_of_a_folder) {
    T_UNUSED;
    if (!TUTTI_HAVE_PNG) skip();
    write_images();
    t_train(SMALL_JOB("data.format=images", "data.dir=photos", "data.image_size=14",
                      "data.n_train=0", "data.n_test=0", "model.hidden=[4]", "train.batch=8",
                      "train.steps=9", "run.progress=false", "run.dir=run"));
    T_EQ(system("rm -r photos"), 0);
    t_predicted all = t_predict("new", check_image);
    T_EQ(all.n, N_NEW);
    T_EQ(all.n_notices, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(images_of_a_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
