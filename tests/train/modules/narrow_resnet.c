/* narrow_resnet.c - the network of narrow_resnet.h as a plugin (model.plugin), for tests of the
 * program. */
#include "train/narrow_resnet.h"

TUTTI_API tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *user);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *user) {
    return narrow_resnet(g, x, user);
}
