/* nearest_test.c - edit distances against known ones, and what counts as near. */
#include "base/options/nearest.h"

#include "t.h"

T_CASE(distances) {
    T_UNUSED;
    static const struct {
        const char *a, *b;
        int distance;
    } rows[] = {{"", "", 0},
                {"", "abc", 3},
                {"lr", "lr", 0},
                {"lrr", "lr", 1},
                {"kitten", "sitting", 3},
                {"epohcs", "epochs", 1},
                {"LR", "lr", 0},
                {"weight-decay", "weight_decay", 0},
                {"flaw", "lawn", 2},
                {"ca", "abc", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        T_EQ(tti_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
        T_EQ(tti_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
}

T_CASE(long_names_are_refused) {
    T_UNUSED;
    char a[TTI_NEAREST_MAX + 2];
    memset(a, 'a', sizeof a);
    a[TTI_NEAREST_MAX] = '\0';
    T_EQ(tti_edit_distance(a, ""), TTI_NEAREST_MAX);
    a[TTI_NEAREST_MAX] = 'a';
    a[TTI_NEAREST_MAX + 1] = '\0';
    T_EQ(tti_edit_distance(a, "a"), TTI_NOT_NEAR);
    T_EQ(tti_nearness(a, "a"), TTI_NOT_NEAR);
}

T_CASE(nearness) {
    T_UNUSED;
    T_EQ(tti_nearness("lrr", "lr"), 1);
    T_EQ(tti_nearness("xx", "lr"), TTI_NOT_NEAR);
    T_EQ(tti_nearness("momentm", "momentum"), 1);
    T_EQ(tti_nearness("batch_size", "batch"), 1);
    T_EQ(tti_nearness("n_epochs", "epochs"), 1);
    T_EQ(tti_nearness("warmup", "warmup_steps"), 1);
    T_EQ(tti_nearness("epochs", "eps"), TTI_NOT_NEAR);
    T_EQ(tti_nearness("", "a"), TTI_NOT_NEAR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(nearness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
