/* tar_index_test.c - members become samples; hostile archives are refused with place and reason. */
#include "data/formats/tar_index.h"

#include <stdlib.h>

#include "base/error.h"
#include "data/tar_files.h"
#include "t.h"

static t_tar tar;

static tutti_status parse(tti_tar_index *index) {
    uint8_t *copy = malloc(tar.n ? tar.n : 1); /* so that a sanitizer sees reads past the end */
    memcpy(copy, tar.bytes, tar.n);
    tti_tar_source source = tti_tar_from_memory(copy, "x.tar", tar.n);
    tutti_status st = tti_tar_index_add(index, &source, 3);
    free(copy);
    return st;
}

static int clear(void **state) {
    T_UNUSED;
    tar.n = 0;
    return 0;
}

static void add(const char *name, const char *text) {
    t_tar_add(&tar, name, '0', text, strlen(text));
}

static void add_sample(void) {
    add("s1.jpg", "JPEG");
    add("s1.cls", "4");
}

T_CASE(samples) {
    T_UNUSED;
    t_tar_add(&tar, "a/", '5', "", 0);
    add("a/s1.jpg", "first picture");
    add("a/s1.json", "{}");
    add("a/s1.cls", "12\n");
    add("a/s2.x.cls", "not a label: the key ends at the first dot");
    add("a/s2.cls", "0");
    add("a/s2.PNG", "second");
    add("a.b/s2.jpeg", "third: the first dot of the file name counts");
    add("a.b/s2.cls", "7");
    add("readme", "alone");
    t_tar_end(&tar);
    tti_tar_index index = {0};
    T_OK(parse(&index));
    T_EQ(index.n, 3);
    const int labels[] = {12, 0, 7};
    for (int i = 0; i < 3; i++) {
        T_EQ(index.samples[i].label, labels[i]);
        T_EQ(index.samples[i].shard, 3);
    }
    T_EQ(index.samples[0].n_bytes, 13);
    assert_memory_equal(tar.bytes + index.samples[0].offset, "first picture", 13);
    assert_memory_equal(tar.bytes + index.samples[1].offset, "second", 6);
    assert_memory_equal(tar.bytes + index.samples[2].offset, "third:", 6);
    tti_tar_source source = tti_tar_from_memory(tar.bytes, "x.tar", tar.n);
    char name[64];
    tti_tar_member_name(&source, index.samples[1].offset, name, sizeof name);
    assert_string_equal(name, "a/s2.PNG");
    T_OK(parse(&index)); /* appends */
    T_EQ(index.n, 6);
    tti_tar_index_free(&index);
}

/* Files that macOS adds are not taken for a second image of a sample. */
T_CASE(hidden_members) {
    T_UNUSED;
    add("./._s1.jpg", "resource fork");
    add("./s1.jpg", "JPEG");
    add("./._s1.cls", "resource fork");
    add("./s1.cls", "4");
    add("__MACOSX/s2.jpg", "JPEG");
    add("a/.ipynb_checkpoints/s3.cls", "0");
    add(".DS_Store", "x");
    t_tar_end(&tar);
    tti_tar_index index = {0};
    T_OK(parse(&index));
    T_EQ(index.n, 1);
    T_EQ(index.n_ignored, 5);
    tti_tar_index_free(&index);
}

T_CASE(long_names) {
    T_UNUSED;
    char name[300], record[320];
    memset(name, 'n', sizeof name);
    snprintf(name + 280, 20, ".jpg");
    t_tar_add(&tar, "././@LongLink", 'L', name, strlen(name) + 1);
    add("short", "picture");
    snprintf(name + 280, 20, ".cls");
    snprintf(record, sizeof record, "294 path=%s\n", name);
    T_EQ(strlen(record), 294);
    t_tar_add(&tar, "PaxHeader", 'x', record, strlen(record));
    add("short", "5");
    uint8_t *header = t_tar_add(&tar, "s.jpg", '0', "p", 1);
    memcpy(header + 345, "folder", 6); /* ustar's prefix */
    t_tar_sum(header);
    add("folder/s.cls", "6");
    t_tar_add(&tar, "global", 'g', "13 comment=x\n", 13);
    t_tar_end(&tar);
    tti_tar_index index = {0};
    T_OK(parse(&index));
    T_EQ(index.n, 2);
    T_EQ(index.samples[0].label, 5);
    T_EQ(index.samples[1].label, 6);
    tti_tar_index_free(&index);
}

/* Fails with TUTTI_E_DATA and text, and leaves the index as it was. */
static void refuse(const char *text) {
    tti_tar_index index = {0};
    T_FAILS(parse(&index), TUTTI_E_DATA, text);
    T_FAILS(parse(&index), TUTTI_E_DATA, "x.tar: byte ");
    T_EQ(index.n, 0);
    tti_tar_index_free(&index);
    clear(NULL);
}

T_CASE(refused_members) {
    T_UNUSED;
    static const char types[] = "1234678SDMVKNz";
    for (const char *type = types; *type; type++) {
        t_tar_add(&tar, "x", *type, "", 0);
        t_tar_end(&tar);
        refuse("member 'x': a link, device, sparse file or other special member is refused");
    }
    static const char *const names[] = {"/etc/x.jpg", "../x.jpg", "a/../x.jpg", "a/.."};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        add(names[i], "");
        t_tar_end(&tar);
        refuse(i == 0 ? "an absolute name" : "a name with '..'");
    }
    add("", "");
    t_tar_end(&tar);
    refuse("a member without a name");
}

T_CASE(refused_extras) {
    T_UNUSED;
    static const char *const records[] = {"9 path=x",
                                          "99 path=x\n",
                                          "10 path=/x\n",
                                          "x",
                                          "3 =\n",
                                          "22 GNU.sparse.major=1\n",
                                          "14 linkpath=a\n",
                                          "11 size=-1\n",
                                          "20 size=99999999999\n",
                                          "7 path=\n"};
    for (size_t i = 0; i < TTI_COUNT(records); i++) {
        t_tar_add(&tar, "pax", 'x', records[i], strlen(records[i]));
        add("x", "");
        t_tar_end(&tar);
        refuse("x.tar: byte ");
    }
    char name[600];
    memset(name, 'n', sizeof name);
    t_tar_add(&tar, "long", 'L', name, sizeof name);
    add("x", "");
    t_tar_end(&tar);
    refuse("damaged or refused name");
}

T_CASE(refused_numbers) {
    T_UNUSED;
    static const char *const sizes[] = {"77777777777", "0000000x000", "           ",
                                        "\x80\0\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF",
                                        "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        uint8_t *header = t_tar_add(&tar, "x.jpg", '0', "", 0);
        memcpy(header + 124, sizes[i], 12);
        t_tar_sum(header);
        t_tar_end(&tar);
        refuse("member 'x.jpg'");
    }
    add("x", "");
    tar.bytes[3] = 'y';
    t_tar_end(&tar);
    refuse("the checksum of the header is wrong");
    static const char *const labels[] = {
        "", "x", "-1", "2147483648", "1 2", "1.0", "00000000000000000000000000000000000001"};
    for (size_t i = 0; i < TTI_COUNT(labels); i++) {
        add("x.cls", labels[i]);
        t_tar_end(&tar);
        refuse("the label is not a whole number from 0 to 2147483647");
    }
}

T_CASE(refused_samples) {
    T_UNUSED;
    add("x.jpg", "p");
    add_sample();
    t_tar_end(&tar);
    refuse("member 'x': the previous sample has no label (cls)");
    add_sample();
    add("x.cls", "1");
    t_tar_end(&tar);
    refuse("member 'x': the previous sample has no image");
    add_sample();
    add("s1.png", "p");
    t_tar_end(&tar);
    refuse("a second image of one sample");
    add_sample();
    add("s1.cls", "1");
    t_tar_end(&tar);
    refuse("a second label of one sample");
    add("s1.jpg", "");
    t_tar_end(&tar);
    refuse("an image that is empty");
}

/* Cut off at any byte. */
T_CASE(truncated) {
    T_UNUSED;
    add_sample();
    add("s2.jpg", "JPEG");
    add("s2.cls", "4");
    t_tar_end(&tar);
    size_t n = tar.n;
    for (size_t cut = 0; cut < n; cut += 37) {
        tti_tar_index index = {0};
        tar.n = cut;
        T_FAILS(parse(&index), TUTTI_E_DATA, "x.tar: byte ");
        T_EQ(index.n, 0);
        tti_tar_index_free(&index);
    }
}

T_CASE(trailing_and_compressed) {
    T_UNUSED;
    add_sample();
    t_tar_end(&tar);
    memset(tar.bytes + tar.n, 0, 512);
    tar.n += 512; /* more zeros are well */
    tti_tar_index index = {0};
    T_OK(parse(&index));
    tti_tar_index_free(&index);
    tar.bytes[tar.n - 1] = 1;
    refuse("bytes after the end of the archive");
    memset(tar.bytes, 0, 1024);
    tar.bytes[0] = 0x1F, tar.bytes[1] = 0x8B;
    tar.n = 1024;
    refuse("the archive is compressed");
}

#define FRESH(test) cmocka_unit_test_setup(test, clear)

int main(void) {
    const struct CMUnitTest tests[] = {
        FRESH(samples),         FRESH(long_names),     FRESH(hidden_members),
        FRESH(refused_members), FRESH(refused_extras), FRESH(refused_numbers),
        FRESH(refused_samples), FRESH(truncated),      FRESH(trailing_and_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
