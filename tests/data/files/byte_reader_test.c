/* byte_reader_test.c - plain, gzipped and memory readers agree; every kind of damage is reported.
 */
#include "data/files/byte_reader.h"

#include "data/idx_files.h"
#include "t.h"

enum { N = 300000 };

static uint8_t bytes[N], packed[2 * N];

static void fill(void) {
    for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)(i * i >> 3);
}

static void assert_reads_all(tti_reader *reader) {
    static uint8_t got[N];
    size_t at = 0;
    for (size_t step = 1; at < N; step = step * 3 + 1) {
        size_t n = step < N - at ? step : N - at;
        T_OK(tti_reader_read(reader, got + at, n, "data"));
        at += n;
    }
    assert_memory_equal(got, bytes, N);
    T_OK(tti_reader_finish(reader));
    uint8_t more;
    T_FAILS(tti_reader_read(reader, &more, 1, "data"), TUTTI_E_DATA, "truncated in the data");
    tti_reader_close(reader);
}

T_CASE(all_sources_agree) {
    T_UNUSED;
    fill();
    const char *dir = t_make_dir(), *path = t_path(dir, "train-images-idx3-ubyte");
    size_t n_packed = t_gzip(bytes, N, packed);
    tti_reader *reader;
    for (int gzip = 0; gzip < 2; gzip++) {
        t_write(path, gzip ? packed : bytes, gzip ? n_packed : N);
        T_OK(tti_reader_open(path, &reader));
        T_EQ(tti_reader_is_gzip(reader), gzip);
        assert_string_equal(tti_reader_path(reader), path);
        assert_reads_all(reader);
        T_OK(tti_reader_open_memory(gzip ? packed : bytes, gzip ? n_packed : N, "memory", &reader));
        assert_reads_all(reader);
    }
    t_remove_dir(dir);
}

static uint8_t got[N]; /* what read_memory read */

/* Reads n_bytes from memory and looks for the end. */
static tutti_status read_memory(const uint8_t *memory, size_t n_memory, size_t n_bytes) {
    tti_reader *reader;
    tutti_status st = tti_reader_open_memory(memory, n_memory, "mem", &reader);
    if (st != TUTTI_OK) return st;
    st = tti_reader_read(reader, got, n_bytes, "data");
    if (st == TUTTI_OK) st = tti_reader_finish(reader);
    tti_reader_close(reader);
    return st;
}

T_CASE(plain_too_short_or_too_long) {
    T_UNUSED;
    fill();
    T_OK(read_memory(bytes + 1, 10, 10));
    T_OK(read_memory(bytes, 0, 0));
    T_FAILS(read_memory(bytes + 1, 9, 10), TUTTI_E_DATA,
            "mem: truncated in the data: 10 bytes expected, 9 found");
    T_FAILS(read_memory(bytes + 1, 12, 10), TUTTI_E_DATA, "mem: 2 trailing bytes");
}

T_CASE(gzip_cut_anywhere) {
    T_UNUSED;
    fill();
    size_t n = t_gzip(bytes, 2000, packed);
    T_OK(read_memory(packed, n, 2000));
    for (size_t cut = 2; cut < n; cut++)
        T_FAILS(read_memory(packed, cut, 2000), TUTTI_E_DATA, "mem: truncated");
}

T_CASE(gzip_damaged) {
    T_UNUSED;
    fill();
    size_t n = t_gzip(bytes, 2000, packed);
    packed[n - 6] ^= 1; /* checksum */
    T_FAILS(read_memory(packed, n, 2000), TUTTI_E_DATA, "mem: damaged gzip data");
    packed[n - 6] ^= 1;
    packed[n] = 1;
    T_FAILS(read_memory(packed, n + 1, 2000), TUTTI_E_DATA, "trailing bytes after the gzip data");
    T_FAILS(read_memory(packed, n, 1999), TUTTI_E_DATA, "mem: trailing bytes after the data");
    for (size_t i = 2; i < n; i++) { /* a flip is seen, or was in a byte without a meaning */
        packed[i] ^= 0x40;
        memset(got, 0, 2000);
        if (read_memory(packed, n, 2000) == TUTTI_OK) assert_memory_equal(got, bytes, 2000);
        packed[i] ^= 0x40;
    }
}

/* Three members, an empty one among them, in 1, 2 or more buffers of the reader; zeros after them.
 * What is cut or followed by something else is refused. */
T_CASE(gzip_members) {
    T_UNUSED;
    fill();
    static const size_t sizes[] = {1000, 130000, 290000};
    for (size_t k = 0; k < 3; k++) {
        size_t first = sizes[k], n = t_gzip(bytes, first, packed), n_first = n;
        n += t_gzip(bytes, 0, packed + n);
        n += t_gzip(bytes + first, 500, packed + n);
        T_OK(read_memory(packed, n, first + 500));
        assert_memory_equal(got, bytes, first + 500);
        memset(packed + n, 0, 1024);
        T_OK(read_memory(packed, n + 1024, first + 500));
        T_FAILS(read_memory(packed, n, first), TUTTI_E_DATA, "mem: trailing bytes after the data");
        packed[n + 1023] = 'x';
        T_FAILS(read_memory(packed, n + 1024, first + 500), TUTTI_E_DATA, "not a gzip member");
        for (size_t cut = n - 530; cut < n; cut++)
            if (cut != n_first && cut != n_first + 23) /* between members: a shorter file */
                T_FAILS(read_memory(packed, cut, first + 500), TUTTI_E_DATA, "mem: ");
    }
}

T_CASE(unpacked_size_is_bounded) {
    T_UNUSED;
    fill();
    size_t n = t_gzip(bytes, 2000, packed), n_text;
    char *text;
    for (int64_t most = 1999; most <= 2000; most++) {
        tti_reader *reader;
        T_OK(tti_reader_open_memory(packed, n, "mem", &reader));
        tti_reader_allow(reader, most);
        if (most == 2000) {
            T_OK(tti_reader_expect(reader, 2000));
            T_OK(tti_reader_read_all(reader, N, &text, &n_text));
            free(text);
        } else {
            T_FAILS(tti_reader_expect(reader, 2000), TUTTI_E_DATA, "data.max_unpacked_mb=N");
            T_FAILS(tti_reader_read_all(reader, N, &text, &n_text), TUTTI_E_DATA,
                    "data.max_unpacked_mb=N");
        }
        tti_reader_close(reader);
    }
}

/* Written by zlib: Huffman codes and repeats; byte i is (i * 7 + 3) % 10 + i / 100. */
static const uint8_t compressed[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xb5, 0xc8, 0xb7, 0x11, 0x80,
    0x30, 0x00, 0x00, 0x31, 0x32, 0x98, 0x1c, 0x4c, 0x66, 0xff, 0x39, 0xa9, 0x7e, 0x84, 0xef,
    0x74, 0xca, 0x93, 0xba, 0x48, 0x9b, 0x32, 0x0b, 0x55, 0xae, 0x89, 0x68, 0x6b, 0x4f, 0x44,
    0xd7, 0x78, 0x22, 0xfa, 0xe0, 0x89, 0x18, 0x5a, 0x4f, 0xc4, 0xd8, 0x79, 0x22, 0xa6, 0xde,
    0x13, 0x31, 0x0f, 0x9e, 0x88, 0x65, 0xf4, 0x44, 0xac, 0x93, 0x27, 0x62, 0x9b, 0x3d, 0x11,
    0x71, 0xf1, 0x44, 0xec, 0xab, 0x27, 0xe2, 0xd8, 0x3c, 0x11, 0x67, 0xf4, 0x44, 0x5c, 0xbb,
    0x27, 0xe2, 0x3e, 0x3c, 0x11, 0xcf, 0xe9, 0x89, 0x78, 0x2f, 0x4f, 0xc4, 0x77, 0x7b, 0xfa,
    0x01, 0x65, 0xec, 0x29, 0x7b, 0xd0, 0x07, 0x00, 0x00};

T_CASE(gzip_compressed) {
    T_UNUSED;
    T_OK(read_memory(compressed, sizeof compressed, 2000));
    for (size_t i = 0; i < 2000; i++) T_EQ(got[i], (i * 7 + 3) % 10 + i / 100);
    T_FAILS(read_memory(compressed, sizeof compressed, 2001), TUTTI_E_DATA,
            "mem: truncated in the data: 2001 bytes expected, 2000 found");
    for (size_t cut = 2; cut < sizeof compressed; cut++)
        T_FAILS(read_memory(compressed, cut, 2000), TUTTI_E_DATA, "mem: truncated");
}

T_CASE(declared_sizes_are_bounded) {
    T_UNUSED;
    fill();
    tti_reader *reader;
    T_OK(tti_reader_open_memory(bytes, 100, "mem", &reader));
    T_OK(tti_reader_expect(reader, 100));
    T_FAILS(tti_reader_expect(reader, 101), TUTTI_E_DATA, "101 bytes expected");
    tti_reader_close(reader);
    size_t n = t_gzip(bytes, 2000, packed);
    T_OK(tti_reader_open_memory(packed, n, "mem", &reader));
    T_OK(tti_reader_expect(reader, 1000 * n));
    T_FAILS(tti_reader_expect(reader, 2000 * n), TUTTI_E_DATA, "more than");
    T_FAILS(tti_reader_expect(reader, UINT64_MAX), TUTTI_E_DATA, "more than");
    tti_reader_close(reader);
}

T_CASE(only_regular_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    char path[512], link[512];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", dir);
    snprintf(link, sizeof link, "%s/train-labels-idx1-ubyte", dir);
    tti_reader *reader = (tti_reader *)path; /* must become NULL */
    T_FAILS(tti_reader_open(path, &reader), TUTTI_E_DATA, "cannot open: No such file");
    assert_null(reader);
    T_FAILS(tti_reader_open(dir, &reader), TUTTI_E_DATA, "is not a regular file");
    t_write(path, "abc", 3);
    assert_int_equal(symlink(path, link), 0);
    T_OK(tti_reader_open(link, &reader)); /* the target counts */
    T_OK(tti_reader_read(reader, got, 3, "data"));
    assert_memory_equal(got, "abc", 3);
    tti_reader_close(reader);
    unlink(link);
    assert_int_equal(symlink("blobs/none", link), 0);
    T_FAILS(tti_reader_open(link, &reader), TUTTI_E_DATA,
            "is a symbolic link to 'blobs/none', which does not exist");
    unlink(link);
    assert_int_equal(symlink(link, link), 0);
    T_FAILS(tti_reader_open(link, &reader), TUTTI_E_DATA, "is part of a loop of symbolic links");
    unlink(link);
    assert_int_equal(mkfifo(link, 0600), 0); /* must not wait for a writer */
    T_FAILS(tti_reader_open(link, &reader), TUTTI_E_DATA, "is not a regular file");
    t_remove_dir(dir);
}

T_CASE(cut_while_open) {
    T_UNUSED;
    fill();
    const char *dir = t_make_dir(), *path = t_path(dir, "train-images-idx3-ubyte");
    t_write(path, bytes, 1000);
    tti_reader *reader;
    T_OK(tti_reader_open(path, &reader));
    assert_int_equal(truncate(path, 500), 0);
    T_FAILS(tti_reader_read(reader, got, 1000, "data"), TUTTI_E_DATA, "became shorter");
    tti_reader_close(reader);
    t_remove_dir(dir);
}

T_CASE(descriptor_is_handed_over) {
    T_UNUSED;
    fill();
    const char *dir = t_make_dir(), *path = t_path(dir, "train-images-idx3-ubyte");
    t_write(path, bytes, 1000);
    tti_reader *reader;
    int fd = -1;
    T_OK(tti_reader_open(path, &reader));
    T_OK(tti_reader_read(reader, got, 10, "header"));
    T_FAILS(tti_reader_release_fd(reader, 991, &fd), TUTTI_E_DATA, "truncated");
    tti_reader_close(reader);
    T_OK(tti_reader_open(path, &reader));
    T_FAILS(tti_reader_release_fd(reader, 999, &fd), TUTTI_E_DATA, "1 trailing bytes");
    tti_reader_close(reader);
    T_EQ(fd, -1);
    T_OK(tti_reader_open(path, &reader));
    T_OK(tti_reader_release_fd(reader, 1000, &fd));
    tti_reader_close(reader);
    T_EQ(pread(fd, got, 10, 990), 10);
    assert_memory_equal(got, bytes + 990, 10);
    close(fd);
    t_remove_dir(dir);
}

T_CASE(read_all_takes_everything_up_to_a_limit) {
    T_UNUSED;
    static uint8_t all[300000], small[600000];
    for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)(i * 31 + i / 256);
    size_t n_packed = t_gzip(all, sizeof all, small), n;
    for (int gzip = 0; gzip < 2; gzip++) {
        tti_reader *reader;
        char *text;
        const uint8_t *from = gzip ? small : all;
        size_t n_from = gzip ? n_packed : sizeof all;
        for (size_t limit = sizeof all; limit < sizeof all + 2; limit++) {
            T_OK(tti_reader_open_memory(from, n_from, "memory", &reader));
            T_OK(tti_reader_read_all(reader, limit, &text, &n));
            T_EQ(n, sizeof all);
            assert_memory_equal(text, all, n);
            T_EQ(text[n], 0);
            free(text);
            tti_reader_close(reader);
        }
        T_OK(tti_reader_open_memory(from, n_from, "memory", &reader));
        T_FAILS(tti_reader_read_all(reader, sizeof all - 1, &text, &n), TUTTI_E_DATA,
                gzip ? "has more than 299999 bytes" : "has 300000 bytes, at most 299999");
        tti_reader_close(reader);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sources_agree),
        cmocka_unit_test(plain_too_short_or_too_long),
        cmocka_unit_test(gzip_cut_anywhere),
        cmocka_unit_test(gzip_damaged),
        cmocka_unit_test(gzip_members),
        cmocka_unit_test(unpacked_size_is_bounded),
        cmocka_unit_test(gzip_compressed),
        cmocka_unit_test(declared_sizes_are_bounded),
        cmocka_unit_test(only_regular_files),
        cmocka_unit_test(cut_while_open),
        cmocka_unit_test(descriptor_is_handed_over),
        cmocka_unit_test(read_all_takes_everything_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
