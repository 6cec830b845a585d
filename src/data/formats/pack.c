/* pack.c - writes both splits of a data set in packed form: images as the format "packed", text as
 * the format "tokens". */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/formats/packed.h"
#include "data/image/image_set.h"

/* For photographs 8/7 of the model's size: if that is a multiple of 28 (224, 112), evaluation sees
 * the same pixels as without packing.  Small images keep their size. */
static int64_t pick_side(const tutti_dataset_desc *source) {
    bool is_small = strncmp(source->format, "cifar", 5) == 0;
    int64_t size = source->image_size > 0 ? source->image_size : tti_usual_photos.size;
    return is_small ? source->image_size : (int64_t)rint((double)size * 8.0 / 7.0);
}

static tutti_status pack_split(const tutti_dataset_desc *source, tutti_data_split split,
                               const char *dir, tti_str *report) {
    tutti_dataset *ds;
    tutti_dataset_desc plain = *source;
    plain.split = split;
    plain.augment = "none";
    plain.image_size = pick_side(source);
    TTI_TRY(tutti_dataset_open(&plain, &ds));
    tti_image_set *set = tti_dataset_state(ds);
    if (set->fit == TTI_FIT_MIDDLE) set->fit = TTI_FIT_SQUARE;
    tutti_status st = tti_packed_write(ds, dir, split, report);
    tutti_dataset_destroy(ds);
    return st;
}

static tutti_status pack_images(const tutti_dataset_desc *source, const char *dir,
                                tti_str *report) {
    TTI_TRY(pack_split(source, TUTTI_TRAIN, dir, report));
    return pack_split(source, TUTTI_TEST, dir, report);
}

tutti_status tutti_dataset_pack(const tutti_dataset_desc *source, const tutti_pack_desc *desc,
                                char **report) {
    *report = NULL;
    const tti_format *format = NULL;
    TTI_TRY(tti_format_find(source->format, &format));
    TTI_TRY(tti_dataset_check_desc(source));
    if (!desc->dir || !desc->dir[0] || desc->shard_tokens < 0)
        return tti_fail(TUTTI_E_INVALID, "data: pack needs a folder, and shard_tokens >= 0");
    if (!format->pack && !format->packs_images)
        return tti_fail(TUTTI_E_UNSUPPORTED, "data: data.format=%s cannot be packed", format->name);
    if (mkdir(desc->dir, 0777) != 0 && errno != EEXIST)
        return tti_fail(TUTTI_E_IO, "%s: cannot make the folder: %s", desc->dir, strerror(errno));
    tti_str text = {0};
    tutti_status st =
        format->pack ? format->pack(source, desc, &text) : pack_images(source, desc->dir, &text);
    if (st == TUTTI_OK && text.failed) st = tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    if (st == TUTTI_OK)
        *report = text.text;
    else
        tti_str_free(&text);
    return st;
}
