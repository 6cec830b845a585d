/* golden_losses.h - losses of ten training steps, computed by PyTorch 1.13.0a0 in float32.
 *
 * Generated: python3 tests/golden/make_golden.py > tests/golden/golden_losses.h
 * That script says how weights, inputs and labels are made from Philox; batch 16, seed 1.
 * Layers: fc1, fc2, ..., out; conv1, conv2, fc1, fc2 for lenet. */
#ifndef TTI_TESTS_GOLDEN_LOSSES_H
#define TTI_TESTS_GOLDEN_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum { GOLDEN_BATCH = 16, GOLDEN_STEPS = 10, GOLDEN_CLASSES = 10 };
enum { GOLDEN_SEED = 1, GOLDEN_DATA_SEED = 7 };

typedef struct golden_case {
    const char *model;     /* mlp_small: 16-32-10; mlp: 784-512-512-10; lenet */
    const char *optimizer; /* sgd, adam, adamw */
    double lr, momentum;
    bool nesterov;
    double weight_decay; /* of weights; biases have none */
    double beta1, beta2, eps;
    double spread;             /* largest relative difference to the same run in float64 */
    double loss[GOLDEN_STEPS]; /* mean over the batch, before the update */
} golden_case;

typedef struct golden_bits {
    const char *model, *param;
    int n_elems;
    uint64_t hash; /* golden_hash of the initial values */
} golden_bits;

/* clang-format off */
static const golden_bits golden_params[] = {
    {"mlp_small", "fc1.weight", 512, 0xC7123AEF832DAC15U},
    {"mlp_small", "fc1.bias", 32, 0x0763FD11D822F4F1U},
    {"mlp_small", "out.weight", 320, 0xC139C6492F2744DAU},
    {"mlp_small", "out.bias", 10, 0x269DCEC478985C3DU},
    {"mlp", "fc1.weight", 401408, 0x1F25BF3AA2AE6BF6U},
    {"mlp", "fc1.bias", 512, 0x9FD1E77E8C988032U},
    {"mlp", "fc2.weight", 262144, 0xB84EBB45F157FB6BU},
    {"mlp", "fc2.bias", 512, 0x8833295D886528BEU},
    {"mlp", "out.weight", 5120, 0x8FA6B9A4F098A9D1U},
    {"mlp", "out.bias", 10, 0xAED249F1FC985C3DU},
    {"lenet", "conv1.weight", 288, 0x359EFEBC11647E13U},
    {"lenet", "conv1.bias", 32, 0x29A83A123BA0ED8EU},
    {"lenet", "conv2.weight", 18432, 0x4B708AC15BFFC85DU},
    {"lenet", "conv2.bias", 64, 0x20C8FB1915C4B34EU},
    {"lenet", "fc1.weight", 401408, 0x63A09D495FAE6BF6U},
    {"lenet", "fc1.bias", 128, 0xFC99D5FEE9E7E8A8U},
    {"lenet", "fc2.weight", 1280, 0x0055B0C45947C3F6U},
    {"lenet", "fc2.bias", 10, 0xF7FDE2049ED2BFABU},
};
static const uint64_t golden_x_hash = 0x2CD45B39C658CB11U; /* of step 1, 16 x 784 */
static const int golden_labels_step1[GOLDEN_BATCH] = {6, 5, 7, 0, 9, 3, 4, 7, 8, 1, 4, 6, 7, 0, 8, 8};

static const golden_case golden_cases[] = {
    {"mlp_small", "sgd", 0.05, 0.0, false, 0.0, 0.0, 0.0, 0.0, 1.3e-07,
     {2.32844496, 2.32758927, 2.31873679, 2.31550932, 2.30924535,
      2.30371118, 2.29999566, 2.29218245, 2.29096961, 2.28089666}},
    {"mlp_small", "sgd", 0.02, 0.9, false, 0.0005, 0.0, 0.0, 0.0, 7.6e-08,
     {2.32844496, 2.3278923, 2.32120752, 2.31848621, 2.30810523,
      2.30197549, 2.29066348, 2.28027439, 2.27028561, 2.25476742}},
    {"mlp_small", "sgd", 0.02, 0.9, true, 0.0005, 0.0, 0.0, 0.0, 6.7e-08,
     {2.32844496, 2.32770824, 2.31805754, 2.31445575, 2.30259514,
      2.29508162, 2.28354406, 2.27133608, 2.26203704, 2.24436522}},
    {"mlp_small", "adam", 0.001, 0.0, false, 0.0001, 0.9, 0.999, 1e-08, 1.5e-07,
     {2.32844496, 2.32838798, 2.31491494, 2.31807113, 2.30445766,
      2.3072288, 2.2946229, 2.29621387, 2.28508306, 2.28513265}},
    {"mlp_small", "adamw", 0.001, 0.0, false, 0.01, 0.9, 0.999, 1e-08, 1.7e-07,
     {2.32844496, 2.32839012, 2.31491399, 2.31807351, 2.30445743,
      2.30723095, 2.2946229, 2.29621625, 2.28508353, 2.28513575}},
    {"mlp", "sgd", 0.05, 0.0, false, 0.0, 0.0, 0.0, 0.0, 7.8e-08,
     {2.30048513, 2.31845975, 2.24956584, 2.26938176, 2.20075321,
      2.22221565, 2.15303445, 2.1759944, 2.10581923, 2.13025045}},
    {"mlp", "sgd", 0.02, 0.9, false, 0.0005, 0.0, 0.0, 0.0, 6.7e-07,
     {2.30048513, 2.31872606, 2.26158929, 2.28098512, 2.19406438,
      2.21578217, 2.10701227, 2.13178658, 2.00679803, 2.03454924}},
    {"mlp", "sgd", 0.02, 0.9, true, 0.0005, 0.0, 0.0, 0.0, 1.2e-07,
     {2.30048513, 2.31855297, 2.24538755, 2.26531363, 2.16639757,
      2.18903422, 2.07110977, 2.09669757, 1.96329486, 1.99127853}},
    {"mlp", "adam", 0.001, 0.0, false, 0.0001, 0.9, 0.999, 1e-08, 1.9e-07,
     {2.30048513, 2.32304788, 1.73971534, 1.89722037, 1.26055503,
      1.45802224, 0.73667419, 0.950758278, 0.311411709, 0.494742662}},
    {"mlp", "adamw", 0.001, 0.0, false, 0.01, 0.9, 0.999, 1e-08, 6.9e-07,
     {2.30048513, 2.3231926, 1.73981857, 1.89718401, 1.26084363,
      1.45875967, 0.737506926, 0.951884449, 0.312077284, 0.496030718}},
    {"lenet", "sgd", 0.05, 0.0, false, 0.0, 0.0, 0.0, 0.0, 1.7e-07,
     {2.2869153, 2.29174161, 2.2522831, 2.2551446, 2.23017716,
      2.23663974, 2.21288157, 2.22416162, 2.19937921, 2.21473646}},
    {"lenet", "sgd", 0.02, 0.9, false, 0.0005, 0.0, 0.0, 0.0, 1.5e-07,
     {2.2869153, 2.28754687, 2.25275087, 2.26088095, 2.21821666,
      2.22932506, 2.18588877, 2.20788956, 2.16389847, 2.19918537}},
    {"lenet", "sgd", 0.02, 0.9, true, 0.0005, 0.0, 0.0, 0.0, 2.0e-07,
     {2.2869153, 2.28992701, 2.24816585, 2.25291085, 2.2115109,
      2.22724986, 2.18355656, 2.21327877, 2.16474724, 2.20483947}},
    {"lenet", "adam", 0.001, 0.0, false, 0.0001, 0.9, 0.999, 1e-08, 1.9e-06,
     {2.2869153, 2.38951111, 2.15978575, 2.21191049, 2.13497734,
      2.16245341, 2.06645799, 2.11336732, 1.97679067, 2.03594494}},
    {"lenet", "adamw", 0.001, 0.0, false, 0.01, 0.9, 0.999, 1e-08, 1.2e-07,
     {2.2869153, 2.38962054, 2.16159916, 2.21071672, 2.13722825,
      2.16051531, 2.07618928, 2.11263371, 1.98802519, 2.04484892}},
};
/* clang-format on */

#endif /* TTI_TESTS_GOLDEN_LOSSES_H */
