/* resolved.c - prints the job for the run folder, with a value for each auto.  Values that follow
 * from the model or the data are written out.  If a rule decides during the run (bucket sizes,
 * algorithms), the name of the rule is written.
 */
#include "train/setup/resolved.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/str.h"
#include "base/utf8.h"
#include "data/dataset.h"
#include "data/image/image_set.h"
#include "train/job/objective.h"

/* Sets a key that is still auto to the value that auto has in this run. */
static void settle(tutti_job *job, const char *key, const char *value) {
    const char *now = tutti_job_get(job, key);
    if (now && strcmp(now, "auto") == 0) tti_options_put(tti_job_options(job), key, value, "auto");
}

/* ---- the model ---- */

static void settle_model(tutti_job *job) {
    const tti_job_config *c = tti_job_config_of(job);
    const tutti_model *model = tti_job_has_model_fn(job) ? NULL : tti_job_model(c);
    bool has_heads = model && model->activation;
    bool is_said = c->model.layers > 0 && c->model.width > 0 && (c->model.heads > 0 || !has_heads);
    settle(job, "model.size", model && model->size && !is_said ? model->size : "none");
    settle(job, "model.activation", has_heads ? model->activation : "none");
    settle(job, "model.attention_scaled", "yes");
    settle(job, "model.attention_by_layer", "no");
    settle(job, "model.tied", "yes");
    bool has_loss = *c->model.file && !tti_loss_is_contrastive(c);
    settle(job, "model.loss", has_loss ? "first" : "none");
}

/* ---- the data ---- */

static void settle_channels(tutti_job *job, const char *key, const double value[3]) {
    char text[3][TTI_NUMBER_TEXT], line[TTI_TEXT_MAX];
    for (int i = 0; i < 3; i++) tti_format_double(text[i], value[i]);
    snprintf(line, sizeof line, "%s, %s, %s", text[0], text[1], text[2]);
    settle(job, key, line);
}

static void settle_images(tutti_job *job, const tutti_dataset *train) {
    const tti_image_set *set = tti_dataset_state(train); /* the state begins with the image set */
    const tti_pixel_spec *pixels = &tti_dataset_spec(train)->pixels;
    tti_str steps = {0};
    tti_augment_print(&set->augment, &steps);
    settle(job, "data.augment", tti_str_text(&steps));
    settle_channels(job, "data.channel_mean", pixels->mean);
    settle_channels(job, "data.channel_std", pixels->std);
    tti_str_free(&steps);
}

static void settle_data(tutti_job *job, const tutti_dataset *train) {
    const tutti_tokenizer *tokenizer = tti_dataset_spec(train)->tokenizer;
    if (tti_job_has_images(tti_job_config_of(job))) settle_images(job, train);
    settle(job, "data.augment", "none");
    settle(job, "data.channel_mean", "none");
    settle(job, "data.channel_std", "none");
    settle(job, "data.tokenizer", tokenizer ? tutti_tokenizer_get_name(tokenizer) : "none");
    const tti_table_spec *table = tti_dataset_spec(train)->table;
    if (table && table->labels == TTI_LABEL_YES_NO) settle(job, "data.target", "labels");
    if (tutti_dataset_get_info(train)->n_fields == 0)
        settle(job, "data.target", tti_dataset_spec(train)->target.n > 0 ? "value" : "class");
    bool is_npy = strcmp(tti_job_config_of(job)->data.format, "npy") == 0;
    settle(job, "data.fields",
           is_npy && tutti_dataset_get_info(train)->n_fields > 0 ? "all" : "\"\"");
    settle(job, "train.ignore_index", tti_ignored_label(tti_job_config_of(job)));
    settle(job, "data.mask_token", tti_job_config_of(job)->data.mask_prob > 0 ? "added" : "none");
}

/* ---- execution ---- */

static void settle_computing(tutti_job *job) {
    const tti_job_config *c = tti_job_config_of(job);
    char copies[24];
    snprintf(copies, sizeof copies, "%d",
             (int)(c->parallel.workers / (c->parallel.tensor * c->parallel.pipeline)));
    settle(job, "train.metrics", "by_task");
    settle(job, "train.loss_scale", strcmp(c->train.precision, "f16") == 0 ? "dynamic" : "none");
    settle(job, "data.resident", "fit");
    settle(job, "parallel.data", copies);
    settle(job, "parallel.load_weights",
           "equal"); /* devices.c has already set it if weights are measured */
    settle(job, "parallel.ahead", "best");
    settle(job, "parallel.algorithm", "by_size");
    settle(job, "parallel.bucket_mb", "by_link");
    settle(job, "parallel.backend", "fastest");
}

static tutti_status print(tutti_job *job, const tti_blueprint *b, const char *run_dir,
                          char **yaml) {
    char full[PATH_MAX];
    TTI_TRY(tti_job_make_paths_absolute(job));
    if (b) {
        settle_model(job);
        settle_data(job, b->train);
        settle_computing(job);
    }
    /* If the full name of the folder is not valid in a job file, the job keeps the given name. */
    if (run_dir && realpath(run_dir, full) && strlen(full) < TTI_TEXT_MAX && tti_utf8_is_line(full))
        settle(job, "run.dir", full);
    *yaml = tutti_job_print(job, false);
    return *yaml ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

tutti_status tti_job_print_resolved(tutti_job *job, const tti_blueprint *b, const char *run_dir,
                                    char **yaml) {
    tti_options_kept kept = {0};
    *yaml = NULL;
    TTI_TRY(tti_options_keep(tti_job_options(job), &kept));
    tutti_status st = print(job, b, run_dir, yaml);
    tti_options_restore(tti_job_options(job), &kept);
    return st;
}
