/* weight_names_test.c - names of a resnet as transformers has them.  That a whole model of ours
 * loads there, tests/golden/make_exchange.py has seen; prefixes and old names are in
 * tests/cli/cmd_export_test.py. */
#include "train/setup/weight_names.h"

#include "t.h"

T_CASE(resnet_of_transformers) {
    T_UNUSED;
    static const char *const pairs[][2] = {
        {"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
        {"bn1.running_mean", "resnet.embedder.embedder.normalization.running_mean"},
        {"layer1.0.conv1.weight", "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"},
        {"layer1.0.bn2.bias", "resnet.encoder.stages.0.layers.0.layer.1.normalization.bias"},
        {"layer3.22.conv3.weight", "resnet.encoder.stages.2.layers.22.layer.2.convolution.weight"},
        {"layer4.2.bn3.running_var",
         "resnet.encoder.stages.3.layers.2.layer.2.normalization.running_var"},
        {"layer2.0.downsample.0.weight",
         "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"},
        {"layer2.0.downsample.1.weight",
         "resnet.encoder.stages.1.layers.0.shortcut.normalization.weight"},
        {"fc.bias", "classifier.1.bias"},
    };
    char name[TTI_WEIGHT_NAME];
    for (size_t i = 0; i < TTI_COUNT(pairs); i++) {
        assert_true(tti_weight_hf_resnet(pairs[i][0], name));
        assert_string_equal(name, pairs[i][1]);
    }
}

T_CASE(names_of_other_models) {
    T_UNUSED;
    static const char *const names[] = {"",
                                        "conv2.weight",
                                        "layer0.0.conv1.weight",
                                        "layer1.conv1.weight",
                                        "layer1.0.",
                                        "layer1.0.conv",
                                        "layer1.0.conv1",
                                        "layer1.0.linear1.weight",
                                        "layer12.0.conv1.weight",
                                        "transformer.h.0.ln_1.weight"};
    char name[TTI_WEIGHT_NAME];
    for (size_t i = 0; i < TTI_COUNT(names); i++)
        if (tti_weight_hf_resnet(names[i], name)) fail_msg("%s became %s", names[i], name);
    char longest[2 * TTI_WEIGHT_NAME];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "fc.", 3);
    longest[sizeof longest - 1] = '\0';
    assert_false(tti_weight_hf_resnet(longest, name));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(resnet_of_transformers),
                                       cmocka_unit_test(names_of_other_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
