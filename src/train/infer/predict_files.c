/* predict_files.c - tutti_predict: runs files through a trained model, in order.
 *
 * The training data of the model and the name of a file decide how the file is read.  A file that
 * cannot be read is reported in order, and the next files are processed. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/samples.h"
#include "train/infer/generator.h"
#include "train/infer/predicting.h"

enum { MAX_DEPTH = 64 };

/* ---- files ---- */

/* A kind of file: its name endings, and a test if the model accepts it. */
typedef struct kind {
    const char *endings; /* "|.txt|.bin|" */
    bool (*fits)(const tti_predicting *r);
    tutti_status (*add)(tti_predicting *r, const tti_predict_input *input);
    bool takes_stdin;
} kind;

static bool takes_fields(const tti_predicting *r) {
    return tutti_dataset_get_info(r->ds)->n_fields > 0 && !tti_dataset_spec(r->ds)->table;
}

static bool takes_arrays(const tti_predicting *r) {
    return !takes_fields(r) && !tti_dataset_spec(r->ds)->table;
}

static bool takes_tables(const tti_predicting *r) { return tti_dataset_spec(r->ds)->table != NULL; }

static bool takes_text(const tti_predicting *r) { return r->is_text; }

/* The last kind that the model accepts is also used for files with other names. */
static const kind kinds[] = {
    {"|.csv|.csv.gz|", takes_tables, tti_predict_table, true},
    {"|.npy|.npy.gz|.npz|", takes_arrays, tti_predict_array, false},
    {"|.npy|.npy.gz|.npz|", takes_fields, tti_predict_fields, false},
    {"|.txt|.txt.gz|.bin|", takes_text, tti_predict_text, true},
    {"|.jpg|.jpeg|.png|.idx|.idx.gz|-ubyte|-ubyte.gz|", tti_predict_takes_images,
     tti_predict_images, false},
};

static bool ends_so(const char *name, const char *endings) {
    size_t n_name = strlen(name);
    for (const char *at = endings + 1; *at; at = strchr(at, '|') + 1) {
        size_t n = (size_t)(strchr(at, '|') - at);
        if (n_name > n && strncasecmp(name + n_name - n, at, n) == 0) return true;
    }
    return false;
}

bool tti_predict_ends_in(const char *file, const char *ending) {
    size_t n = strlen(file), n_ending = strlen(ending);
    return n > n_ending && strcasecmp(file + n - n_ending, ending) == 0;
}

/* Chooses the kind by the name, or, for files outside folders, by the model's training data.  NULL:
 * none. */
static const kind *find_kind(const tti_predicting *r, const char *file, bool in_folder) {
    const kind *other = NULL;
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) {
        if (!kinds[i].fits(r)) continue;
        if (ends_so(file, kinds[i].endings)) return &kinds[i];
        other = &kinds[i];
    }
    return in_folder ? NULL : other;
}

/* Reports a bad file or folder, named by the last error, after the results of earlier files. */
static tutti_status report_bad(tti_predicting *r, const char *file) {
    char text[1024];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    TTI_TRY(tti_predict_flush(r));
    r->n_bad++;
    return tti_predict_report(r, &(tutti_prediction){.file = file, .error = text});
}

static tutti_status add_path(tti_predicting *r, const char *path, int depth);

static int is_shown(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static tutti_status add_folder(tti_predicting *r, const char *dir, int depth) {
    struct dirent **list = NULL;
    int n = depth < MAX_DEPTH ? scandir(dir, &list, is_shown, alphasort) : -1;
    if (n < 0) {
        (void)tti_fail(TUTTI_E_DATA, "%s: the folder cannot be read", dir);
        r->n_files++;
        return report_bad(r, dir);
    }
    size_t n_dir = strlen(dir);
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < n; i++) {
        bool slash = n_dir > 0 && dir[n_dir - 1] == '/';
        const char *path =
            tti_arena_printf(&r->arena, "%s%s%s", dir, slash ? "" : "/", list[i]->d_name);
        if (!path) st = tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
        if (st == TUTTI_OK) st = add_path(r, path, depth + 1);
        free(list[i]);
    }
    free(list);
    return st;
}

static tutti_status add_path(tti_predicting *r, const char *path, int depth) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return add_folder(r, path, depth);
    const kind *how = find_kind(r, path, depth > 0);
    if (!how) return TUTTI_OK;
    tutti_status st = how->add(r, &(tti_predict_input){.file = path, .name = path});
    r->n_files++;
    /* Continue with other files only if the error is in this file. */
    return st == TUTTI_E_DATA || st == TUTTI_E_IO ? report_bad(r, path) : st;
}

/* ---- standard input ---- */

#define MAX_STDIN_BYTES ((size_t)1 << 32)

static const char stdin_name[] = "standard input";

/* Like read(), but also waits for bytes if another program has made the pipe or terminal
 * non-blocking. */
static ssize_t read_some(char *to, size_t n_bytes) {
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t got;
    while ((got = read(fd.fd, to, n_bytes)) < 0 && (errno == EINTR || errno == EAGAIN))
        if (errno == EAGAIN) (void)poll(&fd, 1, -1);
    return got;
}

/* Reads to the end; the caller frees *out. */
static tutti_status read_stdin(char **out, size_t *n_bytes) {
    size_t capacity = 1 << 16, n = 0;
    char *text = malloc(capacity);
    ssize_t got = 1;
    while (text && got > 0) {
        if (n == capacity) {
            char *more = capacity < MAX_STDIN_BYTES ? realloc(text, 2 * capacity) : NULL;
            if (!more) break;
            text = more;
            capacity *= 2;
        }
        got = read_some(text + n, capacity - n);
        if (got > 0) n += (size_t)got;
    }
    if (text && got == 0) {
        *out = text;
        *n_bytes = n;
        return TUTTI_OK;
    }
    bool unreadable = text && got < 0;
    int why = errno;
    free(text);
    if (unreadable) return tti_fail(TUTTI_E_DATA, "%s: cannot read: %s", stdin_name, strerror(why));
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory after %zu bytes; save it to a file",
                    stdin_name, n);
}

/* Fails unless the model accepts the kind of bytes and standard input was not read before. */
static tutti_status check_stdin(tti_predicting *r, const kind *how) {
    if (!how->takes_stdin)
        return tti_fail(TUTTI_E_DATA,
                        "%s: only tables and text can be read from it; save it to a file and name "
                        "the file (a file with the name - is ./-)",
                        stdin_name);
    if (r->has_read_stdin)
        return tti_fail(TUTTI_E_DATA, "%s: was read to its end already; name - once", stdin_name);
    r->has_read_stdin = true;
    return TUTTI_OK;
}

static tutti_status add_stdin(tti_predicting *r) {
    const kind *how = find_kind(r, "", false);
    tti_predict_input input = {.file = "-", .name = stdin_name};
    char *text = NULL;
    tutti_status st = check_stdin(r, how);
    if (st == TUTTI_OK) st = read_stdin(&text, &input.n_bytes);
    input.bytes = text;
    if (st == TUTTI_OK) st = how->add(r, &input);
    free(text);
    r->n_files++;
    return st == TUTTI_E_DATA || st == TUTTI_E_IO ? report_bad(r, input.file) : st;
}

/* ---- the call ---- */

static tutti_status check_model(tti_predicting *r) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    const char *name = r->b->model_name, *format = tti_dataset_spec(r->ds)->format;
    /* Only for text: in other formats, targets with the shape of x may be something else than the
     * next tokens. */
    bool follows = strcmp(format, "npy") != 0 && r->b->config.data.mask_prob == 0;
    r->is_text = follows && tti_writes_text(r->b);
    if (info->y.shape.n_dims > 0 && !info->is_value && !r->is_text)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "predict: %s predicts several targets of a sample of data.format=%s, which "
                        "cannot be printed; `tutti eval` counts the correct ones",
                        name, format);
    if (find_kind(r, "", false)) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "predict: a model of data.format=%s cannot read files",
                    format);
}

tutti_status tti_predict_take_names(tti_predicting *r, int64_t n) {
    const tti_data_spec *spec = tti_dataset_spec(r->ds);
    if (!tti_data_spec_target_name(spec, 0)) return TUTTI_OK;
    r->names = calloc((size_t)n + 1, sizeof *r->names);
    if (!r->names) return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    for (int64_t k = 0; k < n; k++) r->names[k] = tti_data_spec_target_name(spec, k);
    return TUTTI_OK;
}

static tutti_status prepare_values(tti_predicting *r) {
    int64_t n = tti_dataset_spec(r->ds)->target.n;
    r->values = calloc((size_t)n + 1, sizeof *r->values);
    if (!r->values) return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    return tti_predict_take_names(r, n);
}

static tutti_status prepare(tti_predicting *r) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    tutti_type type;
    size_t chain_bytes;
    TTI_TRY(check_model(r));
    TTI_TRY(
        tti_chain_infer(tti_dataset_decode(r->ds), tti_dataset_stored(r->ds), &type, &chain_bytes));
    int64_t n_targets = r->b->rows_per_shard * tutti_shape_n_elems(&info->y.shape);
    r->n_rows = r->b->rows_per_shard * tti_predictor_n_compute_threads(r->p);
    r->row_bytes = tti_type_bytes(&type);
    if (info->n_fields > 0) r->row_bytes = tti_field_offset(info->fields, info->n_fields, 1);
    r->x = calloc((size_t)r->n_rows, r->row_bytes);
    r->y = malloc((size_t)n_targets * sizeof *r->y);
    r->wait = calloc((size_t)r->n_rows, sizeof *r->wait);
    for (int i = 0; i < 2; i++) r->chain[i] = aligned_alloc(64, TTI_MAX(chain_bytes, (size_t)64));
    if (!r->x || !r->y || !r->wait || !r->chain[0] || !r->chain[1])
        return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    for (int64_t i = 0; i < n_targets; i++) r->y[i] = -1;
    TTI_TRY(info->n_fields > 0 ? tti_predict_prepare_fields(r) : prepare_values(r));
    TTI_TRY(tti_predict_prepare_outputs(r, r->b->rows_per_shard, tti_predict_takes_images(r)));
    int64_t n_outputs = TTI_MAX(r->n_outputs, r->b->model_params.n_classes);
    r->probabilities = calloc((size_t)n_outputs + 1, sizeof *r->probabilities);
    return r->probabilities ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
}

static void finish(tti_predicting *r) {
    free(r->x);
    free(r->y);
    free(r->wait);
    free(r->values);
    free(r->needs);
    free(r->probabilities);
    free(r->mask);
    free(r->names);
    tti_predict_free_outputs(r);
    free(r->chain[0]);
    free(r->chain[1]);
    tti_workspace_free(&r->ws);
    tti_buffer_free(&r->rgb);
    tti_arena_free(&r->arena);
    tti_predictor_close(r->p);
}

static tutti_status check_finite(const tti_predicting *r) {
    if (r->n_not_finite == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_NUMERICS, "the model's output is not finite for %lld samples",
                    (long long)r->n_not_finite);
}

/* Passes warnings about skipped checkpoints to the caller. status: TUTTI_E_INTERRUPTED after the
 * caller's function has ended the call. */
typedef struct run_notices {
    const tti_predicting *r;
    const char *run_dir;
    tutti_status status;
} run_notices;

static void report_skipped(void *user, const char *text) {
    run_notices *n = user;
    if (n->status != TUTTI_OK) return;
    n->status = tti_predict_report(n->r, &(tutti_prediction){.file = n->run_dir, .notice = text});
}

static tutti_status open_run(tti_predicting *r, tutti_job *job, const char *run_dir) {
    run_notices notices = {.r = r, .run_dir = run_dir, .status = TUTTI_OK};
    TTI_TRY(tti_predictor_open_one_row(job, run_dir, report_skipped, &notices, &r->p));
    if (notices.status != TUTTI_OK) {
        tti_predictor_close(r->p);
        return tti_fail(notices.status, "predict: the callback has ended the call");
    }
    r->b = tti_predictor_blueprint(r->p);
    r->ds = r->b->test;
    return TUTTI_OK;
}

static tutti_status predict_all(tti_predicting *r, const char *const *files, int n_files) {
    TTI_TRY(prepare(r));
    for (int i = 0; i < n_files; i++) {
        int64_t n_before = r->n_files;
        TTI_TRY(strcmp(files[i], "-") == 0 ? add_stdin(r) : add_path(r, files[i], 0));
        if (r->n_files > n_before) continue;
        (void)tti_fail(TUTTI_E_DATA, "%s: the folder has no file that the model can read",
                       files[i]);
        r->n_files++;
        TTI_TRY(report_bad(r, files[i]));
    }
    TTI_TRY(tti_predict_flush(r));
    if (r->n_bad > 0)
        return tti_fail(TUTTI_E_DATA, "%lld of %lld files cannot be predicted", (long long)r->n_bad,
                        (long long)r->n_files);
    return check_finite(r);
}

static tutti_status predict_samples(tti_predicting *r, const tutti_samples *samples) {
    TTI_TRY(prepare(r));
    bool has_fields = tutti_dataset_get_info(r->ds)->n_fields > 0;
    TTI_TRY(has_fields ? tti_predict_fields_of(r, samples) : tti_predict_array_of(r, samples));
    TTI_TRY(tti_predict_flush(r));
    return check_finite(r);
}

static tutti_status check_call(const char *who, const tutti_job *job, const char *run_dir,
                               tutti_predict_fn fn) {
    TTI_TRY(tti_need(job, who, "job"));
    TTI_TRY(tti_need(run_dir, who, "run_dir"));
    return tti_need(fn ? job : NULL, who, "fn");
}

tutti_status tutti_predict(tutti_job *job, const char *run_dir, const char *const *files,
                           int n_files, tutti_predict_fn fn, void *user) {
    tti_predicting r = {.fn = fn, .user = user};
    TTI_TRY(check_call(__func__, job, run_dir, fn));
    for (int i = 0; i < n_files; i++) TTI_TRY(tti_need(files ? files[i] : NULL, __func__, "files"));
    TTI_TRY(open_run(&r, job, run_dir));
    tutti_status st = predict_all(&r, files, n_files);
    finish(&r);
    return tti_job_say_where(job, st);
}

tutti_status tutti_predict_samples(tutti_job *job, const char *run_dir,
                                   const tutti_samples *samples, tutti_predict_fn fn, void *user) {
    tti_predicting r = {.fn = fn, .user = user};
    tutti_samples *copy;
    TTI_TRY(check_call(__func__, job, run_dir, fn));
    TTI_TRY(tti_need(samples, __func__, "samples"));
    TTI_TRY(tti_samples_copy(samples, &copy));
    tutti_status st = open_run(&r, job, run_dir);
    if (st == TUTTI_OK) {
        st = tti_job_say_where(job, predict_samples(&r, copy));
        finish(&r);
    }
    tti_samples_free(copy);
    return st;
}

/* ---- as text ---- */

static void add_label(tti_json *j, const char *key, int64_t label, const char *name) {
    if (name)
        tti_json_text(j, key, name);
    else
        tti_json_int(j, key, label);
}

static void add_top(tti_json *j, const char *list, const char *key, const tutti_prediction *p) {
    tti_json_array(j, list);
    for (int i = 0; i < p->n_top; i++) {
        tti_json_object(j, NULL);
        add_label(j, key, p->top[i].label, p->top[i].name);
        tti_json_double(j, "probability", p->top[i].probability);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void add_text(tti_json *j, const tutti_prediction *p) {
    tti_json_int(j, "tokens", p->n_tokens);
    if (p->n_tokens > 0) {
        tti_json_double(j, "loss", p->loss);
        tti_json_double(j, "perplexity", p->perplexity);
    }
    add_top(j, "next", "token", p);
}

/* Writes {"value":1.5}, or for several targets {"values":{"height":1.5,"width":2}}, or a list if
 * they have no names. */
static void add_values(tti_json *j, const tutti_prediction *p) {
    if (p->n_values == 1) {
        tti_json_double(j, "value", p->values[0]);
        return;
    }
    if (p->names)
        tti_json_object(j, "values");
    else
        tti_json_array(j, "values");
    for (int64_t k = 0; k < p->n_values; k++)
        tti_json_double(j, p->names ? p->names[k] : NULL, p->values[k]);
    tti_json_end(j);
}

/* Writes the probability of each label, {"labels":{"news":0.9,"sport":0.1}}, or a list if they have
 * no names. */
static void add_labels(tti_json *j, const tutti_prediction *p) {
    if (p->names)
        tti_json_object(j, "labels");
    else
        tti_json_array(j, "labels");
    for (int64_t k = 0; k < p->n_outputs; k++)
        tti_json_double(j, p->names ? p->names[k] : NULL, p->probabilities[k]);
    tti_json_end(j);
}

/* Writes the size and the number of pixels of each class that occurs:
 * {"height":40,"width":56,"pixels":{"0":2000,"1":240}}. */
static void add_mask(tti_json *j, const tutti_prediction *p) {
    int64_t n = p->mask_height * p->mask_width, left = n;
    tti_json_int(j, "height", p->mask_height);
    tti_json_int(j, "width", p->mask_width);
    tti_json_object(j, "pixels");
    for (int64_t label = 0; label <= UINT16_MAX && left > 0; label++) {
        int64_t count = 0;
        char name[24];
        for (int64_t i = 0; i < n; i++) count += p->mask[i] == label;
        snprintf(name, sizeof name, "%lld", (long long)label);
        if (count > 0) tti_json_int(j, name, count);
        left -= count;
    }
    tti_json_end(j);
}

char *tutti_prediction_print(const tutti_prediction *p) {
    if (!p) return NULL;
    tti_str out = {0};
    tti_json j = tti_json_begin(&out, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "file", p->file);
    if (p->n_in_file > 1) tti_json_int(&j, "index", p->index);
    if (p->error) {
        tti_json_text(&j, "error", p->error);
    } else if (p->notice) {
        tti_json_text(&j, "notice", p->notice);
    } else if (p->mask) {
        add_mask(&j, p);
    } else if (p->is_value) {
        add_values(&j, p);
    } else if (p->is_labels) {
        add_labels(&j, p);
    } else if (p->is_text) {
        add_text(&j, p);
    } else {
        add_label(&j, "class", p->top[0].label, p->top[0].name);
        tti_json_double(&j, "probability", p->top[0].probability);
        add_top(&j, "top5", "class", p);
    }
    tti_predict_print_outputs(&j, p);
    tti_json_end(&j);
    tti_str_add(&out, "\n");
    if (out.failed) tti_str_free(&out);
    return out.text;
}
