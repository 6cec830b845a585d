/* data_spec_test.c - what a trained model knows of its data: written, read back, compared, refused
 * when damaged; and data sets that are opened with it. */
#include "data/data_spec.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/image_files.h"
#include "data/root_folder.h"

static void add_image(const char *below, int phase) {
    char command[1200];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", below_root(below));
    assert_int_equal(system(command), 0);
    t_write_jpeg(below_root(below), 24, 24, phase);
}

static tutti_dataset_desc images(tutti_data_split split, tti_data_spec *spec) {
    return (tutti_dataset_desc){.format = "images",
                                .dir = root,
                                .split = split,
                                .image_size = 24,
                                .augment = "none",
                                .spec = spec};
}

/* The specification of cat, dog, owl, written and read back. */
static tti_data_spec *learn_images(void) {
    tutti_dataset *ds;
    tti_data_spec *spec;
    add_image("train/dog/1.jpg", 1);
    add_image("train/cat/1.jpg", 2);
    add_image("train/owl/1.jpg", 3);
    add_image("val/owl/1.jpg", 4);
    tutti_dataset_desc desc = images(TUTTI_TRAIN, NULL);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_OK(tti_data_spec_save(tti_dataset_spec(ds), root));
    T_OK(tti_data_spec_load(root, &spec));
    T_OK(tti_data_spec_compare(tti_dataset_spec(ds), spec));
    tutti_dataset_destroy(ds);
    return spec;
}

T_CASE(what_is_learned_is_read_back) {
    T_UNUSED;
    tti_data_spec *spec = learn_images();
    assert_string_equal(spec->format, "images");
    T_EQ(spec->n_classes, 3);
    assert_string_equal(spec->class_names[0], "cat");
    assert_string_equal(spec->class_names[2], "owl");
    T_EQ(spec->pixels.n_channels, 3);
    T_EQ(spec->pixels.fit, TTI_FIT_MIDDLE);
    T_NEAR(spec->pixels.mean[0], 0.485, 0);
    T_NEAR(spec->pixels.std[2], 0.225, 0);
    T_EQ(spec->stored.shape.dim[0], 24);
    T_EQ(spec->x.dtype, TUTTI_F32);
    assert_null(spec->tokenizer);
    tti_data_spec_release(spec);
}

T_CASE(classes_are_matched_by_name) {
    T_UNUSED;
    tutti_dataset *ds;
    tti_data_spec *spec = learn_images();
    float x[3 * 24 * 24];
    int32_t y;
    /* The training files are gone; fewer classes in the same folder: numbers stay. */
    char command[1200];
    snprintf(command, sizeof command, "rm -r '%s/train'", root);
    assert_int_equal(system(command), 0);
    tutti_dataset_desc desc = images(TUTTI_TEST, spec);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 1);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    T_EQ(y, 2);
    assert_string_equal(tutti_dataset_class_name(ds, y), "owl");
    tutti_dataset_destroy(ds);
    add_image("val/ant/1.jpg", 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "val/ant: there is no such class");
    tti_data_spec_release(spec);
}

T_CASE(a_data_set_without_files) {
    T_UNUSED;
    tutti_dataset *ds;
    tti_data_spec *spec = learn_images();
    float x[3 * 24 * 24];
    int32_t y;
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.spec = spec, .no_files = true}, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 0);
    T_EQ(tutti_dataset_get_info(ds)->x.shape.dim[2], 24);
    T_EQ(tti_dataset_decode(ds)->n, 1);
    assert_string_equal(tutti_dataset_class_name(ds, 1), "dog");
    assert_null(tutti_dataset_class_name(ds, 3));
    T_FAILS(tutti_dataset_get(ds, 0, x, &y), TUTTI_E_INVALID, "sample 0 does not exist");
    tutti_dataset_destroy(ds);
    tti_data_spec_release(spec);
}

T_CASE(a_tokenizer_is_kept) {
    T_UNUSED;
    tutti_dataset *ds;
    tti_data_spec *spec;
    t_write(below_root("a.txt"), "abcabcabcabcabcabcabcabc", 24);
    tutti_dataset_desc desc = {
        .format = "text", .dir = root, .split = TUTTI_TRAIN, .context = 4, .val_fraction = 0.4};
    T_OK(tutti_dataset_open(&desc, &ds));
    T_OK(tti_data_spec_save(tti_dataset_spec(ds), root));
    tutti_dataset_destroy(ds);
    T_OK(tti_data_spec_load(root, &spec));
    T_EQ(tutti_tokenizer_get_size(spec->tokenizer), 3);
    t_write(below_root("a.txt"), "ccccccccccccccccccccbbbb", 24); /* 'b' is still token 1 */
    desc.split = TUTTI_TEST;
    desc.spec = spec;
    int32_t x[4], y[4];
    T_OK(tutti_dataset_open(&desc, &ds));
    T_OK(tutti_dataset_get(ds, 0, x, y));
    T_EQ(x[0], 2);
    tutti_dataset_destroy(ds);
    t_write(below_root("a.txt"), "ccccccccccccccccccccdddd", 24);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "U+0064");
    tti_data_spec_release(spec);
}

T_CASE(other_data_is_refused) {
    T_UNUSED;
    tutti_dataset *ds, *digits;
    tti_data_spec *spec = learn_images();
    tutti_dataset_desc desc = images(TUTTI_TEST, spec);
    desc.image_size = 16;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "trained on f32[3,24,24]");
    desc = images(TUTTI_TEST, spec);
    desc.channel_mean = "0.1, 0.2, 0.3";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.channel_mean");
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){.format = "digits", .spec = spec}, &ds),
            TUTTI_E_DATA, "3 classes are too few");
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.format = "digits"}, &digits));
    T_FAILS(tti_data_spec_compare(spec, tti_dataset_spec(digits)), TUTTI_E_DATA,
            "it was \"format\": \"images\", and now it is \"format\": \"digits\"");
    tutti_dataset_destroy(digits);
    tti_data_spec_release(spec);
}

T_CASE(a_renamed_class_is_named_by_compare) {
    T_UNUSED;
    tutti_dataset *ds;
    tti_data_spec *spec = learn_images();
    char command[1200];
    tutti_dataset_desc small = images(TUTTI_TRAIN, NULL);
    small.image_size = 16;
    T_OK(tutti_dataset_open(&small, &ds));
    T_FAILS(tti_data_spec_compare(spec, tti_dataset_spec(ds)), TUTTI_E_DATA,
            "it was \"stored\": \"shape\": 24, and now it is \"stored\": \"shape\": 16");
    tutti_dataset_destroy(ds);
    snprintf(command, sizeof command, "mv '%s/train/dog' '%s/train/wolf'", root, root);
    assert_int_equal(system(command), 0);
    tutti_dataset_desc desc = images(TUTTI_TRAIN, NULL);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_FAILS(tti_data_spec_compare(spec, tti_dataset_spec(ds)), TUTTI_E_DATA,
            "it was \"class_names\": \"dog\", and now it is \"class_names\": \"owl\"");
    tutti_dataset_destroy(ds);
    tti_data_spec_release(spec);
}

T_CASE(every_changed_byte_is_found) {
    T_UNUSED;
    tti_data_spec *spec = learn_images(), *again;
    tti_str text = {0};
    bool has_tokenizer;
    T_OK(tti_data_spec_print(spec, &text));
    for (size_t i = 0; i < text.n_bytes; i++) {
        text.text[i] ^= 1;
        T_FAILS(tti_data_spec_parse("d", text.text, text.n_bytes, &again, &has_tokenizer),
                TUTTI_E_CHECKPOINT, "d: damaged");
        text.text[i] ^= 1;
    }
    T_FAILS(tti_data_spec_parse("d", text.text, 10, &again, &has_tokenizer), TUTTI_E_CHECKPOINT,
            "d: damaged: its first line is not {\"data_crc32c\"");
    tti_str_free(&text);
    tti_data_spec_release(spec);
    T_FAILS(tti_data_spec_load("/nowhere", &again), TUTTI_E_CHECKPOINT, "--resume /nowhere");
}

T_CASE(impossible_contents) {
    T_UNUSED;
#define TYPES(stored)                                                 \
    "\"stored\":{\"dtype\":\"U8\",\"shape\":" stored                  \
    "},\"x\":{\"dtype\":\"F32\",\"shape\":[3,8,8]},\"y\":{\"dtype\":" \
    "\"I32\",\"shape\":[]},\"classes\":2,\"tokens\":0,\"tokenizer\":" \
    "false"
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"{}", "\"version\" is missing"},
        {"{\"version\":2}", "\"version\" is 2"},
        {"{\"version\":1,\"format\":\"nil\"}", "no data format 'nil'"},
        {"{\"version\":1,\"format\":\"images\"," TYPES("[99999999,99999999]") "}",
         "is not possible"},
        {"{\"version\":1,\"format\":\"images\"," TYPES("[0]") "}", "is not possible"},
        {"{\"version\":1,\"format\":\"images\"," TYPES("[8,8,3]") ",\"class_names\":[\"a\"]}",
         "1 class names for 2 classes"},
        {"{\"version\":1,\"format\":\"images\"," TYPES("[8,8,3]") ",\"class_names\":[\"a\",1]}",
         "class name 1 is not text"},
        {"{\"version\":1,\"format\":\"images\"," TYPES(
             "[8,9,3]") ",\"pixels\":{\"mean\":[0,0,0],\"std\":[1,1,1],\"fit\":\"fill\"}}",
         "does not match"},
        {"{\"version\":1,\"format\":\"images\"," TYPES(
             "[8,8,3]") ",\"pixels\":{\"mean\":[0,0],\"std\":[1,1],\"fit\":\"fill\"}}",
         "expected 1 or 3"},
    };
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        tti_data_spec *spec;
        bool has_tokenizer;
        T_FAILS(
            tti_data_spec_parse_body("d", bad[i].text, strlen(bad[i].text), &spec, &has_tokenizer),
            TUTTI_E_CHECKPOINT, bad[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_learned_is_read_back), IN_FOLDER(classes_are_matched_by_name),
        IN_FOLDER(a_data_set_without_files),     IN_FOLDER(a_tokenizer_is_kept),
        IN_FOLDER(other_data_is_refused),        IN_FOLDER(a_renamed_class_is_named_by_compare),
        IN_FOLDER(every_changed_byte_is_found),  cmocka_unit_test(impossible_contents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
