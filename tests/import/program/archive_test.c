/* archive_test.c - zip archives made here byte by byte: read back, and refused when damaged. */
#include "import/program/archive.h"

#include <stdlib.h>

#include "base/crc32.h"
#include "t.h"

enum { ROOM = 4096 };

/* An archive in memory. */
typedef struct zip {
    uint8_t bytes[ROOM];
    size_t n;
    uint8_t directory[ROOM];
    size_t n_directory;
    int n_entries;
} zip;

static void put(uint8_t *to, size_t *n, uint64_t x, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) to[(*n)++] = (uint8_t)(x >> 8 * i);
}

static void put_text(uint8_t *to, size_t *n, const char *text) {
    memcpy(to + *n, text, strlen(text));
    *n += strlen(text);
}

/* The fields that both headers have, from the version needed on. */
static void put_common(uint8_t *to, size_t *n, const char *name, const char *data,
                       unsigned method) {
    uint64_t size = strlen(data);
    put(to, n, 20, 2), put(to, n, 0, 2), put(to, n, method, 2), put(to, n, 0, 4);
    put(to, n, tti_crc32(0, data, size), 4), put(to, n, size, 4), put(to, n, size, 4);
    put(to, n, strlen(name), 2), put(to, n, 0, 2);
}

static void add(zip *z, const char *name, const char *data, unsigned method) {
    size_t at = z->n;
    put_text(z->bytes, &z->n, "PK\3\4");
    put_common(z->bytes, &z->n, name, data, method);
    put_text(z->bytes, &z->n, name);
    put_text(z->bytes, &z->n, data);
    put_text(z->directory, &z->n_directory, "PK\1\2");
    put(z->directory, &z->n_directory, 20, 2);
    put_common(z->directory, &z->n_directory, name, data, method);
    put(z->directory, &z->n_directory, 0, 2), put(z->directory, &z->n_directory, 0, 2);
    put(z->directory, &z->n_directory, 0, 2), put(z->directory, &z->n_directory, 0, 4);
    put(z->directory, &z->n_directory, at, 4);
    put_text(z->directory, &z->n_directory, name);
    z->n_entries++;
}

static void finish(zip *z) {
    size_t at = z->n;
    memcpy(z->bytes + z->n, z->directory, z->n_directory);
    z->n += z->n_directory;
    put_text(z->bytes, &z->n, "PK\5\6");
    put(z->bytes, &z->n, 0, 4);
    put(z->bytes, &z->n, (uint64_t)z->n_entries, 2),
        put(z->bytes, &z->n, (uint64_t)z->n_entries, 2);
    put(z->bytes, &z->n, z->n_directory, 4), put(z->bytes, &z->n, at, 4),
        put(z->bytes, &z->n, 0, 2);
}

static void two_entries(zip *z) {
    *z = (zip){0};
    add(z, "root/models/b.json", "{}", 0);
    add(z, "root/byteorder", "little", 0);
    finish(z);
}

static tutti_status open_zip(const zip *z, tti_archive **out) {
    return tti_archive_open_memory(z->bytes, z->n, "test.pt2", out);
}

T_CASE(entries_are_found_and_read) {
    T_UNUSED;
    zip z;
    tti_archive *a;
    char *text;
    size_t n;
    two_entries(&z);
    T_OK(open_zip(&z, &a));
    T_EQ(tti_archive_n(a), 2);
    T_EQ(tti_archive_find(a, "byteorder"), -1);
    T_EQ(tti_archive_find_ending(a, "byteorder"), tti_archive_find(a, "root/byteorder"));
    T_EQ(tti_archive_size(a, tti_archive_find(a, "root/byteorder")), 6);
    T_OK(tti_archive_read(a, tti_archive_find(a, "root/byteorder"), 6, &text, &n));
    assert_string_equal(text, "little");
    T_EQ(n, 6);
    free(text);
    T_FAILS(tti_archive_read(a, 0, 5, &text, &n), TUTTI_E_UNSUPPORTED, "at most 5");
    tti_archive_close(a);
}

T_CASE(every_cut_is_refused) {
    T_UNUSED;
    zip z;
    tti_archive *a;
    two_entries(&z);
    for (size_t n = 0; n < z.n; n++)
        T_FAILS(tti_archive_open_memory(z.bytes, n, "cut.pt2", &a), TUTTI_E_CHECKPOINT, "cut.pt2");
}

/* A changed byte anywhere is refused, or the entries read as they were. */
T_CASE(changed_bytes_never_change_what_is_read) {
    T_UNUSED;
    zip z;
    two_entries(&z);
    for (size_t at = 0; at < z.n; at++) {
        tti_archive *a;
        char *text = NULL;
        size_t n;
        z.bytes[at] ^= 0x10;
        if (open_zip(&z, &a) == TUTTI_OK) {
            int i = tti_archive_find(a, "root/byteorder");
            if (i >= 0 && tti_archive_read(a, i, 100, &text, &n) == TUTTI_OK)
                assert_string_equal(text, "little");
            free(text);
            tti_archive_close(a);
        }
        z.bytes[at] ^= 0x10;
    }
}

static void expect_refused(const char *name, unsigned method, tutti_status status,
                           const char *text) {
    zip z = {0};
    tti_archive *a;
    add(&z, name, "data", method);
    finish(&z);
    T_FAILS(open_zip(&z, &a), status, text);
    assert_null(a);
}

T_CASE(names_and_methods_are_checked) {
    T_UNUSED;
    expect_refused("../x", 0, TUTTI_E_CHECKPOINT, "not a path inside");
    expect_refused("a/../../x", 0, TUTTI_E_CHECKPOINT, "not a path inside");
    expect_refused("/etc/x", 0, TUTTI_E_CHECKPOINT, "not a path inside");
    expect_refused("a\nb", 0, TUTTI_E_CHECKPOINT, "not a path inside");
    expect_refused("a", 8, TUTTI_E_UNSUPPORTED, "'a' is compressed");
    zip z = {0};
    tti_archive *a;
    add(&z, "x", "1", 0), add(&z, "x", "2", 0);
    finish(&z);
    T_FAILS(open_zip(&z, &a), TUTTI_E_CHECKPOINT, "two entries have the same name");
}

T_CASE(files_are_opened_by_path) {
    T_UNUSED;
    tti_archive *a;
    T_FAILS(tti_archive_open("/nonexistent.pt2", &a), TUTTI_E_CHECKPOINT, "cannot open");
    T_FAILS(tti_archive_open("/dev/null", &a), TUTTI_E_CHECKPOINT, "not a regular file");
    T_FAILS(tti_archive_open("/", &a), TUTTI_E_CHECKPOINT, "not a regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_found_and_read),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(changed_bytes_never_change_what_is_read),
        cmocka_unit_test(names_and_methods_are_checked),
        cmocka_unit_test(files_are_opened_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
