/* program_parts_test.c - tensors of several parts in an archive and in memory have the same
 * elements for any number of threads, and the first damaged one is named. */
#include "import/program/program_parts.h"

#include <stdlib.h>

#include "base/crc32.h"
#include "base/error.h"
#include "t.h"

enum { N_LARGE = 2 * TTI_PART_ELEMS + 777, N_HALVES = TTI_PART_ELEMS + 5, N_SMALL = 12 };
enum { N_ENTRIES = 3, ROOM = 4 * (N_LARGE + N_HALVES + N_SMALL) + 1024 };

static const struct {
    const char *name;
    size_t n_bytes;
} entries[N_ENTRIES] = {{"a", 4 * N_LARGE}, {"b", 2 * N_HALVES}, {"c", 4 * N_SMALL}};

static uint8_t *zip;
static size_t n_zip, begins[N_ENTRIES];

static void put(uint64_t x, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) zip[n_zip++] = (uint8_t)(x >> 8 * i);
}

static void put_bytes(const void *bytes, size_t n) {
    memcpy(zip + n_zip, bytes, n);
    n_zip += n;
}

static void put_common(int i, uint32_t crc) {
    put(20, 2), put(0, 4), put(0, 4), put(crc, 4), put(entries[i].n_bytes, 4);
    put(entries[i].n_bytes, 4), put(1, 2), put(0, 2);
}

/* Element i of the large tensor is i; of the halves (bf16) i with its lower bits cut off. */
static float half(int i) { return (float)(i >> 13 << 13); }

static void fill(int entry, uint8_t *to) {
    for (int i = 0; entry != 1 && i < (entry == 0 ? N_LARGE : N_SMALL); i++) {
        float x = (float)i;
        memcpy(to + 4 * (size_t)i, &x, sizeof x);
    }
    for (int i = 0; entry == 1 && i < N_HALVES; i++) {
        float x = half(i);
        memcpy(to + 2 * (size_t)i, (const char *)&x + 2, 2);
    }
}

static void make_zip(void) {
    uint32_t crc[N_ENTRIES];
    size_t headers[N_ENTRIES];
    n_zip = 0;
    for (int i = 0; i < N_ENTRIES; i++) {
        headers[i] = n_zip;
        begins[i] = n_zip + 30 + 1;
        fill(i, zip + begins[i]);
        crc[i] = tti_crc32(0, zip + begins[i], entries[i].n_bytes);
        put_bytes("PK\3\4", 4), put_common(i, crc[i]), put_bytes(entries[i].name, 1);
        n_zip += entries[i].n_bytes;
    }
    size_t directory = n_zip;
    for (int i = 0; i < N_ENTRIES; i++) {
        put_bytes("PK\1\2", 4), put(20, 2), put_common(i, crc[i]);
        put(0, 2), put(0, 2), put(0, 2), put(0, 4), put(headers[i], 4);
        put_bytes(entries[i].name, 1);
    }
    size_t n_directory = n_zip - directory;
    put_bytes("PK\5\6", 4), put(0, 4), put(N_ENTRIES, 2), put(N_ENTRIES, 2);
    put(n_directory, 4), put(directory, 4), put(0, 2);
}

static tti_input_spec tensor(int entry, tti_elem elem, int64_t n) {
    return (tti_input_spec){.kind = TTI_SPEC_PARAM,
                            .name = entries[entry].name,
                            .elem = elem,
                            .shape = {.n_dims = 1, .dim = {n}},
                            .entry = entry,
                            .stride = {1}};
}

typedef struct taken {
    int tensor;
    size_t n;
    int64_t n_wrong, n_all;
} taken;

/* Tensors in turn: large, halves, small as two columns, small in memory. */
static tutti_status take(void *user, int which, size_t first, size_t n_elems, const float *data) {
    taken *t = user;
    if (which != t->tensor) t->tensor = which, t->n = 0;
    T_EQ(first, t->n);
    T_EQ(first % TTI_PART_ELEMS, 0);
    for (size_t i = 0; i < n_elems; i++) {
        int at = (int)(first + i);
        float want = which == 1 ? half(at) : which == 2 ? (float)(at % 2 * 6 + at / 2) : (float)at;
        t->n_wrong += data[i] != want;
    }
    t->n += n_elems;
    t->n_all += (int64_t)n_elems;
    return TUTTI_OK;
}

static tutti_status read_all(tti_archive *archive, int n_threads, taken *t) {
    static float small[N_SMALL];
    tti_program_file program = {.archive = archive, .path = "model.pt2"};
    tti_input_spec specs[] = {tensor(0, TTI_ELEM_F32, N_LARGE), tensor(1, TTI_ELEM_BF16, N_HALVES),
                              tensor(2, TTI_ELEM_F32, 6), tensor(2, TTI_ELEM_F32, N_SMALL)};
    specs[2].shape = (tti_import_shape){.n_dims = 2, .dim = {6, 2}};
    specs[2].stride[0] = 1, specs[2].stride[1] = 6;
    for (int i = 0; i < N_SMALL; i++) small[i] = (float)i;
    specs[3].bytes = (const uint8_t *)small;
    const tti_input_spec *list[] = {&specs[0], &specs[1], &specs[2], &specs[3]};
    const tti_readers readers = {.n_threads = n_threads};
    *t = (taken){.tensor = -1};
    return tti_program_read_parts(&program, list, 4, n_threads < 0 ? NULL : &readers, take, t);
}

T_CASE(elements_do_not_depend_on_threads) {
    T_UNUSED;
    tti_archive *archive;
    make_zip();
    T_OK(tti_archive_open_memory(zip, n_zip, "model.pt2", &archive));
    for (int n_threads = -1; n_threads <= 4; n_threads++) {
        taken t;
        T_OK(read_all(archive, n_threads, &t));
        T_EQ(t.n_wrong, 0);
        T_EQ(t.n_all, N_LARGE + N_HALVES + 2 * N_SMALL);
    }
    tti_archive_close(archive);
}

T_CASE(the_first_damaged_tensor_is_named) {
    T_UNUSED;
    static const struct {
        int entry;
        const char *text;
    } cases[] = {{0, "entry 'a' is damaged"}, {1, "entry 'b' is damaged"}, {2, "'c' is damaged"}};
    for (size_t c = 0; c < TTI_COUNT(cases); c++)
        for (int n_threads = 0; n_threads <= 3; n_threads += 3) {
            tti_archive *archive;
            taken t;
            make_zip();
            for (int i = cases[c].entry; i < N_ENTRIES; i++) /* and all after it */
                zip[begins[i] + entries[i].n_bytes - 3] ^= 16;
            T_OK(tti_archive_open_memory(zip, n_zip, "model.pt2", &archive));
            T_FAILS(read_all(archive, n_threads, &t), TUTTI_E_CHECKPOINT, cases[c].text);
            tti_archive_close(archive);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_do_not_depend_on_threads),
        cmocka_unit_test(the_first_damaged_tensor_is_named),
    };
    zip = calloc(1, ROOM);
    if (!zip) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(zip);
    return failed;
}
