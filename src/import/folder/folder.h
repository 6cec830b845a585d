/* folder.h - programs stored as a folder with graph.json and model.safetensors. */
#ifndef TTI_IMPORT_FOLDER_H
#define TTI_IMPORT_FOLDER_H

#include "import/program/program.h"

/* Open reads a folder that tti_folder_save wrote; the caller closes *out with tti_program_close.
 * Save writes a program to a new or empty folder. Errors: those of safetensors.h. */
tutti_status tti_folder_open(const char *path, tti_program_file **out);
tutti_status tti_folder_save(const tti_program_file *program, const char *path);

#endif /* TTI_IMPORT_FOLDER_H */
