/* tokenizer_gpt2_test.c - byte pairs: the same tokens as another implementation, from every form of
 * the files; the two ways of joining agree; hostile words and vocabularies. */
#include "data/tokenizer/tokenizer_gpt2.h"

#include "base/clock.h"
#include "base/philox.h"
#include "data/text_files.h"
#include "golden/bpe_cases.h"

static tutti_tokenizer *open_pair(void) {
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    t_put_text(dir, "vocab.json", bpe_vocab_json);
    t_put_text(dir, "merges.txt", bpe_merges_txt);
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "gpt2", .dir = dir}, &t));
    t_clear_dir(dir);
    return t;
}

static void check_cases(const tutti_tokenizer *t) {
    for (size_t i = 0; i < sizeof bpe_cases / sizeof *bpe_cases; i++) {
        const bpe_case *c = &bpe_cases[i];
        int32_t *token;
        int64_t n;
        char *text;
        size_t n_bytes;
        T_OK(tutti_tokenizer_encode(t, c->text, c->n_bytes, &token, &n));
        if (n != (int64_t)c->n_tokens || memcmp(token, c->token, c->n_tokens * 4) != 0)
            fail_msg("case %zu '%s': other tokens", i, c->text);
        T_OK(tutti_tokenizer_decode(t, token, n, &text, &n_bytes));
        T_EQ(n_bytes, c->n_bytes);
        assert_memory_equal(text, c->text, n_bytes);
        free(text);
        free(token);
    }
}

T_CASE(same_tokens_as_another_implementation) {
    T_UNUSED;
    tutti_tokenizer *t = open_pair();
    T_EQ(tutti_tokenizer_get_size(t), BPE_SIZE);
    T_EQ(tutti_tokenizer_get_end(t), BPE_END);
    assert_string_equal(tutti_tokenizer_get_name(t), "gpt2");
    check_cases(t);
    tutti_tokenizer_destroy(t);
}

T_CASE(saved_and_read_again) {
    T_UNUSED;
    tutti_tokenizer *t = open_pair(), *again;
    const char *dir = t_make_dir();
    T_OK(tutti_tokenizer_save(t, t_path(dir, "tokenizer.json")));
    tutti_tokenizer_destroy(t);
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &again));
    T_EQ(tutti_tokenizer_get_size(again), BPE_SIZE);
    T_EQ(tutti_tokenizer_get_end(again), BPE_END);
    check_cases(again);
    tutti_tokenizer_destroy(again);
    t_clear_dir(dir);
}

T_CASE(both_ways_of_joining_agree) {
    T_UNUSED;
    tutti_tokenizer *t = open_pair();
    for (uint64_t round = 0; round < 2000; round++) {
        int32_t a[64], b[64];
        size_t n = 1 + tti_philox_draw(3, round, 0).v[0] % 64;
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] = (int32_t)(tti_philox_draw(4, round, i).v[0] % (round % 2 ? 256 : 120));
        size_t n_a = tti_gpt2_join(t, a, n, false), n_b = tti_gpt2_join(t, b, n, true);
        T_EQ(n_a, n_b);
        assert_memory_equal(a, b, n_a * sizeof *a);
    }
    tutti_tokenizer_destroy(t);
}

/* n^2 steps would take minutes. */
T_CASE(a_word_of_a_megabyte) {
    T_UNUSED;
    tutti_tokenizer *t = open_pair();
    size_t n_bytes = 1 << 20, n_back;
    char *text = malloc(n_bytes), *back;
    for (size_t i = 0; i < n_bytes; i++) text[i] = "aehst"[tti_philox_draw(5, 0, i).v[0] % 5];
    int32_t *token;
    int64_t n, start_ns = tti_now_ns();
    T_OK(tutti_tokenizer_encode(t, text, n_bytes, &token, &n));
    assert_true(tti_now_ns() - start_ns < 20 * 1000000000LL);
    T_OK(tutti_tokenizer_decode(t, token, n, &back, &n_back));
    T_EQ(n_back, n_bytes);
    assert_memory_equal(back, text, n_bytes);
    free(back);
    free(token);
    free(text);
    tutti_tokenizer_destroy(t);
}

T_CASE(bad_text) {
    T_UNUSED;
    tutti_tokenizer *t = open_pair();
    int32_t *token;
    int64_t n;
    T_FAILS(tutti_tokenizer_encode(t, "ab\ncd\xFF", 6, &token, &n), TUTTI_E_DATA,
            "not UTF-8 at byte 5 (line 2): ff, the last byte");
    T_FAILS(tutti_tokenizer_encode(t, "ab \xE6\x97", 5, &token, &n), TUTTI_E_DATA,
            "not UTF-8 at byte 3");
    tutti_tokenizer_destroy(t);
}

typedef struct bad_pair {
    const char *vocab, *merges, *why;
} bad_pair;

T_CASE(bad_files) {
    T_UNUSED;
    static const bad_pair bad[] = {
        {"{", "", "vocab.json:1:1: not valid JSON"},
        {"[1]", "", "not a JSON object"},
        {"{}", "", "has no tokens"},
        {"{\"a\":0,\"a\":1}", "", "not valid JSON: duplicate"},
        {"{\"a\":-1}", "", "token 'a' has the number -1"},
        {"{\"a\":\"0\"}", "", "token 'a' has the number -1"},
        {"{\"a\":1048576}", "", "token 'a' has the number 1048576"},
        {"{\"\":0}", "", "token '' has the number"},
        {"{\"a\":0,\"b\":0}", "", "the number 0 is given to two tokens"},
        {"{\"a\":0}", "#version: 0.2\nab\n", "merges.txt:2: expected two tokens"},
        {"{\"a\":0}", "a b c\n", "merges.txt:1: expected two tokens"},
        {"{\"a\":0}", "a b\n", "merges.txt: merge 1, 'a' and 'b': the second is not"},
        {"{\"a\":0,\"b\":1}", "a b\n", "merge 1, 'a' and 'b': the merged token is not"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "\xFF b\n", "the first is not"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *dir = t_make_dir();
        tutti_tokenizer *t;
        t_put_text(dir, "vocab.json", bad[i].vocab);
        t_put_text(dir, "merges.txt", bad[i].merges);
        T_FAILS(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t), TUTTI_E_DATA,
                bad[i].why);
        assert_null(t);
        t_clear_dir(dir);
    }
}

T_CASE(a_small_vocabulary_lacks_bytes) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_tokenizer *t;
    int32_t *token;
    int64_t n;
    t_put_text(dir, "vocab.json", "{\"a\":0,\"b\":5,\"ab\":2}");
    t_put_text(dir, "merges.txt", "a b\r\n");
    T_OK(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &t));
    T_EQ(tutti_tokenizer_get_size(t), 6);
    T_EQ(tutti_tokenizer_get_end(t), -1);
    T_OK(tutti_tokenizer_encode(t, "abba", 4, &token, &n));
    T_EQ(n, 3);
    assert_memory_equal(token, ((int32_t[]){2, 5, 0}), sizeof(int32_t[3]));
    free(token);
    T_FAILS(tutti_tokenizer_encode(t, "abc", 3, &token, &n), TUTTI_E_DATA,
            "byte 2 (63) has no token");
    char *text;
    size_t n_bytes;
    T_FAILS(tutti_tokenizer_decode(t, &(int32_t){4}, 1, &text, &n_bytes), TUTTI_E_DATA, "token 4");
    tutti_tokenizer_destroy(t);
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens_as_another_implementation),
        cmocka_unit_test(saved_and_read_again),
        cmocka_unit_test(both_ways_of_joining_agree),
        cmocka_unit_test(a_word_of_a_megabyte),
        cmocka_unit_test(bad_text),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(a_small_vocabulary_lacks_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
