/* image_decode_test.c - pictures of every kind decode to PIL's pixels; rows that are skipped change
 * nothing; damaged and hostile files give a message. */
#include "data/image.h"

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
    tti_blob blob = {bytes, n_bytes, "test"};
    tti_image_head head;
    tti_image image;
    T_OK(tti_image_read_head(&blob, &head));
    T_OK(tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &ws, &image));
    return image;
}

T_CASE(as_pil) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_picture_files); i++) {
        const t_picture_file *f = &t_picture_files[i];
        tti_image image = decode(f->bytes, f->n_bytes);
        T_EQ(image.h, f->h);
        T_EQ(image.w, f->w);
        if (t_hash(image.rgb, (size_t)(f->h * f->w * 3)) != f->hash)
            fail_msg("%s: other pixels than PIL's", f->name);
    }
}

T_CASE(interlaced_and_deep_png) {
    T_UNUSED;
    uint8_t file[20000], *rgb = t_picture(21, 33);
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
        tti_blob blob = {file, n, "test"};
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

/* Nor do columns, wherever the cut is: in every way to store colours, whole and in passes. */
T_CASE(columns_left_out_change_nothing) {
    T_UNUSED;
    enum { H = 50, W = 203 };
    for (int kind = 0; kind < 4; kind++) {
        uint8_t *file, *all = malloc(H * W * 3);
        size_t n = jpeg_of_kind(kind, H, W, &file);
        memcpy(all, decode(file, n).rgb, H * W * 3);
        tti_blob blob = {file, n, "test"};
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
    tti_blob blob = {bytes, n_bytes, "dir/x.jpg"};
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

/* Every length that is cut off fails and is not taken for a whole picture. */
T_CASE(truncated_files) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_picture_files); i++) {
        const t_picture_file *f = &t_picture_files[i];
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
    for (size_t i = 0; i < TTI_COUNT(t_picture_files); i++) {
        const t_picture_file *f = &t_picture_files[i];
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
    const t_picture_file *jpeg = &t_picture_files[0];
    uint8_t *copy = malloc(jpeg->n_bytes);
    memcpy(copy, jpeg->bytes, jpeg->n_bytes);
    for (size_t i = 2; i + 9 < jpeg->n_bytes; i++)
        if (copy[i] == 0xFF && copy[i + 1] == 0xC0) memcpy(copy + i + 5, "\xFF\x00\xFF\x00", 4);
    T_FAILS(try(copy, jpeg->n_bytes), TUTTI_E_DATA, "more pixels than are possible");
    free(copy);
}

T_CASE(orientation_of_damaged_exif) {
    T_UNUSED;
    const t_picture_file *f = NULL;
    for (size_t i = 0; i < TTI_COUNT(t_picture_files); i++)
        if (strcmp(t_picture_files[i].name, "turned 6") == 0) f = &t_picture_files[i];
    assert_non_null(f);
    T_EQ(tti_exif_orientation((const uint8_t *)f->bytes, f->n_bytes), 6);
    for (size_t n = 0; n < 120; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, f->bytes, n);
        int orientation = tti_exif_orientation(copy, n);
        assert_true(orientation == 1 || orientation == 6);
        free(copy);
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, free_workspace);
}
