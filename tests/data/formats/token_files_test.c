/* token_files_test.c - files of tokens in each layout, their splits, windows and faults; the loader
 * delivers them. */
#include "data/formats/token_stream.h"
#include "data/loader/loader.h"
#include "data/text_files.h"

enum { N = 1000 };

static uint32_t token_at(size_t i) { return (uint32_t)(i * 37 % 500); }

/* magic 0: nanoGPT's, tokens only.  Returns the bytes. */
static size_t make_file(uint32_t magic, uint32_t version, size_t first, size_t n, uint8_t *out) {
    size_t width = magic == 20240801 ? 4 : 2, at = magic ? 1024 : 0;
    uint32_t head[3] = {magic, version, (uint32_t)n};
    memset(out, 0, at);
    if (magic) memcpy(out, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = token_at(first + i);
        memcpy(out + at + i * width, &token, width);
    }
    return at + n * width;
}

static void put(const char *dir, const char *name, uint32_t magic, uint32_t version, size_t first,
                size_t n) {
    uint8_t bytes[1024 + 4 * N];
    t_put(dir, name, bytes, make_file(magic, version, first, n, bytes));
}

static tutti_dataset *open_set(const tutti_dataset_desc *desc) {
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(desc, &ds));
    return ds;
}

/* Sample i is tokens first + i*stride ... */
static void check_samples(const tutti_dataset *ds, size_t first, int64_t stride, int64_t n_wanted) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    int64_t n = info->x.shape.dim[0];
    int32_t x[64], y[64];
    T_EQ(info->n_samples, n_wanted);
    T_EQ(info->x.dtype, TUTTI_I32);
    T_EQ(info->y.shape.dim[0], n);
    for (int64_t i = 0; i < info->n_samples; i++) {
        T_OK(tutti_dataset_get(ds, i, x, y));
        for (int64_t k = 0; k < n; k++) {
            size_t at = first + (size_t)(i * stride + k);
            T_EQ(x[k], token_at(at));
            T_EQ(y[k], token_at(at + 1));
        }
    }
}

/* Wider tokens read as u16 would be tokens with a 0 after each. */
T_CASE(files_of_something_else) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 4, .val_fraction = 0.1};
    tutti_dataset *ds;
    uint32_t narrow[N], wide[N];
    uint64_t widest[N];
    for (size_t i = 0; i < N; i++) {
        narrow[i] = token_at(i);
        wide[i] = (uint32_t)(i * 7919 % 128000);
        widest[i] = token_at(i);
    }
    static const char seems[] = "some.bin: every second number of 16 bits is 0 or small";
    t_put(dir, "some.bin", narrow, sizeof narrow);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, seems);
    t_put(dir, "some.bin", wide, sizeof wide);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, seems);
    t_put(dir, "some.bin", widest, sizeof widest);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, seems);
    t_put(dir, "some.bin", "\x93NUMPY\1\0 v", 10);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "is a NumPy file");
    t_clear_dir(dir);
}

T_CASE(every_layout) {
    T_UNUSED;
    static const uint32_t layouts[][2] = {{0, 0}, {20240520, 1}, {20240801, 7}};
    for (size_t i = 0; i < 3; i++) {
        const char *dir = t_make_dir();
        put(dir, "some_train_000.bin", layouts[i][0], layouts[i][1], 0, 300);
        put(dir, "some_train_001.bin", layouts[i][0], layouts[i][1], 300, 101);
        put(dir, "some_val_000.bin", layouts[i][0], layouts[i][1], 50, 101);
        tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 10};
        tutti_dataset *ds = open_set(&desc);
        T_EQ(tutti_dataset_get_info(ds)->n_classes, 500);
        assert_null(tutti_dataset_get_tokenizer(ds));
        check_samples(ds, 0, 10, 40); /* one of them lies in both files */
        tutti_dataset_destroy(ds);
        desc.stride = 3;
        ds = open_set(&desc);
        check_samples(ds, 0, 3, 131);
        tutti_dataset_destroy(ds);
        desc.split = TUTTI_TEST;
        desc.n_classes = 500;
        ds = open_set(&desc);
        check_samples(ds, 50, 10, 10); /* no overlap */
        tutti_dataset_destroy(ds);
        t_clear_dir(dir);
    }
}

T_CASE(one_file_is_cut_in_two) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put(dir, "all.bin", 0, 0, 0, N);
    char path[512];
    snprintf(path, sizeof path, "%s/a*.bin", dir);
    tutti_dataset_desc desc = {
        .format = "tokens", .dir = path, .context = 20, .val_fraction = 0.25, .n_classes = 512};
    tutti_dataset *ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 512);
    check_samples(ds, 0, 20, 37);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    ds = open_set(&desc);
    check_samples(ds, 750, 20, 12);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(bad_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 10};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no file was found");
    put(dir, "a.bin", 20240520, 2, 0, 100);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "version 2 of llm.c's format is not supported, only 1");
    uint8_t bytes[1024 + 400];
    size_t n = make_file(20240520, 1, 0, 100, bytes);
    t_put(dir, "a.bin", bytes, n - 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "the header says 100 tokens, that is 1224 bytes in all; the file has 1223");
    t_put(dir, "a.bin", bytes, n + 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "the file has 1225");
    memset(bytes + 8, 0xFF, 4);
    t_put(dir, "a.bin", bytes, n);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "4294967295 tokens");
    t_put(dir, "a.bin", bytes, 7);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "7 bytes are not a whole number of 2-byte tokens");
    t_put(dir, "a.bin", bytes, 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "has 0 tokens");
    put(dir, "a.bin", 0, 0, 0, 20);
    desc.context = 18;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "the training part has 18 tokens, a sample needs data.context + 1 = 19");
    desc.context = 5;
    desc.n_samples = 100;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "100 samples are requested, there are 3");
    assert_null(ds);
    t_clear_dir(dir);
}

T_CASE(tokens_outside_of_the_vocabulary) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put(dir, "a.bin", 0, 0, 0, 100);
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 10, .n_classes = 112};
    tutti_dataset *ds;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "a.bin: token 148 at position 4 is outside the vocabulary, 0 .. 111");
    t_put_text(dir, "tokenizer.json", "{\"tokenizer\":\"bytes\"}");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "a vocabulary of 112 is too small for the tokenizer's 256 tokens");
    desc.n_classes = 0;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "a.bin: token 259 at position 7 is outside the vocabulary, 0 .. 255");
    desc.n_classes = 500;
    ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 500);
    assert_string_equal(tutti_tokenizer_get_name(tutti_dataset_get_tokenizer(ds)), "bytes");
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(a_file_that_shrinks) {
    T_UNUSED;
    const char *dir = t_make_dir();
    int32_t x[10], y[10];
    put(dir, "a.bin", 0, 0, 0, 100);
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 10, .n_classes = 500};
    tutti_dataset *ds = open_set(&desc);
    assert_int_equal(truncate(t_path(dir, "a.bin"), 50), 0);
    T_OK(tutti_dataset_get(ds, 0, x, y));
    T_FAILS(tutti_dataset_get(ds, 5, x, y), TUTTI_E_DATA, "a.bin: truncated");
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

/* The same batches for any number of threads and workers; masked rows hold -1 in every place. */
T_CASE(the_loader_delivers_rows_of_tokens) {
    T_UNUSED;
    enum { T = 10, B = 12, V = 4, STEPS = 9 };
    const char *dir = t_make_dir();
    put(dir, "a.bin", 0, 0, 0, N);
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = T, .n_classes = 500};
    tutti_dataset *ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 89);
    static int32_t wanted[STEPS][V][B / V][T];
    for (int threads = 0; threads < 3; threads++)
        for (int worker = 0; worker < 2; worker++) {
            tti_loader *loader;
            tti_loader_desc how = {.dataset = ds,
                                   .batch = B,
                                   .n_shards = V,
                                   .seed = 3,
                                   .first_shard = worker * 2,
                                   .last_shard = worker * 2 + 2,
                                   .n_threads = threads};
            T_OK(tti_loader_create(&how, &loader));
            for (int step = 0; step < STEPS; step++) {
                tti_batch b;
                T_OK(tti_loader_next(loader, &b));
                if (step == 7) T_EQ(b.n_rows_global, 5);
                for (int s = 0; s < 2; s++) {
                    const int32_t *x = tti_batch_x(&b, s), *y = tti_batch_y(&b, s);
                    void *want = wanted[step][worker * 2 + s];
                    size_t size = sizeof wanted[0][0];
                    if (threads == 0) memcpy(want, x, size);
                    assert_memory_equal(x, want, size);
                    for (int row = 0; row < B / V; row++) {
                        bool real = (worker * 2 + s) * (B / V) + row < b.n_rows_global;
                        for (int i = 0; i < T; i++) {
                            if (!real) T_EQ(y[row * T + i], -1);
                            if (real && i > 0) T_EQ(y[row * T + i - 1], x[row * T + i]);
                        }
                    }
                }
            }
            tti_loader_destroy(loader);
        }
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

/* ---- masked tokens ---- */

static void check_masked(const tutti_dataset *ds, int64_t n_wanted, int32_t mask) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    int32_t x[64], y[64], again_x[64], again_y[64];
    int64_t n = info->x.shape.dim[0], n_chosen = 0, n_masked = 0;
    T_EQ(info->n_samples, n_wanted);
    for (int64_t i = 0; i < n_wanted; i++) {
        T_OK(tutti_dataset_get(ds, i, x, y));
        T_OK(tutti_dataset_get(ds, i, again_x, again_y));
        assert_memory_equal(x, again_x, (size_t)n * sizeof *x);
        assert_memory_equal(y, again_y, (size_t)n * sizeof *y);
        for (int64_t k = 0; k < n; k++) {
            int32_t was = (int32_t)token_at((size_t)(i * n + k));
            assert_in_range(x[k], 0, info->n_classes - 1);
            if (y[k] < 0)
                T_EQ(x[k], was);
            else
                T_EQ(y[k], was);
            n_chosen += y[k] >= 0;
            n_masked += x[k] == mask;
        }
    }
    assert_in_range(n_chosen, n * n_wanted / 10, n * n_wanted / 5);
    assert_in_range(n_masked, n_chosen / 2, n_chosen);
}

/* A window needs no token after it; a mask token of its own is one more class, in both splits. */
T_CASE(masked_windows) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put(dir, "some_train_000.bin", 0, 0, 0, 1000);
    put(dir, "some_val_000.bin", 0, 0, 0, 500);
    tutti_dataset_desc desc = {
        .format = "tokens", .dir = dir, .context = 50, .mask_prob = 0.15, .mask_token = -1};
    tutti_dataset *ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 501);
    check_masked(ds, 20, 500);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.n_classes = 500;
    ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 501);
    check_masked(ds, 10, 500);
    tutti_dataset_destroy(ds);
    desc.n_classes = 600;
    desc.mask_token = 599;
    ds = open_set(&desc);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 600);
    check_masked(ds, 10, 599);
    tutti_dataset_destroy(ds);
    desc.mask_token = 600;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID,
            "data.mask_token 600 is outside the vocabulary, 0 .. 599");
    desc.context = 501;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "a sample needs data.context = 501");
    desc.mask_prob = 1.5;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "mask_prob 1.5 is not in [0, 1]");
    desc = (tutti_dataset_desc){.format = "digits", .mask_prob = 0.5};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "digits has no tokens to mask");
    assert_null(ds);
    t_clear_dir(dir);
}

/* Training masks other tokens in each epoch, evaluation always the same. */
T_CASE(masks_by_epoch) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put(dir, "some.bin", 0, 0, 0, 60);
    tutti_dataset_desc desc = {.format = "tokens", .dir = dir, .context = 50, .mask_prob = 0.3};
    tutti_dataset *ds = open_set(&desc);
    for (int sequential = 0; sequential < 2; sequential++) {
        int32_t y[2][50];
        for (int pass = 0; pass < 2; pass++) {
            tti_loader_desc d = {.dataset = ds,
                                 .batch = 1,
                                 .n_shards = 1,
                                 .last_shard = 1,
                                 .sequential = sequential,
                                 .epoch = sequential ? 0 : pass};
            tti_loader *loader;
            tti_batch batch;
            T_OK(tti_loader_create(&d, &loader));
            T_OK(tti_loader_next(loader, &batch));
            memcpy(y[pass], tti_batch_y(&batch, 0), sizeof y[pass]);
            tti_loader_destroy(loader);
        }
        T_EQ(memcmp(y[0], y[1], sizeof y[0]) == 0, sequential);
    }
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_something_else),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(one_file_is_cut_in_two),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(tokens_outside_of_the_vocabulary),
        cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(the_loader_delivers_rows_of_tokens),
        cmocka_unit_test(masked_windows),
        cmocka_unit_test(masks_by_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
