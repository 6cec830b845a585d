/* tokenizer_fuzz.c - any bytes as a text for every tokenizer, and as the files of a tokenizer.
 * What is encoded decodes to the same bytes; both ways of joining agree; what is read is saved and
 * read again to the same tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/tokenizer/tokenizer_gpt2.h"
#include "golden/bpe_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void put(const char *path, const void *bytes, size_t n_bytes) {
    FILE *file = fopen(path, "wb");
    TTI_ASSERT(file && fwrite(bytes, 1, n_bytes, file) == n_bytes);
    fclose(file);
}

static void round_trip(const tutti_tokenizer *t, const char *text, size_t n_bytes) {
    int32_t *token;
    int64_t n;
    char *back;
    size_t n_back;
    if (tutti_tokenizer_encode(t, text, n_bytes, &token, &n) != TUTTI_OK) return;
    tutti_status st = tutti_tokenizer_decode(t, token, n, &back, &n_back);
    TTI_ASSERT(st == TUTTI_OK && n_back == n_bytes && memcmp(back, text, n_bytes) == 0);
    if (t->kind == &tti_tokenizer_gpt2 && n > 0 && n <= 64) {
        int32_t a[64], b[64];
        memcpy(a, token, (size_t)n * sizeof *a);
        memcpy(b, token, (size_t)n * sizeof *b);
        size_t n_a = tti_gpt2_join(t, a, (size_t)n, false);
        size_t n_b = tti_gpt2_join(t, b, (size_t)n, true);
        TTI_ASSERT(n_a == n_b && memcmp(a, b, n_a * sizeof *a) == 0);
    }
    free(back);
    free(token);
}

static void encode(const tutti_tokenizer *t, const char *text, size_t n_bytes) {
    int32_t *token;
    int64_t n;
    if (tutti_tokenizer_encode(t, text, n_bytes, &token, &n) != TUTTI_OK) return;
    for (int64_t i = 0; i < n; i++)
        TTI_ASSERT(token[i] >= 0 && token[i] < tutti_tokenizer_get_size(t));
    free(token);
}

static void as_text(const char *dir, const char *text, size_t n_bytes) {
    static tutti_tokenizer *gpt2, *bytes;
    tutti_tokenizer *chars;
    char path[128];
    if (!gpt2) {
        snprintf(path, sizeof path, "%s/vocab.json", dir);
        put(path, bpe_vocab_json, strlen(bpe_vocab_json));
        snprintf(path, sizeof path, "%s/merges.txt", dir);
        put(path, bpe_merges_txt, strlen(bpe_merges_txt));
        TTI_ASSERT(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = dir}, &gpt2) == TUTTI_OK);
        TTI_ASSERT(tutti_tokenizer_open(&(tutti_tokenizer_desc){.name = "bytes"}, &bytes) ==
                   TUTTI_OK);
    }
    round_trip(gpt2, text, n_bytes);
    round_trip(bytes, text, n_bytes);
    tutti_tokenizer_desc desc = {.name = "chars", .text = text, .n_text_bytes = n_bytes};
    if (tutti_tokenizer_open(&desc, &chars) != TUTTI_OK) return;
    round_trip(chars, text, n_bytes);
    tutti_tokenizer_destroy(chars);
}

/* A tokenizer.json.  Its added tokens may swallow white space, so the text need not come back. */
static void as_file(const char *dir, const char *text, size_t n_bytes) {
    static const char sample[] = "abba hello  12 'll \xC3\xA9";
    tutti_tokenizer *t, *again;
    char path[128];
    snprintf(path, sizeof path, "%s/t.json", dir);
    put(path, text, n_bytes);
    if (tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = path}, &t) != TUTTI_OK) return;
    encode(t, sample, sizeof sample - 1);
    tutti_status st = tutti_tokenizer_save(t, path);
    TTI_ASSERT(st == TUTTI_OK);
    st = tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = path}, &again);
    TTI_ASSERT(st == TUTTI_OK && tti_tokenizer_equal(t, again));
    tutti_tokenizer_destroy(again);
    tutti_tokenizer_destroy(t);
}

static char folder[64];

static void remove_folder(void) {
    static const char *const names[] = {"vocab.json", "merges.txt", "t.json"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkdtemp(folder));
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (!folder[0]) make_folder();
    if (n_bytes > 0 && data[0] == '{')
        as_file(folder, (const char *)data, n_bytes);
    else
        as_text(folder, (const char *)data, n_bytes);
    return 0;
}
