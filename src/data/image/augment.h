/* augment.h - the augmentations of images, and their notation in a job.
 *
 *     data.augment: "random_resized_crop, flip, colour_jitter=0.4"
 *
 * Every random number is a Philox draw from (seed, name of the step, epoch, index of the sample):
 * an image looks the same whichever thread loads it. */
#ifndef TTI_DATA_AUGMENT_H
#define TTI_DATA_AUGMENT_H

#include "base/str.h"
#include "data/image/image.h"
#include "data/transform.h"

/* Zero: nothing. */
typedef struct tti_augment {
    double min_area; /* random_resized_crop: smallest share of the image; 0: no such crop */
    double flip;     /* probability of a mirror image                                       */
    double jitter;   /* colour_jitter: brightness, contrast, saturation change by 1 +- this */
    int64_t pad;     /* pad_crop: black pixels on each side                                 */
    int64_t cutout;  /* side of the square that becomes the mean colour                     */
} tti_augment;

/* Reads words between commas, each with an optional "=number": random_resized_crop=0.08, flip=0.5,
 * colour_jitter=0.4, pad_crop=4, cutout=16.  "" and "none": nothing.  NULL and "auto": *usual.
 * TUTTI_E_INVALID says which words there are. */
tutti_status tti_augment_parse(const char *text, const tti_augment *usual, tti_augment *out);

/* Whether it is nothing at all. */
bool tti_augment_is_none(const tti_augment *a);

/* The steps as tti_augment_parse reads them: "none", or "flip=0.5, pad_crop=4". */
void tti_augment_print(const tti_augment *augment, tti_str *out);

/* Three numbers between commas; NULL and "auto": usual. */
tutti_status tti_channels_parse(const char *text, const char *key, const double usual[3],
                                double out[3]);

/* torchvision's RandomResizedCrop: area min_area .. 1, ratio 3/4 .. 4/3, ten tries, else the
 * middle. */
tti_box tti_random_box(int64_t h, int64_t w, double min_area, const tti_sample_key *key);

bool tti_random_flip(double probability, const tti_sample_key *key);

/* Where the image that pad_crop keeps begins: row and column -pad .. pad. */
void tti_random_shift(int64_t pad, const tti_sample_key *key, int64_t *dy, int64_t *dx);

/* Steps for a chain (transform.h) over images u8 [S,S,3].  The first two keep the type. */
tutti_status tti_pad_crop_create(int64_t size, int64_t pad, tti_transform **out);

/* PIL's ImageEnhance.Brightness, Contrast and Color, in random order. */
tutti_status tti_colour_jitter_create(int64_t size, double strength, tti_transform **out);

/* To f32 [3,S,S]: (pixel/255 - mean[c]) / std[c]; cutout > 0 makes a square of zeros of that side,
 * cut off at the edges, its middle anywhere. */
tutti_status tti_to_float_create(int64_t size, const double mean[3], const double std[3],
                                 int64_t cutout, tti_transform **out);

#endif /* TTI_DATA_AUGMENT_H */
