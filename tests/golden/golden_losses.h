/* golden_losses.h - losses of ten training steps, computed by PyTorch 1.13.0a0 in float32.
 *
 * Generated: python3 tests/golden/make_golden.py > tests/golden/golden_losses.h
 * That script says how weights, inputs and labels are made from Philox; batch 16, seed 1.
 * Parameters: fc1.weight, fc1.bias, ...; conv1, conv2, fc1, fc2 for lenet. */
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
    {"mlp_small", "fc2.weight", 320, 0xB96B9D7E68F0C52BU},
    {"mlp_small", "fc2.bias", 10, 0x67390DA229D2BFABU},
    {"mlp", "fc1.weight", 401408, 0x1F25BF3AA2AE6BF6U},
    {"mlp", "fc1.bias", 512, 0x9FD1E77E8C988032U},
    {"mlp", "fc2.weight", 262144, 0xB84EBB45F157FB6BU},
    {"mlp", "fc2.bias", 512, 0x8833295D886528BEU},
    {"mlp", "fc3.weight", 5120, 0x6F340341D1EC6A52U},
    {"mlp", "fc3.bias", 10, 0x6A27B0411BA6ED96U},
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
    {"mlp_small", "sgd", 0.05, 0.0, false, 0.0, 0.0, 0.0, 0.0, 1.1e-07,
     {2.27295947, 2.26505423, 2.26515627, 2.25618696, 2.25751042,
      2.24751997, 2.24998808, 2.23896933, 2.24256587, 2.23056459}},
    {"mlp_small", "sgd", 0.02, 0.9, false, 0.0005, 0.0, 0.0, 0.0, 1.1e-07,
     {2.27295947, 2.26482034, 2.26686358, 2.25816059, 2.25609517,
      2.24626112, 2.24176121, 2.23035169, 2.22480297, 2.21151495}},
    {"mlp_small", "sgd", 0.02, 0.9, true, 0.0005, 0.0, 0.0, 0.0, 1.1e-07,
     {2.27295947, 2.26495886, 2.264359, 2.25545979, 2.2516799,
      2.24138141, 2.2359426, 2.22388053, 2.2179997, 2.20388293}},
    {"mlp_small", "adam", 0.001, 0.0, false, 0.0001, 0.9, 0.999, 1e-08, 1.4e-07,
     {2.27295947, 2.26552129, 2.26042652, 2.25688481, 2.25066781,
      2.24783683, 2.24139118, 2.23866415, 2.23234582, 2.22941947}},
    {"mlp_small", "adamw", 0.001, 0.0, false, 0.01, 0.9, 0.999, 1e-08, 1.1e-07,
     {2.27295947, 2.26552153, 2.26042652, 2.25688529, 2.25066876,
      2.24783826, 2.24139237, 2.23866725, 2.23234797, 2.229424}},
    {"mlp", "sgd", 0.05, 0.0, false, 0.0, 0.0, 0.0, 0.0, 1.2e-07,
     {2.31588578, 2.3112731, 2.26571441, 2.26333594, 2.21775389,
      2.21773314, 2.17111921, 2.17362475, 2.12549138, 2.13007045}},
    {"mlp", "sgd", 0.02, 0.9, false, 0.0005, 0.0, 0.0, 0.0, 1.4e-07,
     {2.31588578, 2.31174612, 2.2776854, 2.27460623, 2.21116853,
      2.21140456, 2.12576818, 2.13077378, 2.02798009, 2.03810477}},
    {"mlp", "sgd", 0.02, 0.9, true, 0.0005, 0.0, 0.0, 0.0, 1.4e-07,
     {2.31588578, 2.31144953, 2.26165724, 2.25928283, 2.1839776,
      2.18561172, 2.09093761, 2.09718084, 1.98617709, 1.99739623}},
    {"mlp", "adam", 0.001, 0.0, false, 0.0001, 0.9, 0.999, 1e-08, 6.4e-07,
     {2.31588578, 2.31113338, 1.75747895, 1.8945899, 1.29284382,
      1.46315348, 0.774339736, 0.967916071, 0.342311144, 0.518196046}},
    {"mlp", "adamw", 0.001, 0.0, false, 0.01, 0.9, 0.999, 1e-08, 5.9e-07,
     {2.31588578, 2.31116152, 1.75713873, 1.89434695, 1.29235601,
      1.46300161, 0.773668587, 0.968773723, 0.341535836, 0.5197047}},
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
