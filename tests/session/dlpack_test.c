/* dlpack_test.c - views of DLPack tensors, and new ones in host memory; those of devices:
 * device_session_test.c. */
#include "session/batches.h"

/* The layout of dlpack.h. */
typedef struct capsule {
    void *data;
    int32_t device_type, device_id, n_dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *manager, *deleter;
} capsule;

T_CASE(dlpack_tensors_are_viewed) {
    float data[24];
    int64_t shape[] = {2, 3, 4}, rows[] = {12, 4, 1}, turned[] = {1, 2, 6};
    capsule c = {data, 1, 0, 3, 2, 32, 1, shape, rows, 8, NULL, NULL};
    tutti_tensor t;
    T_UNUSED;
    T_OK(tutti_tensor_from_dlpack(&c, false, "x", &t));
    T_EQ(t.type.dtype, TUTTI_F32);
    T_EQ(t.type.shape.n_dims, 3);
    T_EQ(t.type.shape.dim[2], 4);
    assert_ptr_equal(t.data, data + 2);
    T_EQ(t.device, 0);
    c.strides = turned;
    T_FAILS(tutti_tensor_from_dlpack(&c, false, "x", &t), TUTTI_E_INVALID, "'x' is not contiguous");
    c.strides = NULL, c.device_type = 2, c.device_id = 3;
    T_OK(tutti_tensor_from_dlpack(&c, false, "x", &t));
    T_EQ(t.device, 4);
    c.device_type = 7;
    T_FAILS(tutti_tensor_from_dlpack(&c, false, "x", &t), TUTTI_E_UNSUPPORTED, "device of type 7");
    c.device_type = 1, c.code = 5;
    T_FAILS(tutti_tensor_from_dlpack(&c, false, "x", &t), TUTTI_E_UNSUPPORTED, "dtype code 5");
    T_FAILS(tutti_tensor_from_dlpack(NULL, false, "x", &t), TUTTI_E_INVALID, "managed is NULL");
    struct {
        uint32_t major, minor;
        void *manager, *deleter;
        uint64_t flags;
        capsule c;
    } versioned = {1, 0, NULL, NULL, 0, c};
    versioned.c.code = 0, versioned.c.bits = 64;
    T_OK(tutti_tensor_from_dlpack(&versioned, true, "x", &t));
    T_EQ(t.type.dtype, TUTTI_I64);
    versioned.major = 2;
    T_FAILS(tutti_tensor_from_dlpack(&versioned, true, "x", &t), TUTTI_E_UNSUPPORTED, "2.0");
}

T_CASE(dlpack_tensors_are_made) {
    void *managed;
    tutti_tensor t;
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2", "parallel.zero=3");
    tutti_session *s = open_session(job);
    tutti_parameter p;
    T_OK(tutti_session_parameter_at(s, 0, &p));
    T_OK(tutti_session_read_dlpack(s, TUTTI_PARAMETER, p.name, 0, true, &managed));
    T_OK(tutti_tensor_from_dlpack(managed, true, "w", &t));
    T_EQ(t.type.dtype, TUTTI_F32);
    T_EQ(t.type.shape.n_dims, p.shape.n_dims);
    const capsule *c = (const capsule *)(const void *)((const char *)managed + 32);
    T_EQ(c->strides[p.shape.n_dims - 1], 1);
    tutti_dlpack_release(managed, true);
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                         TUTTI_I32, TUTTI_I64, TUTTI_U8};
    for (size_t i = 0; i < TTI_COUNT(dtypes); i++) {
        const tutti_type type = {dtypes[i], {3, {2, 0, 3}}};
        T_OK(tutti_session_new_dlpack(s, &type, 0, false, &managed));
        T_OK(tutti_tensor_from_dlpack(managed, false, "t", &t));
        T_EQ(t.type.dtype, dtypes[i]);
        T_EQ(t.type.shape.dim[2], 3);
        tutti_dlpack_release(managed, false);
    }
    const tutti_type big = {TUTTI_F32, {2, {INT64_MAX, 2}}}, bad = {(tutti_dtype)9, {0}};
    T_FAILS(tutti_session_new_dlpack(s, &big, 0, false, &managed), TUTTI_E_INVALID, "dimension");
    T_FAILS(tutti_session_new_dlpack(s, &bad, 0, false, &managed), TUTTI_E_INVALID, "dtype 9");
    T_FAILS(tutti_session_new_dlpack(s, NULL, 0, false, &managed), TUTTI_E_INVALID, "type is NULL");
    T_FAILS(tutti_session_new_dlpack(s, &t.type, 1, false, &managed), TUTTI_E_INVALID,
            "device is 1");
    T_FAILS(tutti_session_new_dlpack(s, &t.type, 0, false, NULL), TUTTI_E_INVALID,
            "managed is NULL");
    T_FAILS(tutti_session_read_dlpack(s, TUTTI_STATE, "no.w", 0, false, &managed), TUTTI_E_INVALID,
            "there is no optimizer state 'no.w'");
    assert_null(managed);
    tutti_session_close(s);
    T_FAILS(tutti_session_read_dlpack(s, TUTTI_PARAMETER, p.name, 0, false, &managed),
            TUTTI_E_INVALID, "closed");
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(dlpack_tensors_are_viewed),
                                       cmocka_unit_test(dlpack_tensors_are_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
