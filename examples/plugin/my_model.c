/* my_model.c - a model of one's own: a small residual network, in a shared object.
 *
 *   cc -shared -fPIC -o my_model.so my_model.c $(pkg-config --cflags tutti)
 *   tutti train plugin.yaml
 * It is linked with nothing: what it calls is in the program that opens it.  It is called once for
 * training and once for evaluation; x is what data.format gives, a shard at a time. */
#include <stdio.h>
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *user);

static tutti_value *block(tutti_graph *g, tutti_value *x, int i) {
    char name[32];
    tutti_conv2d_desc conv = {.n_out = 16, .kernel = 3, .pad = 1, .no_bias = true};
    snprintf(name, sizeof name, "conv%d", i);
    tutti_value *y = tutti_conv2d(g, x, &conv, name);
    snprintf(name, sizeof name, "norm%d", i);
    return tutti_relu(g, tutti_add(g, x, tutti_batch_norm2d(g, y, NULL, name)));
}

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *params = user;
    if (tutti_value_type(x).shape.n_dims != 4)
        return tutti_graph_refuse(g, "my_model: wants images, [N,C,H,W]");
    x = tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = 16, .kernel = 3, .stride = 2}, "stem");
    for (int i = 1; i <= 2; i++) x = block(g, x, i);
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 4, 4));
    if (params->dropout > 0) x = tutti_dropout(g, x, params->dropout, "drop");
    return tutti_linear(g, x, params->n_classes, "fc");
}
