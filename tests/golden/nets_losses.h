/* nets_losses.h - losses of ten training steps and of an evaluation after them, of convolutional
 * networks by torchvision with PyTorch 2.15.0+cu132 in float32.
 *
 * Generated: python3 tests/golden/make_nets.py > tests/golden/nets_losses.h
 * That script and make_models.py say how weights and data are made. */
#ifndef TTI_TESTS_GOLDEN_NETS_LOSSES_H
#define TTI_TESTS_GOLDEN_NETS_LOSSES_H

#include "golden/models_losses.h"

#define NETS_WIDTH 0.25
enum { NETS_SIDE = 32 };

/* clang-format off */
static const models_case nets_cases[] = {
    {"mobilenet_v2", "sgd", 2e-07, 0.9, 0.0005, 250922, 8.2e-06,
     {2.28986979, 2.32306361, 2.28743577, 2.32096338, 2.28304291,
      2.31719923, 2.27722716, 2.31205177, 2.27041864, 2.30593801}},
    {"mobilenet_v3_small", "sgd", 2e-05, 0.9, 0.0005, 119842, 1.1e-07,
     {2.25518751, 2.21822762, 2.25474977, 2.21781301, 2.25394917,
      2.21706963, 2.25285625, 2.21606493, 2.25152946, 2.21485066}},
    {"efficientnet_b0", "sgd", 2e-05, 0.9, 0.0005, 328956, 2.5e-07,
     {2.49956942, 2.443887, 2.4889257, 2.43300056, 2.46961594,
      2.41338372, 2.44323587, 2.38695288, 2.41120791, 2.35539937}},
    {"densenet121", "sgd", 2e-05, 0.9, 0.0005, 452714, 2.9e-06,
     {2.53072071, 2.45563769, 2.52227163, 2.44746327, 2.50735378,
      2.43302774, 2.48812151, 2.41398549, 2.46599793, 2.3920598}},
    {"regnet_x_400mf", "sgd", 2e-08, 0.9, 0.0005, 484050, 8.1e-05,
     {3.04344559, 2.76031041, 3.0218842, 2.73979044, 2.98249197,
      2.706321, 2.93266201, 2.66457582, 2.88093638, 2.61808753}},
    {"regnet_y_400mf", "sgd", 2e-08, 0.9, 0.0005, 324322, 1.6e-05,
     {2.35260868, 2.71970534, 2.34990025, 2.71547341, 2.34500575,
      2.70784044, 2.33838129, 2.69746161, 2.33035564, 2.6851263}},
};

static const struct {
    const char *model;
    double loss;
} nets_evals[] = {
    {"mobilenet_v2", 2.31999016},
    {"mobilenet_v3_small", 2.276577},
    {"efficientnet_b0", 2.33166814},
    {"densenet121", 2.3878417},
    {"regnet_x_400mf", 2.17868733},
    {"regnet_y_400mf", 2.24927187},
};
/* clang-format on */

#endif /* TTI_TESTS_GOLDEN_NETS_LOSSES_H */
