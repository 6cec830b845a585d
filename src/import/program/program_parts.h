/* program_parts.h - reads many tensors of a program with several threads. */
#ifndef TTI_IMPORT_PROGRAM_PARTS_H
#define TTI_IMPORT_PROGRAM_PARTS_H

#include "base/files/read_ahead.h"
#include "import/program/program.h"

/* Passes the elements of n tensors to take, as f32, on the calling thread. Parts begin at multiples
 * of TTI_PART_ELEMS. Tensors that are not contiguous, or share an entry of the archive, are passed
 * whole. A checksum is checked before take gets the last part of its tensor. Returns the error of
 * the first tensor that fails (see tti_program_load), or of take. */
tutti_status tti_program_read_parts(const tti_program_file *program,
                                    const tti_input_spec *const *specs, int n,
                                    const tti_readers *readers, tti_take_part_fn take, void *user);

#endif /* TTI_IMPORT_PROGRAM_PARTS_H */
