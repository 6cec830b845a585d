/* transform_test.c - chains of steps: types, order, scratch buffers; normalise. */
#include "data/transform.h"

#include "base/error.h"
#include "t.h"

/* A test step: f32 -> f32, x*2 + what the sample's key says. */
static tutti_status twist_infer(const tti_transform *self, const tutti_type *in, tutti_type *out) {
    if (in->dtype != TUTTI_F32) return tti_fail(TUTTI_E_INVALID, "%s: takes f32", self->name);
    *out = *in;
    return TUTTI_OK;
}

static void twist_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                        void *out) {
    (void)self;
    const float *x = in;
    for (int i = 0; i < 6; i++) ((float *)out)[i] = x[i] * 2 + (float)key->index;
}

static void twist_destroy(tti_transform *self) { (void)self; }

static tti_transform twist = {"twist", twist_infer, twist_apply, twist_destroy, NULL};

static const tutti_type pixels = {TUTTI_U8, {2, {2, 3}}};

T_CASE(normalise_is_a_table) {
    T_UNUSED;
    tti_chain chain = {.n = 1};
    const tutti_shape shape = TUTTI_SHAPE(256);
    T_OK(tti_normalise_create(0.1307, 0.3081, &shape, &chain.step[0]));
    tutti_type out;
    size_t max_bytes;
    T_OK(tti_chain_infer(&chain, &(tutti_type){TUTTI_U8, shape}, &out, &max_bytes));
    T_EQ(out.dtype, TUTTI_F32);
    T_EQ(out.shape.dim[0], 256);
    T_EQ(max_bytes, 1024);
    uint8_t in[256];
    float unused[256], x[256];
    for (int i = 0; i < 256; i++) in[i] = (uint8_t)i;
    tti_chain_apply(&chain, &(tti_sample_key){0}, (void *const[]){in, unused}, 256, x);
    for (int i = 0; i < 256; i++) T_NEAR(x[i], (i / 255.0 - 0.1307) / 0.3081, 1e-6);
    tti_chain_destroy(&chain);
    T_EQ(chain.n, 0);
}

T_CASE(std_zero_is_one) {
    T_UNUSED;
    tti_chain chain = {.n = 1};
    T_OK(tti_normalise_create(0, 0, &pixels.shape, &chain.step[0]));
    uint8_t in[6] = {0, 51, 255};
    float unused[6], x[6];
    tti_chain_apply(&chain, &(tti_sample_key){0}, (void *const[]){in, unused}, 6, x);
    assert_true(x[0] == 0.0f && x[1] == 0.2f && x[2] == 1.0f);
    tti_chain_destroy(&chain);
}

T_CASE(steps_in_order) {
    T_UNUSED;
    const uint8_t in[6] = {0, 51, 102, 153, 204, 255};
    for (int n_twists = 0; n_twists <= 4; n_twists++) {
        tti_chain chain = {.n = 1};
        T_OK(tti_normalise_create(0, 1, &pixels.shape, &chain.step[0]));
        for (int i = 0; i < n_twists; i++)
            T_OK(tti_chain_append(&chain, &(tti_chain){1, {&twist}}));
        _Alignas(64) uint8_t a[64], b[64];
        float x[6];
        memcpy(a, in, 6);
        tti_chain_apply(&chain, &(tti_sample_key){.index = 5}, (void *const[]){a, b}, 6, x);
        for (int i = 0; i < 6; i++) {
            double expected = in[i] / 255.0;
            for (int k = 0; k < n_twists; k++) expected = expected * 2 + 5;
            T_NEAR(x[i], expected, 1e-6);
        }
        tti_chain_destroy(&chain);
    }
}

T_CASE(no_steps_copy) {
    T_UNUSED;
    uint8_t in[6] = {1, 2, 3, 4, 5, 6}, unused[6], x[6];
    tti_chain_apply(&(tti_chain){0}, &(tti_sample_key){0}, (void *const[]){in, unused}, 6, x);
    assert_memory_equal(x, in, 6);
}

T_CASE(bad_chains) {
    T_UNUSED;
    tutti_type out;
    size_t max_bytes;
    tti_chain chain = {1, {&twist}};
    T_FAILS(tti_chain_infer(&chain, &pixels, &out, &max_bytes), TUTTI_E_INVALID,
            "twist: takes f32");
    for (int i = 1; i < TTI_MAX_TRANSFORMS; i++)
        T_OK(tti_chain_append(&chain, &(tti_chain){1, {&twist}}));
    T_FAILS(tti_chain_append(&chain, &(tti_chain){1, {&twist}}), TUTTI_E_INVALID, "9 steps");
    T_EQ(chain.n, TTI_MAX_TRANSFORMS);
    tti_transform *step;
    T_FAILS(tti_normalise_create(0, -1, &pixels.shape, &step), TUTTI_E_INVALID, "std > 0");
    T_FAILS(tti_normalise_create(NAN, 1, &pixels.shape, &step), TUTTI_E_INVALID, "finite");
    assert_null(step);
    T_OK(tti_normalise_create(0, 1, &pixels.shape, &step));
    T_FAILS(step->infer(step, &(tutti_type){TUTTI_F32, {0}}, &out), TUTTI_E_INVALID,
            "normalise: takes u8 pixels, got f32");
    step->destroy(step);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalise_is_a_table), cmocka_unit_test(std_zero_is_one),
        cmocka_unit_test(steps_in_order),       cmocka_unit_test(no_steps_copy),
        cmocka_unit_test(bad_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
