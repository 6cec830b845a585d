/* tfevents_test.c - the bytes of an event file against ones that protoc has decoded, and the file.
 */
#include "train/report/tfevents.h"

#include <dirent.h>

#include "base/crc32c.h"
#include "train/small_job.h"

static void expect_hex(const tti_str *got, const char *hex) {
    char text[1024] = "";
    for (size_t i = 0; i < got->n_bytes && i < 500; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)got->text[i]);
    assert_string_equal(text, hex);
}

T_CASE(bytes_of_the_head) {
    T_UNUSED;
    tti_str out = {0};
    tti_tfevents_add_head(&out, 0x1.954fc4p+30); /* 1700000000 + 0: bytes 00000040fc54d941 */
    expect_hex(&out,
               "1800000000000000a37f4b22"
               "0900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
    tti_str_free(&out);
}

T_CASE(bytes_of_a_value) {
    T_UNUSED;
    tti_str out = {0};
    double time_s;
    memcpy(&time_s, "\x00\x00\x40\x40\xfc\x54\xd9\x41", sizeof time_s);
    tti_tfevents_add(&out, time_s, 7, &(tti_scalar){"train/loss", 0.5}, 1);
    expect_hex(&out,
               "200000000000000029eda950"
               "0900004040fc54d94110072a130a110a0a747261696e2f6c6f7373150000003f5469987d");
    tti_str_free(&out);
}

/* As torch.utils.tensorboard writes it for purge_step=7. */
T_CASE(bytes_of_a_restart) {
    T_UNUSED;
    tti_str out = {0};
    double time_s;
    memcpy(&time_s, "\x00\x00\x40\x40\xfc\x54\xd9\x41", sizeof time_s);
    tti_tfevents_add_restart(&out, time_s, 7);
    expect_hex(&out, "0f000000000000006d532b090900004040fc54d94110073a0208010298d346");
    tti_str_free(&out);
}

/* Steps beyond one byte of a varint, several values: lengths and checksums hold. */
T_CASE(many_values_and_a_large_step) {
    T_UNUSED;
    tti_str out = {0};
    tti_scalar scalars[] = {{"a", 1}, {"b", -2.5}, {"c", 3e38}};
    tti_tfevents_add(&out, 1, 300, scalars, 3);
    const unsigned char *p = (const unsigned char *)out.text;
    T_EQ(p[0] + 16, out.n_bytes);
    T_EQ(p[12 + 9], 0x10);
    T_EQ(p[12 + 10], 0xac); /* 300 = 2 * 128 + 44 */
    T_EQ(p[12 + 11], 0x02);
    uint32_t crc = tti_crc32c(0, p + 12, p[0]), said;
    memcpy(&said, p + 12 + p[0], sizeof said);
    T_EQ(said == ((crc >> 15) | (crc << 17)) + 0xa282ead8u, 1);
    tti_str_free(&out);
}

static int n_event_files(void) {
    int n = 0;
    DIR *dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, "events.out.tfevents.", 20) == 0;
    closedir(dir);
    return n;
}

T_CASE(a_file_for_each_part_of_a_run) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        tti_tfevents t;
        T_OK(tti_tfevents_open(&t, "."));
        T_OK(tti_tfevents_write(&t, 1, &(tti_scalar){"train/loss", 1}, 1));
        tti_tfevents_close(&t);
        T_OK(tti_tfevents_write(&t, 2, &(tti_scalar){"train/loss", 1}, 1)); /* closed: nothing */
        T_EQ(n_event_files(), i + 1);
    }
}

/* A clock that was set back, another host, and a second file in the same second. */
T_CASE(names_are_in_order) {
    T_UNUSED;
    static const char early[] = "events.out.tfevents.1999999999.zebra.9.0";
    FILE *file = fopen(early, "w");
    assert_non_null(file);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        tti_tfevents t;
        T_OK(tti_tfevents_open(&t, "."));
        tti_tfevents_close(&t);
    }
    struct dirent **list;
    int n = scandir(".", &list, NULL, alphasort);
    assert_true(n >= 3);
    assert_string_equal(list[n - 3]->d_name, early);
    assert_non_null(strstr(list[n - 2]->d_name, "events.out.tfevents.2000000000."));
    assert_non_null(strstr(list[n - 1]->d_name, "events.out.tfevents.2000000001."));
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

T_CASE(a_folder_that_is_not_there) {
    T_UNUSED;
    tti_tfevents t;
    T_FAILS(tti_tfevents_open(&t, "nowhere"), TUTTI_E_IO, "nowhere/events.out.tfevents.");
    tti_tfevents_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_the_head),      cmocka_unit_test(bytes_of_a_value),
        cmocka_unit_test(bytes_of_a_restart),     cmocka_unit_test(many_values_and_a_large_step),
        IN_FOLDER(a_file_for_each_part_of_a_run), IN_FOLDER(names_are_in_order),
        IN_FOLDER(a_folder_that_is_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
