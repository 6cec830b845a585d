/* plugin.h - a model in a user's shared object. */
#ifndef TTI_TRAIN_PLUGIN_H
#define TTI_TRAIN_PLUGIN_H

#include "tutti/models.h"

/* Opens the shared object at path, calls its tutti_build_model(g, x, params) and closes it again,
 * because the graph does not refer to it. *logits is the function's result.  Relative paths start
 * at the current directory; no other folder is searched.  The user's code runs with the rights of
 * this process.  TUTTI_E_CONFIG: the object cannot be loaded, with the loader's reason. */
tutti_status tti_plugin_build(const char *path, const tutti_model_params *params, tutti_graph *g,
                              tutti_value *x, tutti_value **logits);

/* The CRC-32C of the file; false if it cannot be read. */
bool tti_plugin_checksum(const char *path, uint32_t *out);

#endif /* TTI_TRAIN_PLUGIN_H */
