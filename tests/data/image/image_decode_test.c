/* image_decode_test.c - images of every kind decode to PIL's pixels; rows that are skipped change
 * nothing; damaged and hostile files give a message. */
#include "data/image/image.h"

#include "base/error.h"
#include "data/image_files.h"
#include "golden/images_golden.h"
#include "t.h"

static tti_workspace ws;

static int free_workspace(void **state) {
    T_UNUSED;
    tti_workspace_free(&ws);
    return 0;
}

/* All of it; T_OK inside. */
static tti_image decode(const void *bytes, size_t n_bytes) {
    tti_blob blob = {bytes, n_bytes, "test", 0};
    tti_image_head head;
    tti_image image;
    T_OK(tti_image_read_head(&blob, &head));
    T_OK(tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &ws, &image));
    return image;
}

T_CASE(as_pil) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_image_files); i++) {
        const t_image_file *f = &t_image_files[i];
        tti_image image = decode(f->bytes, f->n_bytes);
        T_EQ(image.h, f->h);
        T_EQ(image.w, f->w);
        if (t_hash(image.rgb, (size_t)(f->h * f->w * 3)) != f->hash)
            fail_msg("%s: other pixels than PIL's", f->name);
    }
}

T_CASE(interlaced_and_deep_png) {
    T_UNUSED;
    uint8_t file[20000], *rgb = t_image(21, 33);
    for (int kind = 0; kind < 4; kind++) {
        size_t n = t_png(21, 33, kind & 1, kind & 2, file, sizeof file);
        tti_image image = decode(file, n);
        T_EQ(image.w, 33);
        assert_memory_equal(image.rgb, rgb, 21 * 33 * 3);
    }
    free(rgb);
}

/* kind 0 .. 3: colours whole or at half the size, in one pass or in several. */
static size_t jpeg_of_kind(int kind, int h, int w, uint8_t **file) {
    return t_jpeg(&(t_jpeg_kind){.h = h,
                                 .w = w,
                                 .quality = 75,
                                 .phase = kind,
                                 .h_sampling = 1 + kind % 2,
                                 .progressive = kind >= 2},
                  file);
}

/* The rows of a box are the same whether the others are decoded or not. */
T_CASE(skipped_rows_change_nothing) {
    T_UNUSED;
    enum { H = 93, W = 70 };
    for (int kind = 0; kind < 4; kind++) {
        uint8_t *file, *all = malloc(H * W * 3);
        size_t n = jpeg_of_kind(kind, H, W, &file);
        tti_image image = decode(file, n);
        memcpy(all, image.rgb, H * W * 3);
        tti_blob blob = {file, n, "test", 0};
        tti_image_head head;
        T_OK(tti_image_read_head(&blob, &head));
        for (int first = 0; first < H; first++) {
            int last = first + 1 + (first * 7) % (H - first);
            T_OK(
                tti_image_decode(&blob, &head, &(tti_box){first, 0, last - first, W}, &ws, &image));
            assert_memory_equal(image.rgb + first * W * 3, all + first * W * 3,
                                (size_t)((last - first) * W * 3));
        }
        free(all);
        free(file);
    }
}

static void compare_part(const tti_blob *blob, const tti_image_head *head, const tti_box *box,
                         const uint8_t *all) {
    tti_image image;
    T_OK(tti_image_decode(blob, head, box, &ws, &image));
    for (int64_t y = box->y; y < box->y + box->h; y++) {
        size_t at = (size_t)(y * head->w + box->x) * 3;
        assert_memory_equal(image.rgb + at, all + at, (size_t)box->w * 3);
    }
}

/* Columns that are left out change nothing, for every cut and every colour format, in one pass and
 * in several. */
T_CASE(columns_left_out_change_nothing) {
    T_UNUSED;
    enum { H = 50, W = 203 };
    for (int kind = 0; kind < 4; kind++) {
        uint8_t *file, *all = malloc(H * W * 3);
        size_t n = jpeg_of_kind(kind, H, W, &file);
        memcpy(all, decode(file, n).rgb, H * W * 3);
        tti_blob blob = {file, n, "test", 0};
        tti_image_head head;
        T_OK(tti_image_read_head(&blob, &head));
        for (int x = 0; x < W; x++) {
            tti_box box = {(x * 5) % (H - 1), x, 1 + x % (H - (x * 5) % (H - 1)), 1};
            for (box.w = 1; box.x + box.w <= W; box.w = 2 * box.w + x % 5)
                compare_part(&blob, &head, &box, all);
        }
        free(all);
        free(file);
    }
}

/* Decodes whatever comes; *text is the message, "" for none. */
static tutti_status try(const void *bytes, size_t n_bytes) {
    tti_blob blob = {bytes, n_bytes, "dir/x.jpg", 0};
    tti_image_head head;
    tti_image image;
    TTI_TRY(tti_image_read_head(&blob, &head));
    return tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &ws, &image);
}

T_CASE(bad_files) {
    T_UNUSED;
    T_FAILS(try("", 0), TUTTI_E_DATA, "dir/x.jpg: the file is empty");
    T_FAILS(try("GIF89a..", 8), TUTTI_E_DATA, "dir/x.jpg: neither JPEG nor PNG");
    T_FAILS(try("\xFF\xD8\xFF\xE0", 4), TUTTI_E_DATA, "dir/x.jpg: damaged JPEG");
    T_FAILS(try("\x89PNG\r\n\x1A\n", 8), TUTTI_E_DATA, "dir/x.jpg: damaged PNG: truncated");
}

/* Every length that is cut off fails and is not taken for a whole image. */
T_CASE(truncated_files) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_image_files); i++) {
        const t_image_file *f = &t_image_files[i];
        bool is_png = f->bytes[0] == '\x89';
        for (size_t n = 0; n + (is_png ? 1 : 3) < f->n_bytes; n += 7) {
            uint8_t *copy = malloc(n + 1); /* so that a sanitizer sees reads past the end */
            memcpy(copy, f->bytes, n);
            T_EQ(try(copy, n), TUTTI_E_DATA);
            free(copy);
        }
    }
}

/* A changed byte may give other pixels or an error, but nothing else. */
T_CASE(damaged_files) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_image_files); i++) {
        const t_image_file *f = &t_image_files[i];
        uint8_t *copy = malloc(f->n_bytes);
        for (size_t at = 0; at < f->n_bytes; at += 3) {
            memcpy(copy, f->bytes, f->n_bytes);
            copy[at] = (uint8_t)(copy[at] ^ (1u << at % 8) ^ 0x80);
            tutti_status st = try(copy, f->n_bytes);
            assert_true(st == TUTTI_OK || st == TUTTI_E_DATA);
        }
        free(copy);
    }
}

T_CASE(bombs) {
    T_UNUSED;
    const t_image_file *jpeg = &t_image_files[0];
    uint8_t *copy = malloc(jpeg->n_bytes);
    memcpy(copy, jpeg->bytes, jpeg->n_bytes);
    for (size_t i = 2; i + 9 < jpeg->n_bytes; i++)
        if (copy[i] == 0xFF && copy[i + 1] == 0xC0) memcpy(copy + i + 5, "\xFF\x00\xFF\x00", 4);
    T_FAILS(try(copy, jpeg->n_bytes), TUTTI_E_DATA, "more pixels than its bytes can hold");
    free(copy);
}

T_CASE(orientation_of_damaged_exif) {
    T_UNUSED;
    const t_image_file *f = NULL;
    for (size_t i = 0; i < TTI_COUNT(t_image_files); i++)
        if (strcmp(t_image_files[i].name, "turned 6") == 0) f = &t_image_files[i];
    assert_non_null(f);
    T_EQ(tti_jpeg_orientation((const uint8_t *)f->bytes, f->n_bytes), 6);
    for (size_t n = 0; n < 120; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, f->bytes, n);
        int orientation = tti_jpeg_orientation(copy, n);
        assert_true(orientation == 1 || orientation == 6);
        free(copy);
    }
}

/* ---- orientation of PNG ---- */

enum { PH = 5, PW = 7 };

static uint8_t png[20000];

/* A PNG with one more chunk, after the header or before the end. */
static size_t png_with(const char *type, const void *data, size_t n_data, bool late) {
    static uint8_t plain[20000];
    size_t n = t_png(PH, PW, false, false, plain, sizeof plain), at = late ? n - 12 : 33;
    memcpy(png, plain, at);
    uint8_t *chunk = png + at;
    for (int i = 0; i < 4; i++) chunk[i] = (uint8_t)(n_data >> (24 - 8 * i));
    memcpy(chunk + 4, type, 4);
    memcpy(chunk + 8, data, n_data);
    uint32_t crc = t_crc32(chunk + 4, n_data + 4);
    for (int i = 0; i < 4; i++) chunk[8 + n_data + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    memcpy(chunk + 12 + n_data, plain + at, n - at);
    return n + 12 + n_data;
}

static int stored_row(int o, int y, int x) {
    int row = o >= 5 ? x : y;
    return o == 3 || o == 4 || o == 6 || o == 7 ? PH - 1 - row : row;
}

static int stored_column(int o, int y, int x) {
    int column = o >= 5 ? y : x;
    return o == 2 || o == 3 || o == 7 || o == 8 ? PW - 1 - column : column;
}

static void assert_turned(size_t n, int o) {
    tti_image image = decode(png, n);
    T_EQ(image.h, o >= 5 ? PW : PH);
    T_EQ(image.w, o >= 5 ? PH : PW);
    const uint8_t *at = image.rgb;
    for (int y = 0; y < image.h; y++)
        for (int x = 0; x < image.w; x++)
            for (int c = 0; c < 3; c++)
                T_EQ(*at++, t_pixel(stored_row(o, y, x), stored_column(o, y, x), c));
}

/* A TIFF header whose directory has the orientation; of a type: 3 SHORT, 4 LONG. */
static size_t exif_of(int orientation, bool big, int type, uint8_t out[26]) {
    static const uint8_t little_head[] = {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1};
    static const uint8_t big_head[] = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12};
    memset(out, 0, 26);
    memcpy(out, big ? big_head : little_head, 12);
    out[big ? 13 : 12] = (uint8_t)type;
    out[big ? 17 : 14] = 1;
    out[!big ? 18 : type == 3 ? 19 : 21] = (uint8_t)orientation;
    return 26;
}

T_CASE(png_is_turned_by_its_exif_chunk) {
    T_UNUSED;
    for (int o = 1; o <= 8; o++)
        for (int kind = 0; kind < 8; kind++) {
            uint8_t exif[32] = "Exif";
            size_t n = exif_of(o, kind & 1, kind & 2 ? 4 : 3, exif + 6);
            bool has_name = o == 6; /* some writers put the name of a JPEG's part before it */
            assert_turned(
                png_with("eXIf", has_name ? exif : exif + 6, n + (has_name ? 6 : 0), kind & 4), o);
        }
    uint8_t exif[26];
    assert_turned(png_with("eXIf", exif, exif_of(9, false, 3, exif), false), 1);
    assert_turned(png_with("eXIf", exif, exif_of(6, false, 7, exif), false), 1);
    assert_turned(png_with("eXIf", exif, exif_of(6, false, 1, exif), false), 1); /* BYTE */
    size_t n = exif_of(6, false, 3, exif);
    exif[14] = 2; /* two values, both here */
    assert_turned(png_with("eXIf", exif, n, false), 6);
    exif[14] = 3, exif[18] = 200; /* three, behind the end */
    assert_turned(png_with("eXIf", exif, n, false), 1);
    exif[18] = 0, exif[0] = 'I'; /* three at the begin, "II" is no orientation */
    assert_turned(png_with("eXIf", exif, n, false), 1);
}

T_CASE(png_is_turned_by_its_texts) {
    T_UNUSED;
    uint8_t exif[26];
    exif_of(8, true, 3, exif);
    char text[200] = "Raw profile type exif";
    size_t n = strlen(text) + 1;
    n += (size_t)sprintf(text + n, "\nexif\n      26\n");
    for (int i = 0; i < 26; i++)
        n += (size_t)sprintf(text + n, "%02x%s", exif[i], i % 9 ? "" : "\n");
    assert_turned(png_with("tEXt", text, n, false), 8);
    static const char xmp[] = "XML:com.adobe.xmp\0\0\0\0\0<x:xmpmeta tiff:Orientation=\"6\"/>";
    assert_turned(png_with("iTXt", xmp, sizeof xmp - 1, false), 6);
    T_EQ(tti_xmp_orientation("<tiff:Orientation>3</tiff:Orientation>", 38), 3);
    T_EQ(tti_xmp_orientation("tiff:Orientation=", 17), 0);
    T_EQ(tti_xmp_orientation("tiff:Orientation=\"9", 19), 1);
}

/* ---- the whole file is judged ---- */

/* Whatever the crop, a file that was cut off is damaged. */
T_CASE(a_cut_file_is_found_by_every_crop) {
    T_UNUSED;
    enum { H = 93, W = 70 };
    for (int kind = 0; kind < 5; kind++) {
        uint8_t *file = NULL, *drawn = NULL;
        size_t n = kind < 4 ? jpeg_of_kind(kind, H, W, &drawn)
                            : t_png(H, W, false, false, png, sizeof png);
        file = kind < 4 ? drawn : png;
        tti_image_head head;
        tti_blob blob = {file, n, "test", 0};
        T_OK(tti_image_read_head(&blob, &head));
        tti_image image;
        for (size_t cut = n - 4 - n / 5; cut < n - 4; cut += n / 25) {
            blob.n_bytes = cut;
            T_FAILS(tti_image_decode(&blob, &head, &(tti_box){3, 5, 1, 1}, &ws, &image),
                    TUTTI_E_DATA, kind < 4 ? "test: damaged JPEG" : "test: damaged PNG");
        }
        free(drawn);
    }
}

T_CASE(pixels_are_limited) {
    T_UNUSED;
    size_t n = t_png(30, 40, false, false, png, sizeof png);
    tti_image_head head;
    tti_blob blob = {png, n, "big.png", 1200};
    T_OK(tti_image_read_head(&blob, &head));
    blob.max_pixels = 1199;
    T_FAILS(tti_image_read_head(&blob, &head), TUTTI_E_DATA,
            "big.png: 40 x 30 pixels, 1200 in all, are more than data.max_pixels=1199 allows");
    uint8_t *file;
    blob = (tti_blob){.n_bytes = jpeg_of_kind(0, 30, 40, &file), .name = "big.jpg"};
    blob.bytes = file, blob.max_pixels = 1199;
    T_FAILS(tti_image_read_head(&blob, &head), TUTTI_E_DATA, "data.max_pixels=1199 allows");
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pil),
        cmocka_unit_test(interlaced_and_deep_png),
        cmocka_unit_test(skipped_rows_change_nothing),
        cmocka_unit_test(columns_left_out_change_nothing),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(truncated_files),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(bombs),
        cmocka_unit_test(orientation_of_damaged_exif),
        cmocka_unit_test(png_is_turned_by_its_exif_chunk),
        cmocka_unit_test(png_is_turned_by_its_texts),
        cmocka_unit_test(a_cut_file_is_found_by_every_crop),
        cmocka_unit_test(pixels_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, free_workspace);
}
