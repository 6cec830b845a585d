/* program_parts.h - the elements of many tensors of a program, read by several threads. */
#ifndef TTI_IMPORT_PROGRAM_PARTS_H
#define TTI_IMPORT_PROGRAM_PARTS_H

#include "base/files/read_ahead.h"
#include "import/program/program.h"

/* Passes the elements of n tensors to take, as f32.  Parts begin at multiples of TTI_PART_ELEMS;
 * tensors that do not lie in rows, or share an entry of the archive, come whole.  Where the file
 * has a checksum it is compared before take gets the last part of a tensor.  Errors: those of
 * tti_program_load, of the first tensor that has one, and of take. */
tutti_status tti_program_read_parts(const tti_program_file *program,
                                    const tti_input_spec *const *specs, int n,
                                    const tti_readers *readers, tti_take_part_fn take, void *user);

#endif /* TTI_IMPORT_PROGRAM_PARTS_H */
