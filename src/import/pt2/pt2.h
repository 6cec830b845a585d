/* pt2.h - shared by the files that read .pt2 archives. */
#ifndef TTI_IMPORT_PT2_H
#define TTI_IMPORT_PT2_H

#include "base/json_read.h"
#include "import/program/program.h"

/* Reads a .pt2 file; on success *out is owned by the caller.  Errors: those of archive.h; another
 * schema version, an element type or a dimension that cannot be honored: TUTTI_E_UNSUPPORTED. */
tutti_status tti_pt2_open(const char *path, tti_program_file **out);

/* The same from an archive, which the program owns also after a failure. */
tutti_status tti_pt2_read(tti_archive *archive, tti_program_file **out);

enum {
    TTI_PT2_MAX_JSON = 512 << 20, /* bytes of a JSON entry                  */
    TTI_PT2_MAX_NODES = 1 << 20,
    TTI_PT2_MAX_LIST = 1 << 16, /* elements of one list argument          */
    TTI_PT2_MAX_DEPTH = 8       /* graphs inside graphs                   */
};

/* The one member of an object that stands for a union: its key, and its value. */
tutti_status tti_pt2_union(const char *what, const json_t *object, const char **key,
                           json_t **value);

/* The graph of a JSON "Graph"; depth counts those around it. */
tutti_status tti_pt2_block(const char *what, tti_arena *arena, const json_t *graph, int depth,
                           tti_block *out);

/* Fills p->inputs and p->outputs from the member "signature" of module; p->main is read already.
 * It does not say where tensors lie. */
tutti_status tti_pt2_signature(tti_program_file *p, const json_t *module, const json_t *graph);

/* The names of n outputs by the member "module_call_graph" of a module, in the arena: names [n],
 * all or none of them set (pt2_tree.c). */
void tti_pt2_output_names(tti_arena *arena, const json_t *module, int n, const char **names);

/* Sets p->extras to the tensors of the object lines (NULL: none) that are not inputs of p: names
 * and kinds, by the member "is_param" of each.  Their places are not known yet. */
tutti_status tti_pt2_list_extras(tti_program_file *p, json_t *lines);

/* An element type by PyTorch's number; TUTTI_E_UNSUPPORTED for one that cannot be read. */
tutti_status tti_pt2_elem(const char *what, int64_t code, tti_elem *out);
int tti_pt2_elem_code(tti_elem elem); /* PyTorch's number */

/* dtype, sizes, strides and offset of a JSON "TensorMeta". */
typedef struct tti_pt2_meta {
    tti_elem elem;
    tti_import_shape shape;
    int64_t stride[TUTTI_MAX_DIMS], offset;
} tti_pt2_meta;
tutti_status tti_pt2_read_meta(const char *what, tti_arena *arena, const json_t *object,
                               tti_pt2_meta *out);

#endif /* TTI_IMPORT_PT2_H */
