/* device_session_test.c - sessions on devices, by the module of the tests whose devices are the
 * host: steps and their halves, arrays, the caller's loss, inputs in device memory. */
#include "session/device_cases.h"

/* Workers on devices, and what the devices do (tests/backend/modules/device_module.c). */
typedef struct layout {
    const char *says, *workers, *more;
} layout;

#define DEVICES "parallel.devices=gpu"

static const layout layouts[] = {
    {"", "parallel.workers=1", NULL},
    {"late=1", "parallel.workers=2", NULL},
    {"peers=1,late=1", "parallel.workers=2", NULL},
    {"peers=1,joint=1,late=3", "parallel.workers=2", NULL},
    {"late=3", "parallel.workers=2", "parallel.zero=1"},
    {"peers=1,late=1", "parallel.workers=2", "parallel.zero=1"},
    {"late=1", "parallel.workers=2", "parallel.zero=2"},
    {"peers=1,late=3", "parallel.workers=2", "parallel.zero=2"},
    {"late=3", "parallel.workers=2", "parallel.zero=3"},
    {"peers=1,late=1", "parallel.workers=2", "parallel.zero=3"},
    {"late=1", "parallel.workers=1", "parallel.offload=optimizer"},
    {"peers=1", "parallel.workers=2", "parallel.offload=optimizer"},
    {"late=1", "parallel.workers=2", "parallel.offload=optimizer"},
    {"late=1", "parallel.workers=2", "parallel.pipeline=2"},
    {"peers=1,late=3", "parallel.workers=2", "parallel.pipeline=2"},
    {"peers=1,devices=4,late=1", "parallel.workers=4", "parallel.pipeline=2"},
    {"late=1", "parallel.workers=2", "parallel.tensor=2"},
    {"peers=1,late=3", "parallel.workers=2", "parallel.tensor=2"},
};

static const layout *use(size_t i) {
    const layout *l = &layouts[i];
    T_EQ(setenv("TUTTI_TEST_DEVICE", l->says, 1), 0);
    printf("%s %s %s\n", l->says, l->workers, l->more ? l->more : "");
    return l;
}

/* Sums over tensor shards have an order of their own. */
static bool adds_in_shards(const layout *l) { return l->more && strstr(l->more, "tensor"); }

#define JOB(...) SMALL_JOB("optimizer.name=sgd", "train.precision=f32", __VA_ARGS__)

#define TRAIN_JOB(...)                                                           \
    JOB("run.progress=false", "run.checkpoint_every=-1", "schedule.name=cosine", \
        "train.clip_norm=0.5", "train.ema=0.9", __VA_ARGS__)

T_CASE(sessions_have_the_bits_of_train) {
    T_UNUSED;
    uint64_t one = hash_of_train(TRAIN_JOB(NULL));
    uint64_t shards = hash_of_train(TRAIN_JOB("parallel.workers=2", "parallel.tensor=2"));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        T_EQ(hash_of_session(TRAIN_JOB(DEVICES, l->workers, l->more)),
             adds_in_shards(l) ? shards : one);
    }
}

T_CASE(arrays_are_those_of_the_host) {
    T_UNUSED;
    named_arrays host = arrays_of(JOB("train.ema=0.9"));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        named_arrays a = arrays_of(JOB("train.ema=0.9", DEVICES, l->workers, l->more));
        expect_near(&a, &host, 1e-6);
        free(a.values);
    }
    free(host.values);
}

static tutti_job *job_with_buffers(const char *devices, const layout *l) {
    tutti_job *job = JOB("train.ema=0.9", devices, l ? l->workers : NULL, l ? l->more : NULL);
    tutti_job_set_model(job, with_buffers, NULL);
    return job;
}

T_CASE(optimizers_of_the_caller_work_on_devices) {
    T_UNUSED;
    named_arrays host = arrays_of_own_sgd(job_with_buffers("parallel.devices=cpu", NULL));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        bool is_whole = !l->more || strstr(l->more, "offload");
        if (!is_whole) continue;
        named_arrays a = arrays_of_own_sgd(job_with_buffers(DEVICES, l));
        expect_near(&a, &host, 1e-6);
        free(a.values);
    }
    free(host.values);
}

T_CASE(losses_of_the_caller_train_devices) {
    double by_graph[5], losses[5];
    T_UNUSED;
    losses_of(JOB(NULL), NULL, by_graph);
    uint64_t hash = losses_of(JOB(NULL), cross_entropy_of_caller, losses);
    expect_losses(losses, by_graph, 1e-5);
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        uint64_t on_devices =
            losses_of(JOB(DEVICES, l->workers, l->more), cross_entropy_of_caller, losses);
        if (!adds_in_shards(l)) T_EQ(on_devices, hash);
        expect_losses(losses, by_graph, 1e-5);
    }
}

T_CASE(devices_save_and_load) {
    T_UNUSED;
    use(2);
    save_and_go_on(JOB("train.ema=0.9", DEVICES, "parallel.workers=2"),
                   JOB("train.ema=0.9", DEVICES, "parallel.workers=1"));
}

T_CASE(bad_losses_end_nothing) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        survive_bad_loss(JOB(DEVICES, l->workers, l->more));
    }
}

/* Device memory is the host's: what is read there by mistake is found on a GPU alone. */
static void *put(const void *from, size_t n_bytes) {
    (void)n_bytes;
    return (void *)(uintptr_t)from;
}

T_CASE(tensors_may_be_in_device_memory) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        expect_device_inputs(JOB(DEVICES, l->workers, l->more), JOB(DEVICES, l->workers, l->more),
                             put);
        expect_new_tensors(JOB(DEVICES, "train.ema=0.9", l->workers, l->more));
        if (!l->more) expect_device_fields(JOB(DEVICES, "train.loss=mse", l->workers), put);
    }
    use(0);
    tutti_job *job = JOB(DEVICES);
    tutti_session *s = open_case(job, NULL);
    tutti_job_destroy(job);
    case_batch[0].device = 1, case_batch[0].data = NULL;
    T_FAILS(tutti_session_step(s, case_batch, 2, 0.1, NULL), TUTTI_E_INVALID, "data is NULL");
    T_FAILS(tutti_session_gradients(s, case_batch, 2, NULL), TUTTI_E_INVALID, "data is NULL");
    case_batch[0].data = case_x, case_batch[0].device = 3;
    T_FAILS(tutti_session_step(s, case_batch, 2, 0.1, NULL), TUTTI_E_INVALID, "device is 3");
    case_batch[0].device = -1;
    T_FAILS(tutti_session_step(s, case_batch, 2, 0.1, NULL), TUTTI_E_INVALID, "device is -1");
    case_batch[0].device = 0;
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    tutti_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(sessions_have_the_bits_of_train),
                                       cmocka_unit_test(arrays_are_those_of_the_host),
                                       cmocka_unit_test(optimizers_of_the_caller_work_on_devices),
                                       cmocka_unit_test(losses_of_the_caller_train_devices),
                                       IN_FOLDER(devices_save_and_load),
                                       cmocka_unit_test(bad_losses_end_nothing),
                                       cmocka_unit_test(tensors_may_be_in_device_memory)};
    make_case_batch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
