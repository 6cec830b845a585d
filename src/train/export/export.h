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

/* True if the model is a ResNet. */
bool tti_is_resnet(const tti_blueprint *b);

/* Appends config.json of Hugging Face.  TUTTI_E_UNSUPPORTED: the model is not gpt2, bert or resnet,
 * or is a ResNet whose first layer is for small images. */
tutti_status tti_export_config(const tti_blueprint *b, tti_str *out);

/* Appends tokenizer_config.json, which transformers reads together with tokenizer.json. */
void tti_export_tokenizer_config(const tti_blueprint *b, const tutti_tokenizer *t, tti_str *out);

/* Appends preprocessor_config.json, which describes how the data set prepares images for
 * evaluation. */
void tti_export_preprocessor_config(const tti_data_spec *spec, tti_str *out);

#endif /* TTI_TRAIN_EXPORT_H */
