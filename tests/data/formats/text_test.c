/* text_test.c - plain text: splits, vocabularies, several files; packing gives the same samples. */
#include "data/text_files.h"
#include "data/tokenizer/tokenizer.h"
#include "golden/bpe_cases.h"

static void check_text(const tutti_dataset *ds, const char *wanted) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    int64_t n = info->x.shape.dim[0];
    int32_t x[64], y[64];
    char *text;
    size_t n_text, at = 0;
    for (int64_t i = 0; i < info->n_samples; i++) {
        T_OK(tutti_dataset_get(ds, i, x, y));
        T_OK(tutti_tokenizer_decode(tutti_dataset_get_tokenizer(ds), x, n, &text, &n_text));
        if (strncmp(text, wanted + at, n_text) != 0) fail_msg("'%s' at %zu", text, at);
        at += n_text;
        free(text);
        T_EQ(y[0], x[1]);
    }
}

T_CASE(one_text_is_cut_in_two) {
    T_UNUSED;
    const char *dir = t_make_dir();
    static const char text[] = "abcdefghijklmnopqrstuvwxyz0123456789\n";
    t_put_text(dir, "some.txt", text);
    tutti_dataset_desc desc = {.format = "text", .dir = dir, .context = 4, .val_fraction = 0.3};
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 37);
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 6); /* 26 tokens */
    check_text(ds, text);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.tokenizer = "bytes";
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 256);
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 2); /* 11 tokens */
    check_text(ds, text + 26);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(files_named_for_their_split) {
    T_UNUSED;
    const char *dir = t_make_dir();
    t_put_text(dir, "b_train.txt", "world");
    t_put_text(dir, "a_train.txt", "hello ");
    t_put_text(dir, "latest-val.txt", "hold");
    t_put_text(dir, "notes.txt", "not for training");
    tutti_dataset_desc desc = {.format = "text", .dir = dir, .context = 2};
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 8);
    check_text(ds, "hello world");
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 1);
    check_text(ds, "hold");
    tutti_dataset_destroy(ds);
    t_put_text(dir, "latest-val.txt", "hole in one");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "latest-val.txt: character U+0069 at byte 5 is not in the vocabulary");
    t_clear_dir(dir);
}

T_CASE(bad_text) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "text", .dir = dir, .context = 4};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no file was found");
    t_put_text(dir, "a.txt", "");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no characters");
    t_put_text(dir, "a.txt", "fine\nnot \xC3 fine");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "not UTF-8 at byte 9 (line 2)");
    t_put_text(dir, "a.txt", "ab");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "a sample needs data.context + 1 = 5");
    desc.tokenizer = "gpt2";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "gpt2 needs a dir");
    desc.dir = desc.tokenizer = NULL;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.dir is missing");
    t_clear_dir(dir);
}

static void check_same(const tutti_dataset_desc *a, const tutti_dataset_desc *b) {
    tutti_dataset *da, *db;
    T_OK(tutti_dataset_open(a, &da));
    T_OK(tutti_dataset_open(b, &db));
    int64_t n = tutti_dataset_get_info(da)->n_samples;
    T_EQ(n, tutti_dataset_get_info(db)->n_samples);
    T_EQ(tutti_dataset_get_info(da)->n_classes, tutti_dataset_get_info(db)->n_classes);
    for (int64_t i = 0; i < n; i++) {
        int32_t xa[8], ya[8], xb[8], yb[8];
        T_OK(tutti_dataset_get(da, i, xa, ya));
        T_OK(tutti_dataset_get(db, i, xb, yb));
        assert_memory_equal(xa, xb, sizeof xa);
        assert_memory_equal(ya, yb, sizeof ya);
    }
    tutti_dataset_destroy(da);
    tutti_dataset_destroy(db);
}

T_CASE(packed_text_gives_the_same_samples) {
    T_UNUSED;
    char in[256], out[256], vocabulary[256], many[3000];
    strcpy(in, t_make_dir());
    strcpy(out, t_make_dir());
    strcpy(vocabulary, t_make_dir());
    for (size_t i = 0; i < sizeof many; i++) many[i] = "the moon, then. "[i % 16];
    t_put(in, "a.txt", many, sizeof many);
    t_put_text(in, "b.txt", "it's the end");
    t_put_text(vocabulary, "vocab.json", bpe_vocab_json);
    t_put_text(vocabulary, "merges.txt", bpe_merges_txt);
    static const char *const names[] = {"chars", "bytes", "gpt2"};
    for (int i = 0; i < 3; i++) {
        tutti_dataset_desc text = {.format = "text",
                                   .dir = in,
                                   .context = 8,
                                   .tokenizer = names[i],
                                   .tokenizer_dir = i == 2 ? vocabulary : NULL};
        tutti_dataset_desc packed = {.format = "tokens", .dir = out, .context = 8};
        char *report;
        T_OK(tutti_dataset_pack(&text, &(tutti_pack_desc){.dir = out, .shard_tokens = 500},
                                &report));
        assert_non_null(strstr(report, "text_train_000001.bin"));
        assert_non_null(strstr(report, "text_val_000000.bin: "));
        assert_non_null(strstr(report, names[i]));
        free(report);
        check_same(&text, &packed);
        text.split = packed.split = TUTTI_TEST;
        check_same(&text, &packed);
        t_clear_dir(out);
        mkdir(out, 0700);
    }
    t_clear_dir(in);
    t_clear_dir(out);
    t_clear_dir(vocabulary);
}

T_CASE(packing_checks_what_it_is_asked_for) {
    T_UNUSED;
    char *report;
    tutti_dataset_desc text = {.format = "text", .dir = "/nonexistent"};
    T_FAILS(tutti_dataset_pack(&text, &(tutti_pack_desc){0}, &report), TUTTI_E_INVALID,
            "needs a folder");
    T_FAILS(tutti_dataset_pack(&text, &(tutti_pack_desc){.dir = "/proc/no/where"}, &report),
            TUTTI_E_IO, "cannot make the folder");
    text.format = "idx";
    T_FAILS(tutti_dataset_pack(&text, &(tutti_pack_desc){.dir = "/tmp"}, &report),
            TUTTI_E_UNSUPPORTED, "data.format=idx cannot be packed");
    assert_null(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_text_is_cut_in_two),
        cmocka_unit_test(files_named_for_their_split),
        cmocka_unit_test(bad_text),
        cmocka_unit_test(packed_text_gives_the_same_samples),
        cmocka_unit_test(packing_checks_what_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
