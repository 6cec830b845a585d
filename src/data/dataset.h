/* dataset.h - the interface of a format, and the table of formats.
 *
 * A format returns samples as they are stored (u8 pixels or i32 tokens); the data set's decode
 * chain of transforms (transform.h) turns them into model inputs.  Code that reads many samples
 * runs the chain in its own memory: loader.c. */
#ifndef TTI_DATA_DATASET_H
#define TTI_DATA_DATASET_H

#include "base/str.h"
#include "data/data_spec.h"
#include "data/masking.h"
#include "data/skip_list.h"
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

struct tutti_dataset {
    tutti_dataset_info info; /* x: after decode, set by tutti_dataset_open */
    tutti_type stored;       /* of one sample, as read gives it            */
    tti_chain decode;        /* stored -> info.x; owned                    */

    /* Sample index (checked by the caller) into x, of type stored, and y.  Any thread, any order.
     * A failure names the file. */
    tutti_status (*read)(const tutti_dataset *ds, int64_t index, void *x, int32_t *y);
    /* Instead of read, where samples differ in size: fetch puts sample index into ws->file as it
     * lies in its file, unpack makes a sample of type stored of that; how (a random crop) may
     * depend on the key. */
    tutti_status (*fetch)(const tutti_dataset *ds, int64_t index, tti_workspace *ws, int32_t *y);
    tutti_status (*unpack)(const tutti_dataset *ds, const tti_sample_key *key, tti_workspace *ws,
                           void *x);
    /* The label of a sample alone, where reading the sample takes longer; NULL: read gives it. */
    tutti_status (*label)(const tutti_dataset *ds, int64_t index, int32_t *y);
    const char *(*class_name)(const tutti_dataset *ds, int64_t label); /* NULL: no names */
    /* tti_dataset_expect_labels; NULL: the format knows its labels itself. */
    tutti_status (*expect_labels)(tutti_dataset *ds, const tti_expected_labels *range);
    tti_masking masking;  /* of samples of tokens, by tti_dataset_read                */
    tti_skip_list *skips; /* NULL: a bad sample is a failure; owned, set by tutti_dataset_open */
    uint32_t listing;     /* CRC-32C of the names and sizes that the format lists; 0: none */
    size_t late_bytes;    /* bytes that are allocated as samples are first read */
    bool is_fixed;        /* a stored sample is the same in every epoch, and soon read */
    tti_str notices;      /* messages for the user: values filled in, or columns left out */
    void (*close)(tutti_dataset *ds); /* frees state; cannot fail */
    void *state;                      /* of the format            */
    tutti_tokenizer *tokenizer;       /* shared; NULL: none       */
    bool is_kept;                     /* a thread was left in a read: it is never freed */
    tti_data_spec *spec; /* shared; complete once the data set is open: given, or made of this */
};

/* One row of the table of formats. */
typedef struct tti_format {
    const char *name; /* what data.format says */
    const char *doc;  /* one line              */
    /* Fills stored, info (except info.x), decode, read, close and state of a zeroed ds with a spec.
     * desc->spec is that of ds or NULL: then also fills the part of it that only the format knows.
     * With a spec, opening the test split reads no file of the training split.  On failure all
     * resources are released. */
    tutti_status (*open)(const tutti_dataset_desc *desc, tutti_dataset *ds);
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

/* The data specification, which lives as long as ds or another owner. */
tti_data_spec *tti_dataset_spec(const tutti_dataset *ds);

/* The type of one sample as it is stored, and the steps that make a model input of it. */
const tutti_type *tti_dataset_stored(const tutti_dataset *ds);
const tti_chain *tti_dataset_decode(const tutti_dataset *ds);

/* Bytes that are allocated as samples are first read. */
size_t tti_dataset_late_bytes(const tutti_dataset *ds);

/* Reads sample key->index as stored (type stored), and y, with whichever method the format has.
 * *skipped: the sample is bad and the policy is to skip it; x and y are undefined. */
tutti_status tti_dataset_read(const tutti_dataset *ds, const tti_sample_key *key, tti_workspace *ws,
                              void *x, int32_t *y, bool *skipped);

/* The loss takes the labels of a field as classes: from now on a sample with another label cannot
 * be read (TUTTI_E_DATA).  Labels that lie in moderately large arrays are checked at once, unless
 * bad samples are skipped.  Not while another thread reads the data set. */
tutti_status tti_dataset_expect_labels(tutti_dataset *ds, const tti_expected_labels *range);

/* Makes tutti_dataset_destroy do nothing from now on: a loader thread that cannot be stopped still
 * reads the data set. */
void tti_dataset_keep(const tutti_dataset *ds);

/* For formats: converts u8 samples to model inputs by (pixel/255 - mean) / std.  Stored in ds->spec
 * if the desc has none; TUTTI_E_INVALID if its specification has other values. */
tutti_status tti_dataset_set_pixels(const tutti_dataset_desc *desc, const tti_pixel_spec *pixels,
                                    tutti_dataset *ds);

/* The same with desc->mean and desc->std for all elements of type ds->stored, and the step for it.
 */
tutti_status tti_dataset_normalise(const tutti_dataset_desc *desc, tutti_dataset *ds);

/* The format of a data set that has no files, known from ds->spec alone (tutti_dataset_desc). */
extern const tti_format tti_format_no_files;

/* y of a sample with n values: of one a number, of several [n]; 0: a class. */
static inline tutti_type tti_target_type(int64_t n) {
    return n > 1 ? (tutti_type){TUTTI_I32, TUTTI_SHAPE(n)} : (tutti_type){TUTTI_I32, {0}};
}

/* Computes R^2 of each target of a regression: 1 - squared_errors / the sum of squared distances of
 * its values from their mean, all standardised; NAN (undefined) if all its values are equal. */
tutti_status tti_target_r2(const tutti_dataset *ds, const double *squared_errors, double *out);

/* Formats in order of the table: i = 0, 1, ... until NULL. */
const tti_format *tti_format_at(int i);

/* TUTTI_E_INVALID that lists the formats if none has this name. */
tutti_status tti_format_find(const char *name, const tti_format **out);

/* TUTTI_E_INVALID for values that no format can have. */
tutti_status tti_dataset_check_desc(const tutti_dataset_desc *desc);

/* TUTTI_E_IO becomes TUTTI_E_DATA: data that cannot be read is an error of the data. */
tutti_status tti_as_data_error(tutti_status st);

#endif /* TTI_DATA_DATASET_H */
