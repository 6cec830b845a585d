/* exchange_golden_test.c - files of others give their numbers here, ours gave theirs there.
 *
 *   gpt2, bert     folders that transformers wrote: its logits, and every tensor back as it was
 *   onnx           our files, byte for byte those that onnxruntime has run, and its logits
 *   resnet18       our folder in transformers' names, the one that it has loaded, and its logits
 *
 * Weights of what is not stored are Philox draws scaled by powers of two, so that every machine
 * makes the same file.  make_exchange.py starts this program with TUTTI_EXCHANGE_OUT=FOLDER, which
 * leaves our files and inputs there instead of testing. */
#include <stdlib.h>
#include <sys/stat.h>

#include "ckpt/weights.h"
#include "data/dataset.h"
#include "golden/exchange_numbers.h"
#include "golden/golden_data.h"
#include "train/infer/predictor.h"
#include "train/loop/snapshot.h"
#include "train/setup/pretrained.h"
#include "train/setup/weight_names.h"
#include "train/small_job.h"
#include "tutti/export.h"

#define FOLDER TUTTI_TEST_DATA "/../golden/exchange/"

enum { PIXELS = 28 * 28 };

typedef struct net {
    const char *name;       /* of the model */
    const char *init;       /* a folder; NULL: philox */
    int n_logits;           /* of all rows */
    const char *options[6]; /* of the job */
} net;

static const net gpt2 = {"gpt2",
                         FOLDER "gpt2",
                         EXCHANGE_ROWS *EXCHANGE_TOKENS *EXCHANGE_VOCABULARY,
                         {"model.layers=2", "model.heads=2", "model.width=16", "model.context=16"}};
static const net bert = {"bert",
                         FOLDER "bert",
                         EXCHANGE_ROWS *EXCHANGE_TOKENS *EXCHANGE_VOCABULARY,
                         {"model.layers=2", "model.heads=2", "model.width=16", "model.context=16"}};
static const net lenet = {"lenet", NULL, EXCHANGE_ROWS * 10, {0}};
static const net resnet18 = {"resnet18", NULL, EXCHANGE_ROWS * 10, {0}};

/* ---- weights ---- */

/* The largest power of two whose square times fan_in is at most 4. */
static float bound_of(const tutti_shape *shape) {
    float fan_in = 1, bound = 1;
    for (int i = 1; i < shape->n_dims; i++) fan_in *= (float)shape->dim[i];
    while (bound * bound * fan_in > 4) bound /= 2;
    return bound;
}

static void fill_slot(const tti_slot *slot, float *w) {
    const tutti_shape *shape = &slot->param->out[0]->type.shape;
    const char *name = slot->param->name;
    bool vector = shape->n_dims == 1, around_one = strstr(name, "bn") && strstr(name, ".weight");
    if (strstr(name, "downsample.1.weight") || strstr(name, "running_var")) around_one = true;
    float bound = vector ? 0.25f : bound_of(shape), middle = vector && around_one ? 1 : 0;
    uint64_t key = tti_mix64(GOLDEN_SEED, tti_hash_name(name));
    for (size_t i = 0; i < (size_t)slot->n_elems; i++) {
        float u = tti_philox_unit(tti_philox_draw(key, 0, i / 4).v[i % 4]);
        w[i] = middle + bound * (2 * u - 1);
    }
}

/* ---- a run without steps ---- */

static tutti_job *job_of(const net *n) {
    static const char *const text[] = {"data.format=text", "data.dir=text", "data.tokenizer=chars",
                                       "data.context=10", NULL};
    tutti_job *job = NULL;
    char name[64];
    snprintf(name, sizeof name, "model.name=%s", n->name);
    T_OK(tutti_job_create(&job));
    tutti_job_set(job, name, "test");
    for (int i = 0; n->init && text[i]; i++) tutti_job_set(job, text[i], "test");
    for (int i = 0; n->options[i]; i++) tutti_job_set(job, n->options[i], "test");
    if (!n->init) tutti_job_set(job, "data.n_train=8", "test");
    if (!n->init) tutti_job_set(job, "data.n_test=8", "test");
    tutti_job_set(job, "train.batch=2", "test");
    tutti_job_set(job, "parallel.shards=1", "test");
    tutti_job_set(job, "parallel.workers=1", "test");
    T_OK(tti_job_resolve(job, 1));
    return job;
}

/* A text of as many characters as the vocabulary has tokens. */
static void write_text(void) {
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 30 * EXCHANGE_VOCABULARY; i++) fputc('0' + i % EXCHANGE_VOCABULARY, file);
    fclose(file);
}

/* Leaves a run with a checkpoint of step 0 in folder NAME. */
static void make_run(const net *n, const tutti_job *job) {
    const tti_blueprint *b;
    tti_exec *exec;
    char path[64];
    T_OK(tti_blueprint_create(job, &b));
    T_OK(tti_exec_create(&(tti_exec_desc){.plan = b->plan,
                                          .backend = &tti_backend_cpu,
                                          .n_shards = 1,
                                          .n_compute_threads = 1,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999},
                         &exec));
    if (n->init) T_OK(tti_pretrained_load(b, exec, n->init));
    for (int i = 0; !n->init && i < b->plan->n_slots; i++)
        fill_slot(&b->plan->slots[i], tti_exec_params(exec) + b->plan->slots[i].first);
    T_EQ(mkdir(n->name, 0777), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", n->name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    T_OK(tti_data_spec_save(tti_dataset_spec(b->train), n->name));
    T_OK(tti_snapshot_save(b, exec, n->name, "", &(tti_run_state){0}));
    tti_exec_destroy(exec);
    tti_blueprint_destroy(b);
}

static tutti_job *begin(const net *n) {
    write_text();
    tutti_job *job = job_of(n);
    make_run(n, job);
    return job;
}

/* ---- inputs, logits ---- */

static const int32_t no_targets[EXCHANGE_ROWS * EXCHANGE_TOKENS];
static uint8_t raw[EXCHANGE_ROWS * PIXELS];  /* as images hold them; ONNX files take these */
static float pixels[EXCHANGE_ROWS * PIXELS]; /* as models are fed */
static int32_t tokens[EXCHANGE_ROWS * EXCHANGE_TOKENS];

static void fill_inputs(void) {
    for (int i = 0; i < EXCHANGE_ROWS * PIXELS; i++) {
        raw[i] = (uint8_t)((37 * i * i + 11 * i + 5) % 251);
        pixels[i] = (float)((raw[i] / 255.0 - 0.1307) / 0.3081); /* data.mean, data.std */
    }
    for (int i = 0; i < EXCHANGE_ROWS * EXCHANGE_TOKENS; i++)
        tokens[i] = (7 * i * i + 3 * i + 1) % EXCHANGE_VOCABULARY;
}

static void expect_logits(const net *n, tutti_job *job, const float *wanted, double tolerance) {
    tti_predictor *p;
    tti_predicted out;
    fill_inputs();
    T_OK(tti_predictor_open(job, n->name, NULL, NULL, &p));
    const void *x = n->init ? (const void *)tokens : pixels;
    T_OK(tti_predictor_run(p, &(tti_shard_data){x, no_targets, EXCHANGE_ROWS}, 1, &out));
    for (int i = 0; i < n->n_logits; i++) T_NEAR(out.logits[i], wanted[i], tolerance);
    tti_predictor_close(p);
}

/* ---- files ---- */

static void export_to(const net *n, tutti_job *job, tutti_export_format format, const char *out) {
    tutti_export_result r;
    T_OK(tutti_export(job, n->name, &(tutti_export_desc){.format = format, .out = out}, NULL, NULL,
                      &r));
}

/* FNV-1a of all bytes. */
static uint64_t hash_file(const char *path) {
    static unsigned char bytes[1 << 16];
    uint64_t h = 0xCBF29CE484222325u;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001B3u;
    fclose(file);
    return h;
}

static void expect_same_tensors(const char *made, const char *theirs) {
    tti_weights *a, *b;
    T_OK(tti_weights_open(made, &a));
    T_OK(tti_weights_open(theirs, &b));
    T_EQ(tti_weights_n(a), tti_weights_n(b));
    for (size_t i = 0; i < tti_weights_n(a); i++) {
        static float x[1 << 14], y[1 << 14];
        const tti_safetensors_entry *e = tti_weights_at(a, i);
        int64_t at = tti_weights_find(b, e->name);
        if (at < 0) fail_msg("%s is not theirs", e->name);
        assert_true(tti_shape_equal(&e->type.shape, &tti_weights_at(b, (size_t)at)->type.shape));
        T_EQ(tti_weights_at(b, (size_t)at)->type.dtype, e->type.dtype);
        size_t n_elems = (size_t)tutti_shape_n_elems(&e->type.shape);
        assert_true(n_elems <= 1 << 14);
        T_OK(tti_weights_read(a, i, x));
        T_OK(tti_weights_read(b, (size_t)at, y));
        assert_memory_equal(x, y, n_elems * sizeof *x);
    }
    tti_weights_close(a);
    tti_weights_close(b);
}

/* ---- the tests ---- */

static void folder_of_transformers(const net *n, const float *wanted) {
    tutti_job *job = begin(n);
    expect_logits(n, job, wanted, 1e-4);
    export_to(n, job, TUTTI_EXPORT_HF, "made");
    expect_same_tensors("made", n->init);
    tutti_job_destroy(job);
}

T_CASE(gpt2_of_transformers) {
    T_UNUSED;
    folder_of_transformers(&gpt2, exchange_hf_gpt2);
}

T_CASE(bert_of_transformers) {
    T_UNUSED;
    folder_of_transformers(&bert, exchange_hf_bert);
}

static void file_of_onnx(const net *n, uint64_t hash, const float *wanted) {
    tutti_job *job = begin(n);
    export_to(n, job, TUTTI_EXPORT_ONNX, "made.onnx");
    assert_true(hash_file("made.onnx") == hash);
    expect_logits(n, job, wanted, 1e-5);
    tutti_job_destroy(job);
}

T_CASE(lenet_in_onnxruntime) {
    T_UNUSED;
    file_of_onnx(&lenet, exchange_hash_lenet, exchange_onnx_lenet);
}

T_CASE(resnet_in_onnxruntime) {
    T_UNUSED;
    file_of_onnx(&resnet18, exchange_hash_resnet18, exchange_onnx_resnet18);
}

T_CASE(gpt2_in_onnxruntime) {
    T_UNUSED;
    file_of_onnx(&gpt2, exchange_hash_gpt2, exchange_onnx_gpt2);
}

/* model.init loads the same weights as transformers, to the bit. */
T_CASE(resnet_in_transformers) {
    T_UNUSED;
    tutti_job *job = begin(&resnet18);
    export_to(&resnet18, job, TUTTI_EXPORT_HF, "made");
    assert_true(hash_file("made/model.safetensors") == exchange_hash_hf_resnet18);
    assert_true(hash_file("made/config.json") == exchange_hash_hf_config);
    expect_logits(&resnet18, job, exchange_hf_resnet18, 1e-4);
    T_EQ(rename("resnet18", "first"), 0);
    net back = resnet18;
    back.init = "made";
    make_run(&back, job);
    export_to(&resnet18, job, TUTTI_EXPORT_HF, "again");
    assert_true(hash_file("again/model.safetensors") == exchange_hash_hf_resnet18);
    tutti_job_destroy(job);
}

/* ---- for make_exchange.py ---- */

static void leave(const void *bytes, size_t n_bytes, const char *path) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    T_EQ(fwrite(bytes, 1, n_bytes, file), n_bytes);
    fclose(file);
}

T_CASE(leave_files) {
    T_UNUSED;
    const net *nets[] = {&lenet, &resnet18, &gpt2};
    T_EQ(chdir(getenv("TUTTI_EXCHANGE_OUT")), 0);
    for (int i = 0; i < 3; i++) {
        char path[64];
        tutti_job *job = begin(nets[i]);
        snprintf(path, sizeof path, "%s.onnx", nets[i]->name);
        export_to(nets[i], job, TUTTI_EXPORT_ONNX, path);
        if (nets[i] == &resnet18) export_to(nets[i], job, TUTTI_EXPORT_HF, "hf_resnet18");
        tutti_job_destroy(job);
    }
    fill_inputs();
    leave(raw, sizeof raw, "bytes");
    leave(pixels, sizeof pixels, "pixels");
    leave(tokens, sizeof tokens, "tokens");
}

int main(void) {
    const struct CMUnitTest leaving[] = {cmocka_unit_test(leave_files)};
    const struct CMUnitTest tests[] = {
        IN_FOLDER(gpt2_of_transformers), IN_FOLDER(bert_of_transformers),
        IN_FOLDER(lenet_in_onnxruntime), IN_FOLDER(resnet_in_onnxruntime),
        IN_FOLDER(gpt2_in_onnxruntime),  IN_FOLDER(resnet_in_transformers)};
    return getenv("TUTTI_EXCHANGE_OUT") ? cmocka_run_group_tests(leaving, NULL, NULL)
                                        : cmocka_run_group_tests(tests, NULL, NULL);
}
