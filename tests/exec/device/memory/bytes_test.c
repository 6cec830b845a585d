/* bytes_test.c - batches of bytes on a device that is the host: what is copied, and what is made of
 * which place. */
#include "exec/device/memory/device_memory.h"

#include "exec/fake_device.h"
#include "t.h"

enum { B = 3, PLACES = 4, CHANNELS = 2, ELEMS = PLACES * CHANNELS, SHARDS = 2 };

static tutti_status fake_unpack(tti_queue queue, const tti_unpack *u) {
    T_EQ(queue, TTI_QUEUE_COPY);
    int plane = u->n_elems / u->n_channels;
    for (int r = 0; r < u->n_rows; r++)
        for (int i = 0; i < u->n_elems; i++) {
            int c = i % u->n_channels, at = r * u->n_elems + c * plane + i / u->n_channels;
            u->out[at] = u->y[r] < 0 ? 0 : u->value[c * 256 + u->x[r * u->n_elems + i]];
        }
    return TUTTI_OK;
}

static const tti_device_ops ops = {.queues.copy = fake_copy, .step.unpack = fake_unpack};
static const tti_backend backend = {
    .name = "fake", .device = &ops, .alloc = fake_alloc, .release = fake_release};

static uint8_t x[SHARDS][B][ELEMS];
static float table[CHANNELS][256];

static void fill(void) {
    for (int s = 0; s < SHARDS; s++)
        for (int i = 0; i < B * ELEMS; i++) x[s][i / ELEMS][i % ELEMS] = (uint8_t)(s * 101 + i * 7);
    for (int c = 0; c < CHANNELS; c++)
        for (int i = 0; i < 256; i++) table[c][i] = (float)(1000 * c + i);
}

static tti_bytes_desc desc_of(const tti_step_desc *step) {
    return (tti_bytes_desc){&backend, step, SHARDS, B * ELEMS * sizeof(float), B * sizeof(int32_t)};
}

T_CASE(every_shard_becomes_floats) {
    T_UNUSED;
    fill();
    static const int32_t y[SHARDS][B] = {{3, 1, 2}, {0, -1, -1}};
    const tti_shard_data shards[SHARDS] = {{x[0], y[0], B}, {x[1], y[1], 1}};
    const tti_step_desc step = {.shards = shards, .value = table, .n_channels = CHANNELS};
    tti_bytes_desc desc = desc_of(&step);
    tti_bytes bytes = {0};
    T_OK(tti_bytes_copy(&desc, &bytes));
    for (int s = 0; s < SHARDS; s++) {
        float out[B][CHANNELS][PLACES];
        T_OK(tti_bytes_unpack(&desc, &bytes, s, y[s], out));
        for (int r = 0; r < B; r++)
            for (int c = 0; c < CHANNELS; c++)
                for (int p = 0; p < PLACES; p++) {
                    float want = y[s][r] < 0 ? 0 : table[c][x[s][r][p * CHANNELS + c]];
                    T_NEAR(out[r][c][p], want, 0);
                }
    }
    tti_bytes_release(&backend, &bytes);
    assert_null(bytes.x);
}

T_CASE(a_table_that_does_not_fit) {
    T_UNUSED;
    const tti_shard_data shards[SHARDS] = {{0}};
    tti_bytes bytes = {0};
    for (int n = 0; n < 6; n++) {
        if (n == 1 || n == 2 || n == 4) continue; /* they divide 8 */
        const tti_step_desc step = {.shards = shards, .value = table, .n_channels = n};
        tti_bytes_desc desc = desc_of(&step);
        T_FAILS(tti_bytes_copy(&desc, &bytes), TUTTI_E_INVALID,
                "exec: 24 bytes do not hold 3 samples");
    }
    assert_null(bytes.x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_shard_becomes_floats),
                                       cmocka_unit_test(a_table_that_does_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
