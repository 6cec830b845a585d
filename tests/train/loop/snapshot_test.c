/* snapshot_test.c - a worker's state goes through a checkpoint and back, bit for bit; what would
 * not continue bit for bit is refused, with both jobs named. */
#include "train/loop/snapshot.h"

#include <math.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "ckpt/ckpt.h"
#include "train/small_job.h"

typedef struct worker {
    tutti_job *job;
    const tti_blueprint *b;
    tti_exec *exec;
    tti_reporter reporter;
    tutti_train_desc train;
    char warning[2048];
} worker;

static void hear(void *user, const tutti_event *event) {
    worker *w = user;
    if (event->kind == TUTTI_EVENT_WARNING)
        snprintf(w->warning, sizeof w->warning, "%s", event->text);
}

static void begin(worker *w, const char *assignment) {
    *w = (worker){.train = {.on_event = hear}};
    w->train.user = w;
    w->job = SMALL_JOB(assignment);
    T_OK(tti_job_resolve(w->job, 1));
    T_OK(tti_blueprint_create(w->job, &w->b));
    T_OK(tti_exec_create(&(tti_exec_desc){.plan = w->b->plan,
                                          .backend = &tti_backend_cpu,
                                          .n_shards = 4,
                                          .n_compute_threads = 1,
                                          .seed = (uint64_t)w->b->config.train.seed},
                         &w->exec));
    tti_reporter_init(&w->reporter, tti_now_ns());
    T_OK(tti_reporter_open(&w->reporter, &w->train, w->b, ".", ".", true));
}

static void end(worker *w) {
    tti_reporter_close(&w->reporter);
    tti_exec_destroy(w->exec);
    tti_blueprint_destroy(w->b);
    tutti_job_destroy(w->job);
}

/* Something that no initialisation gives. */
static void scribble(worker *w) {
    for (int s = 0; s < w->b->plan->n_slots; s++) {
        const tti_slot *slot = &w->b->plan->slots[s];
        for (size_t i = slot->first; i < slot->first + slot->n_elems; i++) {
            tti_exec_params(w->exec)[i] = (float)i * 0.37f - 5;
            for (int k = 0; k < w->b->plan->n_states; k++)
                tti_exec_state(w->exec, k)[i] = (float)i * 0.11f + (float)k;
        }
    }
}

static void expect_equal(worker *a, worker *b) {
    for (int s = 0; s < a->b->plan->n_slots; s++) {
        const tti_slot *slot = &a->b->plan->slots[s];
        size_t first = slot->first, n_bytes = slot->n_elems * sizeof(float);
        assert_memory_equal(tti_exec_params(a->exec) + first, tti_exec_params(b->exec) + first,
                            n_bytes);
        for (int k = 0; k < a->b->plan->n_states; k++)
            assert_memory_equal(tti_exec_state(a->exec, k) + first,
                                tti_exec_state(b->exec, k) + first, n_bytes);
    }
}

static uint64_t hash_of(tti_exec *exec) {
    uint64_t hash;
    T_OK(tti_exec_params_hash(exec, &hash));
    return hash;
}

T_CASE(all_of_it_comes_back) {
    T_UNUSED;
    static const char *const optimizers[] = {"optimizer.name=sgd", "optimizer.name=adamw"};
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        worker saved, loaded;
        tti_run_state at = {.step = -1};
        begin(&saved, optimizers[i]);
        begin(&loaded, optimizers[i]);
        scribble(&saved);
        int64_t number = 7 + (int64_t)i;
        T_OK(tti_snapshot_save(saved.b, saved.exec, ".", "job: here\n",
                               &(tti_run_state){.step = number}));
        T_OK(tti_snapshot_load(loaded.b, loaded.exec, ".", &loaded.reporter, &at));
        T_EQ(at.step, number);
        expect_equal(&saved, &loaded);
        assert_string_equal(loaded.warning, "");
        end(&saved);
        end(&loaded);
    }
}

T_CASE(what_is_in_it) {
    T_UNUSED;
    worker w;
    tti_ckpt *ckpt;
    begin(&w, "train.seed=5");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "job: here\n", &(tti_run_state){.step = 12}));
    T_OK(tti_ckpt_open(".", NULL, NULL, &ckpt));
    const tti_ckpt_meta *meta = tti_ckpt_get_meta(ckpt);
    T_EQ(meta->step, 12);
    T_EQ(meta->epoch, 2); /* 5 steps each */
    T_EQ(meta->position, 64);
    T_EQ(meta->n_shards, 4);
    T_EQ(meta->seed, 5);
    T_EQ(meta->params_hash == hash_of(w.exec), 1);
    assert_string_equal(tti_ckpt_get_text(ckpt, "job"), "job: here\n");
    assert_non_null(strstr(tti_ckpt_get_text(ckpt, "identity"), "train.batch=32 train.seed=5"));
    T_EQ(tti_ckpt_n_tensors(ckpt, TTI_CKPT_MODEL), 4);
    T_EQ(tti_ckpt_n_tensors(ckpt, TTI_CKPT_OPTIMIZER), 8);
    bool found = false;
    for (size_t i = 0; i < 8; i++)
        found |= strcmp(tti_ckpt_tensor_at(ckpt, TTI_CKPT_OPTIMIZER, i)->name,
                        "state.fc1.weight.exp_avg_sq") == 0;
    assert_true(found);
    tti_ckpt_close(ckpt);
    end(&w);
}

T_CASE(what_is_not_finite_is_not_saved) {
    T_UNUSED;
    worker w;
    tti_ckpt *ckpt;
    begin(&w, "train.seed=5");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    const tti_slot *slot = &w.b->plan->slots[1];
    tti_exec_params(w.exec)[slot->first + slot->n_elems - 1] = -NAN;
    T_FAILS(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 4}), TUTTI_E_NUMERICS,
            "is no longer finite");
    assert_non_null(strstr(tutti_last_error(), slot->param->name));
    T_OK(tti_ckpt_open(".", NULL, NULL, &ckpt));
    T_EQ(tti_ckpt_get_meta(ckpt)->step, 3);
    tti_ckpt_close(ckpt);
    end(&w);
}

/* The checkpoint of a program that had the parameters in the opposite order: hash, too. */
static void save_backwards(const worker *w, const char *from, const char *to, uint64_t wrong,
                           const char *as_text) {
    const tti_plan *plan = w->b->plan;
    tti_ckpt_tensor params[8], *states = calloc(64, sizeof *states);
    size_t first = 0, n_states = 0, n = (size_t)plan->n_slots;
    tti_ckpt *ckpt;
    uint64_t hash = wrong;
    char names[64][80], order[8 * 80] = "";
    assert_true(n <= 8 && states);
    for (size_t i = 0; i < n; i++) {
        const tti_slot *slot = &plan->slots[n - 1 - i];
        const tutti_type type = slot->param->out[0]->type;
        float *data = tti_exec_params(w->exec) + slot->first;
        assert_true(slot->n_elems <= TTI_UPDATE_BLOCK);
        params[i] = (tti_ckpt_tensor){slot->param->name, type, data};
        if (i) strcat(order, "\n");
        strcat(order, slot->param->name);
        hash += tti_backend_cpu.hash(data, slot->n_elems, first);
        first = tti_slot_end(first, slot->n_elems);
        for (int k = 0; k < plan->n_states; k++, n_states++) {
            snprintf(names[n_states], sizeof names[0], "state.%s.%s", slot->param->name,
                     k ? "exp_avg_sq" : "exp_avg");
            data = tti_exec_state(w->exec, k) + slot->first;
            states[n_states] = (tti_ckpt_tensor){names[n_states], type, data};
        }
    }
    T_OK(tti_ckpt_open(from, NULL, NULL, &ckpt));
    tti_ckpt_meta meta = *tti_ckpt_get_meta(ckpt);
    assert_true(meta.params_hash != hash);
    meta.params_hash = hash;
    const tti_ckpt_text texts[] = {{"order", as_text ? as_text : order}};
    T_OK(tti_ckpt_save(&(tti_ckpt_save_desc){.run_dir = to,
                                             .meta = meta,
                                             .texts = texts,
                                             .n_texts = 1,
                                             .params = params,
                                             .n_params = n,
                                             .optimizer = states,
                                             .n_optimizer = n_states}));
    tti_ckpt_close(ckpt);
    free(states);
}

T_CASE(parameters_may_have_changed_places) {
    T_UNUSED;
    worker saved, loaded;
    tti_run_state at = {.step = -1};
    begin(&saved, "optimizer.name=adamw");
    begin(&loaded, "optimizer.name=adamw");
    scribble(&saved);
    T_OK(tti_snapshot_save(saved.b, saved.exec, ".", "", &(tti_run_state){.step = 7}));
    assert_int_equal(mkdir("moved", 0777), 0);
    save_backwards(&saved, ".", "moved", 0, NULL);
    T_OK(tti_snapshot_load(loaded.b, loaded.exec, "moved", &loaded.reporter, &at));
    T_EQ(at.step, 7);
    expect_equal(&saved, &loaded);
    save_backwards(&saved, ".", "moved", 1, NULL);
    T_FAILS(tti_snapshot_load(loaded.b, loaded.exec, "moved", &loaded.reporter, &at),
            TUTTI_E_CHECKPOINT, "its manifest says");
    static const char *const wrong[][2] = {
        {"fc1.weight\nfc1.weight", "malformed order of parameters at 'fc1.weight'"},
        {"fc1.weight\nnobody", "malformed order of parameters at 'nobody'"},
        {"fc1.weight", "an order of 1 parameters, but there are 4"},
        {"", "an order of 0 parameters"}};
    for (size_t i = 0; i < TTI_COUNT(wrong); i++) {
        save_backwards(&saved, ".", "moved", 0, wrong[i][0]);
        T_FAILS(tti_snapshot_load(loaded.b, loaded.exec, "moved", &loaded.reporter, &at),
                TUTTI_E_CHECKPOINT, wrong[i][1]);
    }
    end(&saved);
    end(&loaded);
}

/* Loading for another job fails with the text and leaves the worker as it was. */
static void refuse(const char *assignment, const char *text) {
    worker w;
    tti_run_state at = {.step = -1};
    begin(&w, assignment);
    uint64_t before = hash_of(w.exec);
    T_FAILS(tti_snapshot_load(w.b, w.exec, ".", &w.reporter, &at), TUTTI_E_CHECKPOINT, text);
    T_EQ(at.step, -1);
    T_EQ(hash_of(w.exec) == before, 1);
    end(&w);
}

T_CASE(other_jobs_are_refused) {
    T_UNUSED;
    worker w;
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    refuse("train.batch=36", "made by another job and cannot be continued bit for bit");
    refuse("train.batch=36", "there: parallel.shards=4 train.batch=32 ");
    refuse("train.batch=36", "here:  parallel.shards=4 train.batch=36 ");
    refuse("train.seed=2", "train.seed=2");
    refuse("optimizer.name=sgd", "optimizer.name=sgd");
    refuse("train.loss=mse", "train.loss=mse");
    refuse("data.n_train=141", "samples=141");
    refuse("model.hidden=[9]", "fc1.weight");
    refuse("model.hidden=[8, 8]", "fc2.weight");
    end(&w);
}

/* Keys that may change: learning rate, duration, place and layout. */
T_CASE(free_choices_are_free) {
    T_UNUSED;
    static const char *const free_ones[] = {"optimizer.lr=5", "train.steps=99", "data.n_test=9",
                                            "run.keep=5", "parallel.bucket_mb=1"};
    worker w;
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    for (size_t i = 0; i < TTI_COUNT(free_ones); i++) {
        worker other;
        tti_run_state at;
        begin(&other, free_ones[i]);
        T_OK(tti_snapshot_load(other.b, other.exec, ".", &other.reporter, &at));
        end(&other);
    }
    end(&w);
}

/* Saves the checkpoint of this folder again, one step on, with another meta. */
static void forge(const char *backend, uint64_t hash_change) {
    tti_ckpt *ckpt;
    tti_ckpt_tensor tensors[TTI_CKPT_N_FILES][16];
    size_t n[TTI_CKPT_N_FILES];
    T_OK(tti_ckpt_open(".", NULL, NULL, &ckpt));
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) {
        n[p] = tti_ckpt_n_tensors(ckpt, (tti_ckpt_file)p);
        for (size_t i = 0; i < n[p]; i++) {
            const tti_safetensors_entry *e = tti_ckpt_tensor_at(ckpt, (tti_ckpt_file)p, i);
            size_t n_bytes = (size_t)tutti_shape_n_elems(&e->type.shape) * sizeof(float);
            tensors[p][i] = (tti_ckpt_tensor){e->name, e->type, malloc(n_bytes)};
        }
        T_OK(tti_ckpt_read(ckpt, (tti_ckpt_file)p, tensors[p], n[p]));
    }
    tti_ckpt_text text = {"identity", tti_ckpt_get_text(ckpt, "identity")};
    tti_ckpt_save_desc desc = {
        ".", *tti_ckpt_get_meta(ckpt), &text, 1, tensors[0], tensors[1], n[0], n[1], 0, NULL, NULL};
    desc.meta.step++;
    desc.meta.params_hash += hash_change;
    if (backend) desc.meta.backend = backend;
    T_OK(tti_ckpt_save(&desc));
    for (int p = 0; p < TTI_CKPT_N_FILES; p++)
        for (size_t i = 0; i < n[p]; i++) free((void *)(uintptr_t)tensors[p][i].data);
    tti_ckpt_close(ckpt);
}

T_CASE(other_kernels_give_a_warning) {
    T_UNUSED;
    worker w;
    tti_run_state at;
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    forge("cpu: abacus", 0);
    T_OK(tti_snapshot_load(w.b, w.exec, ".", &w.reporter, &at));
    T_EQ(at.step, 4);
    assert_non_null(strstr(w.warning, "made with other kernels (cpu: abacus; here: cpu: "));
    assert_non_null(strstr(w.warning, "its bits may differ"));
    end(&w);
}

T_CASE(a_former_description_is_of_the_same_kernels) {
    T_UNUSED;
    worker w;
    tti_run_state at;
    tti_str former = {0};
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    tti_backend_cpu.describe(&former);
    tti_str_add(&former, ", 1 thread per lane");
    forge(tti_str_text(&former), 0);
    T_OK(tti_snapshot_load(w.b, w.exec, ".", &w.reporter, &at));
    T_EQ(at.step, 4);
    assert_string_equal(w.warning, "");
    tti_str_free(&former);
    end(&w);
}

T_CASE(a_wrong_hash_is_found) {
    T_UNUSED;
    worker w;
    tti_run_state at;
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    forge(NULL, 1);
    T_FAILS(tti_snapshot_load(w.b, w.exec, ".", &w.reporter, &at), TUTTI_E_CHECKPOINT,
            "its manifest says");
    end(&w);
}

/* A damaged newest one: the warning of the search reaches the user, the one before is taken. */
T_CASE(older_ones_are_a_rescue) {
    T_UNUSED;
    worker w;
    tti_run_state at;
    begin(&w, "train.seed=1");
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 3}));
    T_OK(tti_snapshot_save(w.b, w.exec, ".", "", &(tti_run_state){.step = 4}));
    T_EQ(truncate("checkpoints/step-000000004/model.safetensors", 100), 0);
    T_OK(tti_snapshot_load(w.b, w.exec, ".", &w.reporter, &at));
    T_EQ(at.step, 3);
    assert_non_null(strstr(w.warning, "checkpoint skipped"));
    end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(all_of_it_comes_back),
                                       IN_FOLDER(what_is_in_it),
                                       IN_FOLDER(what_is_not_finite_is_not_saved),
                                       IN_FOLDER(parameters_may_have_changed_places),
                                       IN_FOLDER(other_jobs_are_refused),
                                       IN_FOLDER(free_choices_are_free),
                                       IN_FOLDER(other_kernels_give_a_warning),
                                       IN_FOLDER(a_former_description_is_of_the_same_kernels),
                                       IN_FOLDER(a_wrong_hash_is_found),
                                       IN_FOLDER(older_ones_are_a_rescue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
