/* command_test.c - the command of workers: two lists as one, and no word left out. */
#include "train/setup/command.h"

#include "t.h"

T_CASE(one_after_the_other) {
    T_UNUSED;
    char *argv[TTI_MAX_ARGV], *given[] = {"tutti", "train", NULL}, *more[] = {"run.dir=a", NULL};
    T_OK(tti_command_make("train", given, more, argv));
    assert_string_equal(argv[0], "tutti");
    assert_string_equal(argv[1], "train");
    assert_string_equal(argv[2], "run.dir=a");
    assert_null(argv[3]);
    T_OK(tti_command_make("train", given, &more[1], argv));
    assert_null(argv[2]);
}

T_CASE(no_command) {
    T_UNUSED;
    char *argv[TTI_MAX_ARGV], *none[] = {NULL};
    T_FAILS(tti_command_make("profile", NULL, none, argv), TUTTI_E_INVALID,
            "profile: parallel.place=processes needs the command of a worker "
            "(tutti_profile_desc.worker_argv)");
}

T_CASE(too_many_words) {
    T_UNUSED;
    char *argv[TTI_MAX_ARGV], *given[TTI_MAX_ARGV + 1], *more[] = {"x", NULL};
    for (int i = 0; i < TTI_MAX_ARGV; i++) given[i] = "word";
    given[TTI_MAX_ARGV - 2] = NULL;
    T_OK(tti_command_make("train", given, more, argv));
    assert_null(argv[TTI_MAX_ARGV - 1]);
    given[TTI_MAX_ARGV - 2] = "word";
    given[TTI_MAX_ARGV - 1] = NULL;
    T_FAILS(tti_command_make("train", given, more, argv), TUTTI_E_INVALID, "has over 511 words");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_after_the_other),
                                       cmocka_unit_test(no_command),
                                       cmocka_unit_test(too_many_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
