/* address_test.c - addresses in all their forms, and what is none. */
#include "comm/tcp/tcp.h"
#include "t.h"

static void expect(const char *text, const char *host, int first, int last, bool is_unix) {
    tcp_address a;
    T_OK(tti_tcp_parse(text, &a));
    assert_string_equal(a.host, host);
    assert_string_equal(a.text, text);
    T_EQ(a.first, first);
    T_EQ(a.last, last);
    T_EQ(a.is_unix, is_unix);
}

T_CASE(forms) {
    T_UNUSED;
    expect("node-1:29500", "node-1", 29500, 29500, false);
    expect("10.0.0.1:29501-29516", "10.0.0.1", 29501, 29516, false);
    expect("[fe80::1]:65535", "fe80::1", 65535, 65535, false);
    expect("unix:tutti-0-1", "tutti-0-1", 0, 0, true);
}

T_CASE(no_forms) {
    T_UNUSED;
    static const struct {
        const char *text, *why;
    } bad[] = {{"", "no port"},
               {"host", "no port"},
               {":1", "no host"},
               {"host:", "ports are"},
               {"host:0", "ports are"},
               {"host:65536", "ports are"},
               {"host:-1", "ports are"},
               {"host:5-", "ports are"},
               {"host:9-5", "ports are"},
               {"host:1-65", "at most 64"},
               {"host:1x", "ports are"},
               {"host:99999999999999999999", "ports are"},
               {"::1:80", "with colons in [ ]"},
               {"unix:", "1 to 90 bytes"}};
    tcp_address a;
    for (size_t i = 0; i < TTI_COUNT(bad); i++)
        T_FAILS(tti_tcp_parse(bad[i].text, &a), TUTTI_E_CONFIG, bad[i].why);
    char longer[400];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    T_FAILS(tti_tcp_parse(longer, &a), TUTTI_E_CONFIG, "too long");
    memcpy(longer, "unix:", 5);
    longer[100] = '\0';
    T_FAILS(tti_tcp_parse(longer, &a), TUTTI_E_CONFIG, "1 to 90 bytes");
}

static void expect_place(const char *address, int port, const char *text) {
    tcp_address a;
    tcp_place places[4];
    char buf[160];
    int n;
    T_OK(tti_tcp_parse(address, &a));
    T_OK(tti_tcp_resolve(&a, port, places, 4, &n));
    assert_true(n >= 1);
    assert_string_equal(tti_tcp_place_text(&places[0], buf, sizeof buf), text);
}

T_CASE(places) {
    T_UNUSED;
    expect_place("127.0.0.1:5-9", 7, "127.0.0.1:7");
    expect_place("[::1]:5", 5, "[::1]:5");
    expect_place("unix:abc", 0, "unix:abc");
    static const char *const changed[][2] = {
        {"127.0.0.1:5", "127.0.0.1:65535"}, {"[::1]:5", "[::1]:65535"}, {"unix:abc", "unix:abc"}};
    tcp_address a;
    tcp_place place;
    char buf[160];
    int n;
    for (size_t i = 0; i < TTI_COUNT(changed); i++) {
        T_OK(tti_tcp_parse(changed[i][0], &a));
        T_OK(tti_tcp_resolve(&a, a.first, &place, 1, &n));
        tti_tcp_set_port(&place, 65535);
        assert_string_equal(tti_tcp_place_text(&place, buf, sizeof buf), changed[i][1]);
    }
    T_OK(tti_tcp_parse("unix:abc.12", &a));
    T_OK(tti_tcp_resolve(&a, 0, &place, 1, &n));
    memcpy((char *)&place.at + 4, "\x1b[2\n\xc3",
           5); /* what another user's process may be called */
    assert_string_equal(tti_tcp_place_text(&place, buf, sizeof buf), "unix:a?[2??");
    T_OK(tti_tcp_parse("no-such-host.invalid:5", &a));
    T_FAILS(tti_tcp_resolve(&a, 5, &place, 1, &n), TUTTI_E_CONFIG,
            "no host 'no-such-host.invalid'");
}

/* Without a token the names can be guessed; with one they are the HMAC-SHA256 of these texts. */
T_CASE(names) {
    T_UNUSED;
    tcp_address a;
    tcp_place plain[TCP_UNIX_PLACES], secret[TCP_UNIX_PLACES], other[TCP_UNIX_PLACES];
    char buf[160];
    T_OK(tti_tcp_parse("unix:abc", &a));
    tti_tcp_unix_places(&a, NULL, 12, plain);
    assert_string_equal(tti_tcp_place_text(&plain[0], buf, sizeof buf), "unix:abc.12.0");
    assert_string_equal(tti_tcp_place_text(&plain[7], buf, sizeof buf), "unix:abc.12.7");
    tti_tcp_unix_places(&a, "sixteen and more", 12, secret);
    assert_string_equal(
        tti_tcp_place_text(&secret[3], buf, sizeof buf),
        "unix:tutti-5c5729a030073fc0b9f30201d8c34e221e58174380fcf8eab071c58e42dfc0b2");
    tti_tcp_unix_places(&a, "sixteen and less", 12, other);
    for (int i = 0; i < TCP_UNIX_PLACES; i++)
        T_EQ(memcmp(&secret[i].at, &other[i].at, sizeof other[i].at) == 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(no_forms),
        cmocka_unit_test(places),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
