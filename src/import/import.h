/* import.h - builds graphs of models that other frameworks exported (.pt2, ONNX). */
#ifndef TTI_IMPORT_IMPORT_H
#define TTI_IMPORT_IMPORT_H

#include "base/files/read_ahead.h"
#include "base/str.h"
#include "import/program/labels.h"
#include "tutti/graph.h"

typedef struct tti_import tti_import;

/* Reads a model file (.pt2, .onnx) or a folder of tti_import_save.  No code in it is run.  Errors:
 * TUTTI_E_CHECKPOINT (missing, damaged), TUTTI_E_UNSUPPORTED (schema version).  On success *out is
 * owned by the caller; it is read-only, and any number of threads may build graphs from it. */
tutti_status tti_import_open(const char *path, tti_import **out);

/* TUTTI_E_UNSUPPORTED with all operators that are not supported, their counts and modules. */
tutti_status tti_import_check(const tti_import *import);

void tti_import_close(tti_import *import); /* NULL is a no-op */

/* Writes the model as graph.json and model.safetensors into a folder, which is made if it is not
 * there.  Errors: TUTTI_E_IO, TUTTI_E_UNSUPPORTED (graphs inside graphs). */
tutti_status tti_import_save(const tti_import *import, const char *dir);

const char *tti_import_path(const tti_import *import);
bool tti_import_is_archive(const tti_import *import); /* one .pt2 file, which may be copied */
const char *tti_import_note(
    const tti_import *import); /* for the user, before training; NULL: none */

/* Describes the file for people: inputs, outputs, parameters, operators. */
void tti_import_describe(const tti_import *import, tti_str *out);

/* Inputs in order: i < n.  Integers of any width are i32 in Tutti. */
int tti_import_n_inputs(const tti_import *import);
const char *tti_import_input_name(const tti_import *import, int i);
/* As the graph takes it for so many samples, or for as many as the file fixes. */
tutti_type tti_import_input_type(const tti_import *import, int i, int64_t n_samples);
/* The number of rows of an input that the file fixes; 0: any. */
int64_t tti_import_fixed_rows(const tti_import *import, int i);
bool tti_import_input_is_float(const tti_import *import, int i);
bool tti_import_input_is_bool(const tti_import *import, int i);

/* The samples of a shard.  present: i32 [rows], -1 where a row is padding, which sums, means and
 * losses over the batch leave out; NULL: no row is padding. */
typedef struct tti_import_samples {
    tutti_value *const *inputs; /* [tti_import_n_inputs], dimension 0 is the batch */
    tutti_value *present;
    tti_import_labels *labels; /* set by the build; NULL: not wanted */
} tti_import_samples;

/* Adds the model to a graph.  outputs
 * [tti_import_n_outputs]: its results.  Parameters and buffers have their state_dict names; the
 * graph does not hold their values.  Failures: TUTTI_E_UNSUPPORTED, with operator and module. */
tutti_status tti_import_build(const tti_import *import, tutti_graph *g,
                              const tti_import_samples *samples, tutti_value **outputs);
int tti_import_n_outputs(const tti_import *import);
/* The name that the file gives an output, or "output_0" with its number; all are different. */
const char *tti_import_output_name(const tti_import *import, int i);

/* Whether the file says that a parameter of the graph is not trained (requires_grad).  False for
 * all if it says so of every parameter, as a model that was prepared for inference does. */
bool tti_import_is_fixed(const tti_import *import, const char *name);

/* A tensor of the module's state_dict.  in_graph: its name in the graph, which is its own or that
 * of the parameter that it shares; NULL: it is not in the graph. */
typedef struct tti_import_tensor {
    const char *name, *in_graph;
    tutti_type type; /* f32, or i64 of integers and booleans */
} tti_import_tensor;

int tti_import_n_state(const tti_import *import);
tti_import_tensor tti_import_state_at(const tti_import *import, int i);

/* Its elements as stored in the file: dst [n_elems] of that type. */
tutti_status tti_import_read_state(const tti_import *import, int i, void *dst);

/* A parameter or buffer of the graph, by name. */
typedef struct tti_import_wanted {
    const char *name;
    int64_t n_elems;
} tti_import_wanted;

/* Reads n tensors and passes their elements to take, which gets their number in wanted.  readers
 * NULL: the calling thread reads.  TUTTI_E_CHECKPOINT: the file is damaged; TUTTI_E_INTERNAL: a
 * name that the model does not have; whatever take returns. */
tutti_status tti_import_load(const tti_import *import, const tti_import_wanted *wanted, int n,
                             const tti_readers *readers, tti_take_part_fn take, void *user);

/* Operators that are supported, in alphabetic order: i = 0, 1, ... until NULL. */
const char *tti_operator_name_at(int i);

/* Appends the tables of all operators with their arguments and limits, in Markdown. */
void tti_operators_page(tti_str *out);

#endif /* TTI_IMPORT_IMPORT_H */
