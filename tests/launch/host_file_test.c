/* host_file_test.c - slots of a host in a file of hosts, and what is refused. */
#include "launch/host_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "t.h"

static int slots_of(const char *text, const char *host) {
    return tti_host_file_slots(text,
                               &(tti_host_names){.host = host, .address = "", .is_local = true});
}

static void slots_of_this_host_add_up(void **state) {
    (void)state;
    T_EQ(slots_of("", "node-1"), 0);
    T_EQ(slots_of("node-1\n", "node-1"), 1);
    T_EQ(slots_of("# mine\nnode-1 slots=3\r\nnode-2 slots=5\n\n  node-1\tslots=2 # x", "node-1"),
         5);
    T_EQ(slots_of("localhost slots=4", "node-1"), 4);
    T_EQ(slots_of("node-1.example.org slots=4", "node-1"), 4);
    T_EQ(slots_of("node-1 slots=4", "node-1.example.org"), 4);
    T_EQ(slots_of("node-1.a slots=4", "node-1.b"), 0);
    T_EQ(slots_of("node-11 slots=4", "node-1"), 0);
    T_EQ(slots_of("10.0.0.1 slots=4", "10.0.0.2"), 0);
}

static void hosts_have_names_and_addresses(void **state) {
    (void)state;
    static const char text[] =
        "localhost slots=1\nnode-2 slots=2\n10.0.0.3 slots=3 # node-3\n"
        "127.0.0.1 slots=4\n\n# node-4\nnode-5 slots=0\n";
    static const tti_host_names hosts[] = {{"node-1", "127.0.0.1", true},
                                           {"node-2.example.org", "127.0.0.1", false},
                                           {"node-3", "10.0.0.3", false},
                                           {"", "", false}};
    static const int slots[] = {5, 2, 3, 0};
    char name[100];
    for (int i = 0; i < 4; i++) T_EQ(tti_host_file_slots(text, &hosts[i]), slots[i]);
    tti_host_file_find_unknown(text, hosts, 4, name, sizeof name);
    assert_string_equal(name, "");
    tti_host_file_find_unknown(text, hosts + 1, 3, name, sizeof name);
    assert_string_equal(name, "localhost");
    tti_host_file_find_unknown(text, hosts, 2, name, 6);
    assert_string_equal(name, "10.0.");
}

static void other_texts_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "a slots=x", "a slots=", "a slots=-1", "a max_slots=3", "localhost slots=5000", "a 3"};
    for (size_t i = 0; i < TTI_COUNT(wrong); i++) T_EQ(slots_of(wrong[i], "a"), -1);
    char line[1000];
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    T_EQ(slots_of(line, "a"), -1);
    T_EQ(slots_of("ok\nb slots=3 4\nc c", "a"), -1);
    assert_non_null(strstr(tutti_last_error(), "line 3"));
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_file_is_read_when_it_changes(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    tti_host_file file = {.path = path};
    T_EQ(tti_host_file_look(&file), 0); /* there is none yet */
    write_text(path, "localhost slots=3\n");
    file.looked_ns = 0;
    T_EQ(tti_host_file_look(&file), 3);
    file.looked_ns = 0;
    T_EQ(tti_host_file_look(&file), 0);
    write_text(path, "localhost slots=12\n");
    file.looked_ns = 0;
    T_EQ(tti_host_file_look(&file), 12);
    write_text(path, "elsewhere slots=1\n");
    file.looked_ns = 0;
    T_EQ(tti_host_file_look(&file), -1);
    assert_non_null(strstr(tutti_last_error(), "has no slots for this host"));
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_this_host_add_up),
        cmocka_unit_test(hosts_have_names_and_addresses),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(a_file_is_read_when_it_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
