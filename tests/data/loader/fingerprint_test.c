/* fingerprint_test.c - equal data gives equal digests; other seeds, sizes, names and bytes do not.
 */
#include "data/loader/fingerprint.h"

#include "base/error.h"
#include "data/root_folder.h"

static tti_fingerprint print_of(const tutti_dataset_desc *desc) {
    tutti_dataset *ds;
    tti_fingerprint print;
    T_OK(tutti_dataset_open(desc, &ds));
    T_OK(tti_dataset_fingerprint(ds, &print));
    tutti_dataset_destroy(ds);
    return print;
}

T_CASE(samples_that_are_drawn) {
    T_UNUSED;
    tutti_dataset_desc desc = {.format = "digits", .n_samples = 1000, .std = 1};
    tti_fingerprint first = print_of(&desc), again = print_of(&desc);
    assert_memory_equal(&first, &again, sizeof first);
    desc.seed = 1;
    T_EQ(print_of(&desc).content == first.content, 0);
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Every byte of a small table counts. */
T_CASE(a_small_table) {
    T_UNUSED;
    char path[300];
    snprintf(path, sizeof path, "%s", below_root("t.csv"));
    const char *row = "1.5,2,0\n2.5,3,1\n3.5,4,0\n4.5,5,1\n5.5,6,0\n";
    tutti_dataset_desc desc = {.format = "csv", .dir = root, .val_fraction = 0.2};
    put(path, row);
    tti_fingerprint first = print_of(&desc);
    put(path, row);
    T_EQ(print_of(&desc).content == first.content, 1);
    put(path, "1.5,2,0\n2.5,3,1\n3.5,4,0\n4.5,5,1\n5.5,7,0\n");
    T_EQ(print_of(&desc).content == first.content, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples_that_are_drawn),
                                       IN_FOLDER(a_small_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
