/* catalog_test.c - every table prints every one of its rows; another name is refused. */
#include "tutti/catalog.h"

#include <stdlib.h>

#include "base/error.h"
#include "data/dataset.h"
#include "ops/op_table.h"
#include "passes/passes.h"
#include "t.h"
#include "tutti/models.h"

/* A line of text that starts with the name as a word. */
static bool has_row(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n)
        if ((at == text || at[-1] == '\n') && at[n] == ' ') return true;
    return false;
}

static void check_row(const char *table, const char *text, const char *name) {
    if (!has_row(text, name)) fail_msg("the table of %s lacks %s", table, name);
}

T_CASE(tables_are_whole) {
    T_UNUSED;
    char *text;
    T_OK(tutti_catalog("ops", &text));
    for (int i = 0; tti_op_at(i); i++) check_row("ops", text, tti_op_at(i)->name);
    assert_non_null(strstr(text, "\n    stride "));
    free(text);
    T_OK(tutti_catalog("passes", &text));
    for (int i = 0; tti_pass_at(i); i++) check_row("passes", text, tti_pass_at(i)->name);
    free(text);
    T_OK(tutti_catalog("models", &text));
    for (int i = 0; tutti_model_at(i); i++) check_row("models", text, tutti_model_at(i)->name);
    free(text);
    T_OK(tutti_catalog("formats", &text));
    for (int i = 0; tti_format_at(i); i++) check_row("formats", text, tti_format_at(i)->name);
    free(text);
}

T_CASE(short_tables) {
    T_UNUSED;
    static const char *const rows[][5] = {{"optimizers", "adam", "adamw", "sgd"},
                                          {"schedules", "constant", "cosine", "step"},
                                          {"algorithms", "direct", "ring", "tree"}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        char *text;
        T_OK(tutti_catalog(rows[i][0], &text));
        for (int k = 1; k < 4; k++) check_row(rows[i][0], text, rows[i][k]);
        free(text);
    }
}

T_CASE(other_names_are_refused) {
    T_UNUSED;
    static char none[1];
    char *text = none;
    T_FAILS(tutti_catalog("op", &text), TUTTI_E_INVALID, "no table is called 'op'");
    assert_null(text);
    T_FAILS(tutti_catalog("", &text), TUTTI_E_INVALID, "''");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_are_whole),
                                       cmocka_unit_test(short_tables),
                                       cmocka_unit_test(other_names_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
