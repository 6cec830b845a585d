/* predict_masks.c - predicts the class of each pixel at the output's size, then resizes the mask
 * to the size of the image by nearest neighbour. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/image/image.h"
#include "train/infer/predicting.h"

/* True for losses whose outputs are logits. */
static bool gives_logits(const char *loss) {
    static const char *const losses[] = {"cross-entropy", "focal", "dice", "bce"};
    for (size_t i = 0; i < TTI_COUNT(losses); i++)
        if (strcmp(loss, losses[i]) == 0) return true;
    return false;
}

void tti_predict_prepare_masks(tti_predicting *r, const char *loss, const tutti_shape *output) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    int64_t s = info->fields[1].type.shape.dim[0], n_dims = output->n_dims;
    const int64_t *d = output->dim;
    r->is_planar = n_dims == 4 && d[2] == s && d[3] == s;
    bool is_last = n_dims >= 3 && d[1] == s && d[2] == s && n_dims <= 4;
    if (!gives_logits(loss) || (!r->is_planar && !is_last)) return;
    r->side = s;
    r->per_pixel = r->is_planar ? d[1] : n_dims == 4 ? d[3] : 1;
}

/* Returns the most likely class of a pixel; with one logit, 1 if it is above 0. */
static int64_t class_at(const tti_predicting *r, const float *output, int64_t pixel) {
    int64_t n = r->per_pixel, n_pixels = r->side * r->side, best = 0;
    int64_t first = r->is_planar ? pixel : pixel * n, step = r->is_planar ? n_pixels : 1;
    if (n == 1) return output[first] > 0;
    for (int64_t k = 1; k < n; k++)
        if (output[first + k * step] > output[first + best * step]) best = k;
    return best;
}

/* Returns the value that training masks have for a class. */
static uint16_t value_of(const tti_predicting *r, int64_t label) {
    const char *name = tutti_dataset_class_name(r->ds, label);
    return (uint16_t)(name ? atoi(name) : label);
}

tutti_status tti_predict_take_mask(tti_predicting *r, const tti_predict_sample *sample,
                                   const float *output, tutti_prediction *out) {
    int64_t s = r->side, h = sample->h > 0 ? sample->h : s, w = sample->w > 0 ? sample->w : s;
    uint16_t *mask = realloc(r->mask, (size_t)(h * w) * sizeof *mask);
    if (!mask) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for the mask", sample->file);
    r->mask = mask;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            int64_t pixel = (2 * y + 1) * s / (2 * h) * s + (2 * x + 1) * s / (2 * w);
            mask[y * w + x] = value_of(r, class_at(r, output, pixel));
        }
    out->mask = mask;
    out->mask_height = h, out->mask_width = w;
    return TUTTI_OK;
}

tutti_status tutti_prediction_save_mask(const tutti_prediction *prediction, const char *path) {
    TTI_TRY(tti_need(prediction, __func__, "prediction"));
    TTI_TRY(tti_need(path, __func__, "path"));
    struct stat info;
    if (!prediction->mask)
        return tti_fail(TUTTI_E_INVALID, "%s: the prediction has no mask", prediction->file);
    if (lstat(path, &info) == 0)
        return tti_fail(TUTTI_E_IO, "%s: exists already; write masks to an empty folder", path);
    return tti_png_write_labels(path, prediction->mask, prediction->mask_height,
                                prediction->mask_width);
}
