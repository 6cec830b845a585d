/* jpegs.c - JPEG files of synthetic photographs in tar archives, as WebDataset names them, for
 * jpeg.sh.
 *
 * Usage: jpegs FOLDER N_IMAGES N_CLASSES N_ARCHIVES [SIDE [N_DISTINCT]]
 *        (cc -O2 bench/jpegs.c -ljpeg -lm)
 *
 * An image has SIDE x 3/4 SIDE pixels (500 unless given), quality 90: about 100 KB at 500, as in
 * ImageNet. N_DISTINCT of them (128 unless given) are encoded; the others repeat their bytes, which
 * a decoder does not notice.  The same arguments give the same bytes. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h> /* needs stdio.h */

typedef struct image {
    unsigned char *bytes;
    unsigned long n_bytes;
} image;

static void fail(const char *what) {
    fprintf(stderr, "jpegs: %s\n", what);
    exit(1);
}

static uint32_t next_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* sin and cos of f * i for i < n. */
static void make_waves(double f, int n, double *waves /* [n][2] */) {
    for (int i = 0; i < n; i++) {
        waves[2 * i] = sin(f * i);
        waves[2 * i + 1] = cos(f * i);
    }
}

static double next_frequency(uint32_t *state, int k) {
    double f = next_random(state) % 1000 / 1000.0 - 0.5;
    return k ? f * 0.3 * (k + 1) : f * 0.04;
}

/* Waves of several lengths in each colour, an edge and some noise, by the seed. */
static void draw(uint32_t seed, int w, int h, double *waves /* [w + h][2] */,
                 float *sums /* [h][w] */, JSAMPLE *rgb /* [h][w][3] */) {
    uint32_t state = seed * 2654435761u + 1;
    int edge = (int)(next_random(&state) % (uint32_t)w);
    double *across = waves, *down = waves + 2 * w;
    for (int c = 0; c < 3; c++) {
        for (int k = 0; k < 4; k++) { /* sin(x + y) = sin x cos y + cos x sin y */
            make_waves(next_frequency(&state, k), w, across);
            make_waves(next_frequency(&state, k), h, down);
            for (int i = 0; i < w * h; i++) {
                const double *x = across + i % w * 2, *y = down + i / w * 2;
                float before = k ? sums[i] : 128;
                sums[i] = before + (float)(60 / (k + 2) * (x[0] * y[1] + x[1] * y[0]));
            }
        }
        for (int i = 0; i < w * h; i++) {
            float noise = (float)(next_random(&state) % 33) - 16;
            float v = sums[i] + noise + (i % w > edge ? 20 : -20);
            rgb[i * 3 + c] = (JSAMPLE)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}

static image encode(int w, int h, JSAMPLE *rgb) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    image made = {NULL, 0};
    jpeg.err = jpeg_std_error(&errors); /* ends the program */
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &made.bytes, &made.n_bytes);
    jpeg.image_width = (JDIMENSION)w;
    jpeg.image_height = (JDIMENSION)h;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = rgb + (size_t)jpeg.next_scanline * (size_t)w * 3;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return made;
}

/* One member of a tar archive (ustar). */
static void put_member(FILE *f, const char *name, const void *bytes, size_t n_bytes) {
    char header[512] = {0};
    static const char zeros[512];
    unsigned sum = 0;
    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "%07o", 0644);
    snprintf(header + 108, 8, "%07o", 0);
    snprintf(header + 116, 8, "%07o", 0);
    snprintf(header + 124, 12, "%011lo", (unsigned long)n_bytes);
    snprintf(header + 136, 12, "%011o", 0);
    header[156] = '0';
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    size_t rest = (512 - n_bytes % 512) % 512;
    if (fwrite(header, 512, 1, f) != 1 || fwrite(bytes, 1, n_bytes, f) != n_bytes ||
        fwrite(zeros, 1, rest, f) != rest)
        fail("cannot write an archive");
}

static FILE *open_archive(const char *folder, int i) {
    char path[4096];
    snprintf(path, sizeof path, "%s/images-%06d.tar", folder, i);
    FILE *f = fopen(path, "wb");
    if (!f) fail("cannot make an archive");
    return f;
}

static void close_archive(FILE *f) {
    static const char zeros[1024];
    if (fwrite(zeros, sizeof zeros, 1, f) != 1 || fclose(f) != 0) fail("cannot write an archive");
}

static int number(int argc, char **argv, int i, int missing) {
    int n = i < argc ? atoi(argv[i]) : missing;
    if (n <= 0 || n > 100000000) fail("arguments: see the head of jpegs.c");
    return n;
}

int main(int argc, char **argv) {
    int n = number(argc, argv, 2, 0), n_classes = number(argc, argv, 3, 0);
    int n_archives = number(argc, argv, 4, 0), w = number(argc, argv, 5, 500), h = w * 3 / 4;
    int n_distinct = number(argc, argv, 6, 128);
    if (n_distinct > n) n_distinct = n;
    image *images = calloc((size_t)n_distinct, sizeof *images);
    if (w > 8192 || h < 1) fail("an image has 2 to 8192 pixels in a row");
    JSAMPLE *rgb = malloc((size_t)w * (size_t)h * 3);
    float *sums = malloc((size_t)w * (size_t)h * sizeof *sums);
    double *waves = malloc((size_t)(w + h) * 2 * sizeof *waves);
    if (!images || !rgb || !sums || !waves) fail("out of memory");
    for (int i = 0; i < n_distinct; i++) {
        draw((uint32_t)i + 1, w, h, waves, sums, rgb);
        images[i] = encode(w, h, rgb);
    }
    for (int a = 0; a < n_archives; a++) {
        FILE *f = open_archive(argv[1], a);
        for (int i = a; i < n; i += n_archives) {
            char name[32], label[16];
            snprintf(name, sizeof name, "%08d.jpg", i);
            put_member(f, name, images[i % n_distinct].bytes, images[i % n_distinct].n_bytes);
            snprintf(name, sizeof name, "%08d.cls", i);
            snprintf(label, sizeof label, "%d", i % n_classes);
            put_member(f, name, label, strlen(label));
        }
        close_archive(f);
    }
    for (int i = 0; i < n_distinct; i++) free(images[i].bytes);
    free(images);
    free(rgb);
    free(sums);
    free(waves);
    return 0;
}
