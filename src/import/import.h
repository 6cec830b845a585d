/* import.h - builds graphs of models that other frameworks exported (.pt2, ONNX). */
#ifndef TTI_IMPORT_IMPORT_H
#define TTI_IMPORT_IMPORT_H

#include "base/files/read_ahead.h"
#include "base/str.h"
#include "import/program/labels.h"
#include "tutti/graph.h"

typedef struct tti_import tti_import;

/* Opens a model file (.pt2, .onnx) or a folder that tti_import_save wrote. Runs no code from the
 * file. Errors: TUTTI_E_CHECKPOINT (missing, damaged), TUTTI_E_UNSUPPORTED (schema version). On
 * success the caller owns *out. It is read-only: several threads may use it at the same time. */
tutti_status tti_import_open(const char *path, tti_import **out);

/* TUTTI_E_UNSUPPORTED: the message lists all unsupported operators with their counts and
 * modules. */
tutti_status tti_import_check(const tti_import *import);

void tti_import_close(tti_import *import); /* NULL is a no-op */

/* Writes the model as graph.json and model.safetensors into the folder dir, which is created if
 * missing. Errors: TUTTI_E_IO, TUTTI_E_UNSUPPORTED (graphs nested too deeply). */
tutti_status tti_import_save(const tti_import *import, const char *dir);

const char *tti_import_path(const tti_import *import);
bool tti_import_is_archive(
    const tti_import *import); /* the model is a single .pt2 file, which may be copied */
const char *tti_import_note(
    const tti_import *import); /* a note to print before training; NULL: none */

/* Appends a readable description of the file: inputs, outputs, parameters, operators. */
void tti_import_describe(const tti_import *import, tti_str *out);

/* The inputs, 0 <= i < n. Integers of any width are i32 in Tutti. */
int tti_import_n_inputs(const tti_import *import);
const char *tti_import_input_name(const tti_import *import, int i);
/* The type of input i in the graph for n_samples samples, or for the number that the file fixes. */
tutti_type tti_import_input_type(const tti_import *import, int i, int64_t n_samples);
/* The number of rows of input i if the file fixes it; 0: any number. */
int64_t tti_import_fixed_rows(const tti_import *import, int i);
bool tti_import_input_is_float(const tti_import *import, int i);
bool tti_import_input_is_bool(const tti_import *import, int i);

/* The samples of a shard. present: i32 [rows], -1 for a row that is padding; sums, means and losses
 * over the batch ignore padding. NULL: no row is padding. */
typedef struct tti_import_samples {
    tutti_value *const *inputs; /* [tti_import_n_inputs], dimension 0 is the batch */
    tutti_value *present;
    tti_import_labels *labels; /* output of the build; NULL: not wanted */
} tti_import_samples;

/* Adds the model to g and sets outputs [tti_import_n_outputs] to its results. Parameters and
 * buffers have their state_dict names; the graph does not contain their values.
 * TUTTI_E_UNSUPPORTED: the message names the operator and its module. */
tutti_status tti_import_build(const tti_import *import, tutti_graph *g,
                              const tti_import_samples *samples, tutti_value **outputs);
int tti_import_n_outputs(const tti_import *import);
/* The name of output i in the file, or "output_I" if it has none. All names are different. */
const char *tti_import_output_name(const tti_import *import, int i);

/* True if the file marks a parameter as not trained (requires_grad=False). False for all parameters
 * if the file marks every one, as it does for a model prepared for inference. */
bool tti_import_is_fixed(const tti_import *import, const char *name);

/* A tensor of the module's state_dict. in_graph: its name in the graph, which differs if it shares
 * another parameter; NULL: it is not in the graph. */
typedef struct tti_import_tensor {
    const char *name, *in_graph;
    tutti_type type; /* f32, or i64 for integers and booleans */
} tti_import_tensor;

int tti_import_n_state(const tti_import *import);
tti_import_tensor tti_import_state_at(const tti_import *import, int i);

/* Reads state_dict tensor i to dst [n_elems], with the type that tti_import_state_at returns. */
tutti_status tti_import_read_state(const tti_import *import, int i, void *dst);

/* A parameter or buffer of the graph, by name. */
typedef struct tti_import_wanted {
    const char *name;
    int64_t n_elems;
} tti_import_wanted;

/* Reads the n tensors of wanted and passes their elements to take, with the index in wanted.
 * readers: threads that read (NULL: the calling thread); take is always called on the calling
 * thread. TUTTI_E_CHECKPOINT: the file is damaged. TUTTI_E_INTERNAL: the model has no tensor of
 * that name. Also returns errors of take. */
tutti_status tti_import_load(const tti_import *import, const tti_import_wanted *wanted, int n,
                             const tti_readers *readers, tti_take_part_fn take, void *user);

/* The name of supported operator i, in alphabetic order; NULL after the last one. */
const char *tti_operator_name_at(int i);

/* Appends a Markdown page with all operators, their arguments and limits. */
void tti_operators_page(tti_str *out);

#endif /* TTI_IMPORT_IMPORT_H */
