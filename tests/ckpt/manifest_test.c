/* manifest_test.c - what is printed reads back, and what is wrong is named. */
#include "ckpt/manifest.h"

#include "base/crc32c.h"
#include "t.h"

static tti_safetensors_entry entries[] = {
    {.name = "w", .type = {TUTTI_F32, {2, {2, 3}}}, .n_bytes = 24, .crc = 0xABCDEF01u},
    {.name = "b \"\xC3\xA9\"", .type = {TUTTI_I64, {0, {0}}}, .n_bytes = 8, .crc = 7},
};

static tti_ckpt_text texts[] = {{"job", "a: 1\nb: \"2\"\n"}, {"", "\t"}};

static tti_manifest sample(void) {
    return (tti_manifest){
        .meta = {1000, 1, 2, 8, INT64_MIN, 3, UINT64_MAX, "cpu avx2"},
        .texts = texts,
        .n_texts = 2,
        .files = {{200, 100, 1, 2, 2, entries}, {16, 16, 3, 4, 0, entries}},
    };
}

T_CASE(round_trip) {
    T_UNUSED;
    tti_manifest m = sample(), back;
    tti_str text = {0}, again = {0};
    T_OK(tti_manifest_print(&m, &text));
    T_OK(tti_manifest_parse(text.text, text.n_bytes, &back));
    T_EQ(back.meta.step, 1000);
    T_EQ(back.meta.seed, INT64_MIN);
    assert_true(back.meta.params_hash == UINT64_MAX);
    assert_string_equal(back.meta.backend, "cpu avx2");
    T_EQ(back.n_texts, 2);
    assert_string_equal(back.texts[0].text, texts[0].text);
    T_EQ(back.files[0].n_bytes, 200);
    T_EQ(back.files[0].entries[0].crc, 0xABCDEF01u);
    T_EQ(back.files[0].entries[0].n_bytes, 24);
    assert_string_equal(back.files[0].entries[1].name, entries[1].name);
    T_OK(tti_manifest_print(&back, &again));
    assert_string_equal(text.text, again.text);
    tti_manifest_free(&back);
    tti_str_free(&text);
    tti_str_free(&again);
}

T_CASE(its_own_checksum) {
    T_UNUSED;
    tti_manifest m = sample(), back;
    tti_str text = {0};
    T_OK(tti_manifest_print(&m, &text));
    text.text[text.n_bytes - 10] ^= 1;
    T_FAILS(tti_manifest_parse(text.text, text.n_bytes, &back), TUTTI_E_CHECKPOINT,
            "manifest: damaged: its contents have the checksum ");
    text.text[text.n_bytes - 10] ^= 1;
    text.text[1] ^= 1;
    T_FAILS(tti_manifest_parse(text.text, text.n_bytes, &back), TUTTI_E_CHECKPOINT, "first line");
    for (size_t n = 0; n < 40; n++)
        T_FAILS(tti_manifest_parse(text.text, n, &back), TUTTI_E_CHECKPOINT, "first line");
    T_EQ(back.n_texts, 0);
    tti_str_free(&text);
}

/* Replaces one part of a good manifest and parses the result. */
static void with(const char *from, const char *to, const char *message) {
    tti_manifest m = sample(), back;
    tti_str text = {0}, changed = {0};
    T_OK(tti_manifest_print(&m, &text));
    const char *at = strstr(text.text, from);
    if (!at) fail_msg("no %s in %s", from, text.text);
    tti_str_add_bytes(&changed, text.text, (size_t)(at - text.text));
    tti_str_add(&changed, to);
    tti_str_add(&changed, at + strlen(from));
    if (tti_manifest_parse_body(changed.text, changed.n_bytes, &back) == TUTTI_OK)
        fail_msg("accepted: %s", to);
    if (!strstr(tutti_last_error(), message)) fail_msg("%s: %s", to, tutti_last_error());
    tti_str_free(&text);
    tti_str_free(&changed);
}

T_CASE(bad_contents) {
    T_UNUSED;
    with("tutti-checkpoint", "tutti", "its format is not");
    with("\"version\": 1", "\"version\": 2", "made by a newer Tutti");
    with("\"version\": 1", "\"version\": 0", "outside of");
    with("\"version\": 1", "\"version\": 1.0", "is a real, not an integer");
    with("\"version\": 1,", "", "\"version\" is missing");
    with("\"step\": 1000", "\"step\": -1", "outside of");
    with("\"step\": 1000", "\"step\": 1e3", "is a real");
    with("\"step\": 1000", "\"step\": 1, \"step\": 2", "duplicate object key");
    with("ffffffffffffffff", "fffffffffffffff", "16 lower-case hex digits");
    with("ffffffffffffffff", "fffffffffffffffF", "16 lower-case hex digits");
    with("abcdef01", "abcdef0g", "tensor 'w': \"crc32c\" is not 8");
    with("\"F32\"", "\"f32\"", "tensor 'w': its dtype");
    with("\"name\": \"w\"", "\"name\": \"\"", "no bytes");
    with("\"bytes\": 200", "\"bytes\": 9", "model.safetensors: \"bytes\" is 9");
    with("\"header_bytes\": 100", "\"header_bytes\": 201", "\"header_bytes\" is 201");
    with("optimizer.safetensors", "../optimizer", "\"optimizer.safetensors\" is missing");
    with("\"cpu avx2\"", "null", "\"backend\" is null, not text");
    with("\"\\u0009\"", "[]", "a text is not a string");
    with("\"texts\": {", "\"texts\": [], \"x\": {", "\"texts\" is a list, not an object");
    with("\"step\"", "step", "not valid JSON");
}

T_CASE(names_of_files) {
    T_UNUSED;
    assert_string_equal(tti_ckpt_file_name(TTI_CKPT_MODEL), "model.safetensors");
    assert_string_equal(tti_ckpt_file_name(TTI_CKPT_OPTIMIZER), "optimizer.safetensors");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(its_own_checksum),
        cmocka_unit_test(bad_contents),
        cmocka_unit_test(names_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
