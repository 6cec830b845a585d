/* param_groups_test.c - patterns, what entries say, and who wins. */
#include "train/job/param_groups.h"

#include <stdio.h>

#include "base/error.h"
#include "t.h"

static const struct {
    const char *pattern, *name;
    bool fits;
} fits[] = {
    {"", "", true},
    {"", "a", false},
    {"*", "", true},
    {"*", "conv1.weight", true},
    {"**", "a", true},
    {"?", "a", true},
    {"?", "", false},
    {"?", "ab", false},
    {"conv1.weight", "conv1.weight", true},
    {"conv1.weight", "conv1.weights", false},
    {"conv1.weight", "conv1", false},
    {"Conv1.*", "conv1.weight", false},
    {"*.bias", "layer1.0.bn1.bias", true},
    {"*.bias", "layer1.0.bn1.bias.x", false},
    {"*.bias", "bias", false},
    {"bn*", "bn1.weight", true},
    {"bn*", "layer1.bn1.weight", false},
    {"*bn?.*", "layer1.bn1.weight", true},
    {"*a*a*b", "aaaaaaaab", true},
    {"*a*a*b", "aaaaaaaac", false},
    {"layer?.*.weight", "layer1.0.conv1.weight", true},
    {"layer?.*.weight", "layer10.0.conv1.weight", false},
    {"a.b", "axb", false},
    {"[ab]", "a", false}, /* brackets are only brackets */
    {"x*", "x", true},
    {"*x", "xxx", true},
};

T_CASE(patterns) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(fits); i++)
        if (tti_pattern_matches(fits[i].pattern, fits[i].name) != fits[i].fits)
            fail_msg("\"%s\" and \"%s\"", fits[i].pattern, fits[i].name);
}

/* A pattern made to try every split does not take for ever. */
T_CASE(patterns_are_cheap) {
    T_UNUSED;
    char pattern[512], name[2048];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i + 2 < sizeof pattern; i += 2) memcpy(pattern + i, "*a", 2);
    memcpy(pattern + sizeof pattern - 2, "b", 2);
    for (int i = 0; i < 100; i++) assert_false(tti_pattern_matches(pattern, name));
}

static tutti_job *job_of(const char *groups, const char *freeze) {
    tutti_job *job = NULL;
    char text[512];
    T_OK(tutti_job_create(&job));
    snprintf(text, sizeof text, "optimizer: {groups: %s, freeze: %s}", groups, freeze);
    T_OK(tti_job_load_text(job, text, strlen(text), "j"));
    T_OK(tutti_job_check(job));
    return job;
}

static const struct {
    const char *groups, *freeze, *name;
    tti_param_group wanted;
} groups[] = {
    {"[]", "[]", "a.weight", {1, false, 0, false}},
    {"[\"*.bias: lr=2 decay=0\"]", "[]", "a.weight", {1, false, 0, false}},
    {"[\"*.bias: lr=2 decay=0\"]", "[]", "a.bias", {2, true, 0, false}},
    {"[\" *.bias :decay=0.01,lr=0.5 \"]", "[]", "a.bias", {0.5, true, 0.01, false}},
    {"[\"*: lr=3 decay=0.1\", \"*.bias: lr=2\"]", "[]", "a.bias", {2, true, 0.1, false}},
    {"[\"*.bias: lr=2\", \"*: lr=3\"]", "[]", "a.bias", {3, false, 0, false}},
    {"[\"*: lr=0\"]", "[]", "a.bias", {0, false, 0, true}},
    {"[\"*: lr=0\", \"a.*: lr=1\"]", "[]", "a.bias", {1, false, 0, false}},
    {"[\"a.*: lr=1\"]", "[\"*.bias\"]", "a.bias", {0, false, 0, true}},
    {"[]", "conv1.*", "conv1.weight", {0, false, 0, true}},
    {"[]", "conv1.*", "conv2.weight", {1, false, 0, false}},
    {"\"fc: decay=1e-3\"", "[]", "fc", {1, true, 1e-3, false}},
};

T_CASE(groups_of_names) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(groups); i++) {
        tutti_job *job = job_of(groups[i].groups, groups[i].freeze);
        tti_param_group got = tti_param_group_of(&job->config, groups[i].name);
        const tti_param_group *want = &groups[i].wanted;
        if (got.lr != want->lr || got.has_decay != want->has_decay || got.decay != want->decay ||
            got.frozen != want->frozen)
            fail_msg("row %zu: lr %g, decay %d %g, frozen %d", i, got.lr, got.has_decay, got.decay,
                     got.frozen);
        tutti_job_destroy(job);
    }
}

T_CASE(patterns_must_fit_something) {
    T_UNUSED;
    static const char *const names[] = {"conv1.weight", "conv1.bias", "fc.weight"};
    tutti_job *job = job_of("[\"*.bias: lr=2\"]", "[\"conv?.*\"]");
    T_OK(tti_param_groups_check(&job->config, names, 3));
    T_FAILS(tti_param_groups_check(&job->config, names + 2, 1), TUTTI_E_CONFIG,
            "optimizer.groups: \"*.bias\" matches none of the 1 parameters");
    T_FAILS(tti_param_groups_check(&job->config, names, 0), TUTTI_E_CONFIG, "has no parameters");
    tutti_job_destroy(job);
    job = job_of("[]", "[\"conv1.wieght\"]");
    T_FAILS(
        tti_param_groups_check(&job->config, names, 3), TUTTI_E_CONFIG,
        "optimizer.freeze: \"conv1.wieght\" matches none of the 3 parameters; the nearest name is "
        "conv1.weight");
    tutti_job_destroy(job);
}

/* Entries as long as a text can be. */
T_CASE(long_entries) {
    T_UNUSED;
    char text[TTI_TEXT_MAX], pattern[TTI_TEXT_MAX];
    tti_param_group group = {.lr = 7};
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_non_null(tti_param_group_parse(text, pattern, &group));
    memcpy(text + sizeof text - 7, ": lr=2", 7);
    assert_null(tti_param_group_parse(text, pattern, &group));
    T_EQ(strlen(pattern), sizeof text - 7);
    assert_true(group.lr == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),        cmocka_unit_test(patterns_are_cheap),
        cmocka_unit_test(groups_of_names), cmocka_unit_test(patterns_must_fit_something),
        cmocka_unit_test(long_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
