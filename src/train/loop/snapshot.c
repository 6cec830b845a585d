/* snapshot.c - saves and loads the tensors of a checkpoint: parameters by name, optimizer states as
 * state.NAME.STATE. */
#include "train/loop/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/philox.h"
#include "ckpt/ckpt.h"
#include "train/job/load_weights.h"
#include "train/job/optimizer.h"
#include "train/setup/part_store.h"

typedef struct tensors {
    tti_arena arena;
    tti_ckpt_tensor *params, *states;
    size_t n_params, n_states;
} tensors;

/* The location of a tensor in the executor, which may store it partitioned. */
typedef struct place {
    const tti_slot *slot; /* its slot in the plan of the whole model */
    int k;
} place;

/* The user pointer of tti_ckpt_access. */
typedef struct accessor {
    tti_exec *exec;
    tti_part_store store; /* stores the tensors that are read */
    const tti_plan *plan;
    const char *order; /* order of the parameters in the checkpoint */
    size_t *there;     /* [n_slots]: locations in the program that wrote the checkpoint; NULL: no
                          checkpoint was read */
    /* Hashes of the restored parameters, with the locations of the writer, as in the manifest, and
     * with the locations of this program. */
    uint64_t hash_there, hash_here;
    int64_t step; /* the saved step */
} accessor;

/* Hashes a parameter, block by block, in the same way as the update of the undivided model at that
 * location. */
static uint64_t hash_param(const float *w, size_t n_elems, size_t first) {
    uint64_t hash = 0;
    for (size_t i = 0; i < n_elems; i += TTI_UPDATE_BLOCK) {
        size_t n = TTI_MIN(n_elems - i, (size_t)TTI_UPDATE_BLOCK);
        hash += tti_backend_cpu.hash(w + i, n, first + i);
    }
    return hash;
}

/* ---- the order of the parameters, which affects the hash and may differ between versions ---- */

static tutti_status place_line(const tti_plan *plan, char *line, size_t *at, size_t *there) {
    int i = tti_plan_find_slot(plan, line);
    if (i < 0 || there[i] != SIZE_MAX)
        return tti_fail(TUTTI_E_CHECKPOINT, "malformed order of parameters at '%.100s'", line);
    there[i] = *at;
    *at = tti_slot_end(*at, plan->slots[i].n_elems);
    return TUTTI_OK;
}

/* Computes the locations there [n_slots] from the text in the checkpoint; if it has none, uses
 * those of this program. */
static tutti_status read_order(const tti_plan *plan, const char *text, size_t *there) {
    size_t at = 0;
    int n = 0;
    char *copy = text ? strdup(text) : NULL, *rest = NULL;
    tutti_status st = TUTTI_OK;
    if (text && !copy) return tti_fail(TUTTI_E_NOMEM, "checkpoint: out of memory");
    for (int i = 0; i < plan->n_slots; i++) there[i] = text ? SIZE_MAX : plan->slots[i].first;
    char *line = copy ? strtok_r(copy, "\n", &rest) : NULL;
    for (; line && st == TUTTI_OK; line = strtok_r(NULL, "\n", &rest), n++)
        st = place_line(plan, line, &at, there);
    if (st == TUTTI_OK && text && n != plan->n_slots)
        st = tti_fail(TUTTI_E_CHECKPOINT, "an order of %d parameters, but there are %d", n,
                      plan->n_slots);
    free(copy);
    return st;
}

/* ---- tensors ---- */

static tutti_status get(void *user, const tti_ckpt_tensor *tensor, const void **bytes) {
    const accessor *a = user;
    const place *at = tensor->data;
    const float *data;
    TTI_TRY(tti_exec_fetch_whole(a->exec, at->k, at->slot->param, &data));
    *bytes = data;
    if (at->k != TTI_STATE_PARAMS || tti_all_finite(data, at->slot->n_elems)) return TUTTI_OK;
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %" PRId64
                    ": '%s' is no longer finite and is not saved; earlier checkpoints are good.  A "
                    "lower learning rate may help; with train.clip_norm or train.on_nan=skip every "
                    "gradient is checked before the update",
                    a->step, tensor->name);
}

/* Stores a part of a tensor; parts begin at block boundaries. */
static tutti_status put(void *user, const tti_ckpt_tensor *tensor, uint64_t first_byte,
                        size_t n_bytes, const void *bytes) {
    accessor *a = user;
    const place *at = tensor->data;
    size_t first = (size_t)(first_byte / sizeof(float)), n = n_bytes / sizeof(float);
    if (!a->there) { /* all tensors must be those of the plan, otherwise some would not be restored
                      */
        a->there = calloc((size_t)a->plan->n_slots + 1, sizeof *a->there);
        if (!a->there) return tti_fail(TUTTI_E_NOMEM, "checkpoint: out of memory");
        TTI_TRY(read_order(a->plan, a->order, a->there));
    }
    if (at->k == TTI_STATE_PARAMS) {
        size_t there = a->there[at->slot - a->plan->slots];
        uint64_t hash = hash_param(bytes, n, at->slot->first + first);
        a->hash_here += hash;
        a->hash_there += there == at->slot->first ? hash : hash_param(bytes, n, there + first);
    }
    return tti_part_store_add(&a->store, at->k, at->slot, first, n, bytes);
}

/* Describes a tensor of a slot. k: number of a state array; state NULL: the parameter itself. */
static tti_ckpt_tensor tensor_of(tensors *t, const tti_slot *slot, const char *state, int k) {
    const char *name = slot->param->name;
    if (state) name = tti_arena_printf(&t->arena, "state.%s.%s", name, state);
    place *at = tti_arena_alloc(&t->arena, sizeof *at);
    if (at) *at = (place){slot, k};
    return (tti_ckpt_tensor){name, slot->param->out[0]->type, at};
}

/* Lists all parameters and buffers by name, the states of trained parameters, and the averages of
 * all parameters. */
static tutti_status list_tensors(const tti_blueprint *b, const tti_exec *exec, tensors *t) {
    const tti_plan *plan = b->plan;
    const tti_optimizer *optimizer = tti_optimizer_find(b->config.optimizer.name);
    size_t n = (size_t)plan->n_slots, n_most = n * (size_t)(plan->n_states + 1);
    *t = (tensors){.n_params = n};
    t->params = tti_arena_alloc(&t->arena, (n + 1) * sizeof *t->params);
    t->states = tti_arena_alloc(&t->arena, (n_most + 1) * sizeof *t->states);
    for (int i = 0; !tti_arena_failed(&t->arena) && i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        t->params[i] = tensor_of(t, slot, NULL, TTI_STATE_PARAMS);
        for (int k = 0; k < plan->n_states && !slot->buffer; k++)
            t->states[t->n_states++] = tensor_of(t, slot, optimizer->states[k], k);
        if (tti_exec_has_ema(exec))
            t->states[t->n_states++] = tensor_of(t, slot, "ema", TTI_STATE_EMA);
    }
    return tti_arena_failed(&t->arena) ? tti_fail(TUTTI_E_NOMEM, "checkpoint: out of memory")
                                       : TUTTI_OK;
}

tutti_status tti_snapshot_hash(const tti_blueprint *b, tti_exec *exec, uint64_t *hash) {
    if (b->n_model_ranks == 0) return tti_exec_params_hash(exec, hash);
    *hash = 0;
    for (int i = 0; i < b->plan->n_slots; i++) {
        const tti_slot *slot = &b->plan->slots[i];
        const float *w;
        TTI_TRY(tti_exec_fetch_whole(exec, TTI_STATE_PARAMS, slot->param, &w));
        *hash += hash_param(w, slot->n_elems, slot->first);
    }
    return TUTTI_OK;
}

/* Prints the properties that, besides the tensors, determine the bits of the rest of the run. */
static void print_identity(const tti_blueprint *b, char *out, size_t n_bytes) {
    const tti_job_config *c = &b->config;
    snprintf(out, n_bytes,
             "parallel.shards=%d train.batch=%" PRId64 " train.seed=%" PRId64
             " optimizer.name=%s train.loss=%s data.format=%s samples=%" PRId64,
             b->n_shards, c->train.batch, c->train.seed, c->optimizer.name, c->train.loss,
             c->data.format, tutti_dataset_get_info(b->train)->n_samples);
}

tutti_status tti_snapshot_save(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               const char *job_yaml, const tti_run_state *state) {
    tensors t = {0};
    tti_str backend = {0}, order = {0}, shares = {0};
    accessor user = {.exec = exec, .step = state->step};
    const tti_ckpt_access access = {.get = get, .user = &user};
    char identity[1024];
    print_identity(b, identity, sizeof identity);
    tti_blueprint_describe(b, &backend);
    for (int i = 0; i < b->plan->n_slots;
         i++) /* a newline can separate names, because they have no control characters */
        tti_str_printf(&order, "%s%s", i ? "\n" : "", b->plan->slots[i].param->name);
    uint64_t hash = 0;
    tutti_status st = tti_exec_pull(exec);
    if (st == TUTTI_OK) st = tti_snapshot_hash(b, exec, &hash);
    if (st == TUTTI_OK) st = list_tensors(b, exec, &t);
    char plateau[TTI_PLATEAU_TEXT], scale[64];
    tti_plateau_print(&state->plateau, plateau);
    snprintf(scale, sizeof scale, "%.17g %d", state->loss_scale.scale, state->loss_scale.n_good);
    size_t n_texts = 5;
    tti_ckpt_text texts[7] = {{"identity", identity},
                              {"model", b->model_identity},
                              {"job", job_yaml},
                              {"plateau", plateau},
                              {"order", tti_str_text(&order)}};
    if (state->loss_scale.dynamic) texts[n_texts++] = (tti_ckpt_text){"loss_scale", scale};
    if (state->shard_map) {
        tti_load_weights_print(state->shard_map, &shares);
        texts[n_texts++] = (tti_ckpt_text){"shard_map", tti_str_text(&shares)};
    }
    int64_t step = state->step, in_epoch = step % b->steps_per_epoch;
    if (st == TUTTI_OK)
        st = tti_ckpt_save(
            &(tti_ckpt_save_desc){.run_dir = run_dir,
                                  .meta = {.step = step,
                                           .epoch = step / b->steps_per_epoch,
                                           .position = in_epoch * b->config.train.batch,
                                           .n_shards = b->n_shards,
                                           .seed = b->config.train.seed,
                                           .job_digest = tti_hash_name(identity),
                                           .params_hash = hash,
                                           .backend = tti_str_text(&backend)},
                                  .texts = texts,
                                  .n_texts = n_texts,
                                  .params = t.params,
                                  .n_params = t.n_params,
                                  .optimizer = t.states,
                                  .n_optimizer = t.n_states,
                                  .access = &access,
                                  .params_access = &access,
                                  .keep = (int)b->config.run.keep});
    tti_arena_free(&t.arena);
    tti_str_free(&backend);
    tti_str_free(&order);
    tti_str_free(&shares);
    return st;
}

static tutti_status check_identity(const tti_blueprint *b, const tti_ckpt *ckpt) {
    char identity[1024];
    print_identity(b, identity, sizeof identity);
    if (tti_ckpt_get_meta(ckpt)->job_digest == tti_hash_name(identity)) return TUTTI_OK;
    const char *saved = tti_ckpt_get_text(ckpt, "identity");
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "%s was made by another job and cannot be continued bit for bit:\n"
                    "  there: %s\n  here:  %s\nResume with the same data and job, or start a new "
                    "run with model.init=%s",
                    tti_ckpt_dir(ckpt), saved ? saved : "(unknown)", identity, tti_ckpt_dir(ckpt));
}

/* Older versions appended these words to the description of the host's kernels. */
static const char former_end[] = ", 1 thread per lane";

static bool are_same_kernels(const char *saved, const char *here) {
    size_t n = strlen(here);
    return strncmp(saved, here, n) == 0 && (!saved[n] || strcmp(saved + n, former_end) == 0);
}

static tutti_status check_backend(const tti_blueprint *b, const tti_ckpt *ckpt,
                                  tti_reporter *reporter) {
    tti_str backend = {0};
    tti_blueprint_describe(b, &backend);
    const char *saved = tti_ckpt_get_meta(ckpt)->backend;
    tutti_status st = TUTTI_OK;
    if (saved && !are_same_kernels(saved, tti_str_text(&backend))) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "the checkpoint was made with other kernels (%s; here: %s): the run continues, but "
            "its bits may differ from an uninterrupted one",
            saved, tti_str_text(&backend));
        st = tti_reporter_warn(reporter, text);
    }
    tti_str_free(&backend);
    return st;
}

static void warn(void *user, const char *text) {
    tutti_status st = tti_reporter_warn(user, text);
    (void)st; /* a warning that cannot be written must not prevent the recovery */
}

static tutti_status read_tensors(const tti_blueprint *b, tti_exec *exec, const tti_ckpt *ckpt,
                                 accessor *user) {
    tensors t = {0};
    tti_readers readers;
    const tti_ckpt_access access = {.put = put, .user = user, .readers = &readers};
    tti_exec_readers(exec, &readers);
    tutti_status st = tti_part_store_begin(exec, false, &user->store);
    if (st == TUTTI_OK) st = list_tensors(b, exec, &t);
    if (st == TUTTI_OK) st = tti_ckpt_read_by(ckpt, TTI_CKPT_MODEL, t.params, t.n_params, &access);
    if (st == TUTTI_OK)
        st = tti_ckpt_read_by(ckpt, TTI_CKPT_OPTIMIZER, t.states, t.n_states, &access);
    if (st == TUTTI_OK) st = tti_part_store_end(&user->store);
    tti_part_store_fini(&user->store);
    tti_arena_free(&t.arena);
    return st;
}

/* Checks that the tensors that were read equal those that were written, and that memory now holds
 * them. */
static tutti_status check_hashes(const tti_blueprint *b, tti_exec *exec, const tti_ckpt *ckpt,
                                 const accessor *user) {
    uint64_t found = user->hash_here, expected = tti_ckpt_get_meta(ckpt)->params_hash;
    if (user->hash_there != expected)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: the parameter hash is %016" PRIx64 ", its manifest says %016" PRIx64,
                        tti_ckpt_dir(ckpt), user->hash_there, expected);
    if (b->n_model_ranks == 0)
        TTI_TRY(tti_exec_params_hash(exec,
                                     &found)); /* with parts, no single worker has all parameters */
    if (found == user->hash_here) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CHECKPOINT,
        "%s: the parameters in memory differ from those that were read: their hash is %016" PRIx64
        ", not %016" PRIx64,
        tti_ckpt_dir(ckpt), found, user->hash_here);
}

static tutti_status read_all(const tti_blueprint *b, tti_exec *exec, const tti_ckpt *ckpt) {
    accessor user = {.exec = exec, .plan = b->plan, .order = tti_ckpt_get_text(ckpt, "order")};
    tutti_status st = read_tensors(b, exec, ckpt, &user);
    if (st == TUTTI_OK) st = check_hashes(b, exec, ckpt, &user);
    free(user.there);
    return st;
}

/* Parses "SCALE STEPS", the state of a dynamic loss scale. */
static tutti_status read_loss_scale(const tti_ckpt *ckpt, const char *text, tti_loss_scale *out) {
    char *end;
    double scale = strtod(text, &end);
    long n_good = strtol(end, &end, 10);
    if (*end || !(scale >= 0x1p-126 && scale <= 0x1p126) || n_good < 0 || n_good > 1000000)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: malformed loss scale", tti_ckpt_dir(ckpt));
    *out = (tti_loss_scale){scale, (int)n_good, true};
    return TUTTI_OK;
}

static tutti_status read_state(const tti_ckpt *ckpt, tti_run_state *state) {
    const char *plateau = tti_ckpt_get_text(ckpt, "plateau");
    if (plateau) TTI_TRY(tti_plateau_read(plateau, &state->plateau));
    const char *scale = tti_ckpt_get_text(ckpt, "loss_scale");
    if (scale && state->loss_scale.dynamic)
        TTI_TRY(read_loss_scale(ckpt, scale, &state->loss_scale));
    state->step = tti_ckpt_get_meta(ckpt)->step;
    return TUTTI_OK;
}

tutti_status tti_snapshot_load(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               tti_reporter *reporter, tti_run_state *state) {
    tti_ckpt *ckpt;
    tti_readers readers;
    tti_exec_readers(exec, &readers);
    TTI_TRY(tti_ckpt_open_by(run_dir, &readers, warn, reporter, &ckpt));
    tutti_status st = check_identity(b, ckpt);
    if (st == TUTTI_OK) st = check_backend(b, ckpt, reporter);
    if (st == TUTTI_OK) st = read_all(b, exec, ckpt);
    if (st == TUTTI_OK) st = read_state(ckpt, state);
    tti_ckpt_close(ckpt);
    return st;
}

tutti_status tti_snapshot_restore(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                                  tti_run_state *state) {
    tti_ckpt *ckpt;
    tti_readers readers;
    tti_exec_readers(exec, &readers);
    TTI_TRY(tti_ckpt_open_by(run_dir, &readers, NULL, NULL, &ckpt));
    tutti_status st = read_all(b, exec, ckpt);
    if (st == TUTTI_OK) st = read_state(ckpt, state);
    tti_ckpt_close(ckpt);
    return st;
}
