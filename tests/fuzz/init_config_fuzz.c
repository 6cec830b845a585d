/* init_config_fuzz.c - any bytes as the config.json of a Hugging Face folder, for each family of
 * models: refused with a message, or accepted with values that the job takes a second time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "train/setup/init_config.h"

static const char *const families[] = {"gpt2", "bert", "resnet50", "vit", "convnext", "swin"};

/* Tensors without elements: sizes that config.json omits come from their shapes. */
static const char header[] =
    "{\"transformer.wte.weight\":{\"dtype\":\"F32\",\"shape\":[0,8],\"data_offsets\":[0,0]},"
    "\"transformer.h.0.attn.c_attn.weight\":{\"dtype\":\"F32\",\"shape\":[0,24],"
    "\"data_offsets\":[0,0]},"
    "\"bert.embeddings.word_embeddings.weight\":{\"dtype\":\"F32\",\"shape\":[0,8],"
    "\"data_offsets\":[0,0]}}";

static char folder[64];

static void put(const char *name, const void *bytes, size_t n_bytes) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    TTI_ASSERT(file && fwrite(bytes, 1, n_bytes, file) == n_bytes);
    fclose(file);
}

static void remove_folder(void) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void) {
    char bytes[8 + sizeof header - 1] = {(char)((sizeof header - 1) & 0xff),
                                         (char)((sizeof header - 1) >> 8)};
    snprintf(folder, sizeof folder, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkdtemp(folder));
    memcpy(bytes + 8, header, sizeof header - 1);
    put("model.safetensors", bytes, sizeof bytes);
    atexit(remove_folder);
}

static void take(const char *family) {
    char name[64], init[128];
    tutti_job *job;
    TTI_ASSERT(tutti_job_create(&job) == TUTTI_OK);
    snprintf(name, sizeof name, "model.name=%s", family);
    snprintf(init, sizeof init, "model.init=%s", folder);
    tutti_job_set(job, name, "fuzz");
    tutti_job_set(job, init, "fuzz");
    TTI_ASSERT(tutti_job_check(job) == TUTTI_OK);
    tti_clear_error();
    if (tti_init_config_apply(job) == TUTTI_OK)
        TTI_ASSERT(tti_init_config_apply(job) == TUTTI_OK);
    else
        TTI_ASSERT(strstr(tutti_last_error(), "model.init"));
    tutti_job_destroy(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (!folder[0]) make_folder();
    put("config.json", data, n_bytes);
    for (size_t i = 0; i < TTI_COUNT(families); i++) take(families[i]);
    return 0;
}
