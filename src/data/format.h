/* format.h - the interface of a format, and the table of formats.
 *
 * A format opens a source of samples as they are stored (u8 pixels or i32 tokens); the source's
 * decode chain of transforms (transform.h) turns them into model inputs.  Code outside of data/
 * reads samples through dataset.h. */
#ifndef TTI_DATA_FORMAT_H
#define TTI_DATA_FORMAT_H

#include "base/str.h"
#include "data/data_spec.h"
#include "data/masking.h"
#include "data/transform.h"
#include "data/workspace.h"
#include "tutti/data.h"

/* The labels that a field may have: 0 .. n_classes-1, and one that does not count. */
typedef struct tti_expected_labels {
    int field; /* index of a field of whole numbers */
    int64_t n_classes;
    bool has_ignored;
    int64_t ignored;
    bool is_of_model; /* the model's own loss takes them, not train.loss */
} tti_expected_labels;

/* Samples as a format opens them: functions, and what these work on. */
typedef struct tti_source tti_source;
struct tti_source {
    tutti_dataset_info info; /* x: after decode, set by tutti_dataset_open */
    tutti_type stored;       /* of one sample, as read gives it            */
    tti_chain decode;        /* stored -> info.x; owned                    */

    /* Sample index (checked by the caller) into x, of type stored, and y.  Any thread, any order.
     * A failure names the file. */
    tutti_status (*read)(const tti_source *source, int64_t index, void *x, int32_t *y);
    /* Instead of read, where samples differ in size: fetch puts sample index into ws->file as it
     * lies in its file, unpack makes a sample of type stored of that; how (a random crop) may
     * depend on the key. */
    tutti_status (*fetch)(const tti_source *source, int64_t index, tti_workspace *ws, int32_t *y);
    tutti_status (*unpack)(const tti_source *source, const tti_sample_key *key, tti_workspace *ws,
                           void *x);
    /* The label of a sample alone, where reading the sample takes longer; NULL: read gives it. */
    tutti_status (*label)(const tti_source *source, int64_t index, int32_t *y);
    const char *(*class_name)(const tti_source *source, int64_t label); /* NULL: no names */
    /* tti_dataset_expect_labels; checks: all labels at once, if they lie in moderately large
     * arrays. NULL: the format knows its labels itself. */
    tutti_status (*expect_labels)(tti_source *source, const tti_expected_labels *range,
                                  bool checks);
    tti_masking masking; /* of samples of tokens, by tti_dataset_read                */
    uint32_t listing;    /* CRC-32C of the names and sizes that the format lists; 0: none */
    size_t late_bytes;   /* bytes that are allocated as samples are first read */
    bool is_fixed;       /* a stored sample is the same in every epoch, and soon read */
    bool is_drawn;       /* samples are computed: no file is read, so reading cannot block */
    tti_str notices;     /* messages for the user: values filled in, or columns left out */
    void (*close)(tti_source *source); /* frees state; cannot fail */
    void *state;                       /* of the format; of images it begins with a tti_image_set */
    tutti_tokenizer *tokenizer;        /* shared; NULL: none */
    const tti_data_spec *spec;         /* shared; complete once the data set is open */
    tti_data_spec *new_spec;           /* spec while it is filled; NULL: it was given */
};

/* One row of the table of formats. */
typedef struct tti_format {
    const char *name; /* what data.format says */
    const char *doc;  /* one line              */
    /* Fills stored, info (except info.x), decode, read, close and state of a zeroed source with a
     * spec.  desc->spec is that of source or NULL: then also fills the part of it that only the
     * format knows. With a spec, opening the test split reads no file of the training split.  On
     * failure all resources are released. */
    tutti_status (*open)(const tutti_dataset_desc *desc, tti_source *source);
    /* Images, which tutti_dataset_pack writes as the format "packed"; state begins with a
     * tti_image_set. */
    bool packs_images;
    /* For other formats: writes both splits in packed form into desc->dir, which exists, and a line
     * per file into report; NULL: there is no packed form. */
    tutti_status (*pack)(const tutti_dataset_desc *source, const tutti_pack_desc *desc,
                         tti_str *report);
} tti_format;

#define TTI_FORMAT_ROW(name) extern const tti_format tti_format_##name;
TTI_FORMATS(TTI_FORMAT_ROW)
#undef TTI_FORMAT_ROW

/* Converts u8 samples to model inputs by (pixel/255 - mean) / std.  Stored in source->spec
 * if the desc has none; TUTTI_E_INVALID if its specification has other values. */
tutti_status tti_source_set_pixels(const tutti_dataset_desc *desc, const tti_pixel_spec *pixels,
                                   tti_source *source);

/* The same with desc->mean and desc->std for all elements of type source->stored, and the step for
 * it.
 */
tutti_status tti_source_normalise(const tutti_dataset_desc *desc, tti_source *source);

/* The format of a data set that has no files, known from its specification alone
 * (tutti_dataset_desc). */
extern const tti_format tti_format_no_files;

/* y of a sample with n values: of one a number, of several [n]; 0: a class. */
static inline tutti_type tti_target_type(int64_t n) {
    return n > 1 ? (tutti_type){TUTTI_I32, TUTTI_SHAPE(n)} : (tutti_type){TUTTI_I32, {0}};
}

/* Formats in order of the table: i = 0, 1, ... until NULL. */
const tti_format *tti_format_at(int i);

/* TUTTI_E_INVALID that lists the formats if none has this name. */
tutti_status tti_format_find(const char *name, const tti_format **out);

/* TUTTI_E_INVALID for values that no format can have. */
tutti_status tti_dataset_check_desc(const tutti_dataset_desc *desc);

/* TUTTI_E_IO becomes TUTTI_E_DATA: data that cannot be read is an error of the data. */
tutti_status tti_as_data_error(tutti_status st);

#endif /* TTI_DATA_FORMAT_H */
