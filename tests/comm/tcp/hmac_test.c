/* hmac_test.c - the published vectors of SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 4231). */
#include <stdio.h>

#include "comm/tcp/tcp.h"
#include "t.h"

static void expect_hex(const unsigned char *got, const char *want) {
    char hex[2 * TCP_MAC_BYTES + 1];
    for (int i = 0; i < TCP_MAC_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", got[i]);
    assert_string_equal(hex, want);
}

T_CASE(sha256) {
    T_UNUSED;
    unsigned char out[TCP_MAC_BYTES];
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    tti_sha256("", 0, out);
    expect_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    tti_sha256("abc", 3, out);
    expect_hex(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    tti_sha256(two, strlen(two), out);
    expect_hex(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

T_CASE(hmac) {
    T_UNUSED;
    unsigned char out[TCP_MAC_BYTES];
    char key[132], data[51];
    tti_hmac("Jefe", "what do ya want for nothing?", 28, out);
    expect_hex(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    key[20] = '\0';
    memset(data, 0xdd, sizeof data);
    tti_hmac(key, data, 50, out);
    expect_hex(out, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    memset(key, 0xaa, sizeof key); /* longer than a block: its hash is the key */
    key[131] = '\0';
    tti_hmac(key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, out);
    expect_hex(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

T_CASE(comparison) {
    T_UNUSED;
    unsigned char a[TCP_MAC_BYTES] = {1}, b[TCP_MAC_BYTES] = {1};
    assert_true(tti_mac_equal(a, b));
    b[TCP_MAC_BYTES - 1] = 1;
    assert_false(tti_mac_equal(a, b));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256),
        cmocka_unit_test(hmac),
        cmocka_unit_test(comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
