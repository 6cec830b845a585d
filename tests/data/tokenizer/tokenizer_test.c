/* tokenizer_test.c - what all tokenizers share, bytes and chars, and files that are none. */
#include "data/tokenizer/tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/json_read.h"
#include "data/text_files.h"

T_CASE(table_is_complete) {
    T_UNUSED;
    int n = 0;
    for (; tti_tokenizer_kind_at(n); n++) {
        const tti_tokenizer_kind *kind = tti_tokenizer_kind_at(n);
        assert_true(kind->name[0] && kind->doc[0]);
        assert_true(kind->encode && kind->save);
    }
    T_EQ(n, 3);
    assert_null(tti_tokenizer_kind_at(-1));
}

static void round_trip(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                       int64_t n_wanted) {
    int32_t *token;
    int64_t n;
    char *back;
    size_t n_back;
    T_OK(tutti_tokenizer_encode(t, text, n_bytes, &token, &n));
    T_EQ(n, n_wanted);
    for (int64_t i = 0; i < n; i++) assert_in_range(token[i], 0, tutti_tokenizer_get_size(t) - 1);
    T_OK(tutti_tokenizer_decode(t, token, n, &back, &n_back));
    T_EQ(n_back, n_bytes);
    assert_memory_equal(back, text, n_bytes);
    T_EQ(back[n_back], 0);
    free(token);
    free(back);
}

/* Saves, reads back, and compares a text's tokens. */
static void save_and_read(const tutti_tokenizer *t, const char *text, size_t n_bytes) {
    const char *dir = t_make_dir();
    tutti_tokenizer *again;
    int32_t *a, *b;
    int64_t n_a, n_b;
    T_OK(tutti_tokenizer_save(t, t_path(dir, "tokenizer.json")));
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "auto", .dir = dir}, &again));
    assert_string_equal(tutti_tokenizer_get_name(again), tutti_tokenizer_get_name(t));
    T_EQ(tutti_tokenizer_get_size(again), tutti_tokenizer_get_size(t));
    T_OK(tutti_tokenizer_encode(t, text, n_bytes, &a, &n_a));
    T_OK(tutti_tokenizer_encode(again, text, n_bytes, &b, &n_b));
    T_EQ(n_a, n_b);
    assert_memory_equal(a, b, (size_t)n_a * sizeof *a);
    free(a);
    free(b);
    tutti_tokenizer_destroy(again);
    t_clear_dir(dir);
}

T_CASE(bytes) {
    T_UNUSED;
    tutti_tokenizer *t;
    char text[10000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7 + i / 256);
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "bytes"}, &t));
    T_EQ(tutti_tokenizer_get_size(t), 256);
    T_EQ(tutti_tokenizer_get_end(t), -1);
    round_trip(t, text, sizeof text, sizeof text);
    round_trip(t, "", 0, 0);
    save_and_read(t, text, sizeof text);
    tutti_tokenizer_destroy(t);
}

T_CASE(chars) {
    T_UNUSED;
    static const char text[] = "hello\0 w\xC3\xB6rld \xE6\x97\xA5 \xF0\x9F\x99\x82";
    size_t n = sizeof text - 1;
    tutti_tokenizer *t;
    tutti_tokenizer_desc desc = {.name = "chars", .text = text, .n_text_bytes = n};
    T_OK(tutti_tokenizer_open(&desc, &t));
    T_EQ(tutti_tokenizer_get_size(t), 12); /* NUL blank d e h l o r w o-umlaut sun smile */
    round_trip(t, text, n, (int64_t)n - 1 - 2 - 3);
    save_and_read(t, text, n);
    int32_t *token;
    int64_t n_tokens;
    T_OK(tutti_tokenizer_encode(t, "\0 d", 3, &token, &n_tokens));
    assert_memory_equal(token, ((int32_t[]){0, 1, 2}), sizeof(int32_t[3])); /* sorted */
    free(token);
    T_FAILS(tutti_tokenizer_encode(t, "held up", 7, &token, &n_tokens), TUTTI_E_DATA,
            "text: character U+0075 at byte 5 is not in the vocabulary of 12");
    T_FAILS(tutti_tokenizer_encode(t, "h\xE6\x97\xA6", 4, &token, &n_tokens), TUTTI_E_DATA,
            "U+65E6");
    T_FAILS(tutti_tokenizer_encode(t, "he\xC3", 3, &token, &n_tokens), TUTTI_E_DATA,
            "not UTF-8 at byte 2");
    tutti_tokenizer_destroy(t);
}

T_CASE(decode_checks_tokens) {
    T_UNUSED;
    tutti_tokenizer *t;
    char *text;
    size_t n;
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "bytes"}, &t));
    T_FAILS(tutti_tokenizer_decode(t, (int32_t[]){1, 256}, 2, &text, &n), TUTTI_E_DATA,
            "token 256 at position 1 is not one of 0 .. 255");
    T_FAILS(tutti_tokenizer_decode(t, (int32_t[]){-1}, 1, &text, &n), TUTTI_E_DATA, "token -1");
    tutti_tokenizer_destroy(t);
    tutti_tokenizer_destroy(NULL);
}

T_CASE(bad_desc) {
    T_UNUSED;
    tutti_tokenizer *t;
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "bpe"}, &t), TUTTI_E_INVALID,
            "unknown tokenizer 'bpe' (known: bytes, chars, gpt2)");
    assert_null(t);
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "gpt2"}, &t), TUTTI_E_INVALID,
            "gpt2 needs a dir");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "chars"}, &t), TUTTI_E_INVALID,
            "chars needs a text or a dir");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){0}, &t), TUTTI_E_INVALID, "auto needs");
    tutti_tokenizer_desc desc = {.name = "chars", .text = "ok\xFF", .n_text_bytes = 3};
    T_FAILS(tutti_tokenizer_open(&desc, &t), TUTTI_E_DATA, "not UTF-8 at byte 2");
    desc.n_text_bytes = 0;
    T_FAILS(tutti_tokenizer_open(&desc, &t), TUTTI_E_DATA, "no characters");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = "/nonexistent/x"}, &t),
            TUTTI_E_DATA, "/nonexistent/x: cannot open");
}

#define BPE "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","

typedef struct bad_file {
    const char *text;
    tutti_status status;
    const char *why;
} bad_file;

static const bad_file bad_files[] = {
    {"", TUTTI_E_DATA, "not valid JSON"},
    {"{\"a\":1}", TUTTI_E_DATA, "is not a tokenizer"},
    {"{\"tokenizer\":\"words\"}", TUTTI_E_DATA, "is not a tokenizer"},
    {"{\"tokenizer\":\"chars\"}", TUTTI_E_DATA, "\"characters\" must be a list"},
    {"{\"tokenizer\":\"chars\",\"characters\":[]}", TUTTI_E_DATA, "must be a list"},
    {"{\"tokenizer\":\"chars\",\"characters\":[5,5]}", TUTTI_E_DATA, "item 1 is not"},
    {"{\"tokenizer\":\"chars\",\"characters\":[55296]}", TUTTI_E_DATA, "item 0 is not"},
    {"{\"tokenizer\":\"chars\",\"characters\":[1114112]}", TUTTI_E_DATA, "item 0 is not"},
    {"{\"tokenizer\":\"chars\",\"characters\":[\"a\"]}", TUTTI_E_DATA, "item 0 is not"},
    {"{\"model\":{\"type\":\"Unigram\"}}", TUTTI_E_UNSUPPORTED, "\"model.type\" is \"Unigram\""},
    {"{\"model\":{\"type\":\"BPE\"}}", TUTTI_E_UNSUPPORTED,
     "with a pre_tokenizer of type ByteLevel"},
    {"{\"normalizer\":{}," BPE "\"vocab\":{}}}", TUTTI_E_UNSUPPORTED, "\"normalizer\" is {}"},
    {"{" BPE "\"ignore_merges\":true}}", TUTTI_E_DATA, "has no tokens"},
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"model\":{\"type\":"
     "\"BPE\"}}",
     TUTTI_E_UNSUPPORTED, "add_prefix_space"},
    {"{" BPE "\"vocab\":[]}}", TUTTI_E_DATA, "has no tokens"},
    {"{" BPE "\"vocab\":{\"a\":0}}}", TUTTI_E_DATA, "\"merges\" must be a list"},
    {"{" BPE "\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", TUTTI_E_DATA, "merge 1 is not a pair"},
    {"{" BPE "\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", TUTTI_E_DATA, "merge 1 is not a pair"},
    {"{" BPE "\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]]}}", TUTTI_E_DATA, "the merged token"},
    {"{\"added_tokens\":[{\"id\":7}]," BPE "\"vocab\":{\"a\":0},\"merges\":[]}}", TUTTI_E_DATA,
     "token '' has the number 7"},
};

T_CASE(bad_tokenizer_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        tutti_tokenizer *t;
        t_put_text(dir, "tokenizer.json", bad_files[i].text);
        T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), bad_files[i].status,
                bad_files[i].why);
        assert_null(t);
        if (!strstr(tutti_last_error(), dir)) fail_msg("no path: %s", tutti_last_error());
    }
    t_clear_dir(dir);
}

T_CASE(the_file_must_be_what_is_asked_for) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    t_put_text(dir, "tokenizer.json", "{\"tokenizer\":\"bytes\"}");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "gpt2", .dir = dir}, &t),
            TUTTI_E_DATA, "holds the tokenizer bytes, not gpt2");
    t_clear_dir(dir);
}

/* New files write merges as lists; special tokens are added by name. */
T_CASE(lists_of_merges_and_added_tokens) {
    T_UNUSED;
    char dir[256];
    strcpy(dir, t_make_dir());
    tutti_tokenizer *t;
    t_put_text(dir, "t.json",
               "{\"added_tokens\":[{\"id\":3,\"content\":\"<|endoftext|>\"},{\"id\":4,\"content\":"
               "\"<\xE6\x97\xA5>\"}]," BPE
               "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3},"
               "\"merges\":[[\"a\",\"b\"]]}}");
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = t_path(dir, "t.json")}, &t));
    T_EQ(tutti_tokenizer_get_size(t), 5);
    T_EQ(tutti_tokenizer_get_end(t), 3);
    char *text;
    size_t n;
    T_OK(tutti_tokenizer_decode(t, (int32_t[]){2, 3, 4, 0}, 4, &text, &n));
    assert_string_equal(text,
                        "ab<|endoftext|><\xE6\x97\xA5>"
                        "a");
    free(text);
    save_and_read(t, "abba", 4);
    tutti_tokenizer_destroy(t);
    t_clear_dir(dir);
}

/* ---- against the tokenizers package ---- */

static json_t *read_golden(void) {
    json_error_t error;
    json_t *root = json_load_file(TUTTI_TEST_DATA "/../golden/hf_tokenizers.json", 0, &error);
    if (!root) fail_msg("%s", error.text);
    return root;
}

static void expect_ids(const tutti_tokenizer *t, const char *name, const json_t *item) {
    const char *text = json_string_value(json_object_get(item, "text"));
    const json_t *ids = json_object_get(item, "ids");
    int32_t *token;
    int64_t n;
    T_OK(tutti_tokenizer_encode(t, text, strlen(text), &token, &n));
    bool same = (size_t)n == json_array_size(ids);
    for (int64_t i = 0; i < n && same; i++)
        same = token[i] == json_integer_value(json_array_get(ids, (size_t)i));
    free(token);
    if (!same) fail_msg("%s: other tokens for '%s'", name, text);
}

/* Added tokens with all their flags; also after saving and reading again. */
T_CASE(tokens_of_hugging_face) {
    T_UNUSED;
    json_t *root = read_golden();
    const char *dir = t_make_dir();
    size_t i, k;
    json_t *item, *one;
    json_array_foreach(json_object_get(root, "tokenizers"), i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        T_EQ(json_dump_file(json_object_get(item, "file"), t_path(dir, "tokenizer.json"), 0), 0);
        for (int round = 0; round < 2; round++) {
            tutti_tokenizer *t, *again;
            T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t));
            json_array_foreach(json_object_get(item, "cases"), k, one) expect_ids(t, name, one);
            T_OK(tutti_tokenizer_save(t, t_path(dir, "tokenizer.json")));
            T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &again));
            assert_true(tti_tokenizer_equal(t, again));
            tutti_tokenizer_destroy(again);
            tutti_tokenizer_destroy(t);
        }
    }
    json_decref(root);
    t_clear_dir(dir);
}

#define FILE_WITH(more, model)                                               \
    "{" more                                                                 \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," \
    "\"model\":{\"type\":\"BPE\"," model "\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"

/* A field that would change the tokens is refused by name. */
T_CASE(refused_fields) {
    T_UNUSED;
    static const struct {
        const char *text, *why;
    } refused[] = {
        {FILE_WITH("", "\"end_of_word_suffix\":\"</w>\","), "\"model.end_of_word_suffix\" is"},
        {FILE_WITH("", "\"continuing_subword_prefix\":\"##\","), "continuing_subword_prefix"},
        {FILE_WITH("", "\"byte_fallback\":true,"), "\"model.byte_fallback\" is true"},
        {FILE_WITH("", "\"dropout\":0.1,"), "\"model.dropout\" is 0.1"},
        {FILE_WITH("", "\"news\":1,"), "\"model.news\" is not known"},
        {FILE_WITH("\"truncation\":{\"max_length\":8},", ""), "\"truncation\" is"},
        {FILE_WITH("\"padding\":{},", ""), "\"padding\" is"},
        {FILE_WITH("\"normalizer\":{\"type\":\"NFC\"},", ""), "\"normalizer\" is"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\"},", ""),
         "\"post_processor\" is"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                   "{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}},"
                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},",
                   ""),
         "\"post_processor\" is"},
        {FILE_WITH("\"added_tokens\":[{\"id\":2,\"content\":\"x\",\"single_word\":true}],", ""),
         "\"added_tokens.single_word\" is true"},
        {FILE_WITH("\"version\":\"2.0\",", ""), "\"version\" is \"2.0\""},
    };
    const char *dir = t_make_dir();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tutti_tokenizer *t;
        t_put_text(dir, "tokenizer.json", refused[i].text);
        T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_UNSUPPORTED,
                refused[i].why);
    }
    t_clear_dir(dir);
}

/* Steps that add nothing, as transformers writes them. */
T_CASE(fields_without_influence) {
    T_UNUSED;
    static const char *const fine[] = {
        FILE_WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]},", ""),
        FILE_WITH("\"post_processor\":{\"type\":\"ByteLevel\",\"trim_offsets\":false},", ""),
        FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                  "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{}},",
                  ""),
        FILE_WITH("\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
                  "{\"type\":\"ByteLevel\"}]},",
                  ""),
        FILE_WITH("\"truncation\":null,\"padding\":null,", "\"dropout\":null,\"unk_token\":null,"),
    };
    const char *dir = t_make_dir();
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        tutti_tokenizer *t;
        t_put_text(dir, "tokenizer.json", fine[i]);
        T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t));
        tutti_tokenizer_destroy(t);
    }
    t_clear_dir(dir);
}

static void expect_tokens(const tutti_tokenizer *t, const char *text, int64_t n_wanted) {
    int32_t *token;
    int64_t n;
    T_OK(tutti_tokenizer_encode(t, text, strlen(text), &token, &n));
    T_EQ(n, n_wanted);
    free(token);
}

static tutti_tokenizer *open_in(const char *dir) {
    tutti_tokenizer *t;
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t));
    return t;
}

/* vocab.json and merges.txt, with the files that name added tokens beside them. */
T_CASE(added_tokens_beside_a_pair) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    t_put_text(dir, "vocab.json", "{\"a\":0,\"b\":1,\"<|endoftext|>\":2,\"<s>\":3}");
    t_put_text(dir, "merges.txt", "#version: 0.2\n");
    t = open_in(dir);
    expect_tokens(t, "a<|endoftext|>b", 3);
    tutti_tokenizer_destroy(t);
    t_put_text(dir, "added_tokens.json", "{\"<user>\":4}");
    t_put_text(dir, "special_tokens_map.json", "{\"bos_token\":{\"content\":\"<s>\"}}");
    t_put_text(dir, "tokenizer_config.json",
               "{\"model_max_length\":1000000000000000019884624838656,"
               "\"added_tokens_decoder\":{\"5\":{\"content\":\"[X]\",\"rstrip\":true}}}");
    t = open_in(dir);
    T_EQ(tutti_tokenizer_get_size(t), 6);
    expect_tokens(t, "<s>a<user>[X]  b", 5);
    tutti_tokenizer_destroy(t);
    t_put_text(dir, "special_tokens_map.json", "{\"bos_token\":\"<new>\"}");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_DATA,
            "the special token '<new>' has no number");
    t_put_text(dir, "special_tokens_map.json", "{}");
    t_put_text(dir, "tokenizer_config.json", "{\"add_prefix_space\":true}");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_UNSUPPORTED,
            "\"add_prefix_space\" is true");
    t_clear_dir(dir);
}

/* What AutoTokenizer of transformers 5 reads beside a tokenizer.json. */
T_CASE(added_tokens_beside_a_file) {
    T_UNUSED;
    static const struct {
        const char *name, *text, *why;
    } refused[] = {
        {"tokenizer_config.json", "{\"pad_token\":\"[PAD]\"}", "'[PAD]' has no number"},
        {"tokenizer_config.json", "{\"extra_special_tokens\":{\"x\":\"[Y]\"}}", "'[Y]' has no"},
        {"tokenizer_config.json", "{\"additional_special_tokens\":[\"a\",\"[Z]\"]}", "'[Z]' has"},
        {"special_tokens_map.json", "{\"pad_token\":{\"content\":\"[P]\"}}", "'[P]' has no number"},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\":{\"2\":{\"content\":\"[X]\",\"lstrip\":true}}}",
         "'[X]' has other values of lstrip"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"7\":{\"content\":\"[X]\"}}}",
         "'[X]' has the number 7, in another file 2"},
        {"added_tokens.json", "{\"[X]\":3}", "'[X]' has the number 3, in another file 2"},
        {"added_tokens.json", "{\"[Y]\":4}", "has the number 4, but tokenizers gives it 3"},
    };
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    t_put_text(dir, "tokenizer.json",
               FILE_WITH("\"added_tokens\":[{\"id\":2,\"content\":\"[X]\"}],", ""));
    t_put_text(dir, "added_tokens.json", "{\"[N]\":3,\"[X]\":2}");
    t_put_text(dir, "tokenizer_config.json", "{\"pad_token\":\"[N]\",\"eos_token\":null}");
    t = open_in(dir);
    expect_tokens(t, "a[N][X]b", 4);
    tutti_tokenizer_destroy(t);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        t_put_text(dir, "added_tokens.json", "{}");
        t_put_text(dir, "tokenizer_config.json", "{}");
        t_put_text(dir, "special_tokens_map.json", "{}");
        t_put_text(dir, refused[i].name, refused[i].text);
        T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_DATA,
                refused[i].why);
    }
    t_put_text(dir, "tokenizer_config.json", "{\"split_special_tokens\":true}");
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_UNSUPPORTED,
            "\"split_special_tokens\" is true");
    t_clear_dir(dir);
}

/* tokenizers numbers added tokens by their order, whatever the file says. */
T_CASE(numbers_of_added_tokens) {
    T_UNUSED;
    static const char *const refused[] = {
        FILE_WITH("\"added_tokens\":[{\"id\":5,\"content\":\"[X]\"}],", ""),
        FILE_WITH("\"added_tokens\":[{\"id\":3,\"content\":\"[Y]\"},"
                  "{\"id\":2,\"content\":\"[X]\"}],",
                  ""),
        FILE_WITH("\"added_tokens\":[{\"id\":0,\"content\":\"a\"},"
                  "{\"id\":3,\"content\":\"[X]\"}],",
                  "")};
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        t_put_text(dir, "tokenizer.json", refused[i]);
        T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_DATA,
                "but tokenizers gives it 2");
    }
    t_put_text(dir, "tokenizer.json",
               FILE_WITH("\"added_tokens\":[{\"id\":0,\"content\":\"a\"},"
                         "{\"id\":2,\"content\":\"[X]\"},{\"id\":3,\"content\":\"[Y]\"}],",
                         ""));
    t = open_in(dir);
    expect_tokens(t, "a[Y]b", 3);
    tutti_tokenizer_destroy(t);
    t_clear_dir(dir);
}

/* The files of a cache of downloads are links. */
T_CASE(linked_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    t_put_text(dir, "blob-1", "{\"a\":0,\"b\":1}");
    t_put_text(dir, "blob-2", "#version: 0.2\n");
    T_EQ(symlink("blob-1", t_path(dir, "vocab.json")), 0);
    T_EQ(symlink("blob-2", t_path(dir, "merges.txt")), 0);
    t = open_in(dir);
    expect_tokens(t, "abba", 4);
    tutti_tokenizer_destroy(t);
    T_EQ(unlink(t_path(dir, "merges.txt")), 0);
    T_EQ(mkfifo(t_path(dir, "merges.txt"), 0600), 0);
    T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_DATA,
            "merges.txt");
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(bytes),
        cmocka_unit_test(chars),
        cmocka_unit_test(decode_checks_tokens),
        cmocka_unit_test(bad_desc),
        cmocka_unit_test(bad_tokenizer_files),
        cmocka_unit_test(the_file_must_be_what_is_asked_for),
        cmocka_unit_test(lists_of_merges_and_added_tokens),
        cmocka_unit_test(tokens_of_hugging_face),
        cmocka_unit_test(refused_fields),
        cmocka_unit_test(fields_without_influence),
        cmocka_unit_test(added_tokens_beside_a_pair),
        cmocka_unit_test(added_tokens_beside_a_file),
        cmocka_unit_test(numbers_of_added_tokens),
        cmocka_unit_test(linked_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
