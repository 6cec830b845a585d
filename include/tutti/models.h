/* models.h - built-in models, chosen by name, and their parameters.
 *
 * A model is a C function that builds a graph with the calls of tutti/ops.h.  Pass a function of
 * your own to tutti_job_set_model, or name a shared object with a function tutti_build_model in the
 * job key model.plugin.  Tensor names are torchvision's for networks of images, Hugging Face's
 * for gpt2 and bert. */
#ifndef TUTTI_MODELS_H
#define TUTTI_MODELS_H

#include "tutti/job.h"

enum { TUTTI_MODEL_MAX_HIDDEN = 16, TUTTI_MODEL_MAX_STAGES = 8 };

/* Passed to a built-in model as its user pointer, and to a plugin as params.  Zero is the default
 * of every field but n_classes. */
typedef struct tutti_model_params {
    int64_t n_classes; /* width of the logits, >= 1: classes, or tokens of a language */
    double dropout;    /* dropout probability, for models that have dropout; 0: none */
    double drop_path;  /* probability of skipping the last residual branch, lower for earlier ones;
                          0: none; for models that have residual branches */

    /* mlp */
    int n_hidden;                           /* hidden layers */
    int64_t hidden[TUTTI_MODEL_MAX_HIDDEN]; /* their widths */

    /* images */
    bool small_images; /* first layer of 3x3 without stride or pooling; vgg: linear layers of 512
                          instead of 4096 */
    double width_multiplier; /* mobilenet, efficientnet, densenet, regnet: factor of the number of
                                channels; 0: 1 */
    bool batch_norm;         /* vgg: after every convolution */
    bool zero_init_residual; /* resnet, regnet: initialize residual branches to zero */
    int64_t patch;           /* vit: side of a patch; 0: 16 */
    int64_t window;          /* swin: side of an attention window; 0: 7 */
    int n_stages;            /* convnext, swin: numbers in depths; 0: from size */
    int64_t depths[TUTTI_MODEL_MAX_STAGES]; /* blocks of each stage */
    bool bilinear; /* unet: bilinear upsampling instead of transposed convolutions */

    /* tokens */
    const char *size;   /* a named size, for models that have them; NULL: tutti_model.size */
    int64_t n_layers;   /* 0 in this field and the next two: from size */
    int64_t n_heads;    /* divides the width */
    int64_t width;      /* features per position between layers */
    int64_t context;    /* number of positions: largest tokens per sample; 0: as many as x has */
    int64_t vocabulary; /* number of tokens; 0: n_classes */
    bool classify;      /* bert: logits [N,n_classes] of the sample from its first token,
                           not [N,T,vocabulary] of every token */
    bool padded;        /* bert: samples may end in pad_token, which is ignored */
    int64_t pad_token;

    /* gpt2, bert, vit: values that a config.json of Hugging Face may set */
    const char *activation; /* gelu, gelu_tanh, relu, silu, tanh or sigmoid; NULL: gelu_tanh for
                               gpt2, gelu for bert and vit */
    double norm_eps;   /* eps of layer norms; 0: 1e-12 for bert, 1e-5 for gpt2 and swin, 1e-6 for
                          vit and convnext */
    int64_t mlp_width; /* hidden features of a block's MLP; 0: 4 x width */
    bool unscaled_attention; /* do not divide attention scores by sqrt(width of a head) */
    bool attention_by_layer; /* divide attention scores by 1 + the number of the layer */
    bool untied;        /* the output layer has its own table instead of sharing the token table */
    int64_t n_segments; /* bert: rows of the segment table; 0: 2 */
} tutti_model_params;

/* The kind of input x. */
typedef enum tutti_model_input {
    TUTTI_MODEL_ANY,    /* floats [N,...]                                         */
    TUTTI_MODEL_IMAGES, /* floats [N,C,H,W]                                       */
    TUTTI_MODEL_TOKENS, /* i32 [N,T]; logits [N,T,vocabulary] unless it classifies */
} tutti_model_input;

/* Builds the graph that decodes one token: tokens i32[N,1] at position pos i32[1] -> logits
 * [N,1,vocabulary], with the parameters of the model.  For layer i = 0, 1, ... it adds inputs
 * "k_cache.i" and "v_cache.i" f32[N,context,width], and outputs of the same names with the caches
 * for the next position. */
typedef tutti_value *(*tutti_decode_fn)(tutti_graph *g, tutti_value *tokens, tutti_value *pos,
                                        const tutti_model_params *params);

/* A replacement in the name of a parameter.  The replacements of a list are applied in order, each
 * to the first occurrence of `ours`, if there is one; {NULL, NULL} ends the list.  '^' as the first
 * character of `ours` matches the beginning of the name.  "{a|b|c}" in `theirs` stands for three
 * tensors a, b and c that are joined along dimension 0. */
typedef struct tutti_weight_alias {
    const char *ours, *theirs;
} tutti_weight_alias;

typedef struct tutti_model {
    const char *name;
    const char *doc; /* one line */
    tutti_model_input input;
    tutti_model_fn build;   /* user is a const tutti_model_params * */
    tutti_decode_fn decode; /* NULL: the model cannot generate text */

    /* Patterns (* matches any text) of weights that are [out,in] in Tutti and [in,out] in Hugging
     * Face's files; ends with NULL. NULL: none. */
    const char *const *transposed;

    /* The names of parameters in files of other programs: a list of replacements for each program;
     * the last list is NULL.  NULL: none. */
    const tutti_weight_alias *const *aliases;

    /* Patterns of tensors in such files that the model does not need; ends with NULL.  NULL: none.
     */
    const char *const *surplus;

    /* Default size and activation; NULL: the model has no such choice. */
    const char *size, *activation;

    bool scales_width; /* reads width_multiplier */
} tutti_model;

TUTTI_EXTERN_C_BEGIN

/* Returns model i = 0, 1, ... in alphabetic order, NULL after the last. */
TUTTI_API const tutti_model *tutti_model_at(int i);

/* Describes a model file that another framework exported (.pt2, .onnx) as text: inputs, outputs,
 * parameters, operators.  Free *text with free(); NULL on failure.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_model_describe(const char *path, char **text);

/* Writes such a model into a new or empty folder, as graph.json and model.safetensors, which
 * model.file accepts in place of the file.  TUTTI_E_UNSUPPORTED names all operators that cannot be
 * trained.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_model_import(const char *path, const char *dir);

/* Returns the name of operator i = 0, 1, ... that model files may have, in alphabetic order:
 * "aten.add.Tensor", "onnx.Conv"; NULL after the last.
 */
TUTTI_API const char *tutti_model_operator_at(int i);

/* Finds a model by name; NULL if there is none. */
TUTTI_API const tutti_model *tutti_model_find(const char *name);

TUTTI_EXTERN_C_END

#endif /* TUTTI_MODELS_H */
