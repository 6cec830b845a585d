/* export.c - tutti_export: opens a checkpoint for evaluation and writes it in formats of other
 * programs.
 *
 * Tensors are borrowed from the flat parameters; only matrices that are stored transposed are
 * copied. */
#include "train/export/export.h"

#include <stdio.h>
#include <string.h>

#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"
#include "ckpt/weights.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "train/export/onnx_emit.h"
#include "train/setup/weight_names.h"

enum { MAX_PATH = 4096 };

static const char *const format_names[TUTTI_N_EXPORT_FORMATS] = {"safetensors", "hf", "torchvision",
                                                                 "onnx", "state-dict"};

bool tutti_export_find(const char *name, tutti_export_format *out) {
    for (int i = 0; i < TUTTI_N_EXPORT_FORMATS; i++) {
        if (strcmp(name, format_names[i]) != 0) continue;
        *out = (tutti_export_format)i;
        return true;
    }
    return false;
}

/* ---- the folder ---- */

static tutti_status path_of(const tti_exporting *e, const char *name, char path[MAX_PATH]) {
    if (snprintf(path, MAX_PATH, "%s/%s", e->desc->out, name) < MAX_PATH) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "%.80s...: the path is too long", e->desc->out);
}

static tutti_status save_text(const tti_exporting *e, const char *name, const tti_str *text) {
    char path[MAX_PATH];
    if (text->failed) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    TTI_TRY(path_of(e, name, path));
    return tti_atomic_file_save(path, text->text, text->n_bytes);
}

/* For a run trained on text, writes the files that AutoTokenizer of transformers reads. */
static tutti_status save_tokenizer(const tti_exporting *e) {
    const tutti_tokenizer *t = tutti_dataset_get_tokenizer(e->b->train);
    char path[MAX_PATH];
    tti_str config = {0};
    if (!t) return TUTTI_OK;
    TTI_TRY(path_of(e, TTI_TOKENIZER_FILE, path));
    TTI_TRY(tti_tokenizer_save_for_transformers(t, path));
    tti_export_tokenizer_config(e->b, t, &config);
    tutti_status st = save_text(e, "tokenizer_config.json", &config);
    tti_str_free(&config);
    return st;
}

/* Writes how images are prepared, in the format that AutoImageProcessor of transformers reads. */
static tutti_status save_preprocessor(const tti_exporting *e) {
    tti_str config = {0};
    if (tti_dataset_spec(e->b->train)->pixels.n_channels != 3) return TUTTI_OK;
    tti_export_preprocessor_config(tti_dataset_spec(e->b->train), &config);
    tutti_status st = save_text(e, "preprocessor_config.json", &config);
    tti_str_free(&config);
    return st;
}

/* ---- tensors ---- */

typedef struct tensors {
    tti_arena arena;
    tti_ckpt_tensor *v;
    size_t n;
} tensors;

static void add_transposed(tensors *t, const tti_slot *slot, const float *data) {
    tutti_type type = slot->param->out[0]->type;
    int64_t n_rows = type.shape.dim[0], n_cols = type.shape.dim[1];
    float *copy = tti_arena_alloc(&t->arena, slot->n_elems * sizeof *copy + 1);
    if (!copy) return;
    tti_weight_transpose(data, n_rows, n_cols, copy);
    type.shape = TUTTI_SHAPE(n_cols, n_rows);
    t->v[t->n++] = (tti_ckpt_tensor){slot->param->name, type, copy};
}

/* Returns the name in the file, allocated in the arena if it differs from the slot's; NULL: out of
 * memory. */
static const char *name_of(const tti_exporting *e, tensors *t, const tti_slot *slot) {
    char other[TTI_WEIGHT_NAME];
    bool renamed = e->desc->format == TUTTI_EXPORT_HF && tti_is_resnet(e->b) &&
                   tti_weight_hf_resnet(slot->param->name, other);
    return renamed ? tti_arena_strdup(&t->arena, other) : slot->param->name;
}

/* Adds the counter num_batches_tracked, which batch norms in PyTorch also have. */
static void add_counter(tensors *t, const char *name, int64_t step) {
    static const char end[] = ".running_mean";
    size_t n = strlen(name), n_end = sizeof end - 1;
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return;
    char *counter = tti_arena_printf(&t->arena, "%.*s.num_batches_tracked", (int)(n - n_end), name);
    int64_t *data = tti_arena_copy(&t->arena, &step, sizeof step);
    if (counter && data) t->v[t->n++] = (tti_ckpt_tensor){counter, {.dtype = TUTTI_I64}, data};
}

/* Adds the buffer of torchvision's Swin that maps two positions of a window to a row of the bias
 * table. */
static void add_position_index(tensors *t, const char *name, int64_t n_rows) {
    static const char end[] = "relative_position_bias_table";
    size_t n = strlen(name), n_end = sizeof end - 1;
    int64_t side = 1;
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return;
    while ((2 * side - 1) * (2 * side - 1) < n_rows) side++;
    int64_t area = side * side, span = 2 * side - 1;
    int64_t *row = tti_arena_alloc(&t->arena, (size_t)(area * area) * sizeof *row);
    char *index =
        tti_arena_printf(&t->arena, "%.*srelative_position_index", (int)(n - n_end), name);
    if (!row || !index) return;
    for (int64_t i = 0; i < area; i++)
        for (int64_t j = 0; j < area; j++)
            row[i * area + j] =
                (i / side - j / side + side - 1) * span + i % side - j % side + side - 1;
    t->v[t->n++] = (tti_ckpt_tensor){index, {TUTTI_I64, TUTTI_SHAPE(area * area)}, row};
}

static tutti_status list_tensors(const tti_exporting *e, tensors *t) {
    const tti_plan *plan = e->b->plan;
    t->v = tti_arena_alloc(&t->arena, (2 * (size_t)plan->n_slots + 1) * sizeof *t->v);
    for (int i = 0; i < plan->n_slots && !tti_arena_failed(&t->arena); i++) {
        const tti_slot *slot = &plan->slots[i];
        float *data = tti_predictor_params(e->predictor) + slot->first;
        const char *name = name_of(e, t, slot);
        bool hf = e->desc->format == TUTTI_EXPORT_HF;
        if (!name) break;
        if (hf && tti_weight_is_transposed(e->b, slot->param->name))
            add_transposed(t, slot, data);
        else
            t->v[t->n++] = (tti_ckpt_tensor){name, slot->param->out[0]->type, data};
        /* If the output layer is untied, transformers' BERT stores the bias under a second name
         * too. */
        if (hf && e->b->model_params.untied &&
            strcmp(slot->param->name, "cls.predictions.bias") == 0)
            t->v[t->n++] =
                (tti_ckpt_tensor){"cls.predictions.decoder.bias", slot->param->out[0]->type, data};
        if (hf || e->desc->format == TUTTI_EXPORT_TORCHVISION)
            add_counter(t, name, e->result->step);
        if (e->desc->format == TUTTI_EXPORT_TORCHVISION)
            add_position_index(t, name, slot->param->out[0]->type.shape.dim[0]);
    }
    return tti_arena_failed(&t->arena) ? tti_fail(TUTTI_E_NOMEM, "export: out of memory")
                                       : TUTTI_OK;
}

/* True if a tensor is the batch count of a trained batch norm. */
static bool counts_batches(const tti_exporting *e, const tti_import_tensor *state) {
    static const char counter[] = ".num_batches_tracked";
    char mean[TTI_WEIGHT_NAME];
    size_t n = strlen(state->name), n_end = sizeof counter - 1;
    if (n < n_end || strcmp(state->name + n - n_end, counter) != 0) return false;
    snprintf(mean, sizeof mean, "%.*s.running_mean", (int)(n - n_end), state->name);
    return state->type.dtype == TUTTI_I64 && state->type.shape.n_dims == 0 &&
           tti_plan_find_slot(e->b->plan, mean) >= 0;
}

/* Returns the parameter with the trained values of a tensor; -1: none.  The graph may use any name
 * of a weight with several names. */
static int find_trained(const tti_exporting *e, const tti_import_tensor *state) {
    int slot = tti_plan_find_slot(e->b->plan, state->in_graph);
    int n = state->type.dtype == TUTTI_F32 ? tti_import_n_state(e->b->import) : 0;
    for (int i = 0; i < n && slot < 0; i++) {
        tti_import_tensor other = tti_import_state_at(e->b->import, i);
        if (strcmp(other.in_graph, state->in_graph) == 0)
            slot = tti_plan_find_slot(e->b->plan, other.name);
    }
    return slot;
}

/* Adds one tensor of the module's state_dict, with trained values if there are any, else with those
 * of the file. */
static tutti_status add_state(const tti_exporting *e, tensors *t, int i) {
    tti_import_tensor state = tti_import_state_at(e->b->import, i);
    int slot = find_trained(e, &state);
    size_t n = (size_t)tutti_shape_n_elems(&state.type.shape);
    void *data = slot < 0 ? tti_arena_alloc(&t->arena, n * sizeof(int64_t) + 1)
                          : tti_predictor_params(e->predictor) + e->b->plan->slots[slot].first;
    if (!data) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    if (slot < 0) TTI_TRY(tti_import_read_state(e->b->import, i, data));
    if (counts_batches(e, &state)) *(int64_t *)data += e->result->step;
    t->v[t->n++] = (tti_ckpt_tensor){state.name, state.type, data};
    return TUTTI_OK;
}

static tutti_status list_state(const tti_exporting *e, tensors *t) {
    if (!e->b->import)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: format state-dict is for models of model.file; use safetensors "
                        "for this one");
    int n = tti_import_n_state(e->b->import);
    t->v = tti_arena_alloc(&t->arena, ((size_t)n + 1) * sizeof *t->v);
    if (!t->v) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    for (int i = 0; i < n; i++) TTI_TRY(add_state(e, t, i));
    return TUTTI_OK;
}

static tutti_status write_tensors(const tti_exporting *e) {
    tensors t = {0};
    tti_weights_written written = {0};
    bool is_state = e->desc->format == TUTTI_EXPORT_STATE_DICT;
    tutti_status st = is_state ? list_state(e, &t) : list_tensors(e, &t);
    if (st == TUTTI_OK)
        st = tti_weights_write(e->desc->out, t.v, t.n, (uint64_t)e->desc->max_file_bytes, &written);
    e->result->n_tensors = (int64_t)t.n;
    e->result->n_bytes = (int64_t)written.n_bytes;
    e->result->n_files = written.n_files;
    tti_arena_free(&t.arena);
    return st;
}

/* ---- formats ---- */

static tutti_status check_torchvision(const tti_blueprint *b) {
    const tutti_model *model = tti_job_model(&b->config);
    const char *name = model ? model->name : b->model_name;
    static const char *const families[] = {"convnext",  "densenet", "efficientnet",
                                           "mobilenet", "regnet",   "resnet",
                                           "swin",      "vgg",      "vit"};
    for (size_t i = 0; model && i < TTI_COUNT(families); i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "export: format torchvision is for models with torchvision's names (convnext, "
                    "densenet, efficientnet, mobilenet, regnet, resnet, swin, vgg, vit), the model "
                    "is %s",
                    name);
}

static tutti_status write_folder(const tti_exporting *e) {
    tti_str config = {0};
    tutti_status st = TUTTI_OK;
    if (e->desc->format == TUTTI_EXPORT_HF) st = tti_export_config(e->b, &config);
    if (e->desc->format == TUTTI_EXPORT_TORCHVISION) st = check_torchvision(e->b);
    if (st == TUTTI_OK) st = tti_new_folder(e->desc->out);
    if (st == TUTTI_OK) st = write_tensors(e);
    if (st == TUTTI_OK && config.text) st = save_text(e, "config.json", &config);
    /* Write facts about samples that a reader needs: types, class names, normalization of pixels.
     * transformers has its own files for them; other formats get data.json. */
    if (st == TUTTI_OK && e->desc->format == TUTTI_EXPORT_HF) {
        st = save_tokenizer(e);
        if (st == TUTTI_OK) st = save_preprocessor(e);
    } else if (st == TUTTI_OK)
        st = tti_data_spec_save(tti_dataset_spec(e->b->train), e->desc->out);
    tti_str_free(&config);
    return st;
}

tutti_status tutti_export(tutti_job *job, const char *run_dir, const tutti_export_desc *desc,
                          tutti_warn_fn warn, void *user, tutti_export_result *result) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(run_dir, __func__, "run_dir"));
    TTI_TRY(tti_need(desc, __func__, "desc"));
    TTI_TRY(tti_need(result, __func__, "result"));
    tti_predictor *p;
    *result = (tutti_export_result){0};
    if (desc->max_file_bytes < 0 || desc->format < 0 || desc->format >= TUTTI_N_EXPORT_FORMATS)
        return tti_fail(TUTTI_E_INVALID, "export: bad description");
    TTI_TRY(tti_predictor_open(job, run_dir, warn, user, &p));
    tti_exporting e = {.job = job,
                       .b = tti_predictor_blueprint(p),
                       .predictor = p,
                       .desc = desc,
                       .result = result};
    result->step = tti_predictor_step(p);
    tutti_status st = desc->format == TUTTI_EXPORT_ONNX ? tti_export_onnx(&e) : write_folder(&e);
    tti_predictor_close(p);
    return tti_job_say_where(job, st);
}
