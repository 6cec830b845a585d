/* cuda_session_test.c - sessions on GPUs, one and two of them (or two workers on one): the bits of
 * tutti_train, halves of a step, arrays by name, flat arrays, the caller's loss, files, and inputs
 * in GPU memory.  The cases are those of device_session_test.c. */
#include "backend/gpus.h"
#include "session/device_cases.h"

typedef struct layout {
    const char *workers, *more;
} layout;

/* The first ones have whole parameters on every worker. */
enum { N_WHOLE = 3 };

static const layout layouts[] = {
    {"parallel.workers=1", NULL},
    {"parallel.workers=2", NULL},
    {"parallel.workers=1", "parallel.offload=optimizer"},
    {"parallel.workers=2", "parallel.zero=1"},
    {"parallel.workers=2", "parallel.zero=2"},
    {"parallel.workers=2", "parallel.zero=3"},
    {"parallel.workers=2", "parallel.pipeline=2"},
    {"parallel.workers=2", "parallel.tensor=2"},
};

#define JOB(...)                                                            \
    SMALL_JOB("train.precision=f32", "train.ema=0.9", "run.progress=false", \
              "run.checkpoint_every=-1", "parallel.devices=gpu", __VA_ARGS__)
#define HOST_JOB(...) SMALL_JOB("train.precision=f32", "train.ema=0.9", __VA_ARGS__)

static void show(const layout *l) { printf("%s %s\n", l->workers, l->more ? l->more : ""); }

/* Of data-parallel workers the bits of one. */
static bool is_data_parallel(const layout *l) { return !l->more || strstr(l->more, "zero"); }

static void expect_bits_of_train(const char *model, const char *optimizer) {
    uint64_t one = 0;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        bool is_mlp = strcmp(model, "model.name=mlp") == 0;
        if (!is_mlp && !is_data_parallel(l)) continue;
        show(l);
        uint64_t trained = hash_of_train(JOB(model, optimizer, "schedule.name=cosine",
                                             "train.clip_norm=0.5", l->workers, l->more));
        T_EQ(hash_of_session(JOB(model, optimizer, "schedule.name=cosine", "train.clip_norm=0.5",
                                 l->workers, l->more)),
             trained);
        if (i == 0) one = trained;
        if (is_data_parallel(l)) T_EQ(trained, one);
    }
}

T_CASE(sessions_have_the_bits_of_train) {
    T_UNUSED;
    expect_bits_of_train("model.name=mlp", "optimizer.name=adamw");
    expect_bits_of_train("model.name=lenet", "optimizer.name=sgd");
}

T_CASE(arrays_are_near_those_of_the_host) {
    named_arrays first = {0};
    T_UNUSED;
    named_arrays host = arrays_of(HOST_JOB("optimizer.name=sgd"));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        show(l);
        named_arrays a = arrays_of(JOB("optimizer.name=sgd", l->workers, l->more));
        expect_near(&a, &host, 1e-3);
        if (i == 0) first = a;
        if (is_data_parallel(l)) expect_near(&a, &first, 0);
        if (i > 0) free(a.values);
    }
    free(first.values);
    free(host.values);
}

static tutti_job *job_with_buffers(const layout *l) {
    tutti_job *job =
        l ? JOB("optimizer.name=sgd", l->workers, l->more) : HOST_JOB("optimizer.name=sgd");
    tutti_job_set_model(job, with_buffers, NULL);
    return job;
}

T_CASE(optimizers_of_the_caller_work_on_gpus) {
    T_UNUSED;
    named_arrays host = arrays_of_own_sgd(job_with_buffers(NULL));
    for (size_t i = 0; i < N_WHOLE; i++) {
        show(&layouts[i]);
        named_arrays a = arrays_of_own_sgd(job_with_buffers(&layouts[i]));
        expect_near(&a, &host, 1e-3);
        free(a.values);
    }
    free(host.values);
}

T_CASE(losses_of_the_caller_train_gpus) {
    double by_graph[5], losses[5];
    uint64_t one = 0;
    T_UNUSED;
    losses_of(JOB("optimizer.name=sgd"), NULL, by_graph);
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        show(l);
        uint64_t hash = losses_of(JOB("optimizer.name=sgd", l->workers, l->more),
                                  cross_entropy_of_caller, losses);
        expect_losses(losses, by_graph, 1e-4);
        if (i == 0) one = hash;
        if (is_data_parallel(l)) T_EQ(hash, one);
    }
}

T_CASE(gpus_save_load_and_predict) {
    T_UNUSED;
    save_and_go_on(JOB("optimizer.name=adamw", "parallel.workers=2"),
                   JOB("optimizer.name=adamw", "parallel.workers=1"));
}

T_CASE(bad_losses_end_nothing) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        show(&layouts[i]);
        survive_bad_loss(JOB("optimizer.name=adamw", layouts[i].workers, layouts[i].more));
    }
}

static struct {
    void *memory;
    size_t n_bytes;
} on_gpu[16];
static int n_on_gpu;

/* GPU 0, which this thread has opened; from may be there already. */
static void *put(const void *from, size_t n_bytes) {
    void *to = cuda->alloc(n_bytes);
    assert_non_null(to);
    T_OK(cuda->device->queues.copy(TTI_QUEUE_COMPUTE, to, from, n_bytes));
    T_OK(cuda->device->queues.sync());
    assert_true(n_on_gpu < 16);
    on_gpu[n_on_gpu].memory = to;
    on_gpu[n_on_gpu++].n_bytes = n_bytes;
    return to;
}

T_CASE(tensors_may_be_in_gpu_memory) {
    T_UNUSED;
    T_OK(cuda->device->open(&(tti_device_desc){.index = 0}));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        show(l);
        expect_new_tensors(JOB("optimizer.name=sgd", l->workers, l->more));
        if (l->more) continue;
        expect_device_inputs(JOB("optimizer.name=sgd", l->workers),
                             JOB("optimizer.name=sgd", l->workers), put);
        expect_device_fields(JOB("optimizer.name=sgd", "train.loss=mse", l->workers), put);
    }
    while (n_on_gpu-- > 0) cuda->release(on_gpu[n_on_gpu].memory, on_gpu[n_on_gpu].n_bytes);
    cuda->device->close();
}

int main(void) {
    int code = find_gpus(1);
    if (code) return code;
    const struct CMUnitTest tests[] = {IN_FOLDER(sessions_have_the_bits_of_train),
                                       cmocka_unit_test(arrays_are_near_those_of_the_host),
                                       cmocka_unit_test(optimizers_of_the_caller_work_on_gpus),
                                       cmocka_unit_test(losses_of_the_caller_train_gpus),
                                       IN_FOLDER(gpus_save_load_and_predict),
                                       cmocka_unit_test(bad_losses_end_nothing),
                                       cmocka_unit_test(tensors_may_be_in_gpu_memory)};
    make_case_batch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
