/* job_data.c - converts the keys of a job to the description of a data set, in one place, so that
 * training, packing and `tutti data info` see the same samples. */
#include "train/job/job_data.h"

#include <string.h>

#include "data/dataset.h"
#include "train/job/objective.h"

static bool is_table(const tti_job_config *c) { return strcmp(c->data.format, "csv") == 0; }

const char *tti_job_target_field(const tti_job_config *c) {
    return is_table(c) ? "y" : c->data.label;
}

const char *tti_job_target(const tti_job_config *c) {
    if (strcmp(c->data.target, "auto") != 0) return c->data.target;
    if (is_table(c) && strcmp(c->train.loss, "bce") == 0) return "labels";
    if (strcmp(c->train.loss, "cross-entropy") == 0 || tti_loss_wants_fields(c) ||
        strcmp(c->train.loss, "focal") == 0)
        return "class";
    return strcmp(c->train.loss, "mse") == 0 ? "auto" : "value";
}

const char *tti_job_tokenizer(const tti_job_config *c) {
    return strcmp(c->data.tokenizer, "none") == 0 ? NULL : c->data.tokenizer;
}

/* Accepts the suffix, because a run folder stores data.dir as an absolute path. */
tutti_status tti_job_check_samples(const tti_job_config *c) {
    static const char suffix[] = "/" TTI_MEMORY_DIR;
    size_t n = strlen(c->data.dir), n_suffix = sizeof suffix - 1;
    bool is_memory = strcmp(c->data.dir, TTI_MEMORY_DIR) == 0 ||
                     (n >= n_suffix && strcmp(c->data.dir + n - n_suffix, suffix) == 0);
    if (!is_memory || c->data.samples[TUTTI_TRAIN] || c->data.samples[TUTTI_TEST]) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "data.dir: the samples of this run were in the memory of the program that "
                    "trained it; give them again (in Python data=(x, y), in C "
                    "tutti_job_set_samples), or give files as data.format and data.dir");
}

tutti_dataset_desc tti_job_dataset_desc(const tti_job_config *c, tutti_data_split split,
                                        const tti_data_spec *spec) {
    int64_t n = split == TUTTI_TRAIN ? c->data.n_train : c->data.n_test;
    bool digits = strcmp(c->data.format, "digits") == 0;
    static const char *const of_tokens[] = {"text", "tokens", "random_tokens"};
    bool tokens = false, is_auto = strcmp(c->train.ignore_index, "auto") == 0;
    for (size_t i = 0; i < TTI_COUNT(of_tokens); i++)
        tokens |= strcmp(c->data.format, of_tokens[i]) == 0;
    if (n == 0 && digits) n = split == TUTTI_TRAIN ? 20000 : 4000;
    return (tutti_dataset_desc){
        .format = c->data.format,
        .dir = c->data.dir,
        .split = split,
        .n_samples = n,
        .n_classes = tokens ? c->data.vocabulary : c->data.classes,
        .mean = c->data.mean,
        .std = c->data.std,
        .seed = (uint64_t)c->train.seed,
        .val_fraction = c->data.val_fraction > 0 ? c->data.val_fraction : -1,
        .skip_bad = strcmp(c->data.on_error, "skip") == 0,
        .max_unpacked = c->data.max_unpacked_mb << 20,
        .max_pixels = c->data.max_pixels,
        .image_size = c->data.image_size,
        .augment = c->data.augment,
        .channel_mean = c->data.channel_mean,
        .channel_std = c->data.channel_std,
        .ignore_index =
            is_auto && strcmp(tti_ignored_label(c), "none") == 0 ? "" : c->train.ignore_index,
        .context = c->data.context,
        .stride = c->data.stride,
        .tokenizer = tti_job_tokenizer(c),
        .tokenizer_dir = c->data.tokenizer_dir,
        .mask_prob = c->data.mask_prob,
        .mask_token = c->data.mask_token,
        .label = c->data.label,
        .columns = c->data.columns,
        .target = tti_job_target(c),
        .fields = strcmp(c->data.fields, "auto") == 0 ? "" : c->data.fields,
        .refuse_missing = strcmp(c->data.missing, "refuse") == 0,
        .spec = spec,
        .samples = {c->data.samples[TUTTI_TRAIN], c->data.samples[TUTTI_TEST]},
    };
}

tutti_status tutti_job_pack_data(tutti_job *job, const tutti_pack_desc *how, char **report) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(how, __func__, "how"));
    TTI_TRY(tti_need(report, __func__, "report"));
    *report = NULL;
    TTI_TRY(tutti_job_check(job));
    tutti_dataset_desc desc = tti_job_dataset_desc(&job->config, TUTTI_TRAIN, NULL);
    return tti_job_say_where(job, tutti_dataset_pack(&desc, how, report));
}
