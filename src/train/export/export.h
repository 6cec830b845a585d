/* export.h - the writers that tutti_export calls. */
#ifndef TTI_TRAIN_EXPORT_H
#define TTI_TRAIN_EXPORT_H

#include "base/str.h"
#include "train/infer/predictor.h"
#include "tutti/export.h"

/* The input of all writers. */
typedef struct tti_exporting {
    tutti_job *job;
    const tti_blueprint *b;
    const tti_predictor *predictor;
    const tutti_export_desc *desc;
    tutti_export_result *result;
} tti_exporting;

/* Whether the model is one of resnet's. */
bool tti_is_resnet(const tti_blueprint *b);

/* config.json of Hugging Face; TUTTI_E_UNSUPPORTED for models other than gpt2, bert and resnet, and
 * for a resnet whose first layer is for small images. */
tutti_status tti_export_config(const tti_blueprint *b, tti_str *out);

/* tokenizer_config.json beside the tokenizer.json of transformers. */
void tti_export_tokenizer_config(const tti_blueprint *b, const tutti_tokenizer *t, tti_str *out);

/* preprocessor_config.json: images as their data set prepares them for evaluation. */
void tti_export_preprocessor_config(const tti_data_spec *spec, tti_str *out);

#endif /* TTI_TRAIN_EXPORT_H */
