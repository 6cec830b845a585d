/* vgg_test.c - sizes and names are torchvision's. */
#include "models/models_count.h"

typedef struct known {
    const char *name;
    bool batch_norm;
    int n_params;
    int64_t n_elems;
} known;

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const known models[] = {{"vgg11", false, 22, 132863336}, {"vgg11", true, 38, 132868840},
                                   {"vgg13", false, 26, 133047848}, {"vgg13", true, 46, 133053736},
                                   {"vgg16", false, 32, 138357544}, {"vgg16", true, 58, 138365992}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tutti_model_params params = {.n_classes = 1000, .batch_norm = models[i].batch_norm};
        tutti_graph *g = model_build(models[i].name, &params, &TUTTI_SHAPE(1, 3, 224, 224));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, models[i].n_params);
        T_EQ(c.n_elems, models[i].n_elems);
        tutti_graph_destroy(g);
    }
}

T_CASE(places_count_relu_and_pooling) {
    T_UNUSED;
    static const model_param plain[] = {{"features.0.weight", "f32[64,3,3,3]"},
                                        {"features.3.weight", "f32[128,64,3,3]"},
                                        {"features.18.bias", "f32[512]"},
                                        {"classifier.0.weight", "f32[4096,25088]"},
                                        {"classifier.6.weight", "f32[1000,4096]"}};
    static const model_param normed[] = {{"features.1.running_mean", "f32[64]"},
                                         {"features.4.weight", "f32[128,64,3,3]"},
                                         {"features.25.weight", "f32[512,512,3,3]"},
                                         {"features.26.bias", "f32[512]"}};
    tutti_model_params params = {.n_classes = 1000, .dropout = 0.5};
    tutti_graph *g = model_build("vgg11", &params, &TUTTI_SHAPE(1, 3, 224, 224));
    model_expect_some(g, plain, 5);
    model_expect_init(g, "classifier.3.weight", TUTTI_INIT_NORMAL, 0.01);
    model_expect_init(g, "features.8.weight", TUTTI_INIT_HE_NORMAL, 0);
    model_expect_init(g, "features.8.bias", TUTTI_INIT_ZEROS, 0);
    T_EQ(model_count(g, "dropout"), 2);
    tutti_graph_destroy(g);
    params.batch_norm = true;
    g = model_build("vgg11", &params, &TUTTI_SHAPE(1, 3, 224, 224));
    model_expect_some(g, normed, 4);
    model_expect_round_trip(g);
}

T_CASE(small_images) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .small_images = true};
    tutti_graph *g = model_build("vgg16", &params, &TUTTI_SHAPE(2, 3, 32, 32));
    model_expect_some(g, &(model_param){"classifier.0.weight", "f32[512,512]"}, 1);
    tutti_graph_destroy(g);
    model_expect_refusal("vgg16", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 16, 16), "max_pool2d");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(places_count_relu_and_pooling),
        cmocka_unit_test(small_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
