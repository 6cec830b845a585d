/* pt2.h - declarations shared by the files that read .pt2 archives. */
#ifndef TTI_IMPORT_PT2_H
#define TTI_IMPORT_PT2_H

#include "base/json_read.h"
#include "import/program/program.h"

/* Reads a .pt2 file; on success the caller owns *out. Errors: those of archive.h.
 * TUTTI_E_UNSUPPORTED: another schema version, or an unsupported element type or dimension. */
tutti_status tti_pt2_open(const char *path, tti_program_file **out);

/* The same from an archive, of which it takes ownership, also after a failure. */
tutti_status tti_pt2_read(tti_archive *archive, tti_program_file **out);

enum {
    TTI_PT2_MAX_JSON = 512 << 20, /* bytes of a JSON entry                  */
    TTI_PT2_MAX_NODES = 1 << 20,
    TTI_PT2_MAX_LIST = 1 << 16, /* elements of one list argument          */
    TTI_PT2_MAX_DEPTH = 8       /* graphs inside graphs                   */
};

/* Reads an object that represents a union: the key and the value of its only member, borrowed. */
tutti_status tti_pt2_union(const char *what, const json_t *object, const char **key,
                           json_t **value);

/* Reads a JSON "Graph"; depth is the number of enclosing graphs. */
tutti_status tti_pt2_block(const char *what, tti_arena *arena, const json_t *graph, int depth,
                           tti_block *out);

/* Fills p->inputs and p->outputs from the member "signature" of module, except the positions of
 * tensors. p->main must be read already. */
tutti_status tti_pt2_signature(tti_program_file *p, const json_t *module, const json_t *graph);

/* Reads the names of n outputs from the member "module_call_graph" of a module, into the arena.
 * Sets all or none of names [n] (pt2_tree.c). */
void tti_pt2_output_names(tti_arena *arena, const json_t *module, int n, const char **names);

/* Sets p->extras to the tensors of the object lines (NULL: none) that are not inputs of p, with
 * names and kinds (member "is_param") but without positions. */
tutti_status tti_pt2_list_extras(tti_program_file *p, json_t *lines);

/* Converts PyTorch's number of an element type. TUTTI_E_UNSUPPORTED: the type is not supported. */
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
